//! A worker's mailbox: a list of messages and a wake-up.
//!
//! Owns: messages that the worker has not taken yet. Invariant: the waker is used once per batch,
//! when the list turns from empty to not empty, so a flusher that completes ten thousand writes
//! costs one wake-up. Senders: the acceptor (sockets), flushers (persistence), fetchers (fetches),
//! the blocking threads (results), workers (memory given back), a watchdog (signs of life) and the
//! server (stop). The worker takes.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use oribi_engine::{FetchOutcome, FetchSink, PersistOutcome, PersistenceSink};
use parking_lot::Mutex;

use crate::connection::memory::budget::Grant;
use crate::connection::waker::{ConnectionId, ConnectionWaker};
use crate::dispatch::environment::Environment;
use crate::dispatch::job::JobResult;
use crate::replication::links::LinkWorker;
use crate::replication::message::LinkMessage;

#[derive(Debug)]
pub enum AcceptedSocket {
    /// On the port without TLS.
    Plain(mio::net::TcpStream),
    /// On the port with TLS, before the handshake.
    Tls(mio::net::TcpStream),
}

/// A message to a worker.
#[derive(Debug)]
pub enum WorkerMessage {
    Socket(AcceptedSocket),
    /// A write that waited for the store.
    Persisted {
        /// Token given with the write.
        token: u64,
        outcome: PersistOutcome,
    },
    /// A fetch from the store that a request waits for.
    Fetched {
        /// Token given with the request.
        token: u64,
        outcome: FetchOutcome,
    },
    /// A job that a connection had submitted to a blocking thread is done.
    JobDone {
        /// The connection that waits for it.
        connection: ConnectionId,
        /// The node's session at the submission.
        session: u64,
        result: JobResult<Environment>,
    },
    /// Memory that a connection waited for is reserved for it.
    MemoryGranted {
        /// The connection that waits for it; the worker returns the memory if the connection is
        /// gone.
        connection: ConnectionId,
        grant: Grant,
    },
    /// DCP streams of a connection have something to send, or the connection has to end.
    DcpReady {
        connection: ConnectionId,
    },
    /// News for the worker's links to other nodes.
    Link(LinkMessage),
    /// Cluster configurations have changed; the worker notifies subscribed connections.
    ClusterMapChanged,
    /// Send one answer, as a sign of life.
    Answer(SyncSender<()>),
    /// Send pending output, close everything and end.
    Stop,
}

/// See the module text.
#[derive(Debug)]
pub struct Mailbox {
    messages: Mutex<Vec<WorkerMessage>>,
    /// `None` when the owner polls the mailbox itself (the in-memory harness).
    waker: Option<mio::Waker>,
}

impl Mailbox {
    /// An empty mailbox; `waker` interrupts the owner's poll.
    pub fn new(waker: Option<mio::Waker>) -> Arc<Mailbox> {
        Arc::new(Mailbox { messages: Mutex::new(Vec::new()), waker })
    }

    /// Adds a message and wakes the owner if it may be asleep.
    pub fn post(&self, message: WorkerMessage) {
        let was_empty = {
            let mut messages = self.messages.lock();
            let was_empty = messages.is_empty();
            messages.push(message);
            was_empty
        };
        if !was_empty {
            return;
        }
        if let Some(Err(error)) = self.waker.as_ref().map(mio::Waker::wake) {
            tracing::error!(%error, "cannot wake a worker; it will look at its mailbox within a second");
        }
    }

    /// Exchanges the waiting messages with `into`, which must be empty.
    pub fn take(&self, into: &mut Vec<WorkerMessage>) {
        assert!(into.is_empty(), "messages taken before were all handled");
        std::mem::swap(&mut *self.messages.lock(), into);
    }
}

impl ConnectionWaker for Mailbox {
    fn memory_granted(&self, connection: ConnectionId, grant: Grant) {
        self.post(WorkerMessage::MemoryGranted { connection, grant });
    }

    fn dcp_ready(&self, connection: ConnectionId) {
        self.post(WorkerMessage::DcpReady { connection });
    }
}

impl LinkWorker for Mailbox {
    fn post_link(&self, message: LinkMessage) {
        self.post(WorkerMessage::Link(message));
    }
}

impl PersistenceSink for Mailbox {
    fn persisted(&self, token: u64, outcome: PersistOutcome) {
        self.post(WorkerMessage::Persisted { token, outcome });
    }
}

impl FetchSink for Mailbox {
    fn fetched(&self, token: u64, outcome: FetchOutcome) {
        self.post(WorkerMessage::Fetched { token, outcome });
    }
}

#[cfg(test)]
mod tests {
    use super::{Mailbox, WorkerMessage};

    #[test]
    fn messages_are_taken_in_order_and_once() {
        let mailbox = Mailbox::new(None);
        mailbox.post(WorkerMessage::Stop);
        mailbox.post(WorkerMessage::Stop);
        let mut taken = Vec::new();
        mailbox.take(&mut taken);
        assert_eq!(taken.len(), 2);
        taken.clear();
        mailbox.take(&mut taken);
        assert!(taken.is_empty());
    }

    #[test]
    fn one_wake_for_a_batch() {
        let mut poll = mio::Poll::new().unwrap();
        let waker = mio::Waker::new(poll.registry(), mio::Token(7)).unwrap();
        let mailbox = Mailbox::new(Some(waker));
        for _ in 0..100 {
            mailbox.post(WorkerMessage::Stop);
        }
        let mut events = mio::Events::with_capacity(8);
        poll.poll(&mut events, None).unwrap();
        assert_eq!(events.iter().count(), 1);
        let mut taken = Vec::new();
        mailbox.take(&mut taken);
        assert_eq!(taken.len(), 100);
    }
}
