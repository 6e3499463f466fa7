//! The links between nodes: a real consumer here, a real connection there, and a wire that loses.
//!
//! Owns: what a worker does for a link (`runtime/worker/outgoing`), over bytes in memory. The wire
//! delivers any part of the bytes in flight, in order, unless the link is cut or reset.

use std::cell::RefCell;
use std::sync::Arc;

use oribi_engine::{BackfillPause, FetchSink, PersistOutcome, PersistenceSink};
use oribi_protocol::frame::{DecodedFrame, decode};
use oribi_types::{DocKey, Timestamp, Vbid};
use parking_lot::Mutex;

use super::node::NodeProcess;
use crate::buckets::BucketHandle;
use crate::harness::ConnectionHarness;
use crate::replication::consumer::{LinkIdentity, ReplicaConsumer};
use crate::replication::failure::LinkFailure;
use crate::replication::followed_copy::FollowedCopy;
use crate::replication::links::LinkWorker;
use crate::replication::message::{LinkId, LinkMessage};
use crate::replication::work::{CopyWork, LinkWork, LinkWorkResult};

/// Pause before a link that failed is made again.
const RETRY_MS: u64 = 100;

/// The mailbox of the worker that would drive the links.
#[derive(Default)]
pub(super) struct LinkMessages(Mutex<Vec<LinkMessage>>);

impl LinkMessages {
    pub(super) fn take(&self) -> Vec<LinkMessage> {
        std::mem::take(&mut *self.0.lock())
    }
}

impl LinkWorker for LinkMessages {
    fn post_link(&self, message: LinkMessage) {
        self.0.lock().push(message);
    }
}

/// Notifies a link of a commit in the store of one of its copies; the token is the vbucket.
struct StoreSink {
    messages: Arc<LinkMessages>,
    link: LinkId,
}

impl PersistenceSink for StoreSink {
    fn persisted(&self, token: u64, outcome: PersistOutcome) {
        let vbid = Vbid(u16::try_from(token).expect("the token is a vbucket"));
        self.messages.post_link(LinkMessage::Stored { link: self.link, vbid, outcome });
    }
}

/// Fetches whose outcome is looked up again.
#[derive(Debug)]
struct IgnoredFetches;

impl FetchSink for IgnoredFetches {
    fn fetched(&self, _token: u64, _outcome: oribi_engine::FetchOutcome) {}
}

/// The copies of a node that follow another one.
#[derive(Default)]
pub(super) struct WorldLink {
    copies: Vec<Arc<FollowedCopy>>,
    wire: Option<Wire>,
    retry_ms: u64,
    attempt: u64,
    failure: Option<LinkFailure>,
}

struct Wire {
    consumer: ReplicaConsumer,
    server: ConnectionHarness,
    to_server: Vec<u8>,
    to_consumer: Vec<u8>,
    /// Work of the node that has not ended yet.
    work: Vec<LinkWork>,
}

/// Both ends of a link, and how many of the bytes in flight arrive now.
pub(super) struct LinkEnds<'w> {
    /// Number of the other node.
    pub(super) slot: usize,
    pub(super) own: &'w str,
    pub(super) source: &'w str,
    /// `None` while the other node does not run, or nothing reaches it.
    pub(super) server: Option<(&'w NodeProcess, Arc<BucketHandle>)>,
    /// Nothing comes from the other node.
    pub(super) is_deaf: bool,
    pub(super) now: Timestamp,
    pub(super) now_ms: u64,
    pub(super) bytes_max: usize,
    pub(super) holds_work: bool,
}

impl WorldLink {
    pub(super) fn follow(&mut self, copy: Arc<FollowedCopy>) {
        if let Some(wire) = &mut self.wire {
            wire.consumer.follow(Arc::clone(&copy), &mut wire.to_server);
        }
        self.copies.push(copy);
    }

    /// Its copies, and why the connection before this one ended.
    pub(super) fn describe(&self) -> String {
        let copies: Vec<_> = self.copies.iter().map(|copy| copy.status()).collect();
        let wire = self.wire.as_ref().map(|wire| {
            let under_way = (wire.to_server.len(), wire.to_consumer.len());
            (wire.consumer.due_ms(), wire.consumer.held_bytes(), under_way)
        });
        format!("{copies:?} after {:?}: {wire:?}", self.failure)
    }

    pub(super) fn is_over(&self) -> bool {
        self.copies.is_empty()
    }

    pub(super) fn drop_stopped(&mut self) {
        self.copies.retain(|copy| !copy.is_stopped());
        if let Some(wire) = &mut self.wire {
            wire.consumer.drop_stopped(&mut wire.to_server);
        }
    }

    /// The store has what an attempt to connect waits for, or failed.
    pub(super) fn note_stored(
        &mut self,
        attempt: u64,
        (vbid, outcome): (Vbid, PersistOutcome),
        now_ms: u64,
    ) {
        if let Some(wire) = self.wire.as_mut().filter(|_| attempt == self.attempt) {
            wire.consumer.stored(vbid, outcome, now_ms);
        }
    }

    /// Ends the connection; the bytes in flight are lost.
    pub(super) fn reset(&mut self, now_ms: u64) {
        if let Some(mut wire) = self.wire.take() {
            wire.consumer.end();
        }
        self.retry_ms = now_ms + RETRY_MS;
    }

    /// Moves bytes in both directions, and does what they cause. True when something moved.
    pub(super) fn turn(&mut self, messages: &Arc<LinkMessages>, ends: &LinkEnds<'_>) -> bool {
        if self.wire.is_none() && !self.connect(ends) {
            return false;
        }
        match self.exchange(messages, ends) {
            Ok(moved) => moved,
            Err(failure) => {
                self.reset(ends.now_ms);
                self.failure = Some(failure);
                true
            }
        }
    }

    fn connect(&mut self, ends: &LinkEnds<'_>) -> bool {
        let (Some((process, bucket)), Some(copy)) = (&ends.server, self.copies.first()) else {
            return false;
        };
        if ends.now_ms < self.retry_ms || ends.is_deaf {
            return false;
        }
        let (_, secret) = process.server.cluster.links.identity().expect("set at the start");
        let (own, source) = (ends.own.to_owned(), ends.source.to_owned());
        let identity = LinkIdentity { own, source, bucket: Arc::clone(&copy.bucket), secret };
        let mut to_server = Vec::new();
        let mut consumer = ReplicaConsumer::begin(identity, &mut to_server);
        for copy in &self.copies {
            consumer.follow(Arc::clone(copy), &mut to_server);
        }
        let server =
            ConnectionHarness::without_threads(&process.server, bucket, (ends.now, ends.now_ms));
        let (to_consumer, work) = (Vec::new(), Vec::new());
        self.attempt += 1;
        self.wire = Some(Wire { consumer, server, to_server, to_consumer, work });
        true
    }

    fn exchange(
        &mut self,
        messages: &Arc<LinkMessages>,
        ends: &LinkEnds<'_>,
    ) -> Result<bool, LinkFailure> {
        let Some(wire) = &mut self.wire else { return Ok(false) };
        let mut moved = wire.reach_server(ends)?;
        let (now, now_ms) = (ends.now, ends.now_ms);
        if !ends.is_deaf {
            moved |= wire.reach_consumer(ends)?;
        }
        for work in std::mem::take(&mut wire.work) {
            wire.consumer.work_done(run(work), &mut wire.to_server)?;
            moved = true;
        }
        wire.consumer.turn(now, now_ms, &mut wire.to_server)?;
        let link = LinkId { slot: ends.slot, attempt: self.attempt };
        for (copy, seqno) in wire.consumer.take_store_waits() {
            let messages = Arc::clone(messages);
            let sink: Arc<dyn PersistenceSink> = Arc::new(StoreSink { messages, link });
            let vbid = copy.vbid;
            if copy.bucket.bucket().when_stored(vbid, seqno, &sink, u64::from(vbid.0)) {
                wire.consumer.stored(vbid, PersistOutcome::Persisted, now_ms);
                moved = true;
            }
        }
        wire.work.extend(std::iter::from_fn(|| wire.consumer.take_work()));
        if !ends.holds_work {
            for work in std::mem::take(&mut wire.work) {
                wire.consumer.work_done(run(work), &mut wire.to_server)?;
                moved = true;
            }
        }
        Ok(moved || wire.consumer.due_ms().is_some_and(|due_ms| due_ms <= now_ms))
    }
}

impl Wire {
    /// Requests arrive, and the other node sends what it has.
    fn reach_server(&mut self, ends: &LinkEnds<'_>) -> Result<bool, LinkFailure> {
        let Some((process, bucket)) = &ends.server else { return Ok(false) };
        let before = self.to_consumer.len();
        let (lease, session) = (process.agent.lease(), process.agent.lease().serving());
        let passed_ms = ends.now_ms.saturating_sub(self.server.now_ms());
        let mut sent = self.server.advance_ms(passed_ms);
        sent.extend(self.server.retry_writes().0);
        let part = self.to_server.len().min(ends.bytes_max);
        let request: Vec<u8> = self.to_server.drain(..part).collect();
        self.server.feed_into(&request, &mut sent);
        let both = RefCell::new((&mut self.server, &mut sent));
        let feed = || {
            let (server, sent) = &mut *both.borrow_mut();
            server.feed_into(&[], sent);
        };
        // A scan whose reader has much waits while that reads, as on a separate thread. A store
        // that fails ends the streams that wait for it.
        let pace = |pause: BackfillPause| {
            feed();
            pause.idle == 0
        };
        let _ = bucket.bucket().backfill_step(&pace, &Timestamp::default);
        feed();
        if self.server.close_reason().is_some() || !lease.still_holds(session) {
            return Err(LinkFailure::Closed);
        }
        self.to_consumer.extend_from_slice(&sent);
        Ok(part > 0 || self.to_consumer.len() > before)
    }

    /// Frames that have arrived whole are taken.
    fn reach_consumer(&mut self, ends: &LinkEnds<'_>) -> Result<bool, LinkFailure> {
        let (mut taken, out) = (0, &mut self.to_server);
        while taken < ends.bytes_max {
            let decoded = decode(&self.to_consumer[taken..]).expect("a server sends frames");
            let DecodedFrame::Complete { frame, consumed } = decoded else { break };
            self.consumer.take(&frame, None, ends.now, out)?;
            taken += consumed;
        }
        self.to_consumer.drain(..taken);
        Ok(taken > 0)
    }
}

/// Does work of a link. No fetcher runs, so fetches are read here.
fn run(work: LinkWork) -> LinkWorkResult {
    match work {
        LinkWork::Copy { copy, work: CopyWork::Fetch(keys) } => {
            let sink: Arc<dyn FetchSink> = Arc::new(IgnoredFetches);
            for (collection, key) in &keys {
                let key = DocKey { collection: *collection, key };
                copy.bucket.bucket().fetch(copy.vbid, key, &sink, 0);
            }
            copy.bucket.bucket().fetch_step();
            LinkWorkResult::Copy { copy, result: Ok(()) }
        }
        work => work.run(),
    }
}
