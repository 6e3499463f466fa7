//! Either side is killed at any moment of a backup, a restore or a copy, again and again.
//!
//! `ORIBI_BACKUP_CYCLES` and `ORIBI_TEST_SEED` make it a soak: `cargo xtask soak backup`.

use std::env;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use oribi_client::{Bytes, Client, Persistence, Vbid, WriteOptions};
use oribi_testkit::{PATIENCE, Random, poll_until, seed};

use crate::backup::table::{assert_equal, remove, table_of, write};
use crate::backup::{Fixture, problems, text};

const CYCLES: u64 = 6;
const SEED: u64 = 21;

/// Longest time until the kill; some come after the end.
const LIFE_MS_MAX: u64 = 400;

/// New documents, changed ones and removed ones.
async fn change(client: &Client, random: &mut Random, cycle: u64) {
    let default = client.default_collection();
    for _ in 0..200 {
        let key = format!("document:{}", random.below(1500));
        let value: Vec<u8> = (0..1000).map(|_| random.below(256) as u8).collect();
        let options = WriteOptions::new();
        let written = client.upsert(default, key.as_bytes(), Bytes::from(value), &options);
        written.await.expect("it is written");
    }
    let key = format!("removed:{cycle}");
    write(client, default, &key, "x").await;
    remove(client, default, &key).await;
    persist(client).await;
}

/// A server that is killed afterwards loses nothing.
async fn persist(client: &Client) {
    for vbid in (0..client.config().vbucket_count()).map(Vbid) {
        let last = client.last_mutation(vbid).await.expect("an answer");
        while last.seqno.0 > 0
            && client.persistence(&last).await.expect("an answer") != Persistence::Persisted
        {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// Starts the command and kills it, or `victim`, after a while; true when it says that all is done.
fn run_with_kill(mut command: Command, victim: Option<&mut Fixture>, life: Duration) -> bool {
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it runs");
    // The moment is the point, so it is no wait for anything.
    thread::sleep(life);
    match victim {
        None => drop(child.kill()),
        Some(fixture) => {
            fixture.server.kill().expect("it can be killed");
            fixture.server.restart().expect("it starts again");
        }
    }
    let ended = poll_until(PATIENCE, || child.try_wait().expect("it can be waited for"));
    ended.expect("it ends").success()
}

fn succeeds(mut command: Command) {
    let output = command.output().expect("it runs");
    assert!(output.status.success(), "{}", text(&output.stderr));
}

// Invariant: After a kill of either side of a backup, restore or copy, the same command completes
// the work.
// Invariant: A restore or copy that ends without an error has everything on the target's disk.
#[tokio::test]
async fn after_any_kill_the_same_command_completes_the_work() {
    let cycles =
        env::var("ORIBI_BACKUP_CYCLES").map_or(CYCLES, |text| text.parse().expect("a number"));
    let seed = seed(SEED);
    let mut random = Random::new(seed);
    let (mut source, mut target) = (Fixture::start(), Fixture::start());
    let archive = source.archive();
    let place = source.path("place").to_str().expect("text").to_owned();
    // One client each, which find their servers again.
    let (client, of_target) = (source.client().await, target.client().await);
    for cycle in 0..cycles {
        change(&client, &mut random, cycle).await;
        // Three commands, and three who may be killed: the program, the source, the target.
        let (what, victim) = (cycle % 3, random.below(3));
        let life = Duration::from_millis(random.below(LIFE_MS_MAX));
        eprintln!("cycle {cycle} of seed {seed}: command {what}, victim {victim}, {life:?}");
        let command = |source: &Fixture, target: &Fixture| match what {
            0 => source.backup_command(&["create", &archive, "--segment-kib", "64"]),
            1 => target.backup_command(&["restore", &archive]),
            _ => source.copy_to(target, &["--resume", &place]),
        };
        if what == 1 {
            source.backup(&["create", &archive]);
        }
        let begun = command(&source, &target);
        let killed = match (victim, what) {
            (0, _) => None,
            (1, 0 | 2) | (_, 0) => Some(&mut source),
            _ => Some(&mut target),
        };
        let is_done = run_with_kill(begun, killed, life);
        if is_done && what != 0 {
            assert_equal(&table_of(&client).await, &table_of(&of_target).await);
        }
        if source.path("archive/archive.json").exists() {
            assert_eq!(problems(&source, &archive), [""; 0], "cycle {cycle}");
        }
        succeeds(command(&source, &target));
        if what == 0 {
            target.backup(&["restore", &archive]);
        }
        assert_equal(&table_of(&client).await, &table_of(&of_target).await);
    }
}
