//! Durable writes over three nodes: acknowledged writes survive the node that acknowledged them,
//! and others are never seen. Without etcd these tests are skipped, and say so.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use oribi_client::{Client, WriteOptions};
use oribi_protocol::feature::Feature;
use oribi_protocol::hash::vbucket_of;
use oribi_protocol::status::Status;
use oribi_testkit::raw_connection::{DEVELOPMENT_PASSWORD, DEVELOPMENT_USER};
use oribi_testkit::{RawConnection, Request};
use oribi_types::{Cas, DurabilityLevel, Vbid};

use crate::copies::{BUCKET, Cluster, VBUCKETS};

const LEVELS: [DurabilityLevel; 3] = [
    DurabilityLevel::Majority,
    DurabilityLevel::MajorityAndPersistOnMaster,
    DurabilityLevel::PersistToMajority,
];
/// Acknowledgements before a node is killed.
const ACKNOWLEDGED: usize = 40;
const WRITERS: usize = 4;
/// A durability frame: majority, 1.5 s.
const MAJORITY_IN_1500_MS: [u8; 4] = [0x13, 1, 0x05, 0xdc];

fn durable(level: DurabilityLevel) -> WriteOptions {
    let mut options = WriteOptions::new();
    options.durability = level;
    options
}

/// Writes keys one after the other until told to stop; those that were acknowledged.
async fn write_until(
    client: Arc<Client>,
    (prefix, level): (String, DurabilityLevel),
    (count, stops): (Arc<std::sync::atomic::AtomicUsize>, Arc<AtomicBool>),
) -> Vec<String> {
    let mut acknowledged = Vec::new();
    for number in 0.. {
        if stops.load(Ordering::Relaxed) {
            break;
        }
        let key = format!("{prefix}-{number}");
        let value = Bytes::from(key.clone().into_bytes());
        let collection = client.default_collection();
        if client.upsert(collection, key.as_bytes(), value, &durable(level)).await.is_ok() {
            acknowledged.push(key);
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
    acknowledged
}

async fn survive_kills_at_every_level(replicas: usize) {
    let Some(mut cluster) = Cluster::start() else { return };
    cluster.create(replicas);
    cluster.wait_for_copies(replicas);
    let mut all = Vec::new();
    for (round, level) in LEVELS.into_iter().enumerate() {
        // A client that knows the other nodes only, so that it does not depend on the killed one.
        let others = [(round + 1) % 3, (round + 2) % 3];
        let client = Arc::new(cluster.client(&others).await);
        let count = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let stops = Arc::new(AtomicBool::new(false));
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let name = (format!("{level:?}-{writer}"), level);
                let shared = (Arc::clone(&count), Arc::clone(&stops));
                tokio::spawn(write_until(Arc::clone(&client), name, shared))
            })
            .collect();
        cluster.wait("durable writes are acknowledged", || {
            (count.load(Ordering::Relaxed) >= ACKNOWLEDGED).then_some(())
        });
        cluster.wait_for_reports();
        cluster.nodes[round].kill().unwrap();
        stops.store(true, Ordering::Relaxed);
        let mut acknowledged = Vec::new();
        for writer in writers {
            acknowledged.extend(writer.await.unwrap());
        }
        assert!(acknowledged.len() >= ACKNOWLEDGED);
        all.extend(acknowledged);
        check(&cluster, &client, &all).await;
        cluster.nodes[round].restart().unwrap();
        cluster.wait_for_copies(replicas);
        check(&cluster, &client, &all).await;
    }
}

pub(crate) async fn check(cluster: &Cluster, client: &Client, keys: &[String]) {
    for key in keys {
        let found = client.get(client.default_collection(), key.as_bytes()).await;
        let found = found.unwrap_or_else(|error| panic!("{key}: {error}\n{}", cluster.outputs()));
        let found = found.unwrap_or_else(|| panic!("{key} was acknowledged and is gone"));
        assert_eq!(found.value, key.as_bytes(), "{key}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_replica_keeps_what_was_acknowledged() {
    survive_kills_at_every_level(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_replicas_keep_what_was_acknowledged() {
    survive_kills_at_every_level(2).await;
}

/// A connection to a node, with the bucket selected.
pub(crate) fn connection(cluster: &Cluster, at: usize) -> RawConnection {
    let mut connection = RawConnection::connect(cluster.nodes[at].port()).unwrap();
    connection.hello(&[Feature::SelectBucket, Feature::XError]).unwrap();
    connection.sasl_plain(DEVELOPMENT_USER, DEVELOPMENT_PASSWORD).unwrap();
    assert_eq!(connection.select_bucket(BUCKET).unwrap(), Status::Success);
    connection.set_read_timeout(Duration::from_secs(30)).unwrap();
    connection
}

/// A key whose active copy is on node `active` and that has a replica on node `replica`.
pub(crate) fn key_of(cluster: &Cluster, active: usize, replica: usize) -> (String, Vbid) {
    let port = |at: usize| cluster.nodes[at].port();
    let chains = cluster.wait("the map has all copies", || cluster.chains(active));
    let keys = (0..1000).map(|number| format!("key-{number}"));
    let place = |key: &String| vbucket_of(key.as_bytes(), VBUCKETS as u16);
    let found = keys.map(|key| (place(&key), key)).find(|(vbid, _)| {
        let chain = &chains[usize::from(vbid.0)];
        chain[0] == port(active) && chain[1..].contains(&port(replica))
    });
    let (vbid, key) = found.expect("some vbucket has these copies");
    (key, vbid)
}

/// Writes durably once the node serves the vbucket.
fn write_first(cluster: &Cluster, connection: &mut RawConnection, key: &str, vbid: Vbid) {
    let request = Request::set(key, "old").vbucket(vbid).durable(DurabilityLevel::Majority);
    cluster.wait("the first durable write is acknowledged", || {
        (connection.call(&request).unwrap().status() == Status::Success).then_some(())
    });
}

fn value(connection: &mut RawConnection, key: &str, vbid: Vbid) -> String {
    let got = connection.call(&Request::get(key).vbucket(vbid)).unwrap();
    assert_eq!(got.status(), Status::Success, "{key}");
    got.text()
}

#[test]
fn a_write_without_its_replica_is_never_seen() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.create(1);
    cluster.wait_for_copies(1);
    let (key, vbid) = key_of(&cluster, 0, 1);
    let (mut writer, mut reader) = (connection(&cluster, 0), connection(&cluster, 0));
    write_first(&cluster, &mut writer, &key, vbid);
    cluster.nodes[1].pause().unwrap();
    let request = Request::set(&key, "new").vbucket(vbid).framing(&MAJORITY_IN_1500_MS);
    let sent = writer.send(&request).unwrap();
    // A CAS that no version has: before the durable write has come, this changes nothing.
    let plain = Request::set(&key, "plain").vbucket(vbid).cas(Cas(1));
    cluster.wait("another write is refused", || {
        let refused = reader.call(&plain).unwrap().status();
        (refused == Status::SyncWriteInProgress).then_some(())
    });
    assert_eq!(value(&mut reader, &key, vbid), "old");
    let answer = writer.receive().unwrap();
    assert_eq!((answer.opaque, answer.status()), (sent, Status::SyncWriteAmbiguous));
    assert_eq!(value(&mut reader, &key, vbid), "old");
    cluster.nodes[1].resume().unwrap();
    cluster.wait_for_copies(1);
    // The paused node may have lost its part, or come back to it.
    let found = cluster.wait("some node serves the vbucket", || {
        let request = Request::get(&key).vbucket(vbid);
        let served = |at| connection(&cluster, at).call(&request).ok();
        (0..3).filter_map(served).find(|got| got.status() == Status::Success)
    });
    assert_eq!(found.text(), "old");
}

// A plain write in a bucket with a minimum durability is one at that level.
#[test]
fn a_plain_write_waits_as_its_bucket_demands() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.create(1);
    cluster.wait_for_copies(1);
    // A node that the write does not come to: the change is in force on all when it is answered.
    let path = format!("/pools/default/buckets/{}", crate::copies::BUCKET);
    let raised = cluster.http(2).post_form(&path, &[("durabilityMinLevel", "majority")]).unwrap();
    assert_eq!(raised.status, 200, "{}", raised.text());
    let (key, vbid) = key_of(&cluster, 0, 1);
    let (mut writer, mut reader) = (connection(&cluster, 0), connection(&cluster, 0));
    write_first(&cluster, &mut writer, &key, vbid);
    let plain = writer.call(&Request::set(&key, "plain").vbucket(vbid)).unwrap();
    assert_eq!(plain.status(), Status::Success);
    cluster.nodes[1].pause().unwrap();
    let sent = writer.send(&Request::set(&key, "new").vbucket(vbid)).unwrap();
    let other = Request::set(&key, "other").vbucket(vbid).cas(Cas(1));
    cluster.wait("another write is refused", || {
        let refused = reader.call(&other).unwrap().status();
        (refused == Status::SyncWriteInProgress).then_some(())
    });
    assert_eq!(value(&mut reader, &key, vbid), "plain");
    cluster.nodes[1].resume().unwrap();
    let answer = writer.receive().unwrap();
    // The node may have been given up in between: then the write is ambiguous, never lost silently.
    assert_eq!(answer.opaque, sent);
    assert!(matches!(answer.status(), Status::Success | Status::SyncWriteAmbiguous));
    cluster.wait_for_copies(1);
}

#[test]
fn one_of_two_replicas_may_pause() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.create(2);
    cluster.wait_for_copies(2);
    let (key, vbid) = key_of(&cluster, 0, 1);
    let mut writer = connection(&cluster, 0);
    write_first(&cluster, &mut writer, &key, vbid);
    cluster.nodes[1].pause().unwrap();
    for level in LEVELS {
        let request = Request::set(&key, format!("{level:?}")).vbucket(vbid).durable(level);
        assert_eq!(writer.call(&request).unwrap().status(), Status::Success, "{level:?}");
        assert_eq!(value(&mut writer, &key, vbid), format!("{level:?}"));
    }
    cluster.nodes[1].resume().unwrap();
    cluster.wait_for_copies(2);
}

// A key that waits for its copies takes no other write, and reads show what was before.
#[test]
fn pending_writes_are_not_read_under_load() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.create(1);
    cluster.wait_for_copies(1);
    let (key, vbid) = key_of(&cluster, 0, 1);
    let (mut writer, mut reader) = (connection(&cluster, 0), connection(&cluster, 0));
    write_first(&cluster, &mut writer, &key, vbid);
    let mut seen: BTreeMap<u64, u64> = BTreeMap::new();
    for number in 0..200u64 {
        let level = LEVELS[number as usize % 3];
        let request = Request::set(&key, number.to_string()).vbucket(vbid).durable(level);
        writer.send(&request).unwrap();
        let during = reader.call(&Request::get(&key).vbucket(vbid)).unwrap();
        let status = writer.receive().unwrap().status();
        assert_eq!(status, Status::Success, "{}", cluster.outputs());
        let after = value(&mut reader, &key, vbid);
        assert_eq!(after, number.to_string(), "an acknowledged write is visible");
        if number > 0 {
            let during: u64 = during.text().parse().unwrap();
            assert!(during == number || during + 1 == number, "{during} during {number}");
            seen.insert(number, during);
        }
    }
    assert!(!seen.is_empty());
}
