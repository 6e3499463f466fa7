//! `oribi user` as an administrator's script runs it.

#![allow(clippy::unwrap_used, reason = "helpers of tests, too")]

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Runs `oribi user ARGUMENTS` on a data directory, with a password on standard input.
fn user(data_dir: &Path, arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_oribi"))
        .arg("user")
        .args(arguments)
        .arg("--data-dir")
        .arg(data_dir)
        .current_dir(data_dir.parent().unwrap())
        .env_remove("ORIBI_PASSWORD")
        .env_remove("ORIBI_CONFIG")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that does not read its input may be gone already.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn refusal(output: &Output) -> String {
    assert!(!output.status.success());
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(text.lines().count(), 1, "an error is one line: {text}");
    text
}

#[test]
fn users_are_added_listed_changed_and_removed() {
    let scratch = tempfile::tempdir().unwrap();
    let data_dir = scratch.path().join("data");
    for command in [&["list"][..], &["rm", "alice"]] {
        let absent = refusal(&user(&data_dir, command, ""));
        assert!(absent.contains("not a data directory"), "{absent}");
    }
    let add = ["add", "alice", "--role", "read-write:default", "--role", "read-only:*"];
    let with_stdin: Vec<&str> = add.iter().copied().chain(["--password-stdin"]).collect();
    let added = user(&data_dir, &with_stdin, "secret1\n");
    assert_eq!(stdout(&added), "");
    let notes = String::from_utf8(added.stderr).unwrap();
    assert!(notes.contains("added user alice") && notes.contains("no user has the role admin"));

    let changed =
        user(&data_dir, &["add", "alice", "--role", "admin", "--password-stdin"], "other1");
    assert!(changed.status.success());
    let table = stdout(&user(&data_dir, &["list"], ""));
    assert!(table.contains("alice") && table.contains("admin"), "{table}");
    let json: serde_json::Value =
        serde_json::from_str(&stdout(&user(&data_dir, &["list", "--json"], ""))).unwrap();
    let alice = serde_json::json!({ "name": "alice", "roles": ["admin"], "bucket": null, "collection": null });
    assert_eq!(json, serde_json::json!([alice]));

    let add = [
        "add",
        "alice",
        "--role",
        "read-write:cache",
        "--bucket",
        "cache",
        "--collection",
        "web.pages",
    ];
    let with_stdin: Vec<&str> = add.iter().copied().chain(["--password-stdin"]).collect();
    assert!(user(&data_dir, &with_stdin, "secret1\n").status.success());
    let json: serde_json::Value =
        serde_json::from_str(&stdout(&user(&data_dir, &["list", "--json"], ""))).unwrap();
    assert_eq!(
        (&json[0]["bucket"], &json[0]["collection"]),
        (&"cache".into(), &"web.pages".into())
    );
    let table = stdout(&user(&data_dir, &["list"], ""));
    let columns: Vec<Vec<&str>> =
        table.lines().map(|line| line.split_whitespace().collect()).collect();
    let header = ["NAME", "ROLES", "BUCKET", "COLLECTION"];
    assert_eq!(columns, [header, ["alice", "read-write:cache", "cache", "web.pages"]]);
    let bad = ["add", "alice", "--role", "admin", "--collection", "pages", "--password-stdin"];
    let refused = user(&data_dir, &bad, "secret1\n");
    assert!(!refused.status.success());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("SCOPE.COLLECTION"));

    stdout(&user(&data_dir, &["rm", "alice"], ""));
    assert_eq!(stdout(&user(&data_dir, &["list", "--json"], "")), "[]\n");
    assert!(refusal(&user(&data_dir, &["rm", "alice"], "")).contains("no user \"alice\""));
}

#[test]
fn the_password_may_come_from_the_environment() {
    let scratch = tempfile::tempdir().unwrap();
    let data_dir = scratch.path().join("data");
    let status = Command::new(env!("CARGO_BIN_EXE_oribi"))
        .args(["user", "add", "alice", "--role", "admin"])
        .env("ORIBI_DATA_DIR", &data_dir)
        .env("ORIBI_PASSWORD", "secret1")
        .current_dir(scratch.path())
        .output()
        .unwrap()
        .status;
    assert!(status.success());
    assert!(stdout(&user(&data_dir, &["list"], "")).contains("alice"));
}

#[test]
fn mistakes_are_one_clear_line() {
    let scratch = tempfile::tempdir().unwrap();
    let data_dir = scratch.path().join("data");
    let add = |name: &str, input: &str| {
        user(&data_dir, &["add", name, "--role", "admin", "--password-stdin"], input)
    };
    assert!(refusal(&add("alice", "short\n")).contains("6 to 1024 bytes"));
    assert!(refusal(&add("a:b", "secret1\n")).contains("colon"));
    let add_with = |role: &str, bucket: &str| {
        let arguments = ["add", "alice", "--role", role, "--bucket", bucket, "--password-stdin"];
        user(&data_dir, &arguments, "secret1\n")
    };
    assert!(refusal(&add_with("read-write:a", "b")).contains("no right in this bucket"));
    assert!(refusal(&add_with("admin", "a b")).contains("not the name of a bucket"));
    let silent = user(&data_dir, &["add", "alice", "--role", "admin"], "");
    assert!(refusal(&silent).contains("--password-stdin"));
    let role = user(&data_dir, &["add", "alice", "--role", "owner", "--password-stdin"], "secret1");
    assert!(!role.status.success());
    assert!(String::from_utf8(role.stderr).unwrap().contains("unknown role"));

    let foreign = scratch.path().join("foreign");
    std::fs::create_dir(&foreign).unwrap();
    std::fs::write(foreign.join("thesis.tex"), "x").unwrap();
    let refused =
        user(&foreign, &["add", "alice", "--role", "admin", "--password-stdin"], "secret1");
    assert!(refusal(&refused).contains("not a data directory"));
}
