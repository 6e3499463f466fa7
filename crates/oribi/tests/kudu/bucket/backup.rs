//! A bucket on Kudu is backed up and restored into another one there, with everything that it has.

use std::process::Command;

use oribi_client::{Client, ConnectOptions};
use oribi_testkit::http::HttpClient;
use oribi_testkit::raw_connection::{DEVELOPMENT_PASSWORD, DEVELOPMENT_USER};
use oribi_testkit::{Random, ServerProcess};

use crate::bucket::random::change;
use crate::bucket::versions::{assert_equal, documents_of, table_of};
use crate::bucket::{CLUSTER, ORIBI, start};

async fn client_of(server: &ServerProcess, bucket: &str) -> Client {
    let options = ConnectOptions::new(DEVELOPMENT_USER, DEVELOPMENT_PASSWORD, bucket);
    Client::connect(options.port(server.port())).await.unwrap()
}

fn backup(server: &ServerProcess, arguments: &[&str]) {
    let mut command = Command::new(ORIBI);
    command.arg("backup").args(arguments).args(["--host", "127.0.0.1", "--port"]);
    let output = command.arg(server.port().to_string()).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test]
async fn a_restore_fills_a_bucket_on_kudu() {
    let Some(cluster) = CLUSTER.get() else { return };
    let directory = tempfile::tempdir().unwrap();
    let server = start(cluster, "backup", &directory);
    let archive = directory.path().join("archive");
    let archive = archive.to_str().unwrap();
    let client = client_of(&server, "default").await;
    let collections = [client.default_collection().clone()];
    let mut random = Random::new(3);
    for steps in [400, 100] {
        change(&client, &collections, &mut random, steps).await;
        backup(&server, &["create", archive]);
    }
    let expected = table_of(&client).await;
    assert!(expected.values().any(|version| version.is_removed));

    let admin = HttpClient::new(server.admin_port())
        .with_credentials(DEVELOPMENT_USER, DEVELOPMENT_PASSWORD);
    let url = format!("kudu://{}/backup?tablets=1&replicas=1", cluster.master_addresses());
    for (bucket, storage) in [("again", &*url), ("memory", "memory")] {
        let form = [("name", bucket), ("storage", storage), ("ramQuotaMB", "100")];
        let made = admin.post_form("/pools/default/buckets", &form).unwrap();
        assert_eq!(made.status, 202, "{}", made.text());
        backup(&server, &["restore", archive, "--into", bucket]);
        let found = table_of(&client_of(&server, bucket).await).await;
        match bucket {
            "memory" => assert_equal(&documents_of(&expected), &documents_of(&found)),
            _ => assert_equal(&expected, &found),
        }
    }
}
