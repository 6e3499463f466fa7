//! Clients that cost memory on purpose: they leave answers unread and requests unfinished.
//!
//! Owns: their connections. Each kind keeps a number of them open, and replaces those that the
//! server has ended. It restarts all of them every few seconds, because the server promises to
//! return memory as well as to limit it.

use std::io::{ErrorKind, Read, Write};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::shared::{SoakShared, connect};
use crate::raw_connection::{RawConnection, Request};

/// Size of the document that is requested and not read.
const LARGE_BYTES: usize = 1 << 20;
/// Announced size of a request of which only half is sent.
const ANNOUNCED_BYTES: usize = 20 << 20;
/// Time after which all connections are opened anew.
const LIFE: Duration = Duration::from_secs(5);
/// Pause between two checks.
const PAUSE: Duration = Duration::from_millis(20);

#[derive(Clone, Copy, PartialEq, Eq)]
enum RequestKind {
    ReadsNothing,
    FinishesNothing,
}

/// A hostile client, and the bytes it has still to send.
struct Client {
    connection: RawConnection,
    pending: Vec<u8>,
    sent: usize,
}

/// Keeps `count` connections of each kind until the run is over.
pub(super) fn run(shared: &SoakShared<'_>, count: usize) {
    while !shared.is_over() {
        let mut clients: Vec<(RequestKind, Option<Client>)> = Vec::new();
        for kind in [RequestKind::ReadsNothing, RequestKind::FinishesNothing] {
            clients.extend((0..count).map(|_| (kind, None)));
        }
        // Logins take their time, so a life begins when all clients are connected.
        clients.iter_mut().for_each(|(kind, client)| *client = open(shared, *kind));
        let begun = Instant::now();
        while !shared.is_over() && begun.elapsed() < LIFE {
            for (kind, client) in &mut clients {
                if let Some(known) = client
                    && !known.goes_on()
                {
                    shared.hostile_ended.fetch_add(1, Ordering::Relaxed);
                    *client = None;
                }
                if client.is_none() {
                    *client = open(shared, *kind);
                }
            }
            std::thread::park_timeout(PAUSE);
        }
    }
}

/// A client, unless the server is busy and refuses it, or the run is over.
fn open(shared: &SoakShared<'_>, kind: RequestKind) -> Option<Client> {
    if shared.is_over() {
        return None;
    }
    let mut client = Client::open(shared.server.port(), kind).ok()?;
    shared.hostile_opened.fetch_add(1, Ordering::Relaxed);
    client.goes_on();
    Some(client)
}

impl Client {
    fn open(port: u16, kind: RequestKind) -> Result<Client> {
        let mut connection = connect(port, "default")?;
        let value = |bytes: usize| vec![b'h'; bytes];
        let pending = match kind {
            RequestKind::ReadsNothing => {
                connection.call(&Request::set("large", value(LARGE_BYTES)))?;
                connection.encode(&Request::get("large"), 1).repeat(256)
            }
            RequestKind::FinishesNothing => {
                let mut bytes =
                    connection.encode(&Request::set("endless", value(ANNOUNCED_BYTES)), 1);
                bytes.truncate(ANNOUNCED_BYTES / 2);
                bytes
            }
        };
        connection.stream().set_nonblocking(true)?;
        Ok(Client { connection, pending, sent: 0 })
    }

    /// Sends as much as the server accepts; false when it has ended the connection.
    fn goes_on(&mut self) -> bool {
        let stream = self.connection.stream();
        while self.sent < self.pending.len() {
            match stream.write(&self.pending[self.sent..]) {
                Ok(sent) => self.sent += sent,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(_) => return false,
            }
        }
        // All was sent. A client with an unfinished request gets no answer, unless the connection
        // ends.
        let is_reader = self.pending.len() < ANNOUNCED_BYTES / 2;
        is_reader
            || match stream.read(&mut [0]) {
                Ok(bytes) => bytes > 0,
                Err(error) => error.kind() == ErrorKind::WouldBlock,
            }
    }
}
