//! Mistakes are told, and commands that look into the data directory say where the documents are.

use std::process::Command;

use oribi_testkit::http::HttpClient;
use oribi_testkit::raw_connection::{DEVELOPMENT_PASSWORD, DEVELOPMENT_USER};
use oribi_testkit::{RawConnection, Request, ServerOptions, ServerProcess};
use oribi_types::DurabilityLevel;

use crate::bucket::{CLUSTER, ORIBI, options, start};

#[test]
fn a_wrong_url_ends_the_start_with_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    let options = ServerOptions::new(ORIBI, directory.path().join("data"));
    let (status, output) =
        options.setting("storage", "kudu://127.0.0.1/db?replicas=2").run_to_exit().unwrap();
    assert!(!status.success());
    assert!(output.contains("replicas=\"2\" is not an odd number"), "{output}");
}

/// The environment said who owns the table; in a container or a service it says nothing, and the
/// owner was "kudu".
#[test]
fn the_table_belongs_to_the_user_who_runs_the_server() {
    let Some(cluster) = CLUSTER.get() else { return };
    let directory = tempfile::tempdir().unwrap();
    let settings = options(cluster, "owned", &directory);
    let settings = settings.environment("USER", "someone").environment("LOGNAME", "someone");
    let _server = ServerProcess::start(settings).unwrap();
    let user = Command::new("id").arg("-un").output().unwrap();
    let user = String::from_utf8(user.stdout).unwrap();
    let masters = cluster.master_addresses();
    let described = cluster.tool_stdout(&["table", "describe", &masters, "owned.default"]).unwrap();
    let owner = described.lines().find_map(|line| line.strip_prefix("OWNER "));
    assert_eq!(owner.map(str::trim), Some(user.trim()), "{described}");
}

// Compat (Buckets on Kudu): `POST /pools/default/buckets`
#[test]
fn buckets_are_created_deleted_and_not_read_offline() {
    let Some(cluster) = CLUSTER.get() else { return };
    let directory = tempfile::tempdir().unwrap();
    let mut server = start(cluster, "settings", &directory);
    let mut connection = RawConnection::login(server.port()).unwrap();
    let set = Request::set("key", "value").durable(DurabilityLevel::PersistToMajority);
    connection.call(&set).unwrap();

    let admin = HttpClient::new(server.admin_port())
        .with_credentials(DEVELOPMENT_USER, DEVELOPMENT_PASSWORD);
    let url = format!("kudu://{}/settings?tablets=1&replicas=1", cluster.master_addresses());
    let form = [("name", "second"), ("storage", url.as_str()), ("ramQuotaMB", "100")];
    let made = admin.post_form("/pools/default/buckets", &form).unwrap();
    assert_eq!(made.status, 202, "{}", made.text());
    let tables = || cluster.tool_stdout(&["table", "list", &cluster.master_addresses()]).unwrap();
    assert!(tables().lines().any(|table| table == "settings.second"), "{}", tables());
    let deleted = admin.delete("/pools/default/buckets/second").unwrap();
    assert_eq!(deleted.status, 200, "{}", deleted.text());
    assert!(!tables().lines().any(|table| table == "settings.second"), "{}", tables());
    let wrong = [("name", "third"), ("storage", "kudu://"), ("ramQuotaMB", "100")];
    let refused = admin.post_form("/pools/default/buckets", &wrong).unwrap();
    assert_eq!(refused.status, 400, "{}", refused.text());

    assert!(server.terminate().unwrap().success(), "{}", server.output());
    let output = Command::new(ORIBI)
        .args(["doc", "export", "--data-dir"])
        .arg(directory.path().join("data"))
        .arg(directory.path().join("exported"))
        .output()
        .unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && complaint.contains("kudu://"), "{complaint}");
}
