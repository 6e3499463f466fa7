//! Canaries: each mutant has to be found by the suite.

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use oribi_types::{CollectionId, DocKey, Seqno, Vbid};

use super::{Medium, run};
use crate::{
    GetVisitor, KvStore, LookupResult, MemoryMedium, MemoryStore, Record, RecordVisitor,
    ReserveMemory, ScanProgress, SeqnoRange, SeqnoScan, SnapshotSeqnos, StoreError,
    StoreMaintenance, VbBatch, VbucketState, forward,
};

/// The fault of the store under the suite.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Bug {
    None,
    LosesTombstones,
    ForgetsExpiry,
    AcknowledgesWithoutCommitting,
    KeepsTheOldState,
    ForgetsTheLastRecordOfAGroup,
    IgnoresTheUpperSeqno,
    ScansInKeyOrderOnly,
    ScansWhenItGoesOn,
    ShowsTheLastRecordAgain,
    DoesNotSayThatItPurged,
    ScansTheNextCollectionToo,
    PurgesYoungTombstones,
    PurgesTheWholeVbucket,
    LeavesRecordsOfADroppedVbucket,
    DeniesLongKeys,
    AnswersForTheNextKey,
    ReadsLargeRecords,
}

struct BuggyMedium {
    medium: Arc<MemoryMedium>,
    bug: Bug,
}

impl Medium for BuggyMedium {
    fn open(&self) -> Result<Box<dyn KvStore>, StoreError> {
        let inner = MemoryStore::on(Arc::clone(&self.medium));
        Ok(Box::new(BuggyStore { inner, bug: self.bug, commits: AtomicU64::new(0) }))
    }
}

struct BuggyStore {
    inner: MemoryStore,
    bug: Bug,
    commits: AtomicU64,
}

impl BuggyStore {
    /// The batches after the bug had its way with them.
    fn spoil<'a>(&self, batches: &[VbBatch<'a>]) -> Result<Vec<VbBatch<'a>>, StoreError> {
        let mut spoilt = Vec::new();
        for batch in batches {
            let mut records = batch.records.clone();
            let mut state = batch.state.clone();
            match self.bug {
                Bug::LosesTombstones => records.retain(|record| !record.deleted),
                Bug::ForgetsExpiry => {
                    records.iter_mut().for_each(|record| record.expired = false);
                }
                Bug::KeepsTheOldState => {
                    let states = self.inner.vbucket_states()?;
                    let old = states.into_iter().find(|(vbid, _)| *vbid == batch.vbid);
                    state = old.map_or(state, |(_, old)| old);
                }
                Bug::ForgetsTheLastRecordOfAGroup if batches.len() > 1 => {
                    records.pop();
                }
                _ => {}
            }
            spoilt.push(VbBatch { vbid: batch.vbid, records, state });
        }
        Ok(spoilt)
    }
}

impl KvStore for BuggyStore {
    forward!(inner: properties, get, scan_keys, get_local, put_local);

    fn commit(&self, batches: &[VbBatch<'_>]) -> Result<(), StoreError> {
        let number = self.commits.fetch_add(1, Ordering::Relaxed);
        if self.bug == Bug::AcknowledgesWithoutCommitting && number % 2 == 1 {
            return Ok(());
        }
        self.inner.commit(&self.spoil(batches)?)
    }

    fn may_contain(&self, vbid: Vbid, key: DocKey<'_>) -> bool {
        let denies = self.bug == Bug::DeniesLongKeys && key.key.len() > 5;
        !denies && self.inner.may_contain(vbid, key)
    }

    fn get_many(
        &self,
        keys: &[(Vbid, DocKey<'_>)],
        record_bytes_max: usize,
        visit: &mut GetVisitor<'_>,
    ) -> Result<(), StoreError> {
        let shift = usize::from(self.bug == Bug::AnswersForTheNextKey);
        let count = keys.len().max(1);
        let bytes_max = match self.bug {
            Bug::ReadsLargeRecords => usize::MAX,
            _ => record_bytes_max,
        };
        let mut shifted =
            |index: usize, result: LookupResult<'_>| visit((index + shift) % count, result);
        self.inner.get_many(keys, bytes_max, &mut shifted)
    }

    fn scan_collection(
        &self,
        vbid: Vbid,
        from: DocKey<'_>,
        reserve: &mut ReserveMemory<'_>,
        visit: &mut RecordVisitor<'_>,
    ) -> Result<(), StoreError> {
        let is_first = |record: &Record<'_>| record.key.collection < from.collection;
        match self.bug {
            Bug::ScansTheNextCollectionToo => self.inner.scan_keys(vbid, &mut |record| {
                if is_first(&record) { ControlFlow::Continue(()) } else { visit(record) }
            }),
            _ => self.inner.scan_collection(vbid, from, reserve, visit),
        }
    }

    fn begin_scan(&self, vbid: Vbid, range: SeqnoRange) -> Result<Box<dyn SeqnoScan>, StoreError> {
        let to = if self.bug == Bug::IgnoresTheUpperSeqno { Seqno(u64::MAX) } else { range.to };
        let sound = self.inner.begin_scan(vbid, SeqnoRange { to, ..range })?;
        let inner = self.inner.clone();
        let shown = None;
        Ok(match self.bug {
            Bug::ScansInKeyOrderOnly | Bug::ScansWhenItGoesOn | Bug::ShowsTheLastRecordAgain => {
                let range = (range.from, to);
                Box::new(BuggyScan { sound, inner, vbid, range, shown, bug: self.bug })
            }
            _ => sound,
        })
    }

    fn vbucket_states(&self) -> Result<Vec<(Vbid, VbucketState)>, StoreError> {
        let mut states = self.inner.vbucket_states()?;
        if self.bug == Bug::DoesNotSayThatItPurged {
            states.iter_mut().for_each(|(_, state)| state.purge_seqno = Seqno(0));
        }
        Ok(states)
    }
}

impl StoreMaintenance for BuggyStore {
    forward!(inner: forget_prepares, stats);

    fn purge_collection(&self, vbid: Vbid, collection: CollectionId) -> Result<(), StoreError> {
        match self.bug {
            Bug::PurgesTheWholeVbucket => self.inner.drop_vbucket(vbid, None),
            _ => self.inner.purge_collection(vbid, collection),
        }
    }

    fn drop_vbucket(&self, vbid: Vbid, next: Option<&VbucketState>) -> Result<(), StoreError> {
        match self.bug {
            Bug::LeavesRecordsOfADroppedVbucket => Ok(()),
            _ => self.inner.drop_vbucket(vbid, next),
        }
    }

    fn compact(&self, vbid: Vbid, purge_before: u32) -> Result<Option<Seqno>, StoreError> {
        match self.bug {
            Bug::PurgesYoungTombstones => self.inner.compact(vbid, u32::MAX),
            _ => self.inner.compact(vbid, purge_before),
        }
    }
}

/// A scan that begins again where a sound one continues.
struct BuggyScan {
    sound: Box<dyn SeqnoScan>,
    inner: MemoryStore,
    vbid: Vbid,
    range: (Seqno, Seqno),
    /// The last record that was shown.
    shown: Option<Seqno>,
    bug: Bug,
}

impl SeqnoScan for BuggyScan {
    fn snapshot(&self) -> SnapshotSeqnos {
        self.sound.snapshot()
    }

    fn resume(
        &mut self,
        reserve: &mut ReserveMemory<'_>,
        visit: &mut RecordVisitor<'_>,
    ) -> Result<ScanProgress, StoreError> {
        let (from, to) = self.range;
        if self.bug == Bug::ScansInKeyOrderOnly {
            let mut progress = ScanProgress::Ended;
            return self
                .inner
                .scan_keys(self.vbid, &mut |record| {
                    if record.seqno < from || to < record.seqno {
                        return ControlFlow::Continue(());
                    }
                    let flow = visit(record);
                    progress = if flow.is_break() { ScanProgress::Paused } else { progress };
                    flow
                })
                .map(|()| progress);
        }
        let from = self.shown.unwrap_or(from);
        let mut scan = self.inner.begin_scan(self.vbid, SeqnoRange::seqnos(from, to))?;
        scan.resume(reserve, &mut |record| {
            let behind = if self.bug == Bug::ShowsTheLastRecordAgain { 0 } else { 1 };
            self.shown = Some(Seqno(record.seqno.0.saturating_add(behind)));
            visit(record)
        })
    }
}

fn passes(bug: Bug) -> bool {
    let make = || -> Box<dyn Medium> { Box::new(BuggyMedium { medium: Arc::default(), bug }) };
    catch_unwind(AssertUnwindSafe(|| run(&make))).is_ok()
}

#[test]
fn the_suite_finds_every_planted_bug() {
    assert!(passes(Bug::None), "the canary cage itself is sound");
    for bug in [
        Bug::LosesTombstones,
        Bug::ForgetsExpiry,
        Bug::AcknowledgesWithoutCommitting,
        Bug::KeepsTheOldState,
        Bug::ForgetsTheLastRecordOfAGroup,
        Bug::IgnoresTheUpperSeqno,
        Bug::ScansInKeyOrderOnly,
        Bug::ScansWhenItGoesOn,
        Bug::ShowsTheLastRecordAgain,
        Bug::DoesNotSayThatItPurged,
        Bug::ScansTheNextCollectionToo,
        Bug::PurgesYoungTombstones,
        Bug::PurgesTheWholeVbucket,
        Bug::LeavesRecordsOfADroppedVbucket,
        Bug::DeniesLongKeys,
        Bug::AnswersForTheNextKey,
        Bug::ReadsLargeRecords,
    ] {
        assert!(!passes(bug), "the suite does not notice a store that {bug:?}");
    }
}
