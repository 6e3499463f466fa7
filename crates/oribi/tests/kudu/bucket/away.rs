//! Kudu stops answering: what waits for it ends when it was promised to, and memory keeps to its
//! bound during that time and after.

use std::time::{Duration, Instant};

use oribi_protocol::status::Status;
use oribi_testkit::{
    KuduCluster, KuduOptions, KuduServer, PATIENCE, RawConnection, Request, ServerOptions,
    ServerProcess, poll_until,
};
use oribi_types::DurabilityLevel;

use crate::bucket::options;

/// A document is a temporary failure after ten seconds, and the end of the server waits for twenty;
/// what a busy machine adds comes on top.
const READ_WAIT_MAX: Duration = Duration::from_secs(15);
const STOP_WAIT_MAX: Duration = Duration::from_secs(28);

const VALUE_BYTES: usize = 16 << 10;

fn key(number: u64) -> String {
    format!("document-{number}")
}

fn stat(connection: &mut RawConnection, group: &str, name: &str) -> u64 {
    let stats = connection.stat(group).unwrap();
    let found = stats.iter().find(|(found, _)| found == name);
    found.unwrap_or_else(|| panic!("no {name} in {group:?}")).1.parse().unwrap()
}

/// Waits until everything that was taken is in Kudu.
fn wait_until_flushed(server: &ServerProcess) {
    let flushed = poll_until(PATIENCE, || {
        let mut connection = RawConnection::login(server.port()).ok()?;
        (stat(&mut connection, "", "ep_diskqueue_items") == 0).then_some(())
    });
    assert!(flushed.is_some(), "not flushed:\n{}", server.output());
}

fn pause(cluster: &KuduCluster) {
    for kudu in [KuduServer::TabletServer(0), KuduServer::Master(0)] {
        cluster.pause(kudu).unwrap();
    }
}

fn resume(cluster: &KuduCluster) {
    for kudu in [KuduServer::Master(0), KuduServer::TabletServer(0)] {
        cluster.resume(kudu).unwrap();
    }
    cluster.wait_healthy().unwrap();
}

/// Writes documents of 16 KiB until `count` are taken.
fn fill(server: &ServerProcess, count: u64) {
    let mut connection = RawConnection::login(server.port()).unwrap();
    let value = "v".repeat(VALUE_BYTES);
    for number in 0..count {
        let request = Request::set(key(number), &value);
        let taken = poll_until(PATIENCE, || {
            let status = connection.call(&request).unwrap().status();
            (status == Status::Success).then_some(())
        });
        assert!(taken.is_some(), "document {number} is never taken");
    }
}

/// Asks for documents, all at once over one connection; how many could not be read, and when the
/// last answer came.
fn read_all(port: u16, numbers: std::ops::Range<u64>) -> (usize, Duration) {
    let mut connection = RawConnection::login(port).unwrap();
    let requests: Vec<Request> = numbers.map(|number| Request::get(key(number))).collect();
    connection.set_read_timeout(PATIENCE).unwrap();
    let begun = Instant::now();
    connection.send_all(&requests.iter().collect::<Vec<_>>()).unwrap();
    let mut failed = 0;
    for _ in &requests {
        match connection.receive().unwrap().status() {
            Status::Success => {}
            Status::Etmpfail => failed += 1,
            other => panic!("{other:?}"),
        }
    }
    (failed, begun.elapsed())
}

// Invariant: A request gives up ten seconds after it began to wait for an absent store, and a stop
// ends reads at once.
/// Reads took ten seconds for each document, one after the other, and the end of the server waited
/// for all of them.
#[test]
fn reads_and_shutdown_wait_within_their_limits() {
    const DOCUMENTS: u64 = 1500;
    let Some(cluster) = KuduCluster::start_or_skip(KuduOptions::new(1, 1)) else { return };
    let directory = tempfile::tempdir().unwrap();
    let settings = options(&cluster, "away", &directory).setting("memory-quota-mib", 12);
    let mut server = ServerProcess::start(settings).unwrap();
    fill(&server, DOCUMENTS);
    wait_until_flushed(&server);
    pause(&cluster);
    let port = server.port();
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..6)
            .map(|reader| reader * 200..reader * 200 + 40)
            .map(|numbers| scope.spawn(move || read_all(port, numbers)))
            .collect();
        let read: Vec<(usize, Duration)> =
            readers.into_iter().map(|reader| reader.join().unwrap()).collect();
        println!("failed reads, and when the last was answered: {read:?}");
        assert!(read.iter().any(|(failed, _)| *failed > 20), "little was evicted: {read:?}");
        assert!(read.iter().all(|(_, last)| *last < READ_WAIT_MAX), "{read:?}");
    });
    // Everything that may wait waits: reads, a durable write, and what is to be flushed.
    let mut waiting = RawConnection::login(port).unwrap();
    let durable = Request::set("durable", "v").durable(DurabilityLevel::PersistToMajority);
    waiting.send(&durable).unwrap();
    let is_queued = poll_until(PATIENCE, || {
        let mut connection = RawConnection::login(port).ok()?;
        (stat(&mut connection, "", "ep_diskqueue_items") > 0).then_some(())
    });
    assert!(is_queued.is_some(), "a write is taken");
    let requests: Vec<Request> = (0..200).map(|number| Request::get(key(number))).collect();
    waiting.send_all(&requests.iter().collect::<Vec<_>>()).unwrap();
    let begun = Instant::now();
    let status = server.terminate().unwrap();
    println!("the server ended after {:?}", begun.elapsed());
    assert!(begun.elapsed() < STOP_WAIT_MAX, "{:?}:\n{}", begun.elapsed(), server.output());
    assert!(!status.success(), "it could not flush:\n{}", server.output());
    resume(&cluster);
}

/// Bytes that the process may have at most: the documented bound.
fn resident_max(quota_mib: u64) -> u64 {
    (quota_mib << 20) * 11 / 10 + (64 << 20)
}

/// Writes the load until `taken` documents were taken or `refused` in a row were not; the most
/// bytes that were resident in that time.
fn load(server: &ServerProcess, from: u64, taken: u64, refused: u64) -> (u64, u64) {
    let mut connection = RawConnection::login(server.port()).unwrap();
    let value = "x".repeat(VALUE_BYTES);
    let (mut number, mut refusals, mut peak) = (from, 0, 0);
    while number < from + taken && refusals < refused {
        let request = Request::set(key(number % 20_000), &value);
        match connection.call(&request).unwrap().status() {
            Status::Success => (number, refusals) = (number + 1, 0),
            Status::Etmpfail => refusals += 1,
            other => panic!("{other:?}"),
        }
        if number % 16 == 0 {
            peak = peak.max(server.resident_bytes().unwrap());
        }
    }
    (number, peak)
}

/// The queue took all of the quota during an outage, and each tablet kept the buffers of its
/// largest batch.
#[test]
fn memory_keeps_to_its_bound_over_outages() {
    const QUOTA_MIB: u64 = 64;
    const ROUNDS: u64 = 3;
    let Some(cluster) = KuduCluster::start_or_skip(KuduOptions::new(1, 1)) else { return };
    let directory = tempfile::tempdir().unwrap();
    let url = format!("kudu://{}/memory?tablets=8&replicas=1", cluster.master_addresses());
    let settings = ServerOptions::new(crate::bucket::ORIBI, directory.path().join("data"))
        .setting("storage", url)
        .setting("memory-quota-mib", QUOTA_MIB);
    let server = ServerProcess::start(settings).unwrap();
    let bound = resident_max(QUOTA_MIB);
    let (mut number, mut peak) = (0, 0);
    for round in 0..ROUNDS {
        let (next, healthy) = load(&server, number, 4000, u64::MAX);
        pause(&cluster);
        let (last, away) = load(&server, next, u64::MAX - next, 2000);
        let mut connection = RawConnection::login(server.port()).unwrap();
        let queued = stat(&mut connection, "", "ep_checkpoint_memory");
        resume(&cluster);
        wait_until_flushed(&server);
        let after = server.resident_bytes().unwrap();
        println!(
            "round {round}: MiB resident with Kudu {}, without {}, after {}; queued {}, taken {}",
            healthy >> 20,
            away >> 20,
            after >> 20,
            queued >> 20,
            last - number
        );
        assert!(last > next, "writes are taken while Kudu is away");
        assert!(queued <= (QUOTA_MIB << 20) / 4, "{queued} bytes are queued: a fifth and a write");
        peak = peak.max(healthy).max(away).max(after);
        number = last;
    }
    assert!(peak <= bound, "{} MiB resident where {} are promised", peak >> 20, bound >> 20);
}
