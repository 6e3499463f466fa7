//! Large documents on their way to DCP consumers: the process stays within quotas + 10 % + 64 MiB
//! whatever consumers do, and a consumer that reads is slowed, never disconnected.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use oribi_protocol::dcp::stream_request::{StreamFlags, StreamRequestExtras, StreamValue};
use oribi_protocol::hash::vbucket_of;
use oribi_protocol::status::Status;
use oribi_testkit::raw_connection::DEFAULT_VBUCKETS;
use oribi_testkit::stream_connection::{MessageKind, StreamConnection};
use oribi_testkit::{PATIENCE, Request, StopOnDrop, poll_until};
use oribi_types::{Seqno, Vbid};

use crate::fixture::Fixture;

const MIB: u64 = 1 << 20;
const LARGE: usize = 20_000_000;
/// A window that holds several documents.
const WINDOW_BYTES: u32 = 100 << 20;

fn start(quota_mib: u64) -> Fixture {
    Fixture::start_with(|options| {
        options.setting("memory-quota-mib", quota_mib).setting("workers", 2)
    })
}

fn promised(quota_mib: u64) -> u64 {
    (quota_mib + quota_mib / 10 + 64) * MIB
}

/// Stores a document, which may have to wait for its predecessor to be flushed.
fn store(fixture: &Fixture, key: &str, byte: u8) {
    let mut writer = fixture.login();
    let set = Request::set(key, vec![byte; LARGE]);
    let stored = poll_until(PATIENCE, || {
        let status = writer.call(&set).unwrap().status();
        (status == Status::Success).then_some(())
    });
    stored.expect("the document is stored");
}

/// A consumer that follows the vbuckets of these documents, from the beginning.
fn consumer(port: u16, name: &str, keys: &[String]) -> StreamConnection {
    let mut connection = StreamConnection::open(port, name, WINDOW_BYTES).unwrap();
    let request = StreamRequestExtras {
        flags: StreamFlags::ACTIVE_ONLY,
        end: Seqno(u64::MAX),
        ..StreamRequestExtras::default()
    };
    for vbid in vbuckets_of(keys) {
        connection.request(vbid, &request, &StreamValue::default()).unwrap();
    }
    connection
}

fn vbuckets_of(keys: &[String]) -> Vec<Vbid> {
    let all = keys.iter().map(|key| vbucket_of(key.as_bytes(), DEFAULT_VBUCKETS));
    let mut vbuckets: Vec<Vbid> = all.collect();
    vbuckets.sort_unstable();
    vbuckets.dedup();
    vbuckets
}

/// Reads until each document has come once.
fn read_all(mut connection: StreamConnection, keys: &[String]) {
    let mut missing: Vec<&[u8]> = keys.iter().map(|key| key.as_bytes()).collect();
    while !missing.is_empty() {
        let heard = connection.hear().expect("a consumer that reads is not disconnected");
        let MessageKind::Document(document) = heard.what else { continue };
        assert_eq!(document.value.map(|value| value.len()), Some(LARGE));
        missing.retain(|key| *key != document.key);
    }
}

fn keys(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("large {number}")).collect()
}

// Invariant: A backfill reads a large document only after the memory budget has granted it, once
// for all readers.
#[test]
fn stalled_consumers_of_20_mb_documents_are_bounded() {
    const QUOTA_MIB: u64 = 64;
    let fixture = start(QUOTA_MIB);
    let (port, keys) = (fixture.server.port(), keys(2));
    keys.iter().for_each(|key| store(&fixture, key, 0));
    let most = AtomicU64::new(0);
    let look = || {
        most.fetch_max(fixture.server.resident_bytes().unwrap(), Ordering::Relaxed);
    };
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stopped = StopOnDrop(&is_over);
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                look();
                std::thread::park_timeout(Duration::from_millis(5));
            }
        });
        let mut stalled = Vec::new();
        for number in 0..60u8 {
            stalled.push(consumer(port, &format!("stalled {number}"), &keys));
            if number % 6 == 5 {
                // Readers keep the version before.
                store(&fixture, &keys[usize::from(number) % 2], number);
            }
        }
        let begun = Instant::now();
        read_all(consumer(port, "reads", &keys), &keys);
        println!("a consumer that reads is served after {:?}", begun.elapsed());
        drop(stalled);
    });
    let most = most.into_inner();
    println!("{} MiB at most", most / MIB);
    assert!(most <= promised(QUOTA_MIB), "{} of {} MiB", most / MIB, promised(QUOTA_MIB) / MIB);
    fixture.finish(&[]);
}

// Invariant: Back-pressure slows a client that reads, and never disconnects it for memory.
#[test]
fn readers_at_full_speed_are_never_cut() {
    const QUOTA_MIB: u64 = 512;
    const PASSES: usize = 6;
    let fixture = start(QUOTA_MIB);
    let (port, keys) = (fixture.server.port(), keys(4));
    keys.iter().for_each(|key| store(&fixture, key, 7));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reads = scope.spawn(|| {
            let (mut client, mut reads) = (fixture.login(), 0);
            while !is_over.load(Ordering::Relaxed) {
                let key = &keys[reads % keys.len()];
                let answer = client.call(&Request::get(key)).expect("a reader is not cut");
                assert_eq!(answer.status(), Status::Success);
                reads += 1;
            }
            reads
        });
        let consumers = [0, 1].map(|number| {
            let keys = &keys;
            scope.spawn(move || {
                for pass in 0..PASSES {
                    read_all(consumer(port, &format!("{number}, {pass}"), keys), keys);
                }
            })
        });
        let consumed = consumers.map(|consumer| consumer.join());
        is_over.store(true, Ordering::Relaxed);
        consumed.into_iter().for_each(|consumed| consumed.expect("all passes are finished"));
        println!("{} documents were read by key", reads.join().expect("all answers come"));
    });
    let stats = fixture.login().stat("memory").unwrap();
    let closed = stats.iter().find(|(name, _)| name == "connection_memory_closed");
    assert_eq!(closed.map(|(_, count)| count.as_str()), Some("0"));
    let resident = fixture.server.resident_bytes().unwrap();
    assert!(resident <= promised(QUOTA_MIB), "{} MiB", resident / MIB);
    fixture.finish(&[]);
}
