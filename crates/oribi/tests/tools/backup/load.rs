//! A backup of a bucket that is written to has a prefix of each vbucket's history.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use oribi_client::{Bytes, WriteOptions};
use oribi_protocol::hash::vbucket_of;

use crate::backup::table::table_of;
use crate::backup::{Fixture, problems, text};

const VBUCKETS: u16 = 4;
const KEYS: u64 = 97;

fn key_of(number: u64) -> String {
    // Keys retry in an order that is not that of their numbers.
    format!("key:{}", number * 31 % KEYS)
}

/// Content of each vbucket when all writes up to its last one are done.
fn state_at(last: &BTreeMap<u16, u64>) -> BTreeMap<String, u64> {
    let newest = last.values().copied().max().unwrap_or(0);
    let mut state = BTreeMap::new();
    for number in 1..=newest {
        let key = key_of(number);
        let vbid = vbucket_of(key.as_bytes(), VBUCKETS).0;
        if last.get(&vbid).is_some_and(|last| number <= *last) {
            state.insert(key, number);
        }
    }
    state
}

// Invariant: A backup under load is a prefix of each vbucket's history, with everything from before
// it began.
#[tokio::test]
async fn a_backup_under_load_is_a_prefix_per_vbucket() {
    let source = Fixture::start();
    let buckets = "/pools/default/buckets";
    let settings = [("name", "busy"), ("ramQuotaMB", "100"), ("numVBuckets", "4")];
    source.post(buckets, &settings);
    let client = source.client_of("busy").await;
    let (done, ended) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
    let writer = tokio::spawn({
        let (done, ended) = (done.clone(), ended.clone());
        async move {
            let (default, options) = (client.default_collection(), WriteOptions::new());
            let mut number = 0;
            while !ended.load(Ordering::Acquire) {
                number += 1;
                let (key, value) = (key_of(number), Bytes::from(number.to_string()));
                let written = client.upsert(default, key.as_bytes(), value, &options);
                written.await.expect("it is written");
                done.store(number, Ordering::Release);
            }
        }
    });
    let archive = source.archive();
    for round in 1..=3 {
        let before = done.load(Ordering::Acquire);
        let create = source.backup_command(&["create", &archive, "--bucket", "busy"]);
        // The writer runs on this thread concurrently.
        let output = tokio::task::spawn_blocking(move || {
            let mut create = create;
            create.output()
        });
        let output = output.await.expect("it ends").expect("the program runs");
        assert!(output.status.success(), "{}", text(&output.stderr));
        let name = format!("copy{round}");
        let restore = ["restore", &archive, "--bucket", "busy", "--into", &name];
        source.backup(&[&restore[..], &["--create-bucket", "100"]].concat());
        let copy = table_of(&source.client_of(&name).await).await;
        let found: BTreeMap<String, u64> = copy
            .into_iter()
            .map(|((_, key), version)| {
                (text(&key), text(&version.value).parse().expect("a number"))
            })
            .collect();
        let mut last = BTreeMap::new();
        for (key, number) in &found {
            let newest = last.entry(vbucket_of(key.as_bytes(), VBUCKETS).0).or_insert(0);
            *newest = (*newest).max(*number);
        }
        assert_eq!(found, state_at(&last), "round {round}");
        // What was there when it began is in it.
        let newest = last.values().copied().max().unwrap_or(0);
        assert!(newest >= before, "{newest} of {before}");
        assert_eq!(problems(&source, &archive), [""; 0]);
        source.admin().delete(&format!("{buckets}/{name}")).expect("an answer");
    }
    ended.store(true, Ordering::Release);
    writer.await.expect("the writer ends well");
}
