//! Archives in an object store, also one that fails.
//!
//! moto's server stands for S3, Azurite for Azure. moto also answers the requests to Google's
//! store, which are those of S3 but for their authorization and the condition of a put; it ignores
//! the latter. Where a server is missing, its tests say so and pass, unless `ORIBI_MOTO_REQUIRED`
//! or `ORIBI_AZURITE_REQUIRED` is set, as in CI.

use std::process::{Command, Output, Stdio};
use std::time::Duration;

use oribi_client::{Bytes, Client, WriteOptions};
use oribi_testkit::http::HttpClient;
use oribi_testkit::{
    FailingProxy, ObjectServer, ObjectServerKind, PATIENCE, ProxyFault, Random, poll_until,
};
use serde_json::Value;

use crate::backup::filled::fill;
use crate::backup::table::{assert_equal, remove, table_of, write};
use crate::backup::{Fixture, text};

const ARCHIVE: &str = "s3://backups/of/shop";

/// Azurite's account, its key, and the right to everything until the year 2099 signed with it. All
/// are public.
const AZURITE_ACCOUNT: &str = "devstoreaccount1";
const AZURITE_KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";
const AZURITE_RIGHT: &str = "sv=2019-12-12&ss=b&srt=sco&sp=rwdlac&se=2099-01-01T00%3A00%3A00Z\
                             &sig=YKAtmJudHaH98kax9IHOYkiCF9veHhGg4TBHNwluLXo%3D";

/// A token for Google's store in which moto finds the account and service that it looks for.
const GOOGLE_TOKEN: &str = "Credential=key/20260101/us-east-1/s3/aws4_request";

/// An object store, perhaps behind a proxy.
struct Objects {
    server: ObjectServer,
    kind: ObjectServerKind,
    /// Prefix of the archives' URLs.
    scheme: &'static str,
    /// Port that the programs are told.
    port: u16,
}

impl Objects {
    fn start() -> Option<Objects> {
        Objects::of(ObjectServerKind::Moto)
    }

    fn of(kind: ObjectServerKind) -> Option<Objects> {
        let server = ObjectServer::start_for_test(kind)?;
        let path = match kind {
            ObjectServerKind::Moto => "/backups".to_owned(),
            ObjectServerKind::Azurite => {
                format!("/{AZURITE_ACCOUNT}/backups?restype=container&{AZURITE_RIGHT}")
            }
        };
        let answer = HttpClient::new(server.port()).request("PUT", &path, "", b"");
        let answer = answer.expect("the store answers");
        assert!(answer.status < 300, "{}", answer.text());
        let scheme = match kind {
            ObjectServerKind::Moto => "s3",
            ObjectServerKind::Azurite => "az",
        };
        Some(Objects { port: server.port(), server, kind, scheme })
    }

    /// One that gets the requests of Google's store.
    fn of_google() -> Option<Objects> {
        Objects::start().map(|objects| Objects { scheme: "gs", ..objects })
    }

    /// An archive there, with this at the end of its name.
    fn archive(&self, end: &str) -> String {
        format!("{}://backups/of/shop{end}", self.scheme)
    }

    fn behind(&mut self, proxy: &FailingProxy) {
        self.port = proxy.port();
    }

    fn command(&self, fixture: &Fixture, arguments: &[&str]) -> Command {
        let mut command = fixture.backup_command(arguments);
        let endpoint = format!("http://127.0.0.1:{}", self.port);
        command
            .env("AZURE_STORAGE_ACCOUNT_NAME", AZURITE_ACCOUNT)
            .env("AZURE_STORAGE_ACCOUNT_KEY", AZURITE_KEY)
            .env("AZURE_ENDPOINT", format!("{endpoint}/{AZURITE_ACCOUNT}"))
            .env("AZURE_ALLOW_HTTP", "true")
            .env("AZURE_TIMEOUT", "20s")
            .env("GOOGLE_BEARER_TOKEN", GOOGLE_TOKEN)
            .env("GOOGLE_BASE_URL", &endpoint)
            .env("GOOGLE_ALLOW_HTTP", "true")
            .env("GOOGLE_TIMEOUT", "20s")
            .env("AWS_ACCESS_KEY_ID", "key")
            .env("AWS_SECRET_ACCESS_KEY", "secret")
            .env("AWS_REGION", "us-east-1")
            .env("AWS_ENDPOINT_URL", endpoint)
            .env("AWS_ALLOW_HTTP", "true")
            .env("AWS_TIMEOUT", "5s");
        command
    }

    fn output(&self, fixture: &Fixture, arguments: &[&str]) -> Output {
        self.command(fixture, arguments).output().expect("the program runs")
    }

    fn backup(&self, fixture: &Fixture, arguments: &[&str]) -> Value {
        let output = self.output(fixture, &[arguments, &["--json"]].concat());
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("the output is JSON")
    }

    fn assert_well(&self, fixture: &Fixture) {
        let report = self.backup(fixture, &["verify", &self.archive("")]);
        assert_eq!(report["problems"], Value::Array(vec![]));
    }

    /// Names of all objects, as the store lists them.
    fn names(&self) -> Vec<String> {
        let (path, tag) = match self.kind {
            ObjectServerKind::Moto => ("/backups?list-type=2".to_owned(), "<Key>"),
            ObjectServerKind::Azurite => {
                let list = "restype=container&comp=list";
                (format!("/{AZURITE_ACCOUNT}/backups?{list}&{AZURITE_RIGHT}"), "<Name>")
            }
        };
        let listed = HttpClient::new(self.server.port()).get(&path);
        let listed = listed.expect("the store answers").text();
        let names = listed.split(tag).skip(1);
        names.map(|rest| rest.split("</").next().unwrap_or_default().to_owned()).collect()
    }
}

/// Some megabytes that do not shrink.
async fn fill_megabytes(client: &Client, megabytes: u64) {
    let mut random = Random::new(megabytes);
    for number in 0..megabytes * 10 {
        let value: Vec<u8> = (0..100_000).map(|_| random.below(256) as u8).collect();
        let key = format!("document:{number}");
        let default = client.default_collection();
        let options = WriteOptions::new();
        let written = client.upsert(default, key.as_bytes(), Bytes::from(value), &options).await;
        written.expect("it is written");
    }
}

#[tokio::test]
async fn an_object_store_has_archives_like_a_directory() {
    let stores = [Objects::start(), Objects::of(ObjectServerKind::Azurite), Objects::of_google()];
    for objects in stores.into_iter().flatten() {
        keeps_archives(&objects).await;
    }
}

async fn keeps_archives(objects: &Objects) {
    let (archive, other_archive) = (&*objects.archive(""), &*objects.archive("2"));
    let source = Fixture::start();
    let client = source.client().await;
    fill(&source, &client).await;
    fill_megabytes(&client, 20).await;
    let full = objects.backup(&source, &["create", archive]);
    assert!(full["stored_bytes"].as_u64().is_some_and(|bytes| bytes > 20_000_000), "{full}");
    write(&client, client.default_collection(), "text", "changed").await;
    remove(&client, client.default_collection(), "json").await;
    let second = objects.backup(&source, &["create", archive]);
    assert_eq!((&second["kind"], &second["documents"]), (&"incremental".into(), &1.into()));
    assert!(objects.names().iter().all(|name| name.starts_with("of/shop/")));
    assert_eq!(objects.names().iter().filter(|name| name.ends_with("/begin.json")).count(), 0);
    objects.assert_well(&source);
    let target = Fixture::start();
    objects.backup(&target, &["restore", archive]);
    assert_equal(&table_of(&client).await, &table_of(&target.client().await).await);

    // Another archive next to it is not seen.
    let other = objects.backup(&source, &["create", other_archive, "--full"]);
    assert_eq!(objects.backup(&source, &["list", archive]).as_array().map(Vec::len), Some(2));
    objects.backup(&source, &["create", archive, "--full"]);
    let pruned = objects.backup(&source, &["prune", archive, "--keep-last", "1"]);
    assert_eq!(pruned["removed"].as_array().map(Vec::len), Some(2));
    objects.assert_well(&source);
    let id = other["id"].as_str().expect("an id");
    assert!(objects.names().iter().any(|name| name.contains("shop2") && name.contains(id)));
}

#[tokio::test]
async fn errors_name_the_place() {
    let Some(mut objects) = Objects::start() else { return };
    let source = Fixture::start();
    for (place, expected) in [
        ("s3://", "needs the name of a bucket"),
        ("ftp://backups/shop", "not ftp://"),
        ("s3://absent/shop", "NoSuchBucket"),
    ] {
        let output = objects.output(&source, &["create", place]);
        assert!(!output.status.success());
        assert!(text(&output.stderr).contains(expected), "{place}: {}", text(&output.stderr));
    }
    let output = objects.output(&source, &["list", ARCHIVE]);
    assert!(text(&output.stderr).contains("there is no archive"), "{}", text(&output.stderr));
    let mut command = objects.command(&source, &["list", ARCHIVE]);
    let output = command.env_remove("AWS_ALLOW_HTTP").output().expect("the program runs");
    assert!(text(&output.stderr).contains("AWS_ALLOW_HTTP"), "{}", text(&output.stderr));
    // Nothing listens there.
    let unused = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    objects.port = unused.local_addr().expect("an address").port();
    drop(unused);
    let output = objects.output(&source, &["list", ARCHIVE, "--store-patience", "1s"]);
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("refused"), "{}", text(&output.stderr));
}

/// A fault for about a third of all requests.
fn any_fault(mut random: Random) -> impl FnMut() -> ProxyFault + Send {
    move || match random.below(18) {
        0 => ProxyFault::CutRequest(0),
        1 => ProxyFault::CutRequest(random.below(100_000) as usize),
        2 => ProxyFault::CutAnswer(0),
        3 => ProxyFault::CutAnswer(random.below(3_000) as usize),
        4 => ProxyFault::Status(500),
        5 => ProxyFault::Status(503),
        6 => ProxyFault::Slow(Duration::from_millis(5)),
        _ => ProxyFault::None,
    }
}

// Invariant: A file of an archive is never replaced, and an incomplete backup in an object store
// does not count.
#[tokio::test]
async fn faults_are_retried_or_reported_never_half_written() {
    let Some(mut objects) = Objects::start() else { return };
    let source = Fixture::start();
    let client = source.client().await;
    fill_megabytes(&client, 18).await;
    write(&client, client.default_collection(), "last", "one").await;
    let proxy = FailingProxy::start(objects.port, any_fault(Random::new(11))).expect("a proxy");
    objects.behind(&proxy);
    // Many small files, and one that goes in parts.
    objects.backup(&source, &["create", ARCHIVE, "--segment-kib", "1024"]);
    objects.backup(&source, &["create", ARCHIVE, "--full"]);
    objects.assert_well(&source);
    let target = Fixture::start();
    objects.backup(&target, &["restore", ARCHIVE]);
    assert_equal(&table_of(&client).await, &table_of(&target.client().await).await);
    assert!(proxy.faults() > 5, "{}", proxy.faults());

    // A store that takes nothing more: the backup fails, says why, and does not count.
    for fault in [ProxyFault::Status(503), ProxyFault::CutRequest(10)] {
        let mut requests = 0;
        proxy.choose(move || {
            requests += 1;
            if requests > 12 { fault } else { ProxyFault::None }
        });
        let create = ["create", ARCHIVE, "--full", "--segment-kib", "1024"];
        let output = objects.output(&source, &[&create[..], &["--store-patience", "2s"]].concat());
        assert!(!output.status.success());
        let said = text(&output.stderr);
        assert!(said.contains("unfinished") && said.contains("cannot"), "{said}");
        proxy.choose(|| ProxyFault::None);
        let listed = objects.backup(&source, &["list", ARCHIVE]);
        let states: Vec<_> = listed.as_array().expect("a list").iter().collect();
        assert_eq!(states.last().expect("backups")["state"], "unfinished", "{listed}");
        objects.assert_well(&source);
        objects.backup(&source, &create);
        let listed = objects.backup(&source, &["list", ARCHIVE]);
        assert!(!listed.to_string().contains("unfinished"), "{listed}");
        objects.assert_well(&source);
    }
}

// Invariant: A file of an archive is never replaced, and an incomplete backup in an object store
// does not count.
#[tokio::test]
async fn a_killed_backup_resumes_and_has_one_writer() {
    let Some(mut objects) = Objects::start() else { return };
    let source = Fixture::start();
    let client = source.client().await;
    fill_megabytes(&client, 12).await;
    write(&client, client.default_collection(), "last", "one").await;
    let slow = || ProxyFault::Slow(Duration::from_millis(30));
    let proxy = FailingProxy::start(objects.port, slow).expect("a proxy");
    objects.behind(&proxy);
    let create = ["create", ARCHIVE, "--segment-kib", "512"];
    let segments =
        |objects: &Objects| objects.names().iter().filter(|name| name.ends_with(".seg")).count();
    let spawn = || {
        let mut command = objects.command(&source, &create);
        command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the program runs")
    };
    let mut kills = 0;
    for round in 1..=3 {
        let mut child = spawn();
        let ended = poll_until(PATIENCE, || {
            let ended = child.try_wait().expect("it can be waited for");
            (ended.is_some() || segments(&objects) >= round * 4).then_some(ended)
        });
        if ended.expect("it goes on").is_none() {
            child.kill().expect("it can be killed");
            kills += 1;
        }
        child.wait().expect("it can be waited for");
        objects.assert_well(&source);
    }
    assert!(kills > 0, "it was never killed");
    let both = [spawn(), spawn()].map(|child| child.wait_with_output().expect("it ends"));
    assert!(both.iter().any(|output| output.status.success()));
    for output in both.iter().filter(|output| !output.status.success()) {
        let said = text(&output.stderr);
        assert!(said.contains("another program writes to the archive"), "{said}");
    }
    objects.assert_well(&source);
    let target = Fixture::start();
    objects.backup(&target, &["restore", ARCHIVE]);
    assert_equal(&table_of(&client).await, &table_of(&target.client().await).await);
}
