//! Changes of a bucket as lines of JSON, for a consumer in the same process.
//!
//! Owns: a stream of each vbucket and the reader's position in it. When the server rolls a stream
//! back, the feed writes a line and the vbucket continues from the new position. The parts:
//! [`vbucket`] is one vbucket's stream and position, [`mod@line`] writes a change as a line,
//! [`names`] maps collection ids to names, and [`request`] has the consumer's options. Shape and
//! tokens are defined by `oribi_protocol`, as for `oribi watch`.
//!
//! Invariants:
//! - the token covers exactly the lines that were taken: a feed that opens there repeats none and
//!   omits none;
//! - a line that needs more memory than the caller offers is not made, and the next call makes it;
//! - vbuckets take turns, and one call does a bounded amount of work.
//!
//! The admin HTTP calls the feed, and owns rights, memory and deadlines.

mod large_line;
mod line;
mod names;
mod request;
mod vbucket;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use oribi_engine::dcp::StreamSink;
use oribi_protocol::change_line::{write_rollback, write_snapshot_end};
use oribi_protocol::change_token::ChangeToken;
use oribi_types::Vbid;

use crate::buckets::BucketHandle;
use crate::buckets::dcp_registry::DcpStreamFigures;
use crate::connection::memory::budget::Demand;
use crate::limits::CHANGES_PER_TURN;
pub use large_line::LargeLine;
use line::Extent;
use names::Names;
pub use request::{FeedEnd, FeedRequest, LineBudget};
use vbucket::{FeedEvent, FeedVbucket, OpenResult};

/// The result of [`DcpFeed::next`].
pub enum FeedStep {
    /// It appended one line: of a change, or about the stream.
    Line {
        is_change: bool,
    },
    /// It appended nothing, and the thread should serve other readers first.
    Again,
    /// It appended nothing and waits: for a wake-up, or until this time.
    Idle(Option<Instant>),
    /// The next line needs so many bytes while it is made.
    NeedsBytes(usize),
    /// The next line needs a share of the block that its document is in.
    NeedsBlock(Demand),
    /// The next line is made in pieces by the caller. The token covers it.
    Large(Box<LargeLine>),
    End(FeedEnd),
}

/// See the module text.
pub struct DcpFeed {
    bucket: Arc<BucketHandle>,
    request: FeedRequest,
    names: Names,
    /// In the order of their numbers.
    vbuckets: Vec<FeedVbucket>,
    /// Positions of vbuckets that have their turn.
    ready: VecDeque<usize>,
    token: ChangeToken,
    sink: Arc<dyn StreamSink>,
    unfinished: usize,
}

impl DcpFeed {
    /// Opens the streams. `sink` is called with the number of a vbucket that has more.
    ///
    /// # Errors
    /// Why there is no feed: the node does not serve all vbuckets, or is not as far as the token.
    pub fn open(
        bucket: Arc<BucketHandle>,
        request: FeedRequest,
        sink: Arc<dyn StreamSink>,
        now: Instant,
    ) -> Result<DcpFeed, FeedEnd> {
        let mut names = Names::new();
        names.learn(&bucket.bucket().manifest());
        let vbids = request.vbuckets.clone().map(Vbid);
        let vbuckets: Vec<FeedVbucket> =
            vbids.map(|vbid| FeedVbucket::new(vbid, &request.from, now)).collect();
        let mut token = ChangeToken::new(request.from.rest);
        token.manifest_uid = request.from.manifest_uid;
        let unfinished = vbuckets.len();
        let ready = VecDeque::new();
        let mut feed = DcpFeed { bucket, request, names, vbuckets, ready, token, sink, unfinished };
        for at in 0..feed.vbuckets.len() {
            if feed.bucket.bucket().serving_vbucket(feed.vbuckets[at].vbid()).is_err() {
                return Err(FeedEnd::NotMyVbucket);
            }
            feed.open_vbucket(at, now)?;
        }
        Ok(feed)
    }

    /// The position after the lines that the reader took.
    pub fn token(&self) -> &ChangeToken {
        &self.token
    }

    /// True when some vbucket waits for its turn.
    pub fn has_more(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Gives a vbucket its turn.
    pub fn wake(&mut self, vbid: u64) {
        let at = vbid.checked_sub(u64::from(self.request.vbuckets.start));
        if let Some(at) = at.and_then(|at| usize::try_from(at).ok()) {
            self.make_ready(at);
        }
    }

    /// Figures of the streams.
    pub fn figures(&self) -> Vec<DcpStreamFigures> {
        let all = self.vbuckets.iter();
        all.filter_map(|vbucket| vbucket.figures(&self.request.filter)).collect()
    }

    /// True while a stream keeps a record for which the process's memory is used. Its reader must
    /// not wait for memory.
    pub fn holds_granted(&self) -> bool {
        self.vbuckets.iter().any(FeedVbucket::holds_granted)
    }

    /// Appends the next line, if there is one and the offer is enough for it.
    pub fn next(&mut self, now: Instant, mut offer: LineBudget<'_>) -> FeedStep {
        for _ in 0..CHANGES_PER_TURN {
            if self.unfinished == 0 {
                return FeedStep::End(if self.request.until_now {
                    FeedEnd::Complete
                } else {
                    FeedEnd::FilterEmpty
                });
            }
            let Some(at) = self.ready.pop_front() else {
                match self.open_due(now) {
                    Err(end) => return FeedStep::End(end),
                    Ok(due) if self.ready.is_empty() => return FeedStep::Idle(due),
                    Ok(_) => continue,
                }
            };
            debug_assert!(
                self.vbuckets[at].is_queued,
                "a vbucket has a turn because it was queued"
            );
            self.vbuckets[at].is_queued = false;
            match self.take_turn(at, now, &mut offer) {
                Ok(None) => {}
                Ok(Some(fed)) => return fed,
                Err(end) => return FeedStep::End(end),
            }
        }
        debug_assert!(self.unfinished <= self.vbuckets.len(), "a vbucket finishes once");
        FeedStep::Again
    }

    /// One step of a vbucket.
    fn take_turn(
        &mut self,
        at: usize,
        now: Instant,
        offer: &mut LineBudget<'_>,
    ) -> Result<Option<FeedStep>, FeedEnd> {
        let extent = Extent { values: self.request.values, xattrs: self.request.xattrs };
        let vbucket = &mut self.vbuckets[at];
        let news = vbucket.step(extent, offer, &mut self.names)?;
        match news {
            FeedEvent::Nothing => return Ok(None),
            FeedEvent::NeedsBytes(_) | FeedEvent::NeedsBlock(_) => {
                // It keeps its turn.
                vbucket.is_queued = true;
                self.ready.push_front(at);
                return Ok(match news {
                    FeedEvent::NeedsBytes(bytes) => Some(FeedStep::NeedsBytes(bytes)),
                    FeedEvent::NeedsBlock(demand) => Some(FeedStep::NeedsBlock(demand)),
                    _ => None,
                });
            }
            FeedEvent::Finished => {
                assert!(self.unfinished > 0, "a vbucket finishes once");
                self.unfinished -= 1;
                self.note_end(at);
                return Ok(None);
            }
            FeedEvent::Lost => {
                self.note_end(at);
                self.vbuckets[at].wait(now);
                self.open_vbucket(at, now)?;
                return Ok(None);
            }
            FeedEvent::Moved
            | FeedEvent::Line
            | FeedEvent::Large(_)
            | FeedEvent::SnapshotEnd(_)
            | FeedEvent::Rollback { .. } => {}
        }
        let vbucket = &self.vbuckets[at];
        self.token.manifest_uid = self.token.manifest_uid.max(vbucket.manifest_uid());
        self.token.set(vbucket.position());
        self.make_ready(at);
        let is_change = match news {
            FeedEvent::SnapshotEnd(position) if self.request.snapshots => {
                offer.begin_line();
                write_snapshot_end(offer.out, &position);
                false
            }
            FeedEvent::Rollback { from, to } => {
                offer.begin_line();
                write_rollback(offer.out, from, &to);
                false
            }
            FeedEvent::Line => true,
            FeedEvent::Large(line) => return Ok(Some(FeedStep::Large(line))),
            _ => return Ok(None),
        };
        Ok(Some(FeedStep::Line { is_change }))
    }

    /// Keeps the figures of a stream that is over.
    fn note_end(&mut self, at: usize) {
        if let Some(stats) = self.vbuckets[at].close() {
            self.bucket.producers().note_end(&stats);
        }
    }

    /// Opens the streams that are due; returns when the next one is due.
    fn open_due(&mut self, now: Instant) -> Result<Option<Instant>, FeedEnd> {
        let mut next: Option<Instant> = None;
        for at in 0..self.vbuckets.len() {
            if self.vbuckets[at].due().is_some_and(|due| due <= now) {
                self.open_vbucket(at, now)?;
            }
            if let Some(due) = self.vbuckets[at].due() {
                next = Some(next.map_or(due, |next| next.min(due)));
            }
        }
        Ok(next)
    }

    fn open_vbucket(&mut self, at: usize, now: Instant) -> Result<(), FeedEnd> {
        assert!(self.unfinished > 0, "a finished vbucket stays closed");
        let bucket = self.bucket.bucket();
        let opened =
            self.vbuckets[at].open(bucket, &mut self.request, Arc::clone(&self.sink), now)?;
        match opened {
            OpenResult::Stream => {
                self.token.set(self.vbuckets[at].position());
                self.make_ready(at);
            }
            OpenResult::RolledBack => self.make_ready(at),
            OpenResult::Finished => self.unfinished -= 1,
            OpenResult::Later => {}
        }
        Ok(())
    }

    fn make_ready(&mut self, at: usize) {
        if let Some(vbucket) = self.vbuckets.get_mut(at)
            && !std::mem::replace(&mut vbucket.is_queued, true)
        {
            self.ready.push_back(at);
        }
    }
}

impl Drop for DcpFeed {
    fn drop(&mut self) {
        (0..self.vbuckets.len()).for_each(|at| self.note_end(at));
    }
}
