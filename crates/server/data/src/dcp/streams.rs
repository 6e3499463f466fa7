//! The streams of one producer, and whose turn it is.
//!
//! Owns: the table of streams by vbucket and id, the queue of those that have something to send,
//! and the list of deferred streams, which a busy producer polls with its next look: they need
//! neither be found idle now nor be woken later. Invariants: a live stream is in the queue at most
//! once; a position is the token that the engine knows the stream by. Positions are reused, so a
//! late wake-up, or a deferred poll, costs another stream one empty turn.

use std::collections::{BTreeMap, VecDeque};

use oribi_engine::dcp::{StreamFilter, VbucketDcpStream};
use oribi_protocol::dcp::StreamHead;
use oribi_protocol::dcp::end_reason::EndReason;
use oribi_protocol::dcp::stream_request::StreamRequestExtras;
use oribi_types::{CopiesEpoch, CopyId, Seqno, Vbid};
use slab::Slab;

/// Key of a stream within its producer: the vbucket, and the id if streams have ids.
pub(crate) type DcpStreamKey = (Vbid, Option<u16>);

pub(crate) struct DcpProducerStream {
    /// The fields that its messages share.
    pub head: StreamHead,
    pub stream: VbucketDcpStream,
    pub request: StreamRequestExtras,
    /// Requests that it lets through.
    pub filter: StreamFilter,
    /// Set when the server or the consumer ends it: its next message is this end.
    pub ending: Option<EndReason>,
    /// The rights that the stream was checked against.
    pub rights_generation: u32,
    /// The change that the stream found last waits for memory.
    pub has_unsent_change: bool,
    /// A replica has everything up to here.
    pub acknowledged_seqno: Option<Seqno>,
    /// The copy that the stream feeds, and its epoch.
    pub copy: Option<(CopyId, CopiesEpoch)>,
    is_queued: bool,
}

impl DcpProducerStream {
    /// A stream that was just opened.
    pub fn new(
        head: StreamHead,
        stream: VbucketDcpStream,
        request: StreamRequestExtras,
        filter: StreamFilter,
        rights_generation: u32,
    ) -> DcpProducerStream {
        DcpProducerStream {
            head,
            stream,
            request,
            filter,
            ending: None,
            rights_generation,
            has_unsent_change: false,
            acknowledged_seqno: None,
            copy: None,
            is_queued: false,
        }
    }

    /// Releases the memory that a backfill reserved for the stream, which then requests another
    /// backfill.
    pub fn give_up(&mut self) {
        if !self.has_unsent_change {
            self.stream.give_up_granted();
        }
    }

    fn key(&self) -> DcpStreamKey {
        (self.head.vbid, self.head.stream_id)
    }
}

/// See the module text.
#[derive(Default)]
pub(crate) struct DcpStreams {
    slots: Slab<DcpProducerStream>,
    by_key: BTreeMap<DcpStreamKey, usize>,
    ready: VecDeque<usize>,
    /// Positions of streams deferred to the next look.
    put_off: Vec<usize>,
}

impl DcpStreams {
    /// The position of the next stream to be added.
    pub fn next_position(&self) -> usize {
        self.slots.vacant_key()
    }

    /// Adds a stream at [`DcpStreams::next_position`] and gives it a turn.
    pub fn add(&mut self, stream: DcpProducerStream) {
        let key = stream.key();
        debug_assert!(!stream.is_queued, "a new stream has no turn yet");
        let position = self.slots.insert(stream);
        self.by_key.insert(key, position);
        debug_assert!(self.by_key.len() <= self.slots.len(), "a key in use has its stream");
        self.make_ready(position);
    }

    /// Position of the stream with this key.
    pub fn find(&self, key: DcpStreamKey) -> Option<usize> {
        self.by_key.get(&key).copied()
    }

    /// The stream at a position.
    pub fn get_mut(&mut self, position: usize) -> Option<&mut DcpProducerStream> {
        self.slots.get_mut(position)
    }

    /// Takes out the stream at a position.
    pub fn remove(&mut self, position: usize) -> Option<DcpProducerStream> {
        let stream = self.slots.try_remove(position)?;
        // A consumer may have opened the next stream of this key while this one was ending.
        if self.find(stream.key()) == Some(position) {
            self.by_key.remove(&stream.key());
        }
        assert!(self.by_key.len() <= self.slots.len(), "a key in use has its stream");
        Some(stream)
    }

    pub fn clear(&mut self) {
        *self = DcpStreams::default();
    }

    /// Puts a stream into the queue, if it is not there.
    pub fn make_ready(&mut self, position: usize) {
        if let Some(stream) = self.slots.get_mut(position)
            && !std::mem::replace(&mut stream.is_queued, true)
        {
            self.ready.push_back(position);
        }
    }

    /// Defers a stream to the next look; true when it is the first.
    pub fn put_off(&mut self, position: usize) -> bool {
        debug_assert!(self.slots.contains(position), "a stream that is put off exists");
        self.put_off.push(position);
        self.put_off.len() == 1
    }

    /// Puts the streams into the queue that were put off.
    pub fn make_put_off_ready(&mut self) {
        let mut positions = std::mem::take(&mut self.put_off);
        positions.drain(..).for_each(|position| self.make_ready(position));
        self.put_off = positions;
    }

    /// Puts every stream into the queue.
    pub fn make_all_ready(&mut self) {
        let positions: Vec<usize> = self.slots.iter().map(|(position, _)| position).collect();
        positions.into_iter().for_each(|position| self.make_ready(position));
    }

    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// True when there is no stream.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Takes the next stream out of the queue.
    pub fn next_ready(&mut self) -> Option<usize> {
        while let Some(position) = self.ready.pop_front() {
            // The position may belong to no stream, or to a later one that is queued as well.
            if let Some(stream) = self.slots.get_mut(position)
                && std::mem::replace(&mut stream.is_queued, false)
            {
                return Some(position);
            }
        }
        None
    }

    /// True when some stream waits for its turn.
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut DcpProducerStream> {
        self.slots.iter_mut().map(|(_, stream)| stream)
    }

    pub fn iter(&self) -> impl Iterator<Item = &DcpProducerStream> {
        self.slots.iter().map(|(_, stream)| stream)
    }
}
