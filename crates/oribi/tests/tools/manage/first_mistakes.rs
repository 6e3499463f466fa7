//! The first mistakes of a newcomer: each error says what to do.

use crate::manage::{Fixture, READER, oribi, stderr};

#[test]
fn connection_errors_name_the_usual_cause() {
    let fixture = Fixture::start();
    let (port, admin) = (fixture.server.port(), fixture.server.admin_port());
    let nobody = format!("127.0.0.1:{port}");
    let at = |port: u16| format!("127.0.0.1:{port}");
    let plain_as_tls = format!("couchbases://localhost:{port}");
    let (stopped, http, data) = (at(1), at(admin), port.to_string());
    for (arguments, expected) in [
        (&["ping", "--host", &stopped][..], "is the server running?"),
        (&["doc", "get", "k", "--host", &nobody], "--user or ORIBI_USER names the user"),
        (&["doc", "get", "k", "--host", &http, "--user", "reader"], "this port speaks HTTP"),
        (
            &["bucket", "list", "--host", &nobody, "--admin-port", &data],
            "is this the port of the admin HTTP",
        ),
        (
            &["ping", "--host", &plain_as_tls, "--tls-insecure"],
            "is this the port with TLS, usually 11207?",
        ),
    ] {
        let output = oribi(arguments).env("ORIBI_PASSWORD", READER).output().unwrap();
        let said = stderr(&output);
        assert!(!output.status.success(), "{arguments:?}: {said}");
        assert!(said.contains(expected), "{arguments:?}: {said}");
    }
}

#[test]
fn the_user_may_come_from_the_environment() {
    let fixture = Fixture::start();
    let host = format!("127.0.0.1:{}", fixture.server.port());
    let mut command = oribi(&["ping", "--bucket", "", "--host", &host]);
    let output =
        command.env("ORIBI_PASSWORD", READER).env("ORIBI_USER", "reader").output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
}

#[test]
fn misplaced_words_and_variables_are_named() {
    let output = oribi(&["import", "users.jsonl"]).output().unwrap();
    assert!(!output.status.success());
    assert!(stderr(&output).contains("`oribi doc import --help`"), "{}", stderr(&output));
    let output = oribi(&["config"]).env("ORIBI_PROT", "1").output().unwrap();
    assert!(stderr(&output).contains("ORIBI_PORT resembles it"), "{}", stderr(&output));
}

#[test]
fn a_quota_beyond_the_machine_is_noted() {
    let fixture = Fixture::start();
    let output = fixture.run(&["bucket", "create", "huge", "--memory-quota-mib", "9999999"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).contains("more than the machine's memory"), "{}", stderr(&output));
}
