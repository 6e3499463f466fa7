//! Users in a backup: they can log in where they were restored.

use std::process::Command;

use oribi_testkit::http::HttpClient;
use oribi_testkit::raw_connection::{DEVELOPMENT_PASSWORD, DEVELOPMENT_USER};

use crate::backup::Fixture;
use crate::backup::table::write;

impl Fixture {
    fn put_user(&self, name: &str, password: &str, roles: &str) {
        let form = format!("password={password}&roles={roles}");
        let path = format!("/settings/rbac/users/local/{name}");
        let kind = "application/x-www-form-urlencoded";
        let answer = self.admin().request("PUT", &path, kind, form.as_bytes()).expect("an answer");
        assert_eq!(answer.status, 200, "{name}: {}", answer.text());
    }

    /// The first role of a user, by its own login.
    fn role_of(&self, name: &str, password: &str) -> Option<String> {
        let client = HttpClient::new(self.server.admin_port()).with_credentials(name, password);
        let answer = client.get("/whoami").expect("an answer");
        let role = || answer.json().expect("JSON")["roles"][0]["role"].as_str().map(str::to_owned);
        (answer.status == 200).then(role).flatten()
    }
}

#[tokio::test]
async fn a_backup_has_users_on_request() {
    let source = Fixture::start();
    let client = source.client().await;
    write(&client, client.default_collection(), "key", "value").await;
    let archive = source.archive();
    let create = ["create", &archive, "--with-users"];
    let restore = ["restore", &archive, "--with-users"];
    let error = source.backup_fails(&create);
    assert!(error.contains("has no users"), "{error}");
    source.backup(&create[..2]);
    let error = source.backup_fails(&restore);
    assert!(error.contains("has no users"), "{error}");

    source.put_user(DEVELOPMENT_USER, DEVELOPMENT_PASSWORD, "admin");
    source.put_user("anna", "annas-password", "bucket_full_access[default]");
    source.put_user("otto", "old-password", "admin");
    let as_anna = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_oribi"));
        let port = source.server.port().to_string();
        command.arg("backup").args(arguments).args(["--port", &port, "--user", "anna"]);
        command.env("ORIBI_PASSWORD", "annas-password").output().expect("the program runs")
    };
    assert!(as_anna(&create[..2]).status.success());
    let refused = as_anna(&create);
    let said = crate::backup::text(&refused.stderr);
    assert!(!refused.status.success() && said.contains("lacks the right"), "{said}");
    source.backup(&create);

    let target = Fixture::start();
    target.put_user(DEVELOPMENT_USER, DEVELOPMENT_PASSWORD, "admin");
    target.put_user("otto", "new-password", "data_reader[default]");
    target.backup(&[&restore[..], &["--dry-run"]].concat());
    assert_eq!(target.role_of("anna", "annas-password"), None);
    target.backup(&restore);
    let role = |name: &str| Some(name.to_owned());
    assert_eq!(target.role_of("anna", "annas-password"), role("bucket_full_access"));
    assert_eq!(target.role_of("otto", "new-password"), role("data_reader"), "who is there stays");
    target.backup(&[&restore[..], &["--overwrite"]].concat());
    assert_eq!(target.role_of("otto", "new-password"), None);
    assert_eq!(target.role_of("otto", "old-password"), role("admin"));

    // A server that has none yet.
    let empty = Fixture::start();
    empty.backup(&restore);
    assert_eq!(empty.role_of("otto", "old-password"), role("admin"));
    assert_eq!(empty.role_of("anna", "annas-password"), role("bucket_full_access"));
}
