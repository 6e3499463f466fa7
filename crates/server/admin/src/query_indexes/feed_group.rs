//! Indexes that are fed together, and a stream of each vbucket for them.
//!
//! Owns: the streams, the decision which vbuckets are fed, and the entries of each change. A stream
//! begins at the beginning of its vbucket's history, and again there when the history ends: entries
//! are candidates, so feeding a document twice does no harm. A stream needs no tombstones that were
//! purged, because an entry without a document is removed where it is met.
//!
//! Invariants: a vbucket is fed once its stream has passed the seqno that was the highest when it
//! was opened, and stays so in its incarnation while its stream pauses, so a pause makes indexes
//! late and never incomplete; few vbuckets at a time are fed from the beginning, so that few
//! backfills run and few checkpoints wait for them; no lock of the engine is held while the group
//! waits for anything.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use oribi_engine::Bucket;
use oribi_engine::dcp::{
    ChangedDocument, StreamChange, StreamEndReason, StreamFilter, StreamOpenError, StreamOptions,
    StreamRequest, StreamSink, StreamStep, VbucketDcpStream,
};
use oribi_query::stored::{body_of, inflated_bytes};
use oribi_query::{IndexableDocument, InsertRejection, QueryDocument};
use oribi_types::{CollectionId, Datatype, Seqno, VbUuid, Vbid};

use super::fed_index::FedIndex;
use super::feed_progress::FeedProgress;
use super::large_documents::LargeDocuments;
use super::ready_set::ReadySet;

/// Vbuckets that are fed from the beginning at once.
const OPENING_MAX: usize = 8;

/// Documents of a vbucket in one turn, and in one run. A run holds the vbucket's checkpoints.
const TURN_DOCUMENTS: usize = 512;
const RUN_DOCUMENTS: usize = 32;

/// Time of a turn, beyond which no further document is evaluated.
const TURN_TIME: Duration = Duration::from_millis(50);

/// Pause before a stream that was refused is asked for again, and one whose store failed.
const PAUSE: Duration = Duration::from_millis(20);
const FAILURE_PAUSE: Duration = Duration::from_secs(1);

/// A document up to this size is inflated and evaluated without a reservation.
const FREE_DOCUMENT_BYTES: usize = 256 << 10;

/// The document, its inflated body and its entries.
const DOCUMENT_COPIES: usize = 3;
const _: () = assert!(RUN_DOCUMENTS <= TURN_DOCUMENTS, "a turn has a run");
const _: () = assert!(PAUSE.as_millis() < FAILURE_PAUSE.as_millis());

enum FeedState {
    /// It is not served here.
    Absent,
    Waiting {
        due: Instant,
        from: FeedPosition,
        /// The incarnation in which it was fed up to `from`, if its stream only pauses.
        fed: Option<u64>,
    },
    Streaming(Box<FeedStream>),
}

/// The changes up to here are applied, in this history.
#[derive(Clone, Copy, Default)]
struct FeedPosition {
    seqno: Seqno,
    uuid: VbUuid,
}

struct FeedStream {
    stream: VbucketDcpStream,
    incarnation: u64,
    /// Where the stream may be opened again.
    applied: FeedPosition,
    /// The vbucket is fed when this is passed.
    target: Seqno,
    is_fed: bool,
    /// A change was taken from the stream and not applied.
    has_change: bool,
}

/// Why a change was not applied.
enum Obstacle {
    /// No memory for the entries of this index.
    Full(Arc<FedIndex>),
    /// The keys of this index take too much work on a document.
    TooCostly(UnindexableDocument),
    /// No memory for a large document now.
    Busy,
}

/// A document that an index does not take, and the index.
pub(super) struct UnindexableDocument {
    pub index: Arc<FedIndex>,
    pub key: String,
}

/// Result of a turn.
#[derive(Default)]
pub(super) struct TurnReport {
    pub changes: u64,
    /// An index whose entries do not fit.
    pub full: Option<Arc<FedIndex>>,
    /// An index that cannot be complete.
    pub unindexable: Option<UnindexableDocument>,
    /// Vbuckets that may have other seqnos.
    pub touched: Vec<usize>,
    /// Some vbuckets lost their streams.
    pub has_lost: bool,
}

impl TurnReport {
    pub fn has_obstacle(&self) -> bool {
        self.full.is_some() || self.unindexable.is_some()
    }
}

/// See the module text.
pub(super) struct FeedGroup {
    bucket: Arc<Bucket>,
    documents: Arc<dyn LargeDocuments>,
    ready: Arc<ReadySet>,
    vbuckets: Vec<FeedState>,
    indexes: HashMap<CollectionId, Vec<Arc<FedIndex>>>,
    /// The number of ownership changes when the vbuckets were examined.
    examined_at: Option<u64>,
    /// Vbuckets that are served and not fed, and those of them that have a stream.
    unfed: usize,
    opening: usize,
    /// Vbuckets that are fed and whose streams pause.
    paused: usize,
    /// The vbucket with which the next turn begins.
    first: usize,
}

impl FeedGroup {
    pub fn new(
        bucket: Arc<Bucket>,
        documents: Arc<dyn LargeDocuments>,
        progress: Arc<FeedProgress>,
    ) -> FeedGroup {
        let count = bucket.vbuckets().len();
        let ready = Arc::new(ReadySet::new(count, progress));
        let vbuckets = (0..count).map(|_| FeedState::Absent).collect();
        let indexes = HashMap::new();
        let (examined_at, unfed, opening, paused, first) = (None, 0, 0, 0, 0);
        FeedGroup {
            bucket,
            documents,
            ready,
            vbuckets,
            indexes,
            examined_at,
            unfed,
            opening,
            paused,
            first,
        }
    }

    pub fn add(&mut self, index: Arc<FedIndex>) {
        self.indexes.entry(index.collection).or_default().push(index);
    }

    /// Removes an index. True if it was one of the group.
    pub fn remove(&mut self, index: &Arc<FedIndex>) -> bool {
        let Some(list) = self.indexes.get_mut(&index.collection) else { return false };
        let before = list.len();
        list.retain(|known| !Arc::ptr_eq(known, index));
        let is_removed = list.len() < before;
        if list.is_empty() {
            self.indexes.remove(&index.collection);
        }
        is_removed
    }

    pub fn is_empty(&self) -> bool {
        self.indexes.is_empty()
    }

    pub fn indexes(&self) -> impl Iterator<Item = &Arc<FedIndex>> {
        self.indexes.values().flatten()
    }

    /// The number of ownership changes at which all served vbuckets are fed; none if some are not.
    pub fn complete_at(&self) -> Option<u64> {
        self.examined_at.filter(|_| self.unfed == 0)
    }

    pub fn has_work(&self) -> bool {
        !self.ready.is_empty()
    }

    /// When a vbucket requests its stream, at the latest.
    pub fn due(&self) -> Option<Instant> {
        let due = |state: &FeedState| match state {
            FeedState::Waiting { due, .. } => Some(*due),
            _ => None,
        };
        match self.unfed + self.paused > 0 && self.opening < OPENING_MAX {
            false => None,
            true => self.vbuckets.iter().filter_map(due).min(),
        }
    }

    /// Up to where the indexes have the changes of a vbucket.
    pub fn seqno(&self, vbid: Vbid) -> Option<Seqno> {
        match self.vbuckets.get(usize::from(vbid.0)) {
            Some(FeedState::Streaming(open)) => Some(open.reached()),
            Some(FeedState::Waiting { from, fed: Some(_), .. }) => Some(from.seqno),
            _ => None,
        }
    }

    /// How much of the changes the indexes have, in percent. Those that are not fed have less than
    /// all.
    pub fn percent(&self) -> u8 {
        let (mut done, mut all) = (0, 0);
        for vbucket in self.bucket.vbuckets().iter().filter(|vbucket| vbucket.is_serving()) {
            let high = vbucket.high_seqno();
            all += high.0;
            done += self.seqno(vbucket.id()).unwrap_or_default().min(high).0;
        }
        let percent = (done * 100).checked_div(all).unwrap_or(100);
        debug_assert!(done <= all, "a feed is not ahead of its vbuckets");
        u8::try_from(percent).unwrap_or(100).min(if self.complete_at().is_some() {
            100
        } else {
            99
        })
    }

    /// The streams, for a test that fails.
    #[cfg(test)]
    pub fn describe(&self) -> String {
        let text = |state: &FeedState| match state {
            FeedState::Absent => "absent".to_owned(),
            FeedState::Waiting { due, from, fed } => {
                format!("waiting {due:?} {:?} {fed:?}", from.seqno)
            }
            FeedState::Streaming(open) => {
                let (stats, target, fed) = (open.stream.stats(), open.target, open.is_fed);
                format!("{target:?} fed {fed} change {} {stats:?}", open.has_change)
            }
        };
        self.vbuckets.iter().map(|state| text(state) + "\n").collect()
    }

    /// Looks which vbuckets are served and with which history. False: that is changing.
    /// `has_lost` becomes true when a vbucket has to be fed again.
    pub fn examine(&mut self, now: Instant, has_lost: &mut bool) -> bool {
        if self.examined_at == Some(self.bucket.ownership_changes()) {
            return true;
        }
        self.examined_at = None;
        let Some(changes) = self.bucket.settled_ownership_changes() else { return false };
        for (vbucket, state) in self.bucket.vbuckets().iter().zip(&mut self.vbuckets) {
            let is_served = vbucket.is_serving();
            let next = match state {
                FeedState::Streaming(open)
                    if is_served && open.incarnation == vbucket.incarnation() =>
                {
                    continue;
                }
                FeedState::Waiting { fed, .. }
                    if is_served && fed.is_none_or(|fed| fed == vbucket.incarnation()) =>
                {
                    continue;
                }
                FeedState::Absent if !is_served => continue,
                _ if is_served => waiting_at_the_beginning(now),
                _ => FeedState::Absent,
            };
            *has_lost |=
                matches!(state, FeedState::Streaming(_) | FeedState::Waiting { fed: Some(_), .. });
            *state = next;
        }
        self.count_unfed();
        let is_settled = self.bucket.ownership_changes() == changes;
        self.examined_at = is_settled.then_some(changes);
        is_settled
    }

    fn count_unfed(&mut self) {
        (self.unfed, self.opening, self.paused) = (0, 0, 0);
        debug_assert_eq!(
            self.vbuckets.len(),
            self.bucket.vbuckets().len(),
            "a feed for each vbucket"
        );
        for state in &self.vbuckets {
            match state {
                FeedState::Absent => {}
                FeedState::Waiting { fed: Some(_), .. } => self.paused += 1,
                FeedState::Waiting { fed: None, .. } => self.unfed += 1,
                FeedState::Streaming(open) => {
                    self.unfed += usize::from(!open.is_fed);
                    self.opening += usize::from(!open.is_fed);
                }
            }
        }
    }

    /// Opens streams that are due, and applies changes of those that are ready.
    pub fn turn(&mut self, now: Instant) -> TurnReport {
        let mut report = TurnReport::default();
        if self.unfed + self.paused > 0 {
            self.open_due(now, &mut report);
        }
        let until = Instant::now() + TURN_TIME;
        let mut ready = self.ready.take();
        let first = ready.partition_point(|at| *at < self.first);
        ready.rotate_left(first);
        let mut is_over = false;
        for at in ready {
            // One obstacle at a time; the others keep their turn.
            if is_over || report.has_obstacle() {
                self.ready.set(at);
                continue;
            }
            self.step(at, now, until, &mut report);
            report.touched.push(at);
            is_over = Instant::now() >= until;
            // After an obstacle the other vbuckets come first.
            self.first = if is_over || report.has_obstacle() { at + 1 } else { 0 };
        }
        if self.unfed + self.paused > 0 || report.has_lost {
            self.count_unfed();
        }
        report
    }

    fn open_due(&mut self, now: Instant, report: &mut TurnReport) {
        let mut opening = self.opening;
        for at in 0..self.vbuckets.len() {
            if opening >= OPENING_MAX {
                return;
            }
            if let FeedState::Waiting { due, from, fed } = self.vbuckets[at]
                && due <= now
            {
                self.vbuckets[at] = self.opened(at, (from, fed), now);
                let is_fed = match &self.vbuckets[at] {
                    FeedState::Streaming(open) => {
                        opening += usize::from(!open.is_fed);
                        self.ready.set(at);
                        open.is_fed
                    }
                    FeedState::Waiting { fed, .. } => fed.is_some(),
                    FeedState::Absent => false,
                };
                report.has_lost |= fed.is_some() && !is_fed;
            }
        }
    }

    fn opened(
        &self,
        at: usize,
        (from, fed): (FeedPosition, Option<u64>),
        now: Instant,
    ) -> FeedState {
        let vbucket = &self.bucket.vbuckets()[at];
        let (incarnation, target) = (vbucket.incarnation(), vbucket.high_seqno());
        debug_assert_eq!(usize::from(vbucket.id().0), at, "a feed is of its vbucket");
        let request = StreamRequest {
            vbid: vbucket.id(),
            start: from.seqno,
            end: Seqno(u64::MAX),
            uuid: from.uuid,
            snapshot: (from.seqno, from.seqno),
            client_purge_seqno: None,
            flags: StreamOptions { active_only: true, ignore_purged: true, ..Default::default() },
            filter: StreamFilter::All,
        };
        let sink: Arc<dyn StreamSink> = Arc::clone(&self.ready) as _;
        match self.bucket.open_stream(&request, sink, at as u64) {
            Ok(stream) if vbucket.incarnation() == incarnation => {
                let newest = stream.failover_table().first();
                let uuid = newest.map_or(VbUuid(0), |newest| newest.uuid);
                let open = FeedStream {
                    stream,
                    incarnation,
                    applied: FeedPosition { seqno: from.seqno, uuid },
                    target,
                    is_fed: fed == Some(incarnation) || target <= from.seqno,
                    has_change: false,
                };
                FeedState::Streaming(Box::new(open))
            }
            // The history of the position has ended.
            Err(StreamOpenError::Rollback(_) | StreamOpenError::Range) => {
                waiting_at_the_beginning(now)
            }
            // Not served, loading, or short of memory: the next examination or attempt decides.
            Ok(_) | Err(_) => FeedState::Waiting { due: now + PAUSE, from, fed },
        }
    }

    /// Applies changes of one vbucket.
    fn step(&mut self, at: usize, now: Instant, until: Instant, report: &mut TurnReport) {
        let FeedGroup { vbuckets, indexes, documents, ready, .. } = self;
        let Some(FeedState::Streaming(open)) = vbuckets.get_mut(at) else { return };
        let mut left = TURN_DOCUMENTS;
        let next = loop {
            if left == 0 {
                ready.set(at);
                break None;
            }
            match open.apply_next(indexes, &**documents, (left.min(RUN_DOCUMENTS), until)) {
                Ok(ApplyOutcome::Changes(changes)) => {
                    left = match Instant::now() < until {
                        true => left.saturating_sub(changes.max(1)),
                        false => 0,
                    };
                    report.changes += changes as u64;
                }
                Ok(ApplyOutcome::Idle) => break None,
                Ok(ApplyOutcome::End(StreamEndReason::BackfillFailed)) => {
                    break Some(open.paused(now));
                }
                Ok(ApplyOutcome::End(_)) => break Some(waiting_at_the_beginning(now)),
                // Others may wait for the memory that the stream holds.
                Err(Obstacle::Busy) if open.stream.holds_granted() => {
                    break Some(open.paused(now));
                }
                Err(obstacle) => {
                    ready.set(at);
                    match obstacle {
                        Obstacle::Full(index) => report.full = Some(index),
                        Obstacle::TooCostly(document) => report.unindexable = Some(document),
                        Obstacle::Busy => {}
                    }
                    break None;
                }
            }
        };
        open.is_fed |= open.reached() >= open.target;
        match next {
            None => {}
            Some(paused @ FeedState::Waiting { fed: Some(_), .. }) => {
                vbuckets[at] = paused;
                self.paused += 1;
            }
            Some(lost) => {
                vbuckets[at] = lost;
                report.has_lost = true;
                // A change of ownership may be the reason.
                self.examined_at = None;
            }
        }
    }

    /// Applies changes until this group has those that `other` has. False when it cannot now.
    pub fn reach(&mut self, other: &FeedGroup, now: Instant, report: &mut TurnReport) -> bool {
        let until = Instant::now() + TURN_TIME;
        for at in 0..self.vbuckets.len() {
            let vbid = Vbid(at as u16);
            let Some(wanted) = other.seqno(vbid) else { continue };
            if self.seqno(vbid).is_some_and(|seqno| seqno < wanted) {
                self.step(at, now, until, report);
            }
            if self.seqno(vbid).is_none_or(|seqno| seqno < wanted) {
                return false;
            }
        }
        !report.has_obstacle() && !report.has_lost
    }
}

/// The state of a vbucket that is fed from its beginning.
fn waiting_at_the_beginning(due: Instant) -> FeedState {
    FeedState::Waiting { due, from: FeedPosition::default(), fed: None }
}

enum ApplyOutcome {
    Changes(usize),
    Idle,
    End(StreamEndReason),
}

impl FeedStream {
    /// The state of its vbucket while it is closed for a while.
    fn paused(&self, now: Instant) -> FeedState {
        let is_fed = self.is_fed || self.reached() >= self.target;
        let fed = is_fed.then_some(self.incarnation);
        FeedState::Waiting { due: now + FAILURE_PAUSE, from: self.applied, fed }
    }

    /// All changes up to here are applied.
    fn reached(&self) -> Seqno {
        match self.has_change {
            true => self.applied.seqno,
            false => self.stream.last_read_seqno(),
        }
    }

    /// Applies the next changes, `changes_max` at most, until the time is over.
    fn apply_next(
        &mut self,
        indexes: &HashMap<CollectionId, Vec<Arc<FedIndex>>>,
        documents: &dyn LargeDocuments,
        (changes_max, until): (usize, Instant),
    ) -> Result<ApplyOutcome, Obstacle> {
        if !self.has_change
            && let Some(run) = self.stream.next_run(changes_max)
        {
            let (mut applied, mut last, mut obstacle) = (0, Seqno(0), None);
            for document in run.documents() {
                if let Err(why) = apply(&document, indexes, documents) {
                    obstacle = Some(why);
                    break;
                }
                (applied, last) = (applied + 1, document.record.seqno);
                if Instant::now() >= until {
                    break;
                }
            }
            drop(run);
            if applied > 0 {
                self.stream.pass_run(applied, last);
                debug_assert!(last > self.applied.seqno, "seqnos of a feed ascend");
                self.applied.seqno = last;
            }
            return obstacle.map_or(Ok(ApplyOutcome::Changes(applied)), Err);
        }
        if !self.has_change {
            match self.stream.next() {
                StreamStep::Idle => return Ok(ApplyOutcome::Idle),
                StreamStep::End(reason) => return Ok(ApplyOutcome::End(reason)),
                StreamStep::Snapshot(_) | StreamStep::SeqnoAdvanced(_) => {
                    return Ok(ApplyOutcome::Changes(0));
                }
                StreamStep::Change(_) => self.has_change = true,
            }
        }
        match self.stream.last_change() {
            Some(StreamChange::Document(document)) => {
                apply(&document, indexes, documents)?;
                self.applied.seqno = document.record.seqno;
            }
            Some(StreamChange::Event(event)) => self.applied.seqno = event.seqno,
            None => {}
        }
        self.has_change = false;
        self.stream.release_sent();
        Ok(ApplyOutcome::Changes(1))
    }
}

/// Inserts the entries of a changed document.
fn apply(
    changed: &ChangedDocument<'_>,
    indexes: &HashMap<CollectionId, Vec<Arc<FedIndex>>>,
    documents: &dyn LargeDocuments,
) -> Result<(), Obstacle> {
    let record = &changed.record;
    let Some(indexes) = indexes.get(&record.key.collection) else { return Ok(()) };
    if record.deleted {
        indexes.iter().for_each(|index| index.entries.note_removal());
        return Ok(());
    }
    let body = body_of(record.datatype, record.value);
    let inflated = match record.datatype.contains(Datatype::SNAPPY) {
        true => inflated_bytes(body).unwrap_or(0),
        false => 0,
    };
    let bytes = body.len().max(inflated);
    let _reserved = match bytes > FREE_DOCUMENT_BYTES {
        true => Some(documents.reserve(DOCUMENT_COPIES * bytes).ok_or(Obstacle::Busy)?),
        false => None,
    };
    let document = QueryDocument {
        cas: record.cas.0,
        flags: record.flags,
        expiration: record.expiry,
        ..QueryDocument::of_body(record.key.key, record.datatype, body)
    };
    // Only a document of a later revision can have had other entries.
    let replaces = record.rev_seqno.0 > 1;
    let document = IndexableDocument::from(&document);
    for index in indexes {
        match index.entries.insert(&document, replaces) {
            // One that has ended takes nothing and delays nothing.
            Ok(()) | Err(InsertRejection::Cancelled) => {}
            Err(InsertRejection::Full) => return Err(Obstacle::Full(Arc::clone(index))),
            Err(InsertRejection::TooCostly) => {
                let key = String::from_utf8_lossy(record.key.key).into_owned();
                let index = Arc::clone(index);
                return Err(Obstacle::TooCostly(UnindexableDocument { index, key }));
            }
        }
    }
    Ok(())
}
