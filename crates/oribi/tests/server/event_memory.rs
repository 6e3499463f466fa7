//! Large documents as Server-Sent Events: the process stays within quotas + 10 % + 64 MiB with a
//! hundred clients that do not read, in several buckets.

use std::io::Read;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use oribi_protocol::status::Status;
use oribi_testkit::{PATIENCE, Request, poll_until};

use crate::fixture::Fixture;

const MIB: u64 = 1 << 20;
const BUCKETS: [&str; 3] = ["default", "second", "third"];
const QUOTA_MIB: u64 = 64;
const PROMISED_BYTES: u64 = (3 * QUOTA_MIB + 3 * QUOTA_MIB / 10 + 64) * MIB;
const LARGE: usize = 8_000_000;
const DOCUMENTS: usize = 3;
const READERS: usize = 33;

fn store(fixture: &Fixture, bucket: &str, number: usize, byte: u8) {
    let mut writer = fixture.login();
    assert_eq!(writer.select_bucket(bucket).unwrap(), Status::Success);
    let set = Request::set(format!("large {number}"), vec![byte; LARGE]);
    let stored = poll_until(PATIENCE, || {
        let status = writer.call(&set).unwrap().status();
        (status == Status::Success).then_some(())
    });
    stored.expect("the document is stored");
}

fn path(bucket: &str, more: &str) -> String {
    format!("/pools/default/buckets/{bucket}/changes?from=beginning&with-values{more}")
}

#[test]
fn stalled_clients_of_events_are_bounded() {
    let fixture = Fixture::start_with(|options| {
        let buckets = BUCKETS.join(",");
        options
            .setting("memory-quota-mib", QUOTA_MIB)
            .setting("workers", 2)
            .setting("buckets", buckets)
    });
    let admin = fixture.admin();
    for bucket in BUCKETS {
        (0..DOCUMENTS).for_each(|number| store(&fixture, bucket, number, 0));
    }
    let (most, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                most.fetch_max(fixture.server.resident_bytes().unwrap(), Ordering::Relaxed);
                std::thread::park_timeout(Duration::from_millis(5));
            }
        });
        let mut stalled = Vec::new();
        for number in 0..READERS {
            for bucket in BUCKETS {
                stalled.push(admin.begin_get(&path(bucket, "")).unwrap());
            }
            if number % 8 == 7 {
                // Readers keep the version before.
                let bucket = BUCKETS[number % BUCKETS.len()];
                store(&fixture, bucket, number % DOCUMENTS, number as u8);
            }
        }
        // A client that reads is served.
        let mut reads = admin.begin_get(&path("default", "&until-now")).unwrap();
        reads.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut answer = Vec::new();
        reads.read_to_end(&mut answer).expect("it is not cut");
        let ends = answer.windows(10).filter(|text| *text == b"event: end").count();
        assert!(answer.len() > DOCUMENTS * LARGE && ends == 1, "{} bytes", answer.len());
        drop(stalled);
        is_over.store(true, Ordering::Relaxed);
    });
    let most = most.into_inner();
    println!("{} MiB at most", most / MIB);
    assert!(most <= PROMISED_BYTES, "{} of {} MiB", most / MIB, PROMISED_BYTES / MIB);
    fixture.finish(&[]);
}
