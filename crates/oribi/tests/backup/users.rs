//! Users in a backup: they can log in where they were restored.

use std::io::Write as _;
use std::process::{Command, Stdio};

use crate::Fixture;
use crate::table::write;

fn user(data_dir: &std::path::Path, arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_oribi"));
    command.arg("user").args(arguments).arg("--data-dir").arg(data_dir);
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = child.expect("the program runs");
    let mut input = child.stdin.take().expect("a pipe");
    // A command that reads nothing has closed it.
    let _ = input.write_all(b"the-password\n");
    drop(input);
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success());
    crate::text(&output.stdout)
}

#[tokio::test]
async fn users_are_in_a_backup_if_asked_for_with_roles_and_passwords() {
    let source = Fixture::start();
    let client = source.client().await;
    write(&client, client.default_collection(), "key", "value").await;
    let archive = source.archive();
    let [from, to] = ["from", "to"].map(|name| source.path(name));
    let read_only = ["add", "anna", "--role", "read-only:default", "--password-stdin"];
    user(&from, &read_only);
    user(&from, &["add", "otto", "--role", "admin", "--password-stdin"]);
    user(&to, &["add", "otto", "--role", "read-only:default", "--password-stdin"]);
    let [from_text, to_text] = [&from, &to].map(|path| path.to_str().expect("text"));
    source.backup(&["create", &archive]);
    let error = source.backup_fails(&["restore", &archive, "--with-users", to_text]);
    assert!(error.contains("has no users"), "{error}");
    source.backup(&["create", &archive, "--with-users", from_text]);
    source.backup(&["restore", &archive, "--with-users", to_text]);
    let users = |text: String| -> serde_json::Value { serde_json::from_str(&text).expect("JSON") };
    let listed = users(user(&to, &["list", "--json"]));
    assert_eq!(listed[0]["roles"], users(user(&from, &["list", "--json"]))[0]["roles"]);
    assert_eq!(listed[1]["roles"][0], "read-only:default", "who is there stays");
    // The verifier came along, and with it the password.
    let secret = |path: &std::path::Path| {
        let file = std::fs::read_to_string(path.join("users.json")).expect("it is there");
        users(file)["users"][0]["verifiers"].clone()
    };
    assert_eq!(secret(&from), secret(&to));
    source.backup(&["restore", &archive, "--with-users", to_text, "--overwrite"]);
    assert_eq!(users(user(&to, &["list", "--json"])), users(user(&from, &["list", "--json"])));
}
