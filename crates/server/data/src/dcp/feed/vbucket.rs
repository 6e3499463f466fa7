//! One vbucket of a feed: its stream, the reader's position, and reopening the stream.
//!
//! Invariant: the place covers exactly the changes whose lines were made. A change is passed only
//! after its line is in the caller's buffer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use oribi_engine::Bucket;
use oribi_engine::dcp::{
    ChangedDocument, StreamChange, StreamEndReason, StreamFilter, StreamOpenError, StreamOptions,
    StreamRequest, StreamSink, StreamStats, StreamStep, VbucketDcpStream,
};
use oribi_protocol::change_cursor::{ChangeCursor, OutOfOrder};
use oribi_protocol::change_token::{ChangeToken, Position, Rest};
use oribi_protocol::dcp::StreamHead;
use oribi_protocol::dcp::stream_request::{StreamFlags as WireFlags, StreamRequestExtras};
use oribi_types::{ManifestUid, Seqno, VbUuid, Vbid};

use super::large_line::LargeLine;
use super::line::{Extent, bytes_needed, write_document, write_event};
use super::names::Names;
use super::request::{FeedEnd, FeedRequest, LineBudget};
use crate::buckets::dcp_registry::DcpStreamFigures;
use crate::connection::memory::budget::Demand;
use crate::dcp::frames::DamagedDocument;
use crate::limits::{ADMIN_CHANGES_PIECE_BYTES, RESERVED_ANSWER_BYTES_MIN};

/// Pause before a stream that was refused is asked for again.
const PAUSE: Duration = Duration::from_millis(50);

/// How long a vbucket may be served by no one, or by another node, before the feed ends. Emptying
/// a bucket takes less.
const ABSENCE_MAX: Duration = Duration::from_secs(10);

/// The end of a stream that has none.
const ENDLESS: Seqno = Seqno(u64::MAX);
const _: () = assert!(PAUSE.as_millis() < ABSENCE_MAX.as_millis());

/// See the module text.
pub(super) struct FeedVbucket {
    vbid: Vbid,
    /// `None` until a reader that starts at the current seqno has learned it.
    cursor: Option<ChangeCursor>,
    state: State,
    /// Where it ends, once that is known.
    end: Option<Seqno>,
    /// The end of a snapshot that is not reported yet.
    complete: Option<Position>,
    rollback: Option<(Seqno, Position)>,
    manifest_uid: ManifestUid,
    /// It is in the feed's queue.
    pub is_queued: bool,
}

enum State {
    /// It has had no stream since then, and requests one when due.
    Waiting {
        since: Instant,
        due: Instant,
    },
    Streaming(Box<Open>),
    /// It shows nothing more.
    Finished,
}

struct Open {
    stream: VbucketDcpStream,
    request: StreamRequestExtras,
    /// A change was found, and its line is not made.
    has_change: bool,
}

/// The result of a stream request.
pub(super) enum OpenResult {
    Stream,
    RolledBack,
    Finished,
    Later,
}

/// The result of a step.
pub(super) enum FeedEvent {
    Nothing,
    /// The place may have moved.
    Moved,
    /// A line was appended.
    Line,
    /// A snapshot is complete.
    SnapshotEnd(Position),
    /// The reader goes back.
    Rollback {
        from: Seqno,
        to: Position,
    },
    /// The next line needs so many bytes.
    NeedsBytes(usize),
    /// The next line needs a share of a document's block.
    NeedsBlock(Demand),
    /// A line that is to be made in pieces.
    Large(Box<LargeLine>),
    /// The stream is over, and another may follow.
    Lost,
    Finished,
}

impl FeedVbucket {
    /// A vbucket that waits for its stream.
    pub fn new(vbid: Vbid, from: &ChangeToken, now: Instant) -> FeedVbucket {
        let cursor = match (from.position(vbid), from.rest) {
            (Some(position), _) => Some(ChangeCursor::new(*position)),
            (None, Rest::Beginning) => Some(ChangeCursor::new(Position::beginning(vbid))),
            (None, Rest::Now) => None,
        };
        FeedVbucket {
            vbid,
            cursor,
            state: State::Waiting { since: now, due: now },
            end: None,
            complete: None,
            rollback: None,
            manifest_uid: ManifestUid(0),
            is_queued: false,
        }
    }

    pub fn vbid(&self) -> Vbid {
        self.vbid
    }

    /// Where the reader is; the beginning while that is not known.
    pub fn position(&self) -> Position {
        self.cursor.map_or(Position::beginning(self.vbid), |cursor| cursor.position())
    }

    /// The newest manifest that the reader knows.
    pub fn manifest_uid(&self) -> ManifestUid {
        self.manifest_uid
    }

    /// When it requests a stream, if it waits for one.
    pub fn due(&self) -> Option<Instant> {
        match self.state {
            State::Waiting { due, .. } => Some(due),
            _ => None,
        }
    }

    /// Waits for a stream from now on.
    pub fn wait(&mut self, now: Instant) {
        assert!(!matches!(self.state, State::Streaming(_)), "a stream is closed before a wait");
        self.state = State::Waiting { since: now, due: now };
    }

    /// True while its stream keeps a record for which the process's memory is used.
    pub fn holds_granted(&self) -> bool {
        matches!(&self.state, State::Streaming(open) if open.stream.holds_granted())
    }

    /// Figures of the stream.
    pub fn figures(&self, filter: &StreamFilter) -> Option<DcpStreamFigures> {
        let State::Streaming(open) = &self.state else { return None };
        Some(DcpStreamFigures {
            head: StreamHead { opaque: 0, vbid: self.vbid, stream_id: None },
            request: open.request,
            filter: filter.clone(),
            stats: open.stream.stats(),
            acknowledged_seqno: None,
        })
    }

    /// Ends the stream; returns its last figures.
    pub fn close(&mut self) -> Option<StreamStats> {
        match std::mem::replace(&mut self.state, State::Finished) {
            State::Streaming(open) => Some(open.stream.stats()),
            other => {
                self.state = other;
                None
            }
        }
    }

    /// Requests a stream. Dropped collections leave the filter.
    pub fn open(
        &mut self,
        bucket: &Arc<Bucket>,
        wanted: &mut FeedRequest,
        sink: Arc<dyn StreamSink>,
        now: Instant,
    ) -> Result<OpenResult, FeedEnd> {
        let State::Waiting { since, .. } = self.state else { return Ok(OpenResult::Later) };
        let request = self.request(wanted);
        let refused = match bucket.open_stream(&request, sink, u64::from(self.vbid.0)) {
            Ok(stream) => {
                self.begin(stream, &request, wanted.until_now);
                return Ok(OpenResult::Stream);
            }
            Err(refused) => refused,
        };
        match refused {
            StreamOpenError::Rollback(to) => {
                let from = self.position().seqno;
                let Some(cursor) = &mut self.cursor else { return Err(FeedEnd::Range) };
                let to = cursor.roll_back(to).map_err(|_| FeedEnd::Range)?;
                // The end was one of the history that is lost.
                self.end = None;
                self.rollback = Some((from, to));
                self.state = State::Waiting { since: now, due: now };
                return Ok(OpenResult::RolledBack);
            }
            StreamOpenError::UnknownCollection | StreamOpenError::UnknownScope => {
                let manifest = bucket.manifest();
                if let StreamFilter::Collections(ids) = &mut wanted.filter {
                    ids.retain(|id| manifest.contains(*id));
                }
                let has_gone = match &wanted.filter {
                    StreamFilter::Collections(ids) => ids.is_empty(),
                    _ => true,
                };
                if has_gone {
                    self.state = State::Finished;
                    return Ok(OpenResult::Finished);
                }
            }
            StreamOpenError::Range => return Err(FeedEnd::Range),
            StreamOpenError::NotMyVbucket if now.duration_since(since) > ABSENCE_MAX => {
                return Err(FeedEnd::NotMyVbucket);
            }
            StreamOpenError::NotMyVbucket
            | StreamOpenError::NoMemory
            | StreamOpenError::TryLater => {}
        }
        self.state = State::Waiting { since, due: now + PAUSE };
        Ok(OpenResult::Later)
    }

    fn request(&self, wanted: &FeedRequest) -> StreamRequest {
        let position = self.position();
        StreamRequest {
            vbid: self.vbid,
            start: position.seqno,
            end: self.end.unwrap_or(ENDLESS),
            uuid: position.vb_uuid,
            snapshot: position.snapshot,
            client_purge_seqno: None,
            flags: StreamOptions {
                from_latest: self.cursor.is_none(),
                to_latest: wanted.until_now && self.end.is_none(),
                active_only: true,
                ..StreamOptions::default()
            },
            filter: wanted.filter.clone(),
        }
    }

    fn begin(&mut self, stream: VbucketDcpStream, request: &StreamRequest, until_now: bool) {
        debug_assert!(self.due().is_some(), "a stream opens while its vbucket waits for one");
        let stats = stream.stats();
        let vb_uuid = stream.failover_table().first().map_or(VbUuid(0), |newest| newest.uuid);
        match &mut self.cursor {
            Some(cursor) => cursor.accept(vb_uuid),
            None => {
                let now = Position::at(self.vbid, vb_uuid, stats.start_seqno);
                self.cursor = Some(ChangeCursor::new(now));
            }
        }
        self.end = until_now.then_some(stats.end_seqno);
        let request = StreamRequestExtras {
            flags: WireFlags::ACTIVE_ONLY,
            start: stats.start_seqno,
            end: stats.end_seqno,
            vb_uuid: request.uuid,
            snapshot_start: request.snapshot.0,
            snapshot_end: request.snapshot.1,
        };
        self.state = State::Streaming(Box::new(Open { stream, request, has_change: false }));
        debug_assert!(self.cursor.is_some(), "a stream has a position");
    }

    /// Takes the next step of the stream.
    pub fn step(
        &mut self,
        extent: Extent,
        offer: &mut LineBudget<'_>,
        names: &mut Names,
    ) -> Result<FeedEvent, FeedEnd> {
        if let Some((from, to)) = self.rollback.take() {
            return Ok(FeedEvent::Rollback { from, to });
        }
        if let Some(position) = self.complete.take() {
            return Ok(FeedEvent::SnapshotEnd(position));
        }
        if let Some(news) = self.find_change()? {
            return Ok(news);
        }
        let State::Streaming(open) = &mut self.state else { return Ok(FeedEvent::Nothing) };
        let Some(cursor) = &mut self.cursor else { return Ok(FeedEvent::Nothing) };
        // A run keeps no reference to its document while its line waits for memory.
        let run = if open.has_change { None } else { open.stream.next_run(1) };
        let has_run = run.is_some();
        let change = match &run {
            Some(run) => run.documents().next().map(StreamChange::Document),
            None => open.stream.last_change(),
        };
        let Some(change) = change else { return Ok(FeedEvent::Nothing) };
        let seqno = match &change {
            StreamChange::Document(document) => document.record.seqno,
            StreamChange::Event(event) => event.seqno,
        };
        let mut moved = *cursor;
        let position = moved.advance(seqno).map_err(contradiction)?;
        let news = match &change {
            StreamChange::Document(document) => {
                make_line(document, &position, extent, offer, names)?
            }
            StreamChange::Event(event) => {
                names.learn_from(event);
                self.manifest_uid = self.manifest_uid.max(event.manifest_uid);
                offer.begin_line();
                write_event(offer.out, event, &position, names);
                FeedEvent::Line
            }
        };
        drop(run);
        if !matches!(news, FeedEvent::Line | FeedEvent::Large(_)) {
            return Ok(news);
        }
        match has_run {
            true => open.stream.pass_run(1, seqno),
            false => open.stream.release_sent(),
        }
        open.has_change = false;
        *cursor = moved;
        debug_assert!(self.complete.is_none(), "the end of a snapshot is reported at once");
        if position.is_at_snapshot_end() {
            self.complete = Some(position);
        }
        Ok(news)
    }

    /// Takes the stream's next step; `None` when that is a change, whose line is made next.
    fn find_change(&mut self) -> Result<Option<FeedEvent>, FeedEnd> {
        let State::Streaming(open) = &mut self.state else { return Ok(Some(FeedEvent::Nothing)) };
        let Some(cursor) = &mut self.cursor else { return Ok(Some(FeedEvent::Nothing)) };
        if open.has_change || open.stream.next_run(1).is_some() {
            return Ok(None);
        }
        Ok(Some(match open.stream.next() {
            StreamStep::Idle => FeedEvent::Nothing,
            StreamStep::Snapshot(marker) => {
                cursor.announce(marker.start, marker.end).map_err(contradiction)?;
                FeedEvent::Moved
            }
            StreamStep::SeqnoAdvanced(seqno) => {
                let before = cursor.position();
                let position = cursor.advance_to(seqno).map_err(contradiction)?;
                if position.is_at_snapshot_end() && position != before {
                    self.complete = Some(position);
                }
                FeedEvent::Moved
            }
            StreamStep::End(reason) => return Ok(Some(self.end(reason))),
            StreamStep::Change(_) => {
                open.has_change = true;
                return Ok(None);
            }
        }))
    }

    fn end(&mut self, reason: StreamEndReason) -> FeedEvent {
        match reason {
            StreamEndReason::Ok | StreamEndReason::FilterEmpty => FeedEvent::Finished,
            StreamEndReason::StateChanged => {
                // The next history may be shorter than this end.
                self.end = None;
                FeedEvent::Lost
            }
            StreamEndReason::BackfillFailed => FeedEvent::Lost,
        }
    }
}

/// Appends the line of a document, or returns the missing input. A large one is made in pieces by
/// the caller.
fn make_line(
    document: &ChangedDocument<'_>,
    position: &Position,
    extent: Extent,
    offer: &mut LineBudget<'_>,
    names: &Names,
) -> Result<FeedEvent, FeedEnd> {
    let bytes = bytes_needed(document, extent).map_err(damaged)?;
    let is_large = bytes > RESERVED_ANSWER_BYTES_MIN;
    if is_large && extent.values && !document.record.deleted {
        // The event begins a piece, so that ids are those of whole events.
        if !offer.out.is_empty() {
            return Ok(FeedEvent::NeedsBytes(ADMIN_CHANGES_PIECE_BYTES));
        }
        let demand = document.item.map(Demand::of_block);
        let offered = offer.block.take().filter(|(of, _)| Some(*of) == demand);
        let block = match (demand, offered) {
            (Some(demand), None) => return Ok(FeedEvent::NeedsBlock(demand)),
            (_, offered) => offered.map(|(_, block)| block),
        };
        let line = LargeLine::new(document, position, extent, names, block);
        if let Some(line) = line.map_err(damaged)? {
            return Ok(FeedEvent::Large(Box::new(line)));
        }
    }
    if bytes > offer.room {
        return Ok(FeedEvent::NeedsBytes(bytes));
    }
    offer.begin_line();
    write_document(offer.out, document, position, extent, names).map_err(damaged)?;
    Ok(FeedEvent::Line)
}

/// The engine sends in order, so a violation ends the feed.
fn contradiction(error: OutOfOrder) -> FeedEnd {
    tracing::error!(%error, "a change stream contradicts itself");
    FeedEnd::Damaged
}

fn damaged(_: DamagedDocument) -> FeedEnd {
    tracing::error!("a document in a change stream cannot be read");
    FeedEnd::Damaged
}
