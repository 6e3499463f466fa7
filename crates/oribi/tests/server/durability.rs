//! Durable writes: answered when they are on disk, and there after a SIGKILL that follows at once.

use oribi_protocol::status::Status;
use oribi_testkit::Request;
use oribi_types::DurabilityLevel;

use crate::fixture::{Fixture, call_when_warm, expect};

// Compat (Differences): Durability on one node
#[test]
fn a_persisted_write_survives_a_kill_after_its_answer() {
    let mut fixture = Fixture::start();
    for level in [DurabilityLevel::MajorityAndPersistOnMaster, DurabilityLevel::PersistToMajority] {
        let mut connection = fixture.login();
        let key = format!("{level:?}");
        let request = Request::set(&key, "precious").durable(level);
        let stored = expect(call_when_warm(&mut connection, &request), Status::Success);
        fixture.server.kill().unwrap();
        fixture.server.restart().unwrap();
        let mut connection = fixture.login();
        let got = expect(call_when_warm(&mut connection, &Request::get(&key)), Status::Success);
        assert_eq!((got.text().as_str(), got.cas), ("precious", stored.cas));
    }
    fixture.finish(&[]);
}

#[test]
fn a_persisted_deletion_survives_a_kill() {
    let mut fixture = Fixture::start();
    let mut connection = fixture.login();
    let level = DurabilityLevel::PersistToMajority;
    expect(connection.call(&Request::set("a", "1").durable(level)).unwrap(), Status::Success);
    expect(connection.call(&Request::delete("a").durable(level)).unwrap(), Status::Success);
    fixture.server.kill().unwrap();
    fixture.server.restart().unwrap();
    let mut connection = fixture.login();
    expect(call_when_warm(&mut connection, &Request::get("a")), Status::KeyEnoent);
    fixture.finish(&[]);
}

#[test]
fn majority_alone_is_met_by_the_only_copy() {
    let fixture = Fixture::start();
    let mut connection = fixture.login();
    let request = Request::set("a", "1").durable(DurabilityLevel::Majority);
    expect(connection.call(&request).unwrap(), Status::Success);
    fixture.finish(&[]);
}

#[test]
fn a_level_that_does_not_exist_is_refused() {
    let fixture = Fixture::start();
    let mut connection = fixture.login();
    // Frame id 1, one byte, level 9.
    let request = Request::set("a", "1").framing(&[0x11, 9]);
    expect(connection.call(&request).unwrap(), Status::DurabilityInvalidLevel);
    expect(connection.call(&Request::get("a")).unwrap(), Status::KeyEnoent);
    fixture.finish(&[]);
}

#[test]
fn answers_keep_order_while_a_durable_write_waits() {
    // Unordered execution is not negotiated here, so the GET must not overtake the write.
    let fixture = Fixture::start();
    let mut connection = fixture.login();
    let write = Request::set("a", "1").durable(DurabilityLevel::PersistToMajority);
    let written = connection.send(&write).unwrap();
    let read = connection.send(&Request::get("a")).unwrap();
    assert_eq!(expect(connection.receive().unwrap(), Status::Success).opaque, written);
    assert_eq!(expect(connection.receive().unwrap(), Status::Success).opaque, read);
    fixture.finish(&[]);
}
