//! A full bucket makes space for the writes of memcached's clients, which do not repeat a refused
//! one.

use oribi_protocol::opcode::Opcode;
use oribi_protocol::status::Status;
use oribi_testkit::{RawConnection, Request, ServerOptions};

use crate::fixture::Fixture;

const QUOTA_MIB: u64 = 16;
const VALUE_BYTES: usize = 1000;
/// Four times the quota.
const DOCUMENTS: u32 = 64_000;
const BATCH: u32 = 500;
/// Documents that are read again and again.
const HOT: u32 = 500;

/// A client that says no HELLO, as those of memcached.
fn client(fixture: &Fixture) -> RawConnection {
    RawConnection::connect(fixture.server.port()).unwrap()
}

fn start(configure: impl FnOnce(ServerOptions) -> ServerOptions) -> Fixture {
    Fixture::start_with(|options| configure(options.setting("memory-quota-mib", QUOTA_MIB)))
}

fn write(client: &mut RawConnection, names: impl Iterator<Item = String>) {
    let value = vec![b'v'; VALUE_BYTES];
    let requests: Vec<Request> = names.map(|name| Request::set(name, value.clone())).collect();
    client.send_all(&requests.iter().collect::<Vec<_>>()).unwrap();
    for request in &requests {
        let status = client.receive().unwrap().status();
        assert_eq!(status, Status::Success, "{request:?} was refused");
    }
}

/// How many of these documents are there.
fn read(client: &mut RawConnection, names: impl Iterator<Item = String>) -> u32 {
    let requests: Vec<Request> = names.map(Request::get).collect();
    client.send_all(&requests.iter().collect::<Vec<_>>()).unwrap();
    let found = requests.iter().filter(|_| client.receive().unwrap().status() == Status::Success);
    found.count() as u32
}

fn name(number: u32) -> String {
    format!("document-{number:08}")
}

#[test]
fn a_full_cache_evicts_and_rejects_no_write() {
    let fixture = start(|options| options.argument("--cache"));
    let mut client = client(&fixture);
    for first in (0..DOCUMENTS).step_by(BATCH as usize) {
        write(&mut client, (first..first + BATCH).map(name));
        let hot = read(&mut client, (0..HOT).map(name));
        assert!(hot >= HOT * 9 / 10, "only {hot} of {HOT} hot documents are left at {first}");
    }
    let kept = read(&mut client, (0..DOCUMENTS).map(name));
    assert!(kept < DOCUMENTS / 2, "{kept} documents in a cache for less than a quarter");
    // memcached would keep about as many.
    assert!(kept > DOCUMENTS / 8, "{kept} documents");
    let flushed = client.call(&Request::new(Opcode::Flush)).unwrap();
    assert_eq!(flushed.status(), Status::Success);
    assert_eq!(read(&mut client, (0..HOT).map(name)), 0);
}

#[test]
fn a_cache_has_what_was_just_stored_at_any_size() {
    let fixture = start(|options| options.argument("--cache"));
    let mut client = client(&fixture);
    for (bytes, documents) in [(3_000_000, 30), (573_000, 100), (20_000, 2000)] {
        let value = vec![b'v'; bytes];
        for number in 0..documents {
            let key = format!("{bytes}-{number}");
            let stored = client.call(&Request::set(key.clone(), value.clone())).unwrap();
            assert_eq!(stored.status(), Status::Success, "{key}");
            let found = client.call(&Request::get(key.clone())).unwrap();
            assert_eq!(found.status(), Status::Success, "{key} is gone");
        }
    }
}

// Compat (Differences): Memory
#[test]
fn a_bulk_load_waits_for_the_disk() {
    let fixture = start(|options| options);
    let mut client = client(&fixture);
    for first in (0..DOCUMENTS).step_by(BATCH as usize * 8) {
        write(&mut client, (first..first + BATCH * 8).map(name));
    }
    assert_eq!(read(&mut client, (0..1000).map(name)), 1000);
}
