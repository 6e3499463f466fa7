//! All connections and their records.
//!
//! Owns: one [`ConnectionRecord`] per connection, shared by the connection and the list. The worker
//! of a connection writes its record with plain stores: agreements when they change, traffic at
//! most once per turn. Any thread reads it.
//!
//! Invariants: a number is never reused; a record is in the list from the moment its worker
//! accepted the socket until the connection ended. A record is about 200 bytes, so ten thousand
//! idle connections cost two megabytes. The registry has no sockets.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use oribi_auth::Identity;
use oribi_types::Timestamp;
use parking_lot::Mutex;

use crate::connection::features::Features;
use crate::diagnostics::counters::Counter;

/// Connections summed per lock.
const SUM_PIECE: usize = 256;
const _: () = assert!(SUM_PIECE > 0, "a walk goes forward");

/// Results of a connection's negotiation.
#[derive(Debug, Default, Clone)]
pub(crate) struct NegotiationRecord {
    /// Agent name from HELLO, truncated to `AGENT_BYTES_MAX`.
    pub agent: Option<Box<str>>,
    pub user: Option<Arc<Identity>>,
    /// Name of the selected bucket.
    pub bucket: Option<Box<str>>,
    /// TLS version and cipher suite, if TLS is in use.
    pub tls: Option<(&'static str, &'static str)>,
    /// Features that HELLO granted.
    pub features: Features,
}

#[derive(Debug)]
pub(crate) struct ConnectionRecord {
    /// Its number, from 1.
    pub number: u64,
    /// Worker that serves it.
    pub worker: usize,
    /// Address of the other end of the socket: the client, or the balancer that passes it on.
    socket_peer: Option<SocketAddr>,
    /// The client's address, as its balancer says.
    client: OnceLock<SocketAddr>,
    /// When the worker took it over.
    pub created: Timestamp,
    pub bytes_received: Counter,
    pub bytes_sent: Counter,
    pub requests: Counter,
    /// Bytes held for this connection alone after its last turn.
    pub buffer_bytes: Counter,
    /// Wall clock of its last turn, in nanoseconds since 1970.
    pub active_unix_ns: Counter,
    agreement: Mutex<NegotiationRecord>,
}

impl ConnectionRecord {
    pub fn peer(&self) -> Option<SocketAddr> {
        self.client.get().copied().or(self.socket_peer)
    }

    /// Takes over the client's address from its balancer, once.
    pub fn set_client(&self, client: SocketAddr) {
        // A second address is ignored; there is one header.
        let _ = self.client.set(client);
    }

    pub fn agree(&self, change: impl FnOnce(&mut NegotiationRecord)) {
        change(&mut self.agreement.lock());
    }

    pub fn agreement(&self) -> NegotiationRecord {
        self.agreement.lock().clone()
    }
}

/// All connections of a server by number.
#[derive(Debug, Default)]
pub(crate) struct ConnectionRegistry {
    records: Mutex<BTreeMap<u64, Arc<ConnectionRecord>>>,
    last_number: AtomicU64,
}

impl ConnectionRegistry {
    /// Lists a new connection.
    pub fn add(
        &self,
        worker: usize,
        peer: Option<SocketAddr>,
        created: Timestamp,
    ) -> Arc<ConnectionRecord> {
        let record = Arc::new(ConnectionRecord {
            number: self.last_number.fetch_add(1, Ordering::Relaxed) + 1,
            worker,
            socket_peer: peer,
            client: OnceLock::new(),
            created,
            bytes_received: Counter::default(),
            bytes_sent: Counter::default(),
            requests: Counter::default(),
            buffer_bytes: Counter::default(),
            active_unix_ns: Counter::default(),
            agreement: Mutex::default(),
        });
        record.active_unix_ns.set(created.unix_ns);
        let before = self.records.lock().insert(record.number, Arc::clone(&record));
        assert!(before.is_none(), "a connection's number is used once");
        record
    }

    /// Removes a connection that has ended.
    pub fn remove(&self, number: u64) {
        let removed = self.records.lock().remove(&number);
        assert!(removed.is_some(), "a connection leaves the registry once");
    }

    pub fn get(&self, number: u64) -> Option<Arc<ConnectionRecord>> {
        self.records.lock().get(&number).cloned()
    }

    /// Bytes held for all connections together. Takes the lock for one piece of the list at a time.
    pub fn buffer_bytes(&self) -> u64 {
        let (mut sum, mut after) = (0, 0);
        loop {
            let piece = self.after(after, SUM_PIECE);
            let Some(last) = piece.last() else { return sum };
            assert!(last.number > after, "a walk goes forward");
            after = last.number;
            sum += piece.iter().map(|record| record.buffer_bytes.get()).sum::<u64>();
        }
    }

    /// Up to `count` connections with numbers above `after`, ascending. Callers read a long list in
    /// pieces, each under one short lock.
    pub fn after(&self, after: u64, count: usize) -> Vec<Arc<ConnectionRecord>> {
        let records = self.records.lock();
        records
            .range(after.saturating_add(1)..)
            .take(count)
            .map(|(_, record)| Arc::clone(record))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use oribi_types::Timestamp;

    use super::{ConnectionRecord, ConnectionRegistry};

    #[test]
    fn list_pieces_join_and_ids_are_not_reused() {
        let registry = ConnectionRegistry::default();
        for worker in 0..10 {
            registry.add(worker, None, Timestamp::default());
        }
        registry.remove(3);
        for record in registry.after(0, 10) {
            record.buffer_bytes.set(record.number);
        }
        assert_eq!(registry.buffer_bytes(), (1..=10).sum::<u64>() - 3);
        let (mut seen, mut after) = (Vec::new(), 0);
        loop {
            let piece = registry.after(after, 4);
            let Some(last) = piece.last() else { break };
            after = last.number;
            seen.extend(piece.iter().map(|record| record.number));
        }
        assert_eq!(seen, [1, 2, 4, 5, 6, 7, 8, 9, 10]);
        registry.remove(10);
        assert_eq!(registry.add(0, None, Timestamp::default()).number, 11);
        assert!(registry.get(10).is_none() && registry.get(11).is_some());
    }

    #[test]
    fn record_is_small() {
        assert!(size_of::<ConnectionRecord>() <= 256, "{}", size_of::<ConnectionRecord>());
    }
}
