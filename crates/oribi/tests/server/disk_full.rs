//! A disk that really is full: a small file system in memory, which only root may mount.
//!
//! Where that is not allowed these tests say `SKIPPED` and pass. The engine's tests of a full disk
//! (`oribi-engine/tests/bucket/faults`) and the simulation run everywhere.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use oribi_protocol::status::Status;
use oribi_testkit::{
    PATIENCE, RawConnection, Request, ServerOptions, ServerProcess, poll_until, skip,
};
use oribi_types::{Cas, DurabilityLevel};
use tempfile::TempDir;

use crate::fixture::{ORIBI, call_when_warm, expect};

const DISK_MIB: usize = 192;
/// Space that is given back in the middle of a test.
const BALLAST_MIB: usize = 64;
const DOCUMENT_BYTES: usize = 1 << 20;

/// A file system of [`DISK_MIB`] that goes away with this value.
struct SmallDisk {
    directory: TempDir,
}

impl SmallDisk {
    fn mount() -> Option<SmallDisk> {
        let directory = tempfile::tempdir().unwrap();
        let size = format!("size={DISK_MIB}m");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "tmpfs"])
            .arg(directory.path())
            .output();
        match mounted {
            Ok(output) if output.status.success() => Some(SmallDisk { directory }),
            _ => {
                skip(
                    "ORIBI_MOUNT_REQUIRED",
                    "a mounted tmpfs",
                    "run as root, where mount is allowed",
                );
                None
            }
        }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn ballast(&self) -> PathBuf {
        self.path().join("ballast")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg("-l").arg(self.path()).status();
        println!("unmounted: {unmounted:?}");
    }
}

/// Bytes that no store can compress.
fn value(number: usize) -> Vec<u8> {
    let mut state = number as u64 + 1;
    let words = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.take(DOCUMENT_BYTES / 8).flatten().collect()
}

/// Writes until the disk is full; number and CAS of everything that was acknowledged as persisted.
/// The write that is not known to be persisted is not visible.
fn fill(connection: &mut RawConnection) -> Vec<(usize, Cas)> {
    let mut acknowledged = Vec::new();
    for number in 0..2 * DISK_MIB * (1 << 20) / DOCUMENT_BYTES {
        let request = Request::set(format!("key-{number}"), value(number))
            .durable(DurabilityLevel::PersistToMajority);
        let response = connection.call(&request).unwrap();
        match response.status() {
            Status::Success => acknowledged.push((number, response.cas)),
            Status::SyncWriteAmbiguous | Status::Etmpfail => {
                let read = connection.call(&Request::get(format!("key-{number}"))).unwrap();
                assert_eq!(read.status(), Status::KeyEnoent, "it is only pending");
                return acknowledged;
            }
            other => panic!("a write to a full disk was answered {other:?}"),
        }
    }
    panic!("{} documents fit on a disk of {DISK_MIB} MiB", acknowledged.len());
}

#[track_caller]
fn assert_all_there(connection: &mut RawConnection, acknowledged: &[(usize, Cas)]) {
    for (number, cas) in acknowledged {
        let request = Request::get(format!("key-{number}"));
        let found = expect(call_when_warm(connection, &request), Status::Success);
        assert!(found.value == value(*number), "value of document {number}");
        assert_eq!(found.cas, *cas, "CAS of document {number}");
    }
}

fn run(logs: usize) {
    let Some(disk) = SmallDisk::mount() else { return };
    fs::write(disk.ballast(), vec![1; BALLAST_MIB << 20]).unwrap();
    let options = ServerOptions::new(ORIBI, disk.path().join("data")).setting("logs", logs);
    let mut server = ServerProcess::start(options).unwrap();
    let mut connection = RawConnection::login(server.port()).unwrap();
    let acknowledged = fill(&mut connection);
    assert!(!acknowledged.is_empty(), "some documents fit");
    println!("{logs} logs: {} documents fit", acknowledged.len());

    // Plain writes are refused as well instead of filling memory, and reads continue.
    let refused = poll_until(PATIENCE, || {
        let response = connection.call(&Request::set("plain", "1")).unwrap();
        (response.status() == Status::Etmpfail).then_some(())
    });
    assert!(refused.is_some(), "writes are refused while the store fails");
    assert_all_there(&mut connection, &acknowledged);
    assert!(server.is_running(), "the server died:\n{}", server.output());

    // Space comes back, and writes do, by themselves.
    fs::remove_file(disk.ballast()).unwrap();
    let request = Request::set("during", "1").durable(DurabilityLevel::PersistToMajority);
    let taken = poll_until(PATIENCE, || {
        let response = connection.call(&request).unwrap();
        (response.status() == Status::Success).then_some(())
    });
    assert!(taken.is_some(), "writes are taken when there is space:\n{}", server.output());
    assert_all_there(&mut connection, &acknowledged);

    // What was written before and after the trouble survives a crash.
    server.kill().unwrap();
    server.restart().unwrap();
    let mut connection = RawConnection::login(server.port()).unwrap();
    assert_all_there(&mut connection, &acknowledged);
    expect(call_when_warm(&mut connection, &Request::get("during")), Status::Success);
    let request = Request::set("after", "1").durable(DurabilityLevel::PersistToMajority);
    expect(call_when_warm(&mut connection, &request), Status::Success);
    drop(server);
}

/// A durable write that the full disk did not take is not read before a kill, and not after it.
#[test]
fn a_kill_takes_nothing_back_that_was_read() {
    let Some(disk) = SmallDisk::mount() else { return };
    fs::write(disk.ballast(), vec![1; BALLAST_MIB << 20]).unwrap();
    let options = ServerOptions::new(ORIBI, disk.path().join("data"));
    let mut server = ServerProcess::start(options).unwrap();
    let mut connection = RawConnection::login(server.port()).unwrap();
    let acknowledged = fill(&mut connection);
    let pending = acknowledged.len();
    server.kill().unwrap();
    fs::remove_file(disk.ballast()).unwrap();
    server.restart().unwrap();
    let mut connection = RawConnection::login(server.port()).unwrap();
    let read = call_when_warm(&mut connection, &Request::get(format!("key-{pending}")));
    expect(read, Status::KeyEnoent);
    assert_all_there(&mut connection, &acknowledged);
}

#[test]
fn a_full_disk_loses_nothing_in_the_log_store() {
    run(1);
}

#[test]
fn a_full_disk_loses_nothing_in_several_logs() {
    run(2);
}
