//! The DCP producers of a bucket, as seen by other threads.
//!
//! Owns: which connection has which name, and figures for statistics. Invariants: a name belongs to
//! the connection that took it last, and the server closes the earlier one; a connection that ends
//! removes only its own entry. Figures of streams are published once a second by the producer's
//! worker, so they may be that old.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use oribi_engine::dcp::{StreamFilter, StreamPhase, StreamSink, StreamStats};
use oribi_engine::{BackfillStats, Bucket};
use oribi_protocol::dcp::StreamHead;
use oribi_protocol::dcp::stream_request::StreamRequestExtras;
use oribi_system::clock::wall_clock;
use oribi_types::{Seqno, Timestamp};
use parking_lot::Mutex;

use crate::diagnostics::counters::Counter;

/// Token of no stream: gives the producer a turn.
const NO_STREAM: u64 = u64::MAX;

pub struct DcpProducerRecord {
    pub name: Box<[u8]>,
    /// Number of the connection.
    pub connection: u64,
    /// Name of the user.
    pub user: String,
    /// Name of the node whose replicas it feeds.
    pub follower: Option<String>,
    /// When it was opened.
    pub created: Timestamp,
    pub items_sent: Counter,
    /// Bytes of messages sent.
    pub bytes_sent: Counter,
    /// Time since which it has unsent changes, in nanoseconds since 1970; 0 when it has none.
    behind_since_ns: AtomicU64,
    is_dirty: AtomicBool,
    is_replaced: AtomicBool,
    inbox: Arc<dyn StreamSink>,
    published: Mutex<DcpProducerFigures>,
}

/// The control settings that change messages.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct DcpOptions {
    /// Values are compressed if that pays.
    pub compresses: bool,
    /// A stream that the consumer closes has an end message.
    pub ends_closed_streams: bool,
    /// Expirations have their own opcode.
    pub expirations: bool,
    pub stream_ids: bool,
    /// Markers of backfills carry the purge seqno.
    pub purge_seqnos: bool,
    /// The consumer is another node, and its streams feed replicas.
    pub feeds_replicas: bool,
}

/// Figures that a producer publishes periodically.
#[derive(Default, Clone)]
pub struct DcpProducerFigures {
    pub options: DcpOptions,
    /// DCP noop: enabled, interval in milliseconds, whether one is unanswered.
    pub noop: (bool, u64, bool),
    /// Size of the window, bytes in flight, bytes acknowledged.
    pub window: (u32, u64, u64),
    pub streams: Vec<DcpStreamFigures>,
}

/// Figures of one stream.
#[derive(Clone)]
pub struct DcpStreamFigures {
    /// Opaque, vbucket and id.
    pub head: StreamHead,
    pub request: StreamRequestExtras,
    /// The collections of the stream.
    pub filter: StreamFilter,
    pub stats: StreamStats,
    /// The replica has everything up to here; none for other consumers.
    pub acknowledged_seqno: Option<Seqno>,
}

impl DcpStreamFigures {
    /// Changes of the vbucket after the last one that the stream has read.
    pub fn remaining(&self, bucket: &Bucket) -> u64 {
        let vbucket = bucket.vbucket(self.head.vbid);
        let high = vbucket.map_or(0, |vbucket| vbucket.stats().high_seqno.0);
        high.min(self.stats.end_seqno.0).saturating_sub(self.stats.last_read_seqno.0)
    }

    /// Seqnos that the replica lacks; `None` for other consumers.
    pub fn replica_lag(&self, bucket: &Bucket) -> Option<u64> {
        let high = bucket.vbucket(self.head.vbid)?.stats().high_seqno.0;
        Some(high.saturating_sub(self.acknowledged_seqno?.0))
    }
}

impl DcpProducerRecord {
    /// The record of a new producer.
    pub fn new(
        name: &[u8],
        connection: u64,
        (user, follower): (String, Option<String>),
        created: Timestamp,
        inbox: Arc<dyn StreamSink>,
    ) -> DcpProducerRecord {
        DcpProducerRecord {
            name: name.into(),
            connection,
            user,
            follower,
            created,
            items_sent: Counter::default(),
            bytes_sent: Counter::default(),
            behind_since_ns: AtomicU64::new(0),
            is_dirty: AtomicBool::new(true),
            is_replaced: AtomicBool::new(false),
            inbox,
            published: Mutex::default(),
        }
    }

    /// True once another connection has taken the name.
    pub fn is_replaced(&self) -> bool {
        self.is_replaced.load(Ordering::Acquire)
    }

    /// Figures as of a moment ago.
    pub fn published(&self) -> DcpProducerFigures {
        self.published.lock().clone()
    }

    /// Records messages. Only the producer's worker calls it.
    pub fn note_sent(&self, bytes: usize, changes: usize) {
        debug_assert!(bytes > 0 || changes == 0, "a change has bytes");
        self.items_sent.add(changes as u64);
        self.bytes_sent.add(bytes as u64);
        self.is_dirty.store(true, Ordering::Relaxed);
    }

    /// Records whether something was left to send after a turn.
    pub fn note_turn(&self, is_behind: bool, now: Timestamp) {
        let was_behind = self.behind_since_ns.load(Ordering::Relaxed) != 0;
        if is_behind != was_behind {
            let since_ns = if is_behind { now.unix_ns } else { 0 };
            self.behind_since_ns.store(since_ns, Ordering::Relaxed);
            debug_assert_eq!(since_ns != 0, is_behind, "a lag has a beginning");
        }
    }
}

impl DcpProducerRecord {
    /// Marks the figures as changed.
    pub fn changed(&self) {
        self.is_dirty.store(true, Ordering::Relaxed);
    }

    /// Publishes figures, if something changed since the last time.
    pub fn publish(&self, collect: impl FnOnce() -> DcpProducerFigures) {
        if self.is_dirty.swap(false, Ordering::Relaxed) {
            *self.published.lock() = collect();
        }
    }
}

/// The producers of one bucket.
#[derive(Default)]
pub struct DcpProducers {
    by_name: Mutex<BTreeMap<Box<[u8]>, Arc<DcpProducerRecord>>>,
    ended: EndedTotals,
}

/// Sums over producers and streams that have ended.
#[derive(Default)]
struct EndedTotals {
    items_sent: AtomicU64,
    bytes_sent: AtomicU64,
    backfills: AtomicU64,
    cursors_dropped: AtomicU64,
}

/// Sums over the producers of a bucket.
#[derive(Default, Clone, Copy)]
pub struct DcpTotals {
    pub connections: u64,
    /// DcpStreams that are not over.
    pub streams: u64,
    /// Of those, the ones that read from disk.
    pub backfilling: u64,
    /// Changes sent so far.
    pub items_sent: u64,
    /// Bytes of messages sent so far.
    pub bytes_sent: u64,
    /// Changes of live streams sent from disk.
    pub backfill_sent: u64,
    /// Backfills begun so far.
    pub backfills: u64,
    /// Cursors dropped because memory was short, so far.
    pub cursors_dropped: u64,
    /// Changes in memory that streams have not read.
    pub items_ready: u64,
    /// Changes that streams have still to send.
    pub items_remaining: u64,
    /// Seconds for which the slowest connection has had unsent changes.
    pub lag_s: u64,
    /// Scans of the bucket's backfills, which its streams share.
    pub scans: BackfillStats,
}

impl DcpProducers {
    /// Lists a producer under its name, and closes the earlier producer with that name.
    pub fn enter(&self, record: &Arc<DcpProducerRecord>) {
        let before = self.by_name.lock().insert(record.name.clone(), Arc::clone(record));
        if let Some(before) = before {
            assert!(!Arc::ptr_eq(&before, record), "a producer enters once");
            before.is_replaced.store(true, Ordering::Release);
            before.inbox.ready(NO_STREAM);
        }
    }

    /// All producers, by name.
    pub fn list(&self) -> Vec<Arc<DcpProducerRecord>> {
        self.by_name.lock().values().cloned().collect()
    }

    /// Sums over the producers of `bucket`.
    pub fn figures(&self, bucket: &Bucket) -> DcpTotals {
        let mut sums = DcpTotals {
            items_sent: self.ended.items_sent.load(Ordering::Relaxed),
            bytes_sent: self.ended.bytes_sent.load(Ordering::Relaxed),
            backfills: self.ended.backfills.load(Ordering::Relaxed),
            cursors_dropped: self.ended.cursors_dropped.load(Ordering::Relaxed),
            scans: bucket.backfill_stats(),
            ..DcpTotals::default()
        };
        let now_ns = wall_clock().unix_ns;
        for record in self.list() {
            sums.connections += 1;
            sums.items_sent += record.items_sent.get();
            sums.bytes_sent += record.bytes_sent.get();
            let behind_since_ns = record.behind_since_ns.load(Ordering::Relaxed);
            if behind_since_ns != 0 {
                let lag_s = now_ns.saturating_sub(behind_since_ns) / 1_000_000_000;
                sums.lag_s = sums.lag_s.max(lag_s);
            }
            for stream in &record.published.lock().streams {
                let stats = &stream.stats;
                sums.streams += u64::from(stats.phase != StreamPhase::Dead);
                sums.backfilling += u64::from(stats.phase == StreamPhase::Backfilling);
                sums.backfill_sent += stats.backfill_sent;
                sums.backfills += stats.backfills;
                sums.cursors_dropped += stats.cursors_dropped;
                sums.items_ready += stats.items_ready;
                sums.items_remaining += stream.remaining(bucket);
            }
        }
        sums
    }

    /// Gives every producer a turn.
    pub fn wake_all(&self) {
        for record in self.list() {
            record.inbox.ready(NO_STREAM);
        }
    }

    /// Keeps the figures of a stream that ends.
    pub fn note_end(&self, stats: &StreamStats) {
        self.ended.backfills.fetch_add(stats.backfills, Ordering::Relaxed);
        self.ended.cursors_dropped.fetch_add(stats.cursors_dropped, Ordering::Relaxed);
    }

    /// Forgets a producer that ends, and keeps its sums.
    pub fn leave(&self, record: &Arc<DcpProducerRecord>) {
        let mut by_name = self.by_name.lock();
        if by_name.get(&record.name).is_some_and(|listed| Arc::ptr_eq(listed, record)) {
            by_name.remove(&record.name);
        }
        self.ended.items_sent.fetch_add(record.items_sent.get(), Ordering::Relaxed);
        self.ended.bytes_sent.fetch_add(record.bytes_sent.get(), Ordering::Relaxed);
    }
}
