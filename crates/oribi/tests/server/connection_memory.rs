//! What connections may cost together, whatever clients do: the process stays within quotas + 10 %
//! + 64 MiB, others are served concurrently, and memory goes back when it is over.

use std::io::{ErrorKind, Write};
use std::time::{Duration, Instant};

use oribi_protocol::feature::Feature;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::status::Status;
use oribi_testkit::raw_connection::{DEVELOPMENT_PASSWORD, DEVELOPMENT_USER};
use oribi_testkit::{PATIENCE, RawConnection, Request, poll_until};
use oribi_types::Datatype;

use crate::fixture::{Fixture, expect};

const MIB: u64 = 1 << 20;
const QUOTA_MIB: u64 = 100;
/// Memory limit of the process.
const RESIDENT_BYTES_MAX: u64 = (QUOTA_MIB + QUOTA_MIB / 10 + 64) * MIB;
/// Memory that may remain after hostile clients are gone.
const STAYS_BYTES_MAX: u64 = 24 * MIB;
/// Size of the largest document.
const LARGE: usize = 20 << 20;
/// Longest that another client's small request may take. Generous: the server is a debug build.
const OTHERS_WAIT_MAX: Duration = Duration::from_millis(2500);

/// A client that does small things, and looks at the process while others do large ones.
struct Bystander {
    fixture: Fixture,
    connection: RawConnection,
    resident_before: u64,
    resident_most: u64,
    longest: Duration,
}

impl Bystander {
    fn of(fixture: Fixture) -> Bystander {
        let connection = fixture.login();
        let resident_before = fixture.server.resident_bytes().unwrap();
        let longest = Duration::ZERO;
        Bystander { fixture, connection, resident_before, resident_most: 0, longest }
    }

    /// Writes and reads, and measures both. A large document in the queue takes all of its quota
    /// until it is flushed, so a write may have to retry.
    fn look(&mut self) {
        let set = Request::set("bystander", "unharmed");
        let written = poll_until(PATIENCE, || {
            let status = self.answer_to(&set);
            assert!(matches!(status, Status::Success | Status::Etmpfail), "{status:?}");
            (status == Status::Success).then_some(())
        });
        written.expect("the queue is flushed");
        assert_eq!(self.answer_to(&Request::get("bystander")), Status::Success);
        self.resident_most = self.resident_most.max(self.fixture.server.resident_bytes().unwrap());
    }

    /// Sends a request and measures how long its answer takes.
    fn answer_to(&mut self, request: &Request) -> Status {
        let begun = Instant::now();
        let status = self.connection.call(request).unwrap().status();
        self.longest = self.longest.max(begun.elapsed());
        status
    }

    fn look_until(&mut self, mut is_over: impl FnMut(&mut Bystander) -> bool) {
        let over = poll_until(PATIENCE, || {
            self.look();
            is_over(self).then_some(())
        });
        over.expect("it comes to an end");
    }

    #[track_caller]
    fn assert_bounds(&self) {
        println!(
            "{} MiB before, {} MiB at most, others waited {:?} at most",
            self.resident_before / MIB,
            self.resident_most / MIB,
            self.longest
        );
        assert!(self.resident_most <= RESIDENT_BYTES_MAX, "{} MiB", self.resident_most / MIB);
        assert!(self.longest <= OTHERS_WAIT_MAX, "others waited {:?}", self.longest);
    }

    /// Waits until what the others cost is given back; `documents` is what they left as documents.
    fn await_given_back(&mut self, documents: u64) {
        let bound = self.resident_before + documents + STAYS_BYTES_MAX;
        let mut now = 0;
        let given_back = poll_until(PATIENCE, || {
            now = self.fixture.server.resident_bytes().unwrap();
            (now <= bound).then_some(())
        });
        println!("{} MiB when they are gone", now / MIB);
        assert!(given_back.is_some(), "{} MiB stay, {} may", now / MIB, bound / MIB);
    }
}

fn start() -> Fixture {
    Fixture::start_with(|options| {
        options.setting("memory-quota-mib", QUOTA_MIB).setting("workers", 2)
    })
}

/// A document that is 20 MiB long and takes a twentieth of that.
fn store_compressed(fixture: &Fixture, key: &str) -> Vec<u8> {
    let mut plain = vec![b'p'; LARGE];
    for (at, byte) in plain.iter_mut().step_by(4099).enumerate() {
        *byte = at as u8;
    }
    let mut writer = RawConnection::connect(fixture.server.port()).unwrap();
    writer.hello(&[Feature::Snappy, Feature::Collections, Feature::SelectBucket]).unwrap();
    let login = writer.sasl_plain(DEVELOPMENT_USER, DEVELOPMENT_PASSWORD).unwrap();
    assert_eq!(login, Status::Success);
    assert_eq!(writer.select_bucket("default").unwrap(), Status::Success);
    let stream = snap::raw::Encoder::new().compress_vec(&plain).unwrap();
    let set = Request::set(key, stream).datatype(Datatype::SNAPPY.0);
    expect(writer.call(&set).unwrap(), Status::Success);
    plain
}

#[test]
fn stalled_snappy_readers_cost_a_window_each() {
    let fixture = start();
    let plain = store_compressed(&fixture, "large");
    let mut bystander = Bystander::of(fixture);
    let mut readers = Vec::new();
    for _ in 0..60 {
        let mut reader = bystander.fixture.login();
        // The first answer fills the socket; the others wait for it.
        reader.send_all(&[&Request::get("large"); 4]).unwrap();
        readers.push(reader);
        bystander.look();
    }
    for _ in 0..50 {
        bystander.look();
    }
    bystander.assert_bounds();
    // They share one version, so a client that reads need not wait for them.
    let mut honest = bystander.fixture.login();
    for _ in 0..3 {
        let read = poll_until(PATIENCE, || {
            let answer = honest.call(&Request::get("large")).unwrap();
            bystander.look();
            match answer.status() {
                Status::Success => Some(answer.value),
                Status::Etmpfail => None,
                status => panic!("{status:?}"),
            }
        });
        assert!(read.expect("a client that reads is served") == plain, "another value");
    }
    drop(readers);
    bystander.assert_bounds();
    bystander.await_given_back(0);
    bystander.fixture.finish(&[]);
}

/// Sends as much of `bytes` as the socket takes now; true when all of it is gone or the server
/// closed.
fn trickle(connection: &mut RawConnection, bytes: &[u8], sent: &mut usize) -> bool {
    connection.stream().set_nonblocking(true).unwrap();
    while *sent < bytes.len() {
        match connection.stream().write(&bytes[*sent..]) {
            Ok(count) => *sent += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
            Err(_) => return true,
        }
    }
    true
}

// Invariant: A large request is reserved as a whole before it is received; a connection waits only
// while it holds nothing.
#[test]
fn unfinished_requests_yield_memory_to_others() {
    let mut bystander = Bystander::of(start());
    let value = vec![b'v'; LARGE];
    let mut clients: Vec<(RawConnection, usize)> =
        (0..40).map(|_| (bystander.fixture.login(), 0)).collect();
    let whole = clients[0].0.encode(&Request::set("unfinished", &value), 1);
    let all_but_the_end = &whole[..whole.len() - 1000];
    let begun = Instant::now();
    bystander.look_until(|_| {
        for (client, sent) in &mut clients {
            trickle(client, all_but_the_end, sent);
        }
        begun.elapsed() > Duration::from_secs(3)
    });
    // A client that finishes what it begins gets through.
    let mut honest = bystander.fixture.login();
    let stored = poll_until(PATIENCE, || {
        let Ok(answer) = honest.call(&Request::set("honest", &value)) else {
            // On a machine that is busy it may stall for so long that it has to go as well.
            honest = bystander.fixture.login();
            return None;
        };
        match answer.status() {
            Status::Success => Some(()),
            Status::Etmpfail => None,
            status => panic!("{status:?}"),
        }
    });
    stored.expect("a client that finishes what it begins is served");
    bystander.look();
    bystander.fixture.expect_logged("others wait for its memory");
    drop(clients);
    bystander.assert_bounds();
    bystander.await_given_back(2 * LARGE as u64);
    bystander.fixture.finish(&[]);
}

#[test]
fn requests_without_rights_are_not_received() {
    let fixture = Fixture::with_users(|options| {
        options.setting("memory-quota-mib", QUOTA_MIB).setting("workers", 2)
    });
    let resident_before = fixture.server.resident_bytes().unwrap();
    let mut clients = Vec::new();
    for number in 0..40 {
        let mut client = RawConnection::connect(fixture.server.port()).unwrap();
        let features = [Feature::Collections, Feature::SelectBucket, Feature::XError];
        client.hello(&features).unwrap();
        let status = client.sasl_plain("reader", "reader secret").unwrap();
        assert_eq!(status, Status::Success);
        if number % 2 == 0 {
            assert_eq!(client.select_bucket("default").unwrap(), Status::Success);
        }
        let opcode = [Opcode::Set, Opcode::Append, Opcode::SubdocMultiMutation][number % 3];
        let request = Request::store(opcode, "k", vec![b'v'; LARGE]);
        let whole = client.encode(&request, 1);
        // The answer comes while nearly all of the value is still to come.
        client.send_bytes(&whole[..100_000]).unwrap();
        let refused = client.receive().unwrap().status();
        let expected = if number % 2 == 0 { Status::Eaccess } else { Status::NoBucket };
        assert_eq!(refused, expected, "{opcode:?}");
        client.send_bytes(&whole[100_000..whole.len() - 1]).unwrap();
        clients.push((client, *whole.last().unwrap()));
    }
    let grown = fixture.server.resident_bytes().unwrap().saturating_sub(resident_before);
    assert!(grown < 16 * MIB, "requests that are refused cost {} MiB", grown / MIB);
    // What is refused is passed over, and the connection continues.
    for (client, last) in &mut clients {
        client.send_bytes(&[*last]).unwrap();
        expect(client.call(&Request::new(Opcode::Noop)).unwrap(), Status::Success);
    }
    fixture.finish(&[]);
}

#[test]
fn replaced_unread_large_documents_are_bounded() {
    let mut bystander = Bystander::of(start());
    let mut writer = bystander.fixture.login();
    let mut readers = Vec::new();
    for number in 0..40u8 {
        // Each reader holds a version that no table has any more.
        let value = vec![number; 12 << 20];
        let stored = poll_until(PATIENCE, || {
            let status = writer.call(&Request::set("large", &value)).unwrap().status();
            (status == Status::Success).then_some(())
        });
        stored.expect("the document is stored in the end");
        let mut reader = bystander.fixture.login();
        let opcode = [Opcode::Get, Opcode::Gat, Opcode::GetLocked][usize::from(number) % 3];
        let request = match opcode {
            Opcode::Gat => Request::touch(opcode, "large", 0),
            // Locked for a second: the next version has to wait for the end of the lock.
            Opcode::GetLocked => Request::touch(opcode, "large", 1),
            _ => Request::about(opcode, "large"),
        };
        reader.send(&request).unwrap();
        readers.push(reader);
        bystander.look();
        let _ = writer.call(&Request::delete("large")).unwrap();
    }
    bystander.assert_bounds();
    drop(readers);
    bystander.await_given_back(16 * MIB);
    bystander.fixture.finish(&[]);
}

#[test]
fn many_small_unfinished_requests_are_bounded() {
    let fixture = start();
    let mut clients: Vec<RawConnection> = (0..800).map(|_| fixture.login()).collect();
    let mut bystander = Bystander::of(fixture);
    let whole = clients[0].encode(&Request::set("small", vec![b'v'; 60_000]), 1);
    for client in &mut clients {
        // Those that cost too much may be gone by now.
        let _ = client.send_bytes(&whole[..59_000]);
    }
    for _ in 0..20 {
        bystander.look();
    }
    bystander.assert_bounds();
    let grown = bystander.resident_most.saturating_sub(bystander.resident_before);
    // The clients would have 50 MiB. Connections may hold 35, and workers that close some of them
    // have their own blocks.
    assert!(grown <= 44 * MIB, "small requests cost {} MiB", grown / MIB);
    bystander.fixture.expect_logged("hold more memory than they may");
    bystander.fixture.finish(&[]);
}
