//! Change streams: what happened in a vbucket, in order of seqno, for readers outside the engine.
//!
//! Owns: the vocabulary of a stream ([`request`], [`step`]), the decision where a reader may
//! continue ([`open`], [`rollback`]), what it sees ([`filter`]), and the stream itself. A stream
//! reads recent mutations from the vbucket's queue ([`memory`]) and everything older from a
//! backfill ([`backfilling`]), one change at a time or in runs ([`run`]). Its cursor enters the
//! queue first and the backfill follows, so nothing lies between them; changes that both have are
//! sent once, because the stream tracks its position. When memory recovery takes the cursor away,
//! the stream goes back to a backfill by itself.
//!
//! Invariants: seqnos ascend and lie inside the last marker; a key occurs at most once in a
//! snapshot; at the end of a snapshot the reader has the exact state of its collections; a stream
//! ends once, at the end of a snapshot unless the vbucket or the filter ends first. The exception:
//! a reader that stalls may lose the rest of a snapshot. The next one begins where that one did,
//! because the reader could not go back to the state that it has. Source of the rules: Couchbase's
//! change protocol (DCP), as producers and clients behave. The server makes wire messages of a
//! [`StreamStep`]; the engine knows none.

mod backfilling;
mod filter;
mod memory;
mod open;
mod request;
mod rollback;
mod run;
mod source;
mod step;

use std::sync::Arc;

use oribi_storage::{FailoverEntry, Record};
use oribi_types::policy::Storage;
use oribi_types::{CollectionId, Seqno, Timestamp, Vbid};

use crate::bucket::Bucket;
pub use crate::checkpoint::StreamSink;
use crate::checkpoint::StreamWaker;
use crate::system_event::ManifestEvent;
use crate::vbucket::{StreamCursor, VBucket};

use filter::FilterState;
use open::StreamOpening;
pub use request::{StreamFilter, StreamOpenError, StreamOptions, StreamRequest};
pub use run::{BackfillPart, StreamRun};
use source::{SnapshotBatch, StreamSource, StreamTurn};
pub use step::{
    ChangedDocument, CopiedRecord, SharedRecord, SnapshotSource, StreamChange, StreamEndReason,
    StreamMarker, StreamPhase, StreamStats, StreamStep,
};

/// Turns without anything to show in one call of [`VbucketDcpStream::next`].
const TURNS_MAX: usize = 64;

/// A stream of one vbucket, owned by one reader. Dropping it frees all that it holds.
pub struct VbucketDcpStream {
    bucket: Arc<Bucket>,
    vbid: Vbid,
    opening: StreamOpening,
    filter: FilterState,
    waker: StreamWaker,
    source: StreamSource,
    /// Its place in the queue; `None` for a stream of the disk only, and before it has one again.
    cursor: Option<StreamCursor>,
    /// Everything up to here was sent or left out.
    read_to: Seqno,
    /// The reader has the whole state at this seqno: the last snapshot that it has in full ends
    /// here.
    whole_to: Seqno,
    /// The last snapshot from the queue was all that it had.
    has_caught_up: bool,
    /// Why it ends, before it says so.
    ending: Option<StreamEndReason>,
    is_over: bool,
    progress: Progress,
}

/// Figures, and what follows from them.
#[derive(Default)]
struct Progress {
    last_sent: Seqno,
    last_advanced: Seqno,
    /// End of the last marker.
    snapshot_end: Seqno,
    markers: u64,
    backfill_sent: u64,
    memory_sent: u64,
    backfills: u64,
    cursors_dropped: u64,
    /// Failed backfills in a row.
    failures: u32,
}

impl Bucket {
    /// Opens a stream of a vbucket. `sink` is called with `token` when the stream has something
    /// to send after it was [`StreamStep::Idle`].
    ///
    /// # Errors
    /// Why the stream is refused; the reasons are tried in the order that clients expect.
    pub fn open_stream(
        self: &Arc<Bucket>,
        request: &StreamRequest,
        sink: Arc<dyn StreamSink>,
        token: u64,
    ) -> Result<VbucketDcpStream, StreamOpenError> {
        let opening = open::open(self.core(), request)?;
        assert!(
            opening.snapshot.0 <= opening.start,
            "a snapshot begins before what the reader has"
        );
        assert!(opening.start <= opening.end, "a stream begins before its end");
        let filter = FilterState::new(&request.filter, &self.manifest());
        let mut stream = VbucketDcpStream {
            bucket: Arc::clone(self),
            vbid: request.vbid,
            read_to: opening.start,
            whole_to: opening.snapshot.0,
            opening,
            filter,
            waker: StreamWaker::new(sink, token),
            source: StreamSource::Memory(None),
            cursor: None,
            has_caught_up: false,
            ending: None,
            is_over: false,
            progress: Progress::default(),
        };
        if stream.filter.is_empty() {
            stream.ending = Some(StreamEndReason::FilterEmpty);
        } else if stream.is_at_its_end() {
            stream.ending = Some(StreamEndReason::Ok);
        } else if stream.opening.disk_only {
            stream.ask();
        } else {
            stream.register();
        }
        match stream.ending {
            Some(StreamEndReason::StateChanged) => Err(StreamOpenError::NotMyVbucket),
            _ => Ok(stream),
        }
    }
}

impl VbucketDcpStream {
    /// Histories of the vbucket at the opening, newest first.
    pub fn failover_table(&self) -> &[FailoverEntry] {
        &self.opening.failover_table
    }

    /// The next thing to send. Never blocks; takes at most a short lock.
    #[expect(clippy::should_implement_trait, reason = "a step borrows from the stream")]
    pub fn next(&mut self) -> StreamStep<'_> {
        for _ in 0..TURNS_MAX {
            match self.turn() {
                StreamTurn::Again => {}
                StreamTurn::Marker(marker) => {
                    debug_assert!(marker.start <= marker.end, "a snapshot begins before its end");
                    debug_assert!(
                        marker.end >= self.progress.last_sent,
                        "seqnos of a stream ascend"
                    );
                    self.progress.markers += 1;
                    self.progress.snapshot_end = marker.end;
                    return StreamStep::Snapshot(marker);
                }
                StreamTurn::Change => {
                    debug_assert!(
                        self.progress.last_sent <= self.progress.snapshot_end,
                        "a change is inside its snapshot"
                    );
                    let change = self.last_change().expect("the turn has found it");
                    return StreamStep::Change(change);
                }
                StreamTurn::Advanced(seqno) => {
                    debug_assert!(
                        seqno > self.progress.last_sent,
                        "a stream advances beyond what it has sent"
                    );
                    debug_assert!(
                        seqno <= self.progress.snapshot_end,
                        "a stream advances inside its snapshot"
                    );
                    self.progress.last_advanced = seqno;
                    return StreamStep::SeqnoAdvanced(seqno);
                }
                StreamTurn::End(reason) => return StreamStep::End(reason),
                StreamTurn::Idle => return StreamStep::Idle,
            }
        }
        // Nothing to show so far, and others wait for this thread.
        self.waker.wake();
        StreamStep::Idle
    }

    /// The change of the last [`VbucketDcpStream::next`], until its next call; `None` when it
    /// returned something else.
    pub fn last_change(&self) -> Option<StreamChange<'_>> {
        let document = match &self.source {
            StreamSource::Backfill(reading) => reading.current(),
            StreamSource::Memory(batch) => batch.as_ref().and_then(SnapshotBatch::current),
        }?;
        Some(match event_of(&document.record) {
            Some(event) => StreamChange::Event(event),
            None => StreamChange::Document(document),
        })
    }

    /// Releases sent changes. [`VbucketDcpStream::last_change`] may be gone afterwards.
    pub fn release_sent(&mut self) {
        if let StreamSource::Backfill(reading) = &mut self.source {
            reading.release_passed();
        }
    }

    /// True while it keeps a large record for which the process's budget is used.
    pub fn holds_granted(&self) -> bool {
        matches!(&self.source, StreamSource::Backfill(reading) if reading.holds_granted())
    }

    /// Drops the rest of a backfill that holds memory of the process's budget while its reader
    /// stalls. The stream requests another backfill at its next step.
    pub fn give_up_granted(&mut self) {
        if let StreamSource::Backfill(reading) = &mut self.source
            && reading.holds_granted()
        {
            reading.give_up();
            debug_assert!(!reading.holds_granted(), "a stream that gave up holds no grant");
        }
    }

    /// True while it reads from a scan and not from the queue.
    pub fn is_backfilling(&self) -> bool {
        matches!(self.source, StreamSource::Backfill(_))
    }

    /// Everything up to here was sent or left out.
    pub fn last_read_seqno(&self) -> Seqno {
        self.read_to
    }

    pub fn stats(&self) -> StreamStats {
        let (bytes, records) = match &self.source {
            StreamSource::Backfill(reading) => reading.held(),
            StreamSource::Memory(_) => (0, 0),
        };
        debug_assert!(self.progress.last_sent <= self.read_to, "a stream has read what it sent");
        let phase = match &self.source {
            _ if self.is_over => StreamPhase::Dead,
            StreamSource::Backfill(_) => StreamPhase::Backfilling,
            StreamSource::Memory(_) => StreamPhase::InMemory,
        };
        let vbucket = self.vbucket();
        let ready = self.cursor.map_or(0, |cursor| vbucket.stream_remaining(cursor) as u64);
        StreamStats {
            phase,
            start_seqno: self.opening.start,
            end_seqno: self.opening.end,
            last_sent_seqno: self.progress.last_sent,
            last_sent_seqno_advance: self.progress.last_advanced,
            last_sent_snap_end_seqno: self.progress.snapshot_end,
            last_read_seqno: self.read_to,
            items_remaining: match self.is_over {
                true => 0,
                false => vbucket.high_seqno().0.saturating_sub(self.read_to.0),
            },
            backfill_sent: self.progress.backfill_sent,
            memory_sent: self.progress.memory_sent,
            backfills: self.progress.backfills,
            cursors_dropped: self.progress.cursors_dropped,
            backfill_buffer_bytes: bytes,
            backfill_buffer_items: records,
            items_ready: ready,
            cursor_registered: self.cursor.is_some(),
        }
    }

    fn turn(&mut self) -> StreamTurn {
        if self.is_over {
            return StreamTurn::Idle;
        }
        if let Some(reason) = self.ending {
            return self.end(reason);
        }
        if !self.is_current() {
            return self.end(StreamEndReason::StateChanged);
        }
        match &self.source {
            StreamSource::Backfill(_) => self.turn_backfill(),
            StreamSource::Memory(_) => self.turn_memory(),
        }
    }

    fn end(&mut self, reason: StreamEndReason) -> StreamTurn {
        assert!(!self.is_over, "a stream ends once");
        self.is_over = true;
        self.release();
        debug_assert!(self.cursor.is_none(), "a stream that is over holds no place in a queue");
        StreamTurn::End(reason)
    }

    /// Gives back whatever it holds.
    fn release(&mut self) {
        if let StreamSource::Backfill(reading) = &self.source {
            reading.close();
        }
        self.set_source(StreamSource::Memory(None));
        if let Some(cursor) = self.cursor.take() {
            let context = self.bucket.core().context(Timestamp::default());
            self.vbucket().drop_stream(&context, cursor);
        }
    }

    /// Registers a cursor after the stream's position, and requests a backfill for changes that
    /// have left the queue.
    fn register(&mut self) {
        debug_assert!(self.cursor.is_none(), "a stream has one cursor");
        let name = format!("stream {:x}", self.waker.token());
        let registered = self.vbucket().register_stream(&name, self.read_to, self.waker.clone());
        let Some(registered) = registered else {
            self.ending = Some(StreamEndReason::StateChanged);
            return;
        };
        self.cursor = Some(registered.cursor);
        if self.vbucket().stream_generation() != self.opening.generation {
            self.ending = Some(StreamEndReason::StateChanged);
            return;
        }
        if registered.needs_backfill || self.is_inside_what_the_store_has() {
            self.ask();
        } else {
            self.set_source(StreamSource::Memory(None));
        }
    }

    /// Changes the source of the stream, and releases its copies of the queue.
    fn set_source(&mut self, source: StreamSource) {
        let before = std::mem::replace(&mut self.source, source);
        if let StreamSource::Memory(Some(batch)) = before {
            self.bucket.core().memory().released_by_streams(batch.read.copied_bytes());
        }
    }

    /// True for a reader that comes back in the middle of a snapshot, unless the queue has the rest
    /// of it in one checkpoint, which is the case until it is persisted. A checkpoint that ends
    /// before the snapshot does would leave out what the snapshot left out for a later version.
    fn is_inside_what_the_store_has(&self) -> bool {
        let snapshot_end = self.opening.snapshot.1;
        debug_assert!(self.opening.snapshot.0 <= snapshot_end, "a snapshot begins before its end");
        let is_inside = self.read_to < snapshot_end && self.progress.markers == 0;
        let is_in_store = match self.bucket.core().config().storage {
            Storage::Persistent => snapshot_end <= self.vbucket().persisted_seqno(),
            Storage::Memory => true,
        };
        is_inside && is_in_store
    }

    /// True while the vbucket has served since the stream was opened.
    fn is_current(&self) -> bool {
        let vbucket = self.vbucket();
        vbucket.is_serving() && vbucket.stream_generation() == self.opening.generation
    }

    fn is_at_its_end(&self) -> bool {
        self.read_to >= self.opening.end
    }

    fn vbucket(&self) -> &VBucket {
        self.bucket.vbucket(self.vbid).expect("it was opened on a vbucket of the map")
    }
}

impl Drop for VbucketDcpStream {
    fn drop(&mut self) {
        self.release();
    }
}

fn event_of<'a>(record: &Record<'a>) -> Option<ManifestEvent<'a>> {
    let is_event = record.key.collection == CollectionId::SYSTEM;
    is_event.then(|| ManifestEvent::decode(record.seqno, record.value)).flatten()
}
