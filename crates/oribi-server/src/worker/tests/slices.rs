//! How much of a large value moves in a turn: little while other clients send small requests, more
//! when none do.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use mio::{Events, Poll};
use oribi_storage::MemoryStore;
use oribi_types::Timestamp;

use super::super::connections::Connections;
use super::{LIMITS, PATIENCE, get, read_frames, set};
use crate::auth::UserStore;
use crate::environment::{Environment, LatencyClock};
use crate::harness::in_memory_server;
use crate::limits::{
    LONE_TRANSFER_SLICE_BYTES, SMALL_REQUESTS_REMEMBERED_MS, TRANSFER_SLICE_BYTES,
};
use crate::mailbox::{Accepted, Mailbox};

const LARGE_BYTES: usize = 3 << 20;

/// A worker's connections; the test controls turns and clock.
struct Turns {
    poll: Poll,
    events: Events,
    connections: Connections,
    env: Environment,
    listener: TcpListener,
}

impl Turns {
    fn new() -> Turns {
        let store = Arc::new(MemoryStore::new());
        let users = UserStore::development().into();
        let (server, _) = in_memory_server(users, store, LIMITS, true, false);
        let clock = LatencyClock::System(Instant::now());
        let mut env = Environment::new(server, 0, Mailbox::new(None), clock);
        env.now = Timestamp::from_unix_s(1_700_000_000);
        env.now_ms = 10_000;
        Turns {
            poll: Poll::new().unwrap(),
            events: Events::with_capacity(16),
            connections: Connections::default(),
            env,
            listener: TcpListener::bind("127.0.0.1:0").unwrap(),
        }
    }

    fn connect(&mut self) -> TcpStream {
        let client = TcpStream::connect(self.listener.local_addr().unwrap()).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        let (stream, _) = self.listener.accept().unwrap();
        stream.set_nonblocking(true).unwrap();
        assert!(self.env.server.admit_connection());
        let accepted = Accepted::Plain(mio::net::TcpStream::from_std(stream));
        self.connections.add(accepted, self.poll.registry(), &self.env);
        client
    }

    /// Sends a request and runs turns until it is answered; returns the status.
    fn exchange(&mut self, client: &TcpStream, request: Vec<u8>) -> u16 {
        let (mut sender, mut receiver) = (client.try_clone().unwrap(), client.try_clone().unwrap());
        let talk = thread::spawn(move || {
            sender.write_all(&request).unwrap();
            read_frames(&mut receiver, 1)[0].0
        });
        while !talk.is_finished() {
            self.poll.poll(&mut self.events, Some(Duration::from_millis(1))).unwrap();
            for event in &self.events {
                self.connections.on_event(event);
            }
            while self.connections.has_runnable() {
                self.connections.run_next(&mut self.env);
            }
        }
        talk.join().unwrap()
    }
}

#[test]
fn slices_are_small_while_somebody_sends_small_requests() {
    let mut turns = Turns::new();
    let (large, small) = (turns.connect(), turns.connect());
    assert_eq!(turns.env.transfer_slice_bytes(), LONE_TRANSFER_SLICE_BYTES);

    assert_eq!(turns.exchange(&large, set(b"large", &vec![7; LARGE_BYTES])), 0);
    assert_eq!(turns.exchange(&large, get(b"large")), 0);
    assert_eq!(turns.env.transfer_slice_bytes(), LONE_TRANSFER_SLICE_BYTES, "nothing small came");

    assert_eq!(turns.exchange(&small, set(b"small", b"value")), 0);
    assert_eq!(turns.env.transfer_slice_bytes(), TRANSFER_SLICE_BYTES);
    turns.env.now_ms += SMALL_REQUESTS_REMEMBERED_MS;
    assert_eq!(turns.exchange(&large, get(b"large")), 0);
    assert_eq!(turns.env.transfer_slice_bytes(), TRANSFER_SLICE_BYTES);
    turns.env.now_ms += 1;
    assert_eq!(turns.env.transfer_slice_bytes(), LONE_TRANSFER_SLICE_BYTES, "forgotten by now");

    assert_eq!(turns.exchange(&small, get(b"small")), 0);
    assert_eq!(turns.env.transfer_slice_bytes(), TRANSFER_SLICE_BYTES);
}
