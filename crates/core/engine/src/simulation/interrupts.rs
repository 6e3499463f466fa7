//! A store that lets the simulation do something else in the middle of a commit, a read or a load.
//!
//! Owns: the points at which another thread could run while this one is in the store, and what
//! runs there. The simulation is single-threaded: at each point it may run whole operations of
//! clients and steps of other background work, nested in the one under way. Real threads would do
//! the same between two instructions. It also fails commits that the store below would take, as a
//! store may that recovers by itself.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use oribi_storage::{
    GetVisitor, KvStore, LoadPart, LoadValues, LoadVisitor, LogStore, LookupResult, Record,
    RecordVisitor, ReserveMemory, ScanProgress, SeqnoRange, SeqnoScan, SnapshotSeqnos, StoreError,
    StoreMaintenance, VbBatch, forward, unlimited,
};
use oribi_types::{DocKey, Vbid};

use super::world::World;

/// Where the engine is in the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Point {
    /// Before a commit; the answer may make it fail.
    BeforeCommit,
    /// After it, before the engine hears of it.
    AfterCommit,
    /// Around a read of some documents.
    Read,
    /// Between two records of a load.
    Load,
    /// Around a scan by seqno, and between two of its records.
    Scan,
}

/// Outcome of the call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    GoesOn,
    Fails,
}

type Hook = Rc<dyn Fn(Point) -> Fate>;

thread_local! {
    static HOOK: RefCell<Option<Hook>> = const { RefCell::new(None) };
}

/// Calls `hook` at every point of this thread, or nothing any more.
pub(super) fn set_hook(hook: Option<Hook>) {
    HOOK.replace(hook);
}

impl World {
    /// Called in the middle of something that is in the store.
    pub(super) fn interrupted(&self, point: Point) -> Fate {
        let is_open = self.life.try_borrow().is_ok_and(|life| life.is_some());
        if !is_open || self.depth.get() > 0 {
            return Fate::GoesOn;
        }
        let often = if point == Point::Load { 6 } else { 2 };
        if self.below(often) == 0 {
            self.depth.set(1);
            for _ in 0..=self.below(2) {
                self.count(|counts| counts.nested += 1);
                match self.below(8) {
                    0 => self.evict(),
                    1 if point == Point::BeforeCommit || point == Point::AfterCommit => {
                        self.fetch()
                    }
                    2 if point == Point::Read => self.flush(),
                    // Another fetcher takes a batch while this one is read.
                    5 if point == Point::Read => self.fetch(),
                    2 if point == Point::BeforeCommit || point == Point::AfterCommit => {
                        self.flush_another();
                    }
                    // A backfill that commits have overtaken holds a flusher.
                    2 if point == Point::Scan
                        && self.scan_flushes.get() > 0
                        && !self.is_any_flusher_held() =>
                    {
                        self.scan_flushes.set(self.scan_flushes.get() - 1);
                        self.flush();
                    }
                    3 => self.close_checkpoints(),
                    4 => self.churn(point == Point::Read),
                    6 if self.setup.is_dense => self.densify(),
                    _ => self.operate(),
                }
            }
            self.depth.set(0);
        }
        let may_fail = matches!(point, Point::BeforeCommit | Point::AfterCommit);
        if may_fail && !self.setup.is_calm && self.below(60) == 0 {
            self.is_troubled.set(true);
            return Fate::Fails;
        }
        Fate::GoesOn
    }
}

fn reach(point: Point) -> Result<(), StoreError> {
    let hook = HOOK.with_borrow(Clone::clone);
    match hook.map_or(Fate::GoesOn, |hook| hook(point)) {
        Fate::GoesOn => Ok(()),
        Fate::Fails => Err(StoreError::Io(format!("simulated: fails at {point:?}"))),
    }
}

/// The log store with points.
pub(super) struct InterruptedStore(pub(super) Arc<LogStore>);

impl KvStore for InterruptedStore {
    forward!(0: properties, may_contain, plan_load, vbucket_states, get_local, put_local);

    fn commit(&self, batches: &[VbBatch<'_>]) -> Result<(), StoreError> {
        reach(Point::BeforeCommit)?;
        self.0.commit(batches)?;
        reach(Point::AfterCommit)
    }

    fn get(
        &self,
        vbid: Vbid,
        key: DocKey<'_>,
        reserve: &mut ReserveMemory<'_>,
        visit: &mut dyn FnMut(Record<'_>),
    ) -> Result<bool, StoreError> {
        reach(Point::Read)?;
        let found = self.0.get(vbid, key, reserve, visit);
        reach(Point::Read)?;
        found
    }

    fn get_many(
        &self,
        keys: &[(Vbid, DocKey<'_>)],
        record_bytes_max: usize,
        visit: &mut GetVisitor<'_>,
    ) -> Result<(), StoreError> {
        // Reads first and shows later, so that a write may come in between.
        reach(Point::Read)?;
        for (index, (vbid, key)) in keys.iter().enumerate() {
            let mut flow = None;
            self.0.get(*vbid, *key, &mut unlimited, &mut |record| {
                let _ = reach(Point::Read);
                flow = Some(visit(index, LookupResult::of(record, record_bytes_max)));
            })?;
            let flow = match flow {
                Some(flow) => flow,
                None => {
                    reach(Point::Read)?;
                    visit(index, LookupResult::Absent)
                }
            };
            if flow.is_break() {
                break;
            }
        }
        reach(Point::Read)
    }

    fn scan_keys(&self, vbid: Vbid, visit: &mut RecordVisitor<'_>) -> Result<(), StoreError> {
        reach(Point::Load)?;
        self.0.scan_keys(vbid, visit)
    }

    fn begin_scan(&self, vbid: Vbid, range: SeqnoRange) -> Result<Box<dyn SeqnoScan>, StoreError> {
        reach(Point::Scan)?;
        self.0.begin_scan(vbid, range).map(|scan| Box::new(InterruptedScan(scan)) as _)
    }

    fn load_part(
        &self,
        part: LoadPart,
        values: LoadValues,
        visit: &mut LoadVisitor<'_>,
    ) -> Result<(), StoreError> {
        reach(Point::Load)?;
        self.0.load_part(part, values, &mut |vbid, record, value_bytes| {
            let _ = reach(Point::Load);
            visit(vbid, record, value_bytes)
        })?;
        reach(Point::Load)
    }
}

impl StoreMaintenance for InterruptedStore {
    forward!(0: purge_collection, drop_vbucket, compact, forget_prepares, stats);
}

/// A scan by seqno with a point after each record.
struct InterruptedScan(Box<dyn SeqnoScan>);

impl SeqnoScan for InterruptedScan {
    fn snapshot(&self) -> SnapshotSeqnos {
        self.0.snapshot()
    }

    fn resume(
        &mut self,
        reserve: &mut ReserveMemory<'_>,
        visit: &mut RecordVisitor<'_>,
    ) -> Result<ScanProgress, StoreError> {
        self.0.resume(reserve, &mut |record| {
            let flow = visit(record);
            let _ = reach(Point::Scan);
            flow
        })
    }
}
