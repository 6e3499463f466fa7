//! `oribi copy` from one server to another.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use oribi_client::Client;
use oribi_testkit::PATIENCE;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::backup::filled::fill;
use crate::backup::table::{assert_equal, remove, table_of, write};
use crate::backup::{Fixture, text};

impl Fixture {
    pub fn copy_to(&self, target: &Fixture, arguments: &[&str]) -> Command {
        let url = format!("couchbase://Administrator@127.0.0.1:{}/default", target.server.port());
        let mut command = self.command(&[&["copy", &url][..], arguments].concat());
        command.env("ORIBI_TARGET_PASSWORD", "password");
        command
    }

    fn copied_to(&self, target: &Fixture, arguments: &[&str]) -> Value {
        let output = self.copy_to(target, &[arguments, &["--json"]].concat()).output();
        let output = output.expect("the program runs");
        assert!(output.status.success(), "{}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("the output is JSON")
    }
}

#[tokio::test]
async fn a_copy_is_the_bucket_and_goes_on_where_it_was() {
    let (source, target) = (Fixture::start(), Fixture::start());
    let client = source.client().await;
    fill(&source, &client).await;
    let place = source.path("place").to_str().expect("text").to_owned();
    let resume = ["--resume", place.as_str()];
    let copied = source.copied_to(&target, &resume);
    assert_eq!(copied["skipped"], 0);
    let of_target = target.client().await;
    assert_equal(&table_of(&client).await, &table_of(&of_target).await);
    write(&client, client.default_collection(), "text", "changed").await;
    remove(&client, client.default_collection(), "json").await;
    let copied = source.copied_to(&target, &resume);
    assert_eq!((&copied["documents"], &copied["removals"]), (&1.into(), &1.into()));
    assert_equal(&table_of(&client).await, &table_of(&of_target).await);
    let other = source.copy_to(&target, &[&resume[..], &["--key-pattern", "x"]].concat()).output();
    let other = other.expect("the program runs");
    assert!(
        crate::backup::text(&other.stderr).contains("another copy"),
        "{}",
        crate::backup::text(&other.stderr)
    );
}

#[tokio::test]
async fn a_copy_onto_itself_is_refused() {
    let (source, target) = (Fixture::start(), Fixture::start());
    let client = source.client().await;
    write(&client, client.default_collection(), "a", "value").await;
    let output = source.copy_to(&source, &["--follow"]).output().expect("the program runs");
    let said = text(&output.stderr);
    assert!(!output.status.success() && said.contains("the same bucket"), "{said}");
    let said = |output: std::process::Output| text(&output.stdout);
    let first = said(source.copy_to(&target, &[]).output().expect("the program runs"));
    assert!(first.starts_with("copied 1 version in "), "{first}");
    assert!(first.contains("read 1 document (") && first.contains("and 0 removals"), "{first}");
    let again = said(source.copy_to(&target, &[]).output().expect("the program runs"));
    assert!(again.starts_with("copied 0 versions in "), "{again}");
    assert!(again.contains("; 1 left alone, the same or newer there; read 1 doc"), "{again}");
}

/// Ends the program when the test does.
struct RunningCopy(Child);

impl Drop for RunningCopy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn wait_for(client: &Client, path: &str, key: &str) {
    let deadline = std::time::Instant::now() + PATIENCE;
    loop {
        if let Ok(collection) = client.collection(path).await
            && client.get(&collection, key.as_bytes()).await.expect("an answer").is_some()
        {
            return;
        }
        assert!(std::time::Instant::now() < deadline, "{path} {key} never comes");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

// Compat (Backup and restore): `oribi copy` drops collections at the target only with
// `--drop-collections`, and conflicts are resolved as the target's bucket does
#[tokio::test]
async fn a_copy_that_follows_is_in_step_after_kills() {
    let (source, target) = (Fixture::start(), Fixture::start());
    let place = source.path("place").to_str().expect("text").to_owned();
    let follow = || {
        let mut command = source.copy_to(&target, &["--follow", "--resume", &place]);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        RunningCopy(child.expect("the program runs"))
    };
    let client = source.client().await;
    let of_target = target.client().await;
    let default = client.default_collection();
    for round in 0..3 {
        let running = follow();
        source.create_collections(&format!("scope{round}"), &["things"]);
        let path = format!("scope{round}.things");
        let things = client.collection(&path).await.expect("it exists");
        for number in 0..30 {
            write(&client, &things, &format!("thing:{number}"), "{}").await;
            write(&client, default, &format!("document:{number}"), &round.to_string()).await;
        }
        remove(&client, default, &format!("document:{round}")).await;
        wait_for(&of_target, &path, "thing:29").await;
        drop(running);
    }
    // What was under way when the last one was killed.
    source.copied_to(&target, &["--resume", &place]);
    assert_equal(&table_of(&client).await, &table_of(&of_target).await);
}

/// The copy asks for the second document when the first one is answered and counted.
#[tokio::test]
async fn a_copy_that_is_interrupted_says_what_it_copied() {
    let (source, target) = (Fixture::start(), Fixture::start());
    let client = source.client().await;
    let of_target = target.client().await;
    let mut follow = source.copy_to(&target, &["--follow", "--json"]);
    let follow = follow.stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let mut running = RunningCopy(follow.expect("the program runs"));
    for key in ["first", "second"] {
        write(&client, client.default_collection(), key, "{}").await;
        wait_for(&of_target, "_default._default", key).await;
    }
    kill_process(Pid::from_child(&running.0), Signal::INT).expect("it runs");
    let mut summary = String::new();
    let stdout = running.0.stdout.as_mut().expect("it is piped");
    stdout.read_to_string(&mut summary).expect("the output is text");
    let summary: Value = serde_json::from_str(&summary).expect("the output is JSON");
    let documents = summary["documents"].as_u64().expect("a count");
    assert!((1..=2).contains(&documents), "{summary}");
    assert_eq!(running.0.wait().expect("it ends").code(), Some(130));
}

// Compat (Backup and restore): `oribi copy` drops collections at the target only with
// `--drop-collections`, and conflicts are resolved as the target's bucket does
#[tokio::test]
async fn dropped_source_collections_are_dropped_on_request() {
    let (source, target) = (Fixture::start(), Fixture::start());
    source.create_collections("shop", &["orders", "carts"]);
    let client = source.client().await;
    for path in ["shop.orders", "shop.carts"] {
        let collection = client.collection(path).await.expect("it exists");
        write(&client, &collection, "key", "value").await;
    }
    let place = source.path("place").to_str().expect("text").to_owned();
    let resume = ["--resume", place.as_str()];
    source.copied_to(&target, &resume);
    let scopes = "/pools/default/buckets/default/scopes";
    let drop_at_source = |path: &str| {
        let answer = source.admin().delete(&format!("{scopes}/{path}")).expect("an answer");
        assert_eq!(answer.status, 200);
    };
    let listed = || {
        let answer = target.admin().get(scopes).expect("an answer");
        answer.text()
    };
    drop_at_source("shop/collections/orders");
    source.copied_to(&target, &resume);
    assert!(listed().contains("orders"), "nothing is dropped unasked");
    // It was dropped while a copy without the option ran, so it stays; the next one goes.
    drop_at_source("shop/collections/carts");
    let drops = [&resume[..], &["--drop-collections"]].concat();
    source.copied_to(&target, &drops);
    assert!(listed().contains("orders") && !listed().contains("carts"), "{}", listed());

    let mut follow = source.copy_to(&target, &[&drops[..], &["--follow"]].concat());
    let follow = follow.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let running = RunningCopy(follow.expect("the program runs"));
    source.create_collections("later", &["things"]);
    let things = client.collection("later.things").await.expect("it exists");
    write(&client, &things, "thing", "1").await;
    let of_target = target.client().await;
    wait_for(&of_target, "later.things", "thing").await;
    drop_at_source("later");
    let gone = oribi_testkit::poll_until(PATIENCE, || (!listed().contains("later")).then_some(()));
    gone.expect("the scope is dropped");
    drop(running);
}
