//! One command for the users of a server and of a data directory.

use std::process::Output;

use crate::manage::{Fixture, ORIBI, oribi, refusal, stdout};
use oribi_testkit::{ServerOptions, ServerProcess};

/// A server, or the files of one.
struct Place<'a> {
    fixture: &'a Fixture,
    data_dir: Option<&'a str>,
}

impl Place<'_> {
    fn user(&self, arguments: &[&str], password: &str) -> Output {
        let mut command = match self.data_dir {
            Some(data_dir) => oribi(&[&["user"], arguments, &["--data-dir", data_dir]].concat()),
            None => {
                let host = format!("127.0.0.1:{}", self.fixture.server.port());
                let server = ["--host", &host, "--user", "root"];
                let mut command = oribi(&[&["user"], arguments, &server].concat());
                command.env("ORIBI_PASSWORD", crate::manage::ROOT);
                command
            }
        };
        if !password.is_empty() {
            command.env("ORIBI_NEW_PASSWORD", password);
        }
        command.output().unwrap()
    }
}

/// Everything that the command does, so that both places can be compared.
fn story(place: &Place<'_>) -> Vec<String> {
    let roles = ["--role", "read-write:default", "--role", "read+meta-read+range-scan:a/s"];
    let add = [&["add", "ada"][..], &roles, &["--bucket", "default", "--collection", "s.c"]];
    let mut said = vec![stdout(&place.user(&add.concat(), "first password"))];
    said.push(stdout(&place.user(&["list"], "")));
    stdout(&place.user(&["change", "ada", "--role", "read-only:default"], ""));
    said.push(stdout(&place.user(&["list", "--json"], "")));
    stdout(&place.user(&["change", "ada", "--new-password"], "second password"));
    said.push(stdout(&place.user(&["list"], "")));
    let nothing = place.user(&["change", "ada"], "");
    assert_eq!(nothing.status.code(), Some(2), "{}", crate::manage::stderr(&nothing));
    assert!(crate::manage::stderr(&nothing).contains("<--role <ROLE>|--bucket <BUCKET>|"));
    said.push(refusal(&place.user(&["add", "bob", "--role", "admin"], "")));
    let unknown = refusal(&place.user(&["change", "eve", "--role", "admin"], ""));
    assert!(unknown.contains("there is no user \"eve\""), "{unknown}");
    stdout(&place.user(&["create", "eve", "--role", "admin"], "eve's password"));
    stdout(&place.user(&["rm", "eve"], ""));
    let unknown = refusal(&place.user(&["drop", "eve"], ""));
    assert!(unknown.contains("there is no user \"eve\""), "{unknown}");
    said
}

#[test]
fn users_are_managed_alike_online_and_offline() {
    let fixture = Fixture::start();
    let of_server = story(&Place { fixture: &fixture, data_dir: None });
    assert!(
        of_server[1]
            .contains(" ada     read-write:default, read+meta-read+range-scan:a/s  default  s.c\n"),
        "{of_server:?}"
    );
    let set = ["doc", "get", "k"];
    let with_password =
        |password: &str| crate::manage::stderr(&fixture.run_as("ada", password, &set));
    assert!(with_password("second password").contains("no document"));
    assert!(with_password("first password").contains("wrong name or password"));

    let files = Fixture::start();
    let data_dir = files.server.data_dir().to_str().unwrap().to_owned();
    let of_files = story(&Place { fixture: &files, data_dir: Some(&data_dir) });
    assert_eq!(of_server, of_files);
    let both = ["user", "list", "--data-dir", &data_dir];
    let error = refusal(&fixture.run(&both));
    assert!(error.contains("either a server or --data-dir"), "{error}");
}

/// The first user ends development mode.
#[test]
fn a_server_without_users_gets_its_first_one() {
    let scratch = tempfile::tempdir().unwrap();
    let server =
        ServerProcess::start(ServerOptions::new(ORIBI, scratch.path().join("data"))).unwrap();
    let port = server.port().to_string();
    let mut add = oribi(&["user", "add", "root", "--role", "admin"]);
    add.env("ORIBI_PORT", &port).env("ORIBI_NEW_PASSWORD", "root secret");
    stdout(&add.output().unwrap());
    let list = |user: &str, password: &str| {
        let mut list = oribi(&["user", "list", "--user", user]);
        list.env("ORIBI_PORT", &port).env("ORIBI_PASSWORD", password).output().unwrap()
    };
    let error = refusal(&list("Administrator", "password"));
    assert!(error.contains("wrong name or password"), "{error}");
    assert!(stdout(&list("root", "root secret")).contains(" root"));
}
