//! Large documents as Server-Sent Events: the process stays within quotas + 10 % + 64 MiB with a
//! hundred clients that do not read, in several buckets.

use std::io::Read;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use oribi_protocol::status::Status;
use oribi_testkit::http::HttpClient;
use oribi_testkit::{PATIENCE, RawConnection, Request, StopOnDrop, poll_until};

use crate::fixture::{Fixture, add_user};

const MIB: u64 = 1 << 20;
const BUCKETS: [&str; 3] = ["default", "second", "third"];
const QUOTA_MIB: u64 = 64;
const PROMISED_BYTES: u64 = (3 * QUOTA_MIB + 3 * QUOTA_MIB / 10 + 64) * MIB;
const LARGE: usize = 8_000_000;
const DOCUMENTS: usize = 3;
const READERS: usize = 33;
/// A user has 32 streams.
const STALLED_USERS: usize = 4;

fn stalled_user(number: usize) -> String {
    format!("stalled-{number}")
}

/// A client whose password the server has checked once, so that many are admitted at once.
fn http(fixture: &Fixture, user: &str) -> HttpClient {
    let http = HttpClient::new(fixture.server.admin_port()).with_credentials(user, "secret");
    assert_eq!(http.get("/pools/default/buckets/default").unwrap().status, 200);
    http
}

fn store(fixture: &Fixture, bucket: &str, number: usize, byte: u8) {
    let mut writer = RawConnection::connect(fixture.server.port()).unwrap();
    assert_eq!(writer.sasl_plain("root", "root secret").unwrap(), Status::Success);
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
    let fixture = Fixture::with_users(|options| {
        let buckets = BUCKETS.join(",");
        let stalled = (0..STALLED_USERS).map(stalled_user);
        for user in stalled.chain(["reads".to_owned()]) {
            add_user(options.data_dir(), &user, "secret", &["admin"]);
        }
        options
            .setting("memory-quota-mib", QUOTA_MIB)
            .setting("workers", 2)
            .setting("buckets", buckets)
    });
    let stalls: Vec<HttpClient> =
        (0..STALLED_USERS).map(|number| http(&fixture, &stalled_user(number))).collect();
    let reader = http(&fixture, "reads");
    for bucket in BUCKETS {
        (0..DOCUMENTS).for_each(|number| store(&fixture, bucket, number, 0));
    }
    let (most, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let _stopped = StopOnDrop(&is_over);
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                most.fetch_max(fixture.server.resident_bytes().unwrap(), Ordering::Relaxed);
                std::thread::park_timeout(Duration::from_millis(5));
            }
        });
        let mut stalled = Vec::new();
        for number in 0..READERS {
            for bucket in BUCKETS {
                let client = &stalls[stalled.len() % STALLED_USERS];
                let mut stream = client.begin_get(&path(bucket, "")).unwrap();
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                let mut status = [0; 12];
                stream.read_exact(&mut status).unwrap();
                assert_eq!(status, *b"HTTP/1.1 200", "a stream begins");
                stalled.push(stream);
            }
            if number % 8 == 7 {
                // Readers keep the version before.
                let bucket = BUCKETS[number % BUCKETS.len()];
                store(&fixture, bucket, number % DOCUMENTS, number as u8);
            }
        }
        // A client that reads is served.
        let mut reads = reader.begin_get(&path("default", "&until-now")).unwrap();
        reads.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut answer = Vec::new();
        reads.read_to_end(&mut answer).expect("it is not cut");
        let ends = answer.windows(10).filter(|text| *text == b"event: end").count();
        assert!(answer.len() > DOCUMENTS * LARGE && ends == 1, "{} bytes", answer.len());
        drop(stalled);
    });
    let most = most.into_inner();
    println!("{} MiB at most", most / MIB);
    assert!(most <= PROMISED_BYTES, "{} of {} MiB", most / MIB, PROMISED_BYTES / MIB);
    fixture.finish(&[]);
}
