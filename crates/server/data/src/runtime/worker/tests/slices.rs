//! How much of a large value moves in a turn: little while other clients send small requests, more
//! when none do.

use std::collections::HashSet;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use mio::{Events, Poll};
use oribi_auth::UserStore;
use oribi_protocol::dcp::stream_request::{StreamFlags, StreamRequestExtras};
use oribi_protocol::limits::READ_BLOCK_BYTES;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::RequestParts;
use oribi_storage::MemoryStore;
use oribi_types::Timestamp;

use super::super::WorkerLoop;
use super::pauses::{EVERYTHING, login};
use super::{LIMITS, PATIENCE, get, read_frames, request, set};
use crate::buckets::BucketHandle;
use crate::connection::latency_clock::LatencyClock;
use crate::dispatch::environment::Environment;
use crate::harness::{HARNESS_VBUCKETS, in_memory_server};
use crate::limits::{
    CHANGES_PER_TURN, LONE_TRANSFER_SLICE_BYTES, RECEIVE_IN_PLACE_BYTES_MIN,
    SMALL_REQUESTS_REMEMBERED_MS, TRANSFER_SLICE_BYTES,
};
use crate::runtime::blocking_thread::BlockingThreads;
use crate::runtime::mailbox::{AcceptedSocket, Mailbox};

const LARGE_BYTES: usize = 3 << 20;

/// A worker; the test controls turns and clock.
pub(super) struct TurnLog {
    pub(super) worker: WorkerLoop,
    bucket: Arc<BucketHandle>,
    events: Events,
    listener: TcpListener,
}

impl TurnLog {
    pub(super) fn new() -> TurnLog {
        let store = Arc::new(MemoryStore::new());
        let users = UserStore::development().into();
        let (server, bucket) = in_memory_server(users, store, LIMITS, true, false);
        let clock = LatencyClock::System(Instant::now());
        let mailbox = Mailbox::new(None);
        let mut env = Environment::new(server, 0, &mailbox, clock);
        env.now = Timestamp::from_unix_s(1_700_000_000);
        env.now_ms = 10_000;
        let (_, queue) = BlockingThreads::start().unwrap();
        TurnLog {
            worker: WorkerLoop::new(Poll::new().unwrap(), env, mailbox, queue),
            bucket,
            events: Events::with_capacity(16),
            listener: TcpListener::bind("127.0.0.1:0").unwrap(),
        }
    }

    pub(super) fn connect(&mut self) -> TcpStream {
        let client = TcpStream::connect(self.listener.local_addr().unwrap()).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        let (stream, _) = self.listener.accept().unwrap();
        stream.set_nonblocking(true).unwrap();
        let WorkerLoop { poll, environment, connections, .. } = &mut self.worker;
        assert!(environment.server.connections.admit());
        let accepted = AcceptedSocket::Plain(mio::net::TcpStream::from_std(stream));
        connections.add(accepted, poll.registry(), environment);
        client
    }

    /// A turn of who would have the next one in a worker's round.
    fn turn(&mut self) {
        let WorkerLoop { environment, connections, .. } = &mut self.worker;
        match connections.runnable() {
            0 => _ = connections.run_transfer(environment),
            _ => connections.run_next(environment),
        }
    }

    /// Runs the turn that is next in the queue of small requests.
    pub(super) fn run_next(&mut self) {
        self.worker.connections.run_next(&mut self.worker.environment);
    }

    /// Connections that wait for their turn, and those that wait to send a slice.
    fn waiting(&self) -> (usize, usize) {
        (self.worker.connections.runnable(), self.worker.connections.transfers())
    }

    fn slice_bytes(&self) -> usize {
        self.worker.environment.transfer_slice_bytes()
    }

    /// Sends a request and runs turns until it is answered; returns the status.
    fn exchange(&mut self, client: &TcpStream, request: Vec<u8>) -> u16 {
        self.exchange_all(client, request, 1)[0]
    }

    /// The same for so many requests.
    fn exchange_all(&mut self, client: &TcpStream, requests: Vec<u8>, count: usize) -> Vec<u16> {
        let (mut sender, mut receiver) = (client.try_clone().unwrap(), client.try_clone().unwrap());
        let talk = thread::spawn(move || {
            sender.write_all(&requests).unwrap();
            read_frames(&mut receiver, count).iter().map(|(status, _)| *status).collect()
        });
        while !talk.is_finished() {
            self.worker.poll.poll(&mut self.events, Some(Duration::from_millis(1))).unwrap();
            for event in &self.events {
                self.worker.connections.on_event(event);
            }
            self.worker.take_messages();
            while self.worker.connections.has_runnable() {
                self.turn();
                self.worker.after_turn();
            }
        }
        talk.join().unwrap()
    }

    /// Waits until the worker has noticed that these many connections have sent something.
    fn notice(&mut self, connections: usize) {
        let mut noticed = HashSet::new();
        while noticed.len() < connections {
            self.worker.poll.poll(&mut self.events, Some(PATIENCE)).unwrap();
            for event in &self.events {
                noticed.insert(event.token());
                self.worker.connections.on_event(event);
            }
        }
    }
}

/// True when the server has sent something that the client has not read.
fn is_answered(client: &TcpStream) -> bool {
    client.set_nonblocking(true).unwrap();
    let peeked = client.peek(&mut [0]);
    client.set_nonblocking(false).unwrap();
    peeked.is_ok()
}

// Invariant: Large values move in slices of 256 KiB where small requests share the worker, else of
// 1 MiB.
#[test]
fn slices_are_small_under_small_requests() {
    let mut turns = TurnLog::new();
    let (large, small) = (turns.connect(), turns.connect());
    assert_eq!(turns.slice_bytes(), LONE_TRANSFER_SLICE_BYTES);

    assert_eq!(turns.exchange(&large, set(b"large", &vec![7; LARGE_BYTES])), 0);
    assert_eq!(turns.exchange(&large, get(b"large")), 0);
    assert_eq!(turns.slice_bytes(), LONE_TRANSFER_SLICE_BYTES, "nothing small came");

    assert_eq!(turns.exchange(&small, set(b"small", b"value")), 0);
    assert_eq!(turns.slice_bytes(), TRANSFER_SLICE_BYTES);
    turns.worker.environment.now_ms += SMALL_REQUESTS_REMEMBERED_MS;
    assert_eq!(turns.exchange(&large, get(b"large")), 0);
    assert_eq!(turns.slice_bytes(), TRANSFER_SLICE_BYTES);
    turns.worker.environment.now_ms += 1;
    assert_eq!(turns.slice_bytes(), LONE_TRANSFER_SLICE_BYTES, "forgotten by now");

    assert_eq!(turns.exchange(&small, get(b"small")), 0);
    assert_eq!(turns.slice_bytes(), TRANSFER_SLICE_BYTES);
}

// Invariant: The end of an answer does not wait for slices of other connections.
#[test]
fn a_short_rest_moves_with_its_slice() {
    let mut turns = TurnLog::new();
    for slice in [LONE_TRANSFER_SLICE_BYTES, TRANSFER_SLICE_BYTES] {
        assert_eq!(turns.slice_bytes(), slice);
        assert_eq!(turns.worker.environment.transfer_bytes(0), 0);
        assert_eq!(
            turns.worker.environment.transfer_bytes(slice + 28),
            slice + 28,
            "a value and its header"
        );
        assert_eq!(turns.worker.environment.transfer_bytes(slice * 9 / 8), slice * 9 / 8);
        assert_eq!(turns.worker.environment.transfer_bytes(slice * 9 / 8 + 1), slice);
        turns.worker.environment.note_small_requests();
    }
}

// Invariant: The end of an answer does not wait for slices of other connections.
#[test]
fn an_answer_does_not_wait_for_the_values_of_others() {
    let mut turns = TurnLog::new();
    let clients = [turns.connect(), turns.connect()];
    let request = set(b"large", &vec![7; RECEIVE_IN_PLACE_BYTES_MIN]);
    for client in &clients {
        // More than one read: it is received in place, and so is what follows.
        assert_eq!(turns.exchange(client, set(b"large", &vec![7; READ_BLOCK_BYTES * 2])), 0);
    }
    for mut client in &clients {
        client.write_all(&request).unwrap();
    }
    turns.notice(clients.len());
    let answered = || clients.iter().filter(|client| is_answered(client)).count();
    // The head of each, then the value of one and then that of the other.
    for answers in [0, 0, 1, 2] {
        turns.turn();
        assert_eq!(answered(), answers);
    }
}

// Invariant: A worker serves small requests before it moves the next slice of a large value.
#[test]
fn small_requests_go_before_slices() {
    let mut turns = TurnLog::new();
    let (mut large, mut small) = (turns.connect(), [turns.connect(), turns.connect()]);
    assert_eq!(turns.exchange(&large, set(b"large", &vec![7; LARGE_BYTES])), 0);
    for client in &small {
        assert_eq!(turns.exchange(client, set(b"small", b"value")), 0);
    }
    large.write_all(&get(b"large")).unwrap();
    turns.notice(1);
    turns.turn();
    assert_eq!(turns.waiting(), (0, 1));
    for client in &mut small {
        client.write_all(&get(b"small")).unwrap();
    }
    turns.notice(2);
    for client in &small {
        assert!(!is_answered(client));
        turns.turn();
        assert!(is_answered(client) && !is_answered(&large));
    }
    turns.turn();
    assert!(is_answered(&large));
}

#[test]
fn requests_precede_one_backfill_slice_per_turn() {
    let mut turns = TurnLog::new();
    let mut small = turns.connect();
    // Two and a half slices in each vbucket.
    let documents = CHANGES_PER_TURN * 5 / 2 * usize::from(HARNESS_VBUCKETS);
    let key = |number: usize| format!("key{number}").into_bytes();
    let sets = (0..documents).flat_map(|number| set(&key(number), b"value")).collect();
    assert_eq!(turns.exchange_all(&small, sets, documents), vec![0; documents]);
    turns.bucket.bucket().flush_step().unwrap();
    let from_disk = StreamRequestExtras { flags: StreamFlags::DISK_ONLY, ..EVERYTHING }.encode();
    let _consumers = ["one", "other"].map(|name| {
        let consumer = turns.connect();
        let (key, extras) = (name.as_bytes(), [0, 0, 0, 0, 0, 0, 0, 1]);
        let open = RequestParts { key, extras: &extras, ..RequestParts::new(Opcode::DcpOpen) };
        let stream = RequestParts { extras: &from_disk, ..RequestParts::new(Opcode::DcpStreamReq) };
        for request in login().into_iter().chain([request(&open), request(&stream)]) {
            assert_eq!(turns.exchange(&consumer, request), 0);
        }
        consumer
    });
    turns.bucket.bucket().backfill_step(&|_| false, &Timestamp::default).unwrap();
    turns.worker.take_messages();
    assert_eq!(turns.waiting(), (2, 0), "they have sent nothing yet");
    turns.worker.run_turns();
    assert_eq!(turns.waiting(), (0, 2), "each has sent a slice, and the first another one");
    for (before, left) in [(2, 2), (2, 1), (1, 0)] {
        small.write_all(&get(&key(0))).unwrap();
        turns.notice(1);
        assert_eq!(turns.waiting(), (1, before));
        turns.worker.run_turns();
        assert!(is_answered(&small));
        assert_eq!(read_frames(&mut small, 1)[0].0, 0);
        assert_eq!(turns.waiting(), (0, left), "one slice a round");
    }
}
