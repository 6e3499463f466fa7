//! Snapshots of a data directory by hard links: a server on the copy has what was on disk.

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use oribi_client::{Bytes, Client, ConnectOptions, WriteOptions};
use oribi_testkit::raw_connection::{DEVELOPMENT_PASSWORD, DEVELOPMENT_USER};
use oribi_testkit::{
    DevelopmentServer, PATIENCE, Random, ServerOptions, ServerProcess, poll_until,
};
use serde_json::Value;

use crate::backup::filled::fill;
use crate::backup::table::{assert_equal, durable, table_of, write};
use crate::backup::{Fixture, text};

impl Fixture {
    fn snapshot(&self, name: &str) -> Value {
        let output = self.snapshot_command(name).output().expect("the program runs");
        assert!(output.status.success(), "{}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("the output is JSON")
    }

    fn snapshot_command(&self, name: &str) -> std::process::Command {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_oribi"));
        command.args(["backup", "snapshot", "--json", "--data-dir"]);
        command.arg(self.path("data")).arg(self.path(name));
        command
    }

    /// A server on a snapshot.
    fn server_on(&self, name: &str) -> ServerProcess {
        let options = ServerOptions::new(env!("CARGO_BIN_EXE_oribi"), self.path(name));
        ServerProcess::start(options).expect("the server starts")
    }
}

async fn client_of(server: &ServerProcess, bucket: &str) -> Client {
    let options = ConnectOptions::new(DEVELOPMENT_USER, DEVELOPMENT_PASSWORD, bucket);
    Client::connect(options.port(server.port())).await.expect("the server is there")
}

fn files_of(directory: &Path) -> Vec<(String, u64)> {
    let entries = std::fs::read_dir(directory).expect("a directory");
    let mut files: Vec<_> = entries
        .map(|entry| {
            let entry = entry.expect("an entry");
            let bytes = entry.metadata().expect("it is there").len();
            (entry.file_name().to_string_lossy().into_owned(), bytes)
        })
        .collect();
    files.sort();
    files
}

// Invariant: A snapshot by hard links has everything that was durable when it began, and never
// changes.
#[tokio::test]
async fn a_snapshot_is_an_unchanging_data_directory() {
    let mut source = Fixture::start();
    let client = source.client().await;
    fill(&source, &client).await;
    write(&client, client.default_collection(), "last", "one").await;
    let expected = table_of(&client).await;
    let made = source.snapshot("while-running");
    assert_eq!(made["buckets"], Value::from(vec!["default"]));
    let before = files_of(&source.path("while-running/buckets/default/store"));
    write(&client, client.default_collection(), "later", "two").await;
    assert_eq!(files_of(&source.path("while-running/buckets/default/store")), before);
    let server = source.server_on("while-running");
    assert_equal(&expected, &table_of(&client_of(&server, "default").await).await);
    drop(server);

    source.server.terminate().expect("it stops");
    source.snapshot("while-stopped");
    let server = source.server_on("while-stopped");
    let found = table_of(&client_of(&server, "default").await).await;
    assert_eq!(found.len(), expected.len() + 1);
    drop(server);

    for (name, expected) in
        [("while-stopped", "exists"), ("no/directory", "No such file"), ("data/in", "inside")]
    {
        let output = source.snapshot_command(name).output().expect("the program runs");
        assert!(!output.status.success());
        assert!(text(&output.stderr).contains(expected), "{name}: {}", text(&output.stderr));
    }
    source.server.restart().expect("it starts again");
}

/// Writes durably until it is told to end; `acknowledged` is the number up to which all are.
fn writer(client: Client, acknowledged: Arc<AtomicU64>, ended: Arc<AtomicBool>) -> Writer {
    tokio::spawn(async move {
        let mut random = Random::new(5);
        let mut number = 0;
        while !ended.load(Ordering::Acquire) {
            number += 1;
            // Segments are sealed after some megabytes, and rewriting makes garbage.
            let value: Vec<u8> = (0..60_000).map(|_| random.below(256) as u8).collect();
            let default = client.default_collection();
            let key = format!("filler:{}", number % 40);
            let options = WriteOptions::new();
            let filler = client.upsert(default, key.as_bytes(), Bytes::from(value), &options);
            filler.await.expect("it is written");
            let key = format!("numbered:{number}");
            let value = Bytes::from(number.to_string());
            let written = client.upsert(default, key.as_bytes(), value, &durable()).await;
            written.expect("it is written");
            acknowledged.store(number, Ordering::Release);
        }
    })
}

type Writer = tokio::task::JoinHandle<()>;

async fn snapshots_under_load(eviction: &str, logs: usize) {
    let program = env!("CARGO_BIN_EXE_oribi");
    let with_logs = |options: ServerOptions| options.setting("logs", logs);
    let source = Fixture(DevelopmentServer::start_with(program, with_logs));
    let settings = [
        ("name", "busy"),
        ("ramQuotaMB", "100"),
        ("evictionPolicy", eviction),
        ("numVBuckets", "4"),
    ];
    source.post("/pools/default/buckets", &settings);
    let (acknowledged, ended) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
    let several = source.path("data/buckets/busy/store/log-00");
    assert_eq!(several.exists(), logs > 1);
    let client = source.client_of("busy").await;
    let writer = writer(client, acknowledged.clone(), ended.clone());
    for round in 0..4 {
        let wanted = (round + 1) * 60;
        let reached = async {
            while acknowledged.load(Ordering::Acquire) < wanted && !writer.is_finished() {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, reached).await.expect("the writer goes on");
        let name = format!("snapshot-{round}");
        let mut killed = source.snapshot_command(&name);
        let mut killed = killed.stdout(Stdio::null()).spawn().expect("the program runs");
        let partial = source.path(&format!("{name}.partial"));
        let begun = poll_until(PATIENCE, || {
            let ended = killed.try_wait().expect("it can be waited for").is_some();
            (ended || partial.exists()).then_some(())
        });
        begun.expect("it begins");
        let _ = killed.kill();
        killed.wait().expect("it can be waited for");
        let least = match source.path(&name).exists() {
            // It was quicker than the kill.
            true => 0,
            false => {
                let least = acknowledged.load(Ordering::Acquire);
                source.snapshot(&name);
                least
            }
        };
        let server = source.server_on(&name);
        let copy = client_of(&server, "busy").await;
        let keys: Vec<u64> = table_of(&copy)
            .await
            .keys()
            .filter_map(|(_, key)| text(key).strip_prefix("numbered:")?.parse().ok())
            .collect();
        let newest = keys.iter().copied().max().unwrap_or(0);
        assert!(newest >= least, "{newest} of {least}");
        // One after the other was durable, so nothing in front of the newest is missing.
        assert_eq!(keys.len() as u64, newest, "{eviction} {round}");
    }
    ended.store(true, Ordering::Release);
    writer.await.expect("the writer ends well");
}

#[tokio::test]
async fn a_snapshot_under_load_is_durable_value_eviction() {
    snapshots_under_load("valueOnly", 1).await;
}

// Invariant: A snapshot by hard links has everything that was durable when it began, and never
// changes.
#[tokio::test]
async fn a_snapshot_under_load_is_durable_full_eviction() {
    snapshots_under_load("fullEviction", 1).await;
}

/// A bucket of several logs: what was durable in one log before a document in another one is there.
#[tokio::test]
async fn under_load_a_snapshot_is_one_moment_of_all_logs() {
    snapshots_under_load("fullEviction", 4).await;
}
