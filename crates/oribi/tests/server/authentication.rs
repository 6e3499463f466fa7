//! Who gets in: the development user, configured users with their roles, and no other client.

use oribi_protocol::feature::Feature;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::status::Status;
use oribi_testkit::http::HttpClient;
use oribi_testkit::raw_connection::{DEVELOPMENT_PASSWORD, DEVELOPMENT_USER};
use oribi_testkit::{PATIENCE, RawConnection, Request, ServerOptions, poll_until};
use tempfile::TempDir;

use crate::fixture::{Fixture, ORIBI, add_user, expect, run_oribi};

const FEATURES: [Feature; 4] =
    [Feature::SelectBucket, Feature::XError, Feature::Json, Feature::MutationSeqno];

/// A connection after HELLO and PLAIN, and what PLAIN was answered.
fn plain(fixture: &Fixture, user: &str, password: &str) -> (RawConnection, Status) {
    let mut connection = RawConnection::connect(fixture.server.port()).unwrap();
    connection.hello(&FEATURES).unwrap();
    let status = connection.sasl_plain(user, password).unwrap();
    (connection, status)
}

#[test]
fn configured_users_end_the_development_mode() {
    let fixture = Fixture::with_users(|options| options);
    let (mut connection, status) = plain(&fixture, "root", "root secret");
    assert_eq!(status, Status::Success);
    assert_eq!(connection.select_bucket("default").unwrap(), Status::Success);
    expect(connection.call(&Request::set("k", "v")).unwrap(), Status::Success);

    for (user, password) in [
        ("root", "wrong"),
        ("root", ""),
        ("nobody", "root secret"),
        (DEVELOPMENT_USER, DEVELOPMENT_PASSWORD),
    ] {
        let (mut connection, status) = plain(&fixture, user, password);
        assert_eq!(status, Status::AuthError, "{user} {password}");
        assert_eq!(connection.select_bucket("default").unwrap(), Status::Eaccess);
    }
    let log = fixture.server.log();
    assert!(!log.contains("secret"), "the log shows a password:\n{log}");
    fixture.finish(&[]);
}

#[test]
fn a_legacy_client_is_refused_once_there_are_users() {
    let fixture = Fixture::with_users(|options| options);
    let mut connection = RawConnection::connect(fixture.server.port()).unwrap();
    let response = connection.call(&Request::set("k", "v"));
    if let Ok(response) = response {
        assert!(matches!(response.status(), Status::Eaccess | Status::AuthError), "{response:?}");
    }
    fixture.finish(&[]);
}

// Compat (Differences): Memcached clients
#[test]
fn legacy_clients_get_the_default_bucket_unconfigured() {
    let fixture = Fixture::start();
    let mut legacy = RawConnection::connect(fixture.server.port()).unwrap();
    // Such clients know no vbuckets and always send 0.
    let vbid = oribi_types::Vbid(0);
    expect(legacy.call(&Request::set("k", "v").vbucket(vbid)).unwrap(), Status::Success);
    assert_eq!(legacy.call(&Request::get("k").vbucket(vbid)).unwrap().text(), "v");
    // An SDK finds the document where it looks for it.
    let mut modern = fixture.login();
    assert_eq!(expect(modern.call(&Request::get("k")).unwrap(), Status::Success).text(), "v");
    fixture.finish(&[]);
}

#[test]
fn a_reader_may_read_and_nothing_else() {
    let fixture = Fixture::with_users(|options| options);
    let (mut root, _) = plain(&fixture, "root", "root secret");
    assert_eq!(root.select_bucket("default").unwrap(), Status::Success);
    expect(root.call(&Request::set("k", "5")).unwrap(), Status::Success);

    let (mut reader, status) = plain(&fixture, "reader", "reader secret");
    assert_eq!(status, Status::Success);
    assert_eq!(reader.select_bucket("default").unwrap(), Status::Success);
    assert_eq!(expect(reader.call(&Request::get("k")).unwrap(), Status::Success).text(), "5");
    for request in [
        Request::set("k", "6"),
        Request::store(Opcode::Add, "new", "6"),
        Request::store(Opcode::Replace, "k", "6"),
        Request::delete("k"),
        Request::about(Opcode::Append, "k").value("6"),
        Request::about(Opcode::Prepend, "k").value("6"),
        Request::counter(Opcode::Increment, "k", 1, 1),
        Request::counter(Opcode::Decrement, "k", 1, 1),
        Request::touch(Opcode::Touch, "k", 100),
        Request::touch(Opcode::Gat, "k", 100),
        Request::new(Opcode::Flush),
    ] {
        let response = reader.call(&request).unwrap();
        assert_eq!(response.status(), Status::Eaccess, "{request:?}");
    }
    assert_eq!(root.call(&Request::get("k")).unwrap().text(), "5");

    let http = HttpClient::new(fixture.server.admin_port());
    let reader = http.clone().with_credentials("reader", "reader secret");
    let create = |client: &HttpClient| {
        client.post_form("/pools/default/buckets", &[("name", "x"), ("ramQuotaMB", "100")]).unwrap()
    };
    assert_eq!(create(&reader).status, 403);
    assert_eq!(create(&http).status, 401);
    assert_eq!(create(&http.with_credentials("root", "root secret")).status, 202);
    // The new bucket is not the reader's.
    let (mut reader, _) = plain(&fixture, "reader", "reader secret");
    assert_eq!(reader.select_bucket("x").unwrap(), Status::Eaccess);
    fixture.finish(&[]);
}

#[test]
fn documents_need_authentication() {
    let fixture = Fixture::start();
    let mut connection = RawConnection::connect(fixture.server.port()).unwrap();
    connection.hello(&FEATURES).unwrap();
    for request in [Request::get("k"), Request::set("k", "v"), Request::new(Opcode::Stat)] {
        expect(connection.call(&request).unwrap(), Status::Eaccess);
    }
    assert_eq!(connection.select_bucket("default").unwrap(), Status::Eaccess);
    expect(connection.call(&Request::new(Opcode::Noop)).unwrap(), Status::Success);
    fixture.finish(&[]);
}

#[test]
fn malformed_sasl_messages_are_authentication_errors() {
    let fixture = Fixture::start();
    let mut connection = RawConnection::connect(fixture.server.port()).unwrap();
    connection.hello(&FEATURES).unwrap();
    for (mechanism, payload) in [
        ("PLAIN", &b""[..]),
        ("PLAIN", b"no zero bytes"),
        ("PLAIN", b"\0\0"),
        ("PLAIN", b"\0a\0b\0c"),
        ("SCRAM-SHA512", b""),
        ("SCRAM-SHA512", b"n,,n=user"),
        ("SCRAM-SHA256", b"y,,n=user,r="),
        ("SCRAM-SHA1", b"\xff\xfe"),
        ("NO-SUCH-MECH", b"x"),
    ] {
        let request = Request::new(Opcode::SaslAuth).bare_key(mechanism).value(payload);
        let status = connection.call(&request).unwrap().status();
        let refused = matches!(status, Status::AuthError | Status::Einval | Status::NotSupported);
        assert!(refused, "{mechanism} {payload:?}: {status:?}");
    }
    // A step that no start came before.
    let step = Request::new(Opcode::SaslStep).bare_key("SCRAM-SHA512").value("c=biws,r=x,p=eA==");
    let status = connection.call(&step).unwrap().status();
    assert!(matches!(status, Status::AuthError | Status::Einval), "{status:?}");
    // After all of that a sound client still gets in.
    let status = connection.sasl_plain(DEVELOPMENT_USER, DEVELOPMENT_PASSWORD).unwrap();
    assert_eq!(status, Status::Success);
    fixture.finish(&[]);
}

#[test]
fn a_public_address_needs_users() {
    let directory = TempDir::new().unwrap();
    let data_dir = directory.path().join("data");
    for flag in ["listen", "admin-listen"] {
        let options = ServerOptions::new(ORIBI, &data_dir).setting(flag, "0.0.0.0");
        let (status, output) = options.run_to_exit().unwrap();
        assert!(!status.success());
        assert!(output.contains("oribi user create"), "{output}");
    }
}

#[test]
fn a_user_added_while_the_server_runs_gets_in() {
    let fixture = Fixture::with_users(|options| options);
    add_user(fixture.server.data_dir(), "late", "late secret", &["read-write:default"]);
    poll_until(PATIENCE, || {
        let (_, status) = plain(&fixture, "late", "late secret");
        (status == Status::Success).then_some(())
    })
    .expect("the user file is read again");
    let data_dir = fixture.server.data_dir().to_str().unwrap().to_owned();
    let (success, listed) =
        run_oribi(&["user", "list", "--data-dir", &data_dir], &[], fixture.directory.path());
    assert!(success && listed.contains("late") && listed.contains("reader"), "{listed}");
    assert!(!listed.contains("secret"), "{listed}");
    let (success, output) =
        run_oribi(&["user", "rm", "late", "--data-dir", &data_dir], &[], fixture.directory.path());
    assert!(success, "{output}");
    poll_until(PATIENCE, || {
        let (_, status) = plain(&fixture, "late", "late secret");
        (status == Status::AuthError).then_some(())
    })
    .expect("the removal is noticed");
    fixture.finish(&[]);
}

#[test]
fn the_user_file_holds_no_password_and_is_private() {
    use std::os::unix::fs::PermissionsExt;
    let fixture = Fixture::with_users(|options| options);
    let path = fixture.server.data_dir().join("users.json");
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(!text.contains("secret"), "{text}");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o077, 0);
    fixture.finish(&[]);
}
