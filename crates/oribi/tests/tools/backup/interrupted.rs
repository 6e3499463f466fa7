//! Either side is killed while a backup is made or restored.

use std::process::Stdio;
use std::time::Duration;

use oribi_client::{Bytes, Client, Persistence, Vbid, WriteOptions};
use oribi_testkit::{PATIENCE, Random, poll_until};

use crate::backup::table::{assert_equal, table_of, write};
use crate::backup::{Fixture, problems};

/// Some megabytes that do not shrink.
async fn fill(client: &Client, documents: u64) {
    let mut random = Random::new(documents);
    for number in 0..documents {
        let value: Vec<u8> = (0..2000).map(|_| random.below(256) as u8).collect();
        let key = format!("document:{number}");
        let options = WriteOptions::new();
        let written = client.upsert(
            client.default_collection(),
            key.as_bytes(),
            Bytes::from(value),
            &options,
        );
        written.await.expect("it is written");
    }
    write(client, client.default_collection(), "last", "one").await;
    // A server that is killed afterwards loses none of them.
    for vbid in (0..client.config().vbucket_count()).map(Vbid) {
        let last = client.last_mutation(vbid).await.expect("an answer");
        while last.seqno.0 > 0
            && client.persistence(&last).await.expect("an answer") != Persistence::Persisted
        {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

// Invariant: A restore or copy that ends without an error has everything on the target's disk.
#[tokio::test]
async fn a_backup_that_was_killed_goes_on() {
    let source = Fixture::start();
    let client = source.client().await;
    fill(&client, 2000).await;
    let archive = source.archive();
    let create = ["create", archive.as_str(), "--segment-kib", "64"];
    let segments = || -> usize {
        let directories = std::fs::read_dir(source.path("archive/backups")).into_iter().flatten();
        let files = directories.flat_map(|entry| {
            std::fs::read_dir(entry.expect("an entry").path()).expect("a directory")
        });
        files
            .filter(|file| {
                file.as_ref().is_ok_and(|file| file.path().extension().is_some_and(|e| e == "seg"))
            })
            .count()
    };
    let mut random = Random::new(1);
    let mut kills = 0;
    for _ in 0..6 {
        let before = segments();
        let more = 1 + random.below(8) as usize;
        let mut child = source.backup_command(&create);
        let mut child = child.stderr(Stdio::null()).stdout(Stdio::null()).spawn().expect("it runs");
        let ended = poll_until(PATIENCE, || {
            let ended = child.try_wait().expect("it can be waited for");
            (ended.is_some() || segments() >= before + more).then_some(ended)
        });
        if ended.expect("it goes on").is_some() {
            break;
        }
        child.kill().expect("it can be killed");
        child.wait().expect("it can be waited for");
        kills += 1;
        assert_eq!(problems(&source, &archive), [""; 0]);
    }
    assert!(kills > 0, "it was never killed");
    let made = source.backup(&create);
    assert!(segments() >= 60, "{made}");
    let listed = source.backup(&["list", &archive]);
    assert!(listed.as_array().expect("a list").iter().all(|entry| entry["state"] == "finished"));
    assert_eq!(problems(&source, &archive), [""; 0]);

    let target = Fixture::start();
    let mut child = target.backup_command(&["restore", &archive]);
    let mut child = child.stderr(Stdio::null()).stdout(Stdio::null()).spawn().expect("it runs");
    let of_target = target.client().await;
    let mut started = false;
    while !started && child.try_wait().expect("it can be waited for").is_none() {
        let found = of_target.get(of_target.default_collection(), b"document:1000").await;
        started = found.expect("an answer").is_some();
    }
    let _ = child.kill();
    child.wait().expect("it can be waited for");
    // What is present is not written again.
    let there = table_of(&of_target).await.len() as u64;
    let again = target.backup(&["restore", &archive]);
    assert!(again["skipped"].as_u64() >= Some(there), "{again}, {there} were there");
    assert_equal(&table_of(&client).await, &table_of(&of_target).await);
    let once_more = target.backup(&["restore", &archive]);
    assert_eq!((&once_more["written"], &once_more["skipped"]), (&0.into(), &2001.into()));
    let all = target.backup(&["restore", &archive, "--overwrite"]);
    assert_eq!((&all["written"], &all["skipped"]), (&2001.into(), &0.into()));
    assert_equal(&table_of(&client).await, &table_of(&of_target).await);
}

// Invariant: A restore or copy that ends without an error has everything on the target's disk.
#[tokio::test]
async fn a_restore_continues_after_a_crash_of_its_target() {
    const DOCUMENTS: u64 = 2000;
    let source = Fixture::start();
    let client = source.client().await;
    let mut random = Random::new(5);
    let noise: Vec<u8> = (0..40_000).map(|_| random.below(256) as u8).collect();
    let noise = Bytes::from(noise);
    for number in 0..DOCUMENTS {
        let value = noise.slice((number as usize * 7)..20_000 + (number as usize * 7));
        let (key, options) = (format!("document:{number}"), WriteOptions::new());
        let default = client.default_collection();
        client.upsert(default, key.as_bytes(), value, &options).await.expect("it is written");
    }
    let archive = source.archive();
    source.backup(&["create", &archive]);

    // It has no disk, so a crash loses everything.
    let mut target = Fixture::start();
    let form = [("name", "memory"), ("storage", "memory"), ("ramQuotaMB", "100")];
    target.post("/pools/default/buckets", &form);
    let of_target = target.client_of("memory").await;
    let restore = ["restore", &archive, "--into", "memory", "--jobs", "1", "--json"];
    let mut command = target.backup_command(&restore);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = child.spawn().expect("it runs");
    let mut started = false;
    while !started {
        let found = of_target.get(of_target.default_collection(), b"document:3").await;
        started = found.expect("an answer").is_some();
    }
    target.server.kill().expect("it can be killed");
    target.server.restart().expect("it starts again");
    let output = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("written again"), "{said}");
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    // The batches that were in flight, and no later ones.
    assert!(summary["repeated"].as_u64() < Some(DOCUMENTS / 4), "{summary}");
    assert_equal(&table_of(&client).await, &table_of(&target.client_of("memory").await).await);
}

#[tokio::test]
async fn a_crashed_server_is_backed_up_on_return() {
    let mut source = Fixture::start();
    fill(&source.client().await, 1000).await;
    let archive = source.archive();
    let create = ["create", archive.as_str(), "--segment-kib", "64"];
    let mut child = source.backup_command(&create);
    let mut child = child.stderr(Stdio::null()).stdout(Stdio::null()).spawn().expect("it runs");
    let first = source.path("archive/backups");
    let begun = poll_until(PATIENCE, || {
        let ended = child.try_wait().expect("it can be waited for").is_some();
        (ended || first.exists()).then_some(())
    });
    begun.expect("it begins");
    source.server.kill().expect("it can be killed");
    source.server.restart().expect("it starts again");
    let ended = poll_until(PATIENCE, || child.try_wait().expect("it can be waited for"));
    ended.expect("it ends");
    // Whether the crash came in the middle or after it, the next one has all.
    source.backup(&create);
    assert_eq!(problems(&source, &archive), [""; 0]);
    let target = Fixture::start();
    target.backup(&["restore", &archive]);
    let expected = table_of(&source.client().await).await;
    assert_eq!(expected.len(), 1001);
    assert_equal(&expected, &table_of(&target.client().await).await);
}
