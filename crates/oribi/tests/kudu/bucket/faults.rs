//! Kudu's servers are killed, paused and restarted under load: nothing acknowledged as persisted is
//! lost, nothing that is not there is acknowledged until then, and the server continues when Kudu
//! does.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use oribi_protocol::status::Status;
use oribi_testkit::{
    KuduCluster, KuduOptions, KuduServer, PATIENCE, RawConnection, Request, ServerProcess,
    StopOnDrop, poll_until,
};
use oribi_types::DurabilityLevel;

use crate::bucket::{ALLOWED_WARNINGS, start};

/// Documents of the writer, overwritten in turn.
const DOCUMENTS: u64 = 40;
/// How long a durable write is watched for an answer that must not come.
const SILENCE: Duration = Duration::from_millis(1500);

/// The writer's knowledge of a document: the newest number that was acknowledged as persisted, and
/// the newest sent.
#[derive(Clone, Copy, Default)]
struct ExpectedValue {
    acknowledged: u64,
    sent: u64,
}

fn key(document: u64) -> String {
    format!("document-{document}")
}

/// Overwrites documents durably until it is told to stop.
fn write(port: u16, stop: &AtomicBool) -> BTreeMap<u64, ExpectedValue> {
    let mut connection = RawConnection::login(port).unwrap();
    let mut known: BTreeMap<u64, ExpectedValue> = BTreeMap::new();
    let mut number = 0;
    while !stop.load(Ordering::Acquire) {
        number += 1;
        let of_document = known.entry(number % DOCUMENTS).or_default();
        of_document.sent = number;
        let request = Request::set(key(number % DOCUMENTS), number.to_string())
            .durable(DurabilityLevel::PersistToMajority);
        match connection.call(&request).unwrap().status() {
            Status::Success => of_document.acknowledged = number,
            // It took too long: the write is there, and may be lost.
            Status::SyncWriteAmbiguous => {}
            // The last write of the document took too long, and Kudu has not decided yet.
            Status::SyncWriteInProgress => {}
            other => panic!("a durable write was answered {other:?}"),
        }
    }
    known
}

/// Every document is the newest that was acknowledged, or a later one.
fn check(port: u16, known: &BTreeMap<u64, ExpectedValue>) {
    let mut connection = RawConnection::login(port).unwrap();
    for (document, known) in known {
        let found = connection.call(&Request::get(key(*document))).unwrap();
        let number = match found.status() {
            Status::Success => found.text().parse().unwrap(),
            Status::KeyEnoent => 0,
            other => panic!("{other:?}"),
        };
        assert!(
            (known.acknowledged..=known.sent).contains(&number),
            "document {document} is {number}, acknowledged {}, sent {}",
            known.acknowledged,
            known.sent
        );
    }
}

/// While Kudu is away writes are taken, and none is acknowledged as persisted; afterwards it is.
fn write_meanwhile(
    server: &ServerProcess,
    cluster: &KuduCluster,
    kudu: KuduServer,
    back: impl Fn(),
) {
    let mut plain = RawConnection::login(server.port()).unwrap();
    for number in 0..100 {
        let request = Request::set(format!("meanwhile-{number}"), "taken");
        assert_eq!(plain.call(&request).unwrap().status(), Status::Success);
    }
    let is_store = matches!(kudu, KuduServer::TabletServer(_));
    let mut durable = RawConnection::login(server.port()).unwrap();
    durable.set_read_timeout(SILENCE).unwrap();
    let request = Request::set("durable", "persisted").durable(DurabilityLevel::PersistToMajority);
    durable.send(&request).unwrap();
    let early = durable.receive();
    assert!(!(is_store && early.is_ok()), "{kudu:?} is away, and a write was acknowledged");
    back();
    cluster.wait_healthy().unwrap();
    let answers = poll_until(PATIENCE, || {
        let mut connection = RawConnection::login(server.port()).ok()?;
        (connection.call(&request).ok()?.status() == Status::Success).then_some(())
    });
    assert!(answers.is_some(), "no durable write after {kudu:?} came back:\n{}", server.output());
}

/// While Kudu is paused a durable write is not visible, and nothing is written over it. A kill
/// takes nothing back that was read; when Kudu decides, the write is there or it never was.
#[test]
fn a_pending_write_is_invisible_until_kudu_has_it() {
    let Some(cluster) = KuduCluster::start_or_skip(KuduOptions::new(1, 1)) else { return };
    let directory = tempfile::tempdir().unwrap();
    let mut server = start(&cluster, "pending", &directory);
    let durable =
        |value: &str| Request::set("k", value).durable(DurabilityLevel::PersistToMajority);
    let mut writer = RawConnection::login(server.port()).unwrap();
    assert_eq!(writer.call(&durable("1")).unwrap().status(), Status::Success);

    cluster.pause(KuduServer::TabletServer(0)).unwrap();
    writer.set_read_timeout(SILENCE).unwrap();
    writer.send(&durable("2")).unwrap();
    assert!(writer.receive().is_err(), "Kudu is paused, and a write was acknowledged");
    let mut reader = RawConnection::login(server.port()).unwrap();
    assert_eq!(reader.call(&Request::get("k")).unwrap().text(), "1");
    let other = reader.call(&Request::set("k", "x")).unwrap().status();
    assert!(matches!(other, Status::SyncWriteInProgress | Status::Etmpfail), "{other:?}");
    cluster.resume(KuduServer::TabletServer(0)).unwrap();
    let committed = poll_until(PATIENCE, || {
        (reader.call(&Request::get("k")).unwrap().text() == "2").then_some(())
    });
    assert!(committed.is_some(), "the write is not there:\n{}", server.output());

    cluster.pause(KuduServer::TabletServer(0)).unwrap();
    let mut writer = RawConnection::login(server.port()).unwrap();
    writer.set_read_timeout(SILENCE).unwrap();
    writer.send(&durable("3")).unwrap();
    assert!(writer.receive().is_err(), "Kudu is paused, and a write was acknowledged");
    assert_eq!(reader.call(&Request::get("k")).unwrap().text(), "2");
    server.kill().unwrap();
    cluster.resume(KuduServer::TabletServer(0)).unwrap();
    cluster.wait_healthy().unwrap();
    server.restart().unwrap();
    let mut reader = RawConnection::login(server.port()).unwrap();
    let found = reader.call(&Request::get("k")).unwrap().text();
    assert!(["2", "3"].contains(&found.as_str()), "{found}");
}

#[test]
fn persisted_writes_survive_faults_of_kudu() {
    let Some(cluster) = KuduCluster::start_or_skip(KuduOptions::new(1, 1)) else { return };
    let directory = tempfile::tempdir().unwrap();
    let mut server = start(&cluster, "faults", &directory);
    let stop = AtomicBool::new(false);
    let known = std::thread::scope(|scope| {
        let stopped = StopOnDrop(&stop);
        let writer = scope.spawn(|| write(server.port(), &stop));
        for kudu in [KuduServer::TabletServer(0), KuduServer::Master(0)] {
            cluster.pause(kudu).unwrap();
            write_meanwhile(&server, &cluster, kudu, || cluster.resume(kudu).unwrap());
            cluster.kill(kudu).unwrap();
            write_meanwhile(&server, &cluster, kudu, || cluster.restart(kudu).unwrap());
        }
        drop(stopped);
        writer.join().unwrap()
    });
    assert!(known.values().any(|known| known.acknowledged > 0), "nothing was acknowledged");
    check(server.port(), &known);
    server.assert_no_unlisted_warnings(&ALLOWED_WARNINGS);
    server.kill().unwrap();
    server.restart().unwrap();
    check(server.port(), &known);
    let mut connection = RawConnection::login(server.port()).unwrap();
    assert_eq!(connection.call(&Request::get("durable")).unwrap().text(), "persisted");
}
