//! The feed of a bucket's indexes, driven a turn at a time.
//!
//! Owns: the group of indexes that are online, the group that is built, those that wait for the
//! next build, and the steps when memory is short. A group that is built has its
//! streams; once it has what the online group has, its indexes join that and its streams end. So an
//! index costs a second cursor only while it is built.
//!
//! Invariants: an index joins only with the changes of every vbucket that the online group has; an
//! index whose entries do not fit is swept, then given time, and then goes offline, whatever other
//! indexes lack; a turn does a bounded amount of work. A thread (`consumer`) drives the turns.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use oribi_engine::Bucket;
use oribi_query::Keyspace;
use oribi_types::{CollectionId, Vbid};

use super::fed_index::FedIndex;
use super::feed_group::{FeedGroup, TurnReport, UnindexableDocument};
use super::feed_progress::FeedProgress;
use super::large_documents::LargeDocuments;

/// Time that the pager gets to make room for an index.
const FULL_WAIT: Duration = Duration::from_secs(3);

/// Pause before memory is asked for again.
const FULL_PAUSE: Duration = Duration::from_millis(20);
const _: () = assert!(FULL_PAUSE.as_millis() < FULL_WAIT.as_millis(), "memory is asked for again");

/// Blocks of entries that a turn sweeps, and its time for them.
const SWEEP_BLOCKS: usize = 4;
const _: () = assert!(SWEEP_BLOCKS > 0, "a sweep goes forward");
const SWEEP_TIME: Duration = Duration::from_millis(50);

/// Reads documents of a collection for sweeps: those that are not here are missing.
pub(super) type SweepReader = dyn Fn(CollectionId) -> Box<dyn Keyspace> + Send;

/// When the next turn is due.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FeedTurn {
    /// The next turn at once.
    Busy,
    /// The next turn when a change or a statement wakes the feed, or then.
    Idle(Option<Instant>),
}

/// An index that lacks memory.
struct FullIndex {
    index: Arc<FedIndex>,
    /// Since then it has been swept and lacks memory.
    since: Instant,
    /// It may have stale entries, which are not looked for yet.
    needs_sweep: bool,
}

/// See the module text.
pub(super) struct IndexFeed {
    bucket: Arc<Bucket>,
    progress: Arc<FeedProgress>,
    documents: Arc<dyn LargeDocuments>,
    reader: Box<SweepReader>,
    online: FeedGroup,
    build: Option<FeedGroup>,
    waiting: Vec<Arc<FedIndex>>,
    /// Those that lacked memory since the last turn without an obstacle.
    full: Vec<FullIndex>,
    /// The index that is swept, and where its sweep continues.
    sweep: Option<(Arc<FedIndex>, Vec<u8>)>,
    /// The log has a line that the online indexes are fed again.
    is_interrupted: bool,
}

impl IndexFeed {
    pub fn new(
        bucket: Arc<Bucket>,
        progress: Arc<FeedProgress>,
        documents: Arc<dyn LargeDocuments>,
        reader: Box<SweepReader>,
    ) -> IndexFeed {
        let online =
            FeedGroup::new(Arc::clone(&bucket), Arc::clone(&documents), Arc::clone(&progress));
        IndexFeed {
            bucket,
            progress,
            documents,
            reader,
            online,
            build: None,
            waiting: Vec::new(),
            full: Vec::new(),
            sweep: None,
            is_interrupted: false,
        }
    }

    /// Builds an index from now on.
    pub fn add(&mut self, index: Arc<FedIndex>) {
        debug_assert!(
            !self.waiting.iter().any(|one| Arc::ptr_eq(one, &index)),
            "an index is added once"
        );
        self.waiting.push(index);
    }

    /// Feeds an index no longer.
    pub fn remove(&mut self, index: &Arc<FedIndex>) {
        self.waiting.retain(|known| !Arc::ptr_eq(known, index));
        self.full.retain(|full| !Arc::ptr_eq(&full.index, index));
        self.sweep.take_if(|(swept, _)| Arc::ptr_eq(swept, index));
        let is_built = self.build.as_mut().is_some_and(|build| build.remove(index));
        if is_built && self.build.as_ref().is_some_and(FeedGroup::is_empty) {
            self.build = None;
        }
        if self.online.remove(index) && self.online.is_empty() {
            self.end_online();
        }
    }

    pub fn is_empty(&self) -> bool {
        self.online.is_empty() && self.build.is_none() && self.waiting.is_empty()
    }

    pub fn has_work(&self) -> bool {
        self.online.has_work() || self.build.as_ref().is_some_and(FeedGroup::has_work)
    }

    /// Ends the streams of the online group.
    fn end_online(&mut self) {
        debug_assert!(self.online.is_empty(), "a group with indexes is fed on");
        self.progress.set_complete(None);
        self.is_interrupted = false;
        self.online = self.new_group();
    }

    fn new_group(&self) -> FeedGroup {
        let (bucket, documents) = (Arc::clone(&self.bucket), Arc::clone(&self.documents));
        FeedGroup::new(bucket, documents, Arc::clone(&self.progress))
    }

    /// Applies what there is to apply.
    pub fn turn(&mut self, now: Instant) -> FeedTurn {
        if self.build.is_none() && !self.waiting.is_empty() {
            let mut build = self.new_group();
            self.waiting.drain(..).for_each(|index| build.add(index));
            self.build = Some(build);
        }
        let mut report = TurnReport::default();
        let mut is_settled = true;
        if !self.online.is_empty() {
            let mut has_lost = false;
            is_settled &= self.online.examine(now, &mut has_lost);
            if has_lost || !is_settled {
                self.progress.set_complete(None);
            }
            report = self.online.turn(now);
            report.has_lost |= has_lost;
            if report.has_lost {
                // Entries of documents that are gone.
                self.online.indexes().for_each(|index| index.entries.request_sweep());
            }
            match report.has_lost {
                // A vbucket that is fed again has no seqno that statements may rely on.
                true => self.publish_all(),
                false => self.publish(&report.touched),
            }
        }
        if let Some(mut build) = self.build.take() {
            is_settled &= build.examine(now, &mut false);
            let built = build.turn(now);
            let percent = build.percent();
            build.indexes().for_each(|index| index.set_percent(percent));
            report.changes += built.changes;
            report.full = report.full.or(built.full);
            report.unindexable = report.unindexable.or(built.unindexable);
            self.build = self.joined(build, now, &mut report);
        }
        self.progress.mutations.fetch_add(report.changes, Ordering::Relaxed);
        if let Some(document) = report.unindexable.take() {
            self.take_out_of_use(document);
            self.progress.end_turn();
            return FeedTurn::Busy;
        }
        let is_full = report.full.is_some();
        match report.full {
            Some(index) => self.free_memory(index, now),
            None => self.full.clear(),
        }
        let sweeps = self.sweep_blocks();
        self.progress.end_turn();
        if !is_settled || is_full && !sweeps {
            return FeedTurn::Idle(Some(now + FULL_PAUSE));
        }
        let can_build = self.build.is_none() && !self.waiting.is_empty();
        if sweeps || can_build || report.changes > 0 && self.has_work() {
            return FeedTurn::Busy;
        }
        // A vbucket that waits for memory is ready without changes.
        let retry = self.has_work().then_some(now + FULL_PAUSE);
        let due = [self.online.due(), self.build.as_ref().and_then(FeedGroup::due), retry];
        FeedTurn::Idle(due.into_iter().flatten().min())
    }

    fn publish_all(&mut self) {
        let all: Vec<usize> = (0..self.bucket.vbuckets().len()).collect();
        self.publish(&all);
    }

    /// Publishes the progress of the online group to statements, for vbuckets that have changed.
    fn publish(&mut self, touched: &[usize]) {
        debug_assert!(
            touched.iter().all(|at| *at < self.bucket.vbuckets().len()),
            "a vbucket is of the bucket"
        );
        for at in touched {
            let vbid = Vbid(*at as u16);
            self.progress.set_seqno(vbid, self.online.seqno(vbid).unwrap_or_default());
        }
        let complete_at = self.online.complete_at();
        self.progress.set_complete(complete_at);
        if complete_at.is_none() {
            let percent = self.online.percent();
            self.online.indexes().for_each(|index| index.set_percent(percent));
        }
        if complete_at.is_none() != self.is_interrupted {
            self.is_interrupted = complete_at.is_none();
            let bucket = self.bucket.config().name.as_str();
            match self.is_interrupted {
                true => tracing::info!(
                    bucket,
                    "the indexes are building, because vbuckets have another history or another \
                     owner; statements scan until then"
                ),
                false => tracing::info!(bucket, "the indexes are online again"),
            }
        }
    }

    /// Lets the indexes of a group that is built join the online group, if the group is complete;
    /// else answers the group.
    fn joined(
        &mut self,
        mut build: FeedGroup,
        now: Instant,
        report: &mut TurnReport,
    ) -> Option<FeedGroup> {
        debug_assert!(self.build.is_none(), "one group is built at a time");
        if build.complete_at().is_none() || report.has_obstacle() {
            return Some(build);
        }
        if self.online.is_empty() {
            let indexes: Vec<_> = build.indexes().cloned().collect();
            self.online = build;
            self.publish_all();
            indexes.iter().for_each(|index| index.go_online());
            return None;
        }
        let is_joint = self.online.complete_at() == build.complete_at();
        if !is_joint || !build.reach(&self.online, now, report) {
            return Some(build);
        }
        for index in build.indexes() {
            self.online.add(Arc::clone(index));
            index.go_online();
        }
        None
    }

    /// Ends an index that cannot be complete.
    fn take_out_of_use(&mut self, document: UnindexableDocument) {
        let UnindexableDocument { index, key } = document;
        self.remove(&index);
        index.go_offline(format!(
            "its keys take too much work or memory on the document {key:?}, so statements scan; \
             change the definition or the document, then run BUILD INDEX"
        ));
    }

    /// Removes stale entries of an index that is full, gives the pager time, then fails the index.
    fn free_memory(&mut self, index: Arc<FedIndex>, now: Instant) {
        let is_swept = self.sweep.as_ref().is_some_and(|(swept, _)| Arc::ptr_eq(swept, &index));
        match self.full.iter_mut().find(|full| Arc::ptr_eq(&full.index, &index)) {
            None => {
                let needs_sweep = index.entries.may_have_stale();
                self.full.push(FullIndex { index, since: now, needs_sweep });
                return;
            }
            Some(full) if full.needs_sweep || is_swept => {
                full.since = now;
                return;
            }
            Some(full) if now.duration_since(full.since) < FULL_WAIT => return,
            Some(_) => {}
        }
        self.remove(&index);
        index.go_offline(self.shortage());
    }

    /// Why an index does not fit.
    fn shortage(&self) -> String {
        let (bucket, stats) = (&self.bucket, self.bucket.stats().memory);
        let mib = |bytes: u64| bytes >> 20;
        format!(
            "its entries do not fit in memory: indexes of the bucket have {} of at most {} MiB, \
             and the bucket uses {} MiB of its quota of {}; raise the quota or drop indexes, then \
             run BUILD INDEX",
            mib(stats.indexes_bytes),
            mib(bucket.indexes_bytes_max()),
            mib(stats.used_bytes),
            mib(bucket.memory_quota_bytes()),
        )
    }

    /// Removes stale entries of an index that may have many. True while there are more to look at.
    fn sweep_blocks(&mut self) -> bool {
        if self.sweep.is_none() {
            let full = self.full.iter_mut().find(|full| full.needs_sweep).map(|full| {
                full.needs_sweep = false;
                Arc::clone(&full.index)
            });
            let needy = || self.online.indexes().find(|index| index.entries.needs_sweep()).cloned();
            self.sweep = full.or_else(needy).map(|index| (index, Vec::new()));
        }
        let Some((index, mut from)) = self.sweep.take() else { return false };
        let keyspace = (self.reader)(index.collection);
        let until = Instant::now() + SWEEP_TIME;
        let is_over = || Instant::now() >= until;
        for _ in 0..SWEEP_BLOCKS {
            match index.entries.sweep_block(&from, &*keyspace, &is_over) {
                Some(next) => from = next,
                None => return false,
            }
            if is_over() {
                break;
            }
        }
        self.sweep = Some((index, from));
        true
    }
}

#[cfg(test)]
mod tests;
