//! The seam between the engine and its store: the traits and the visitors that they take.
//!
//! [`KvStore`] has the data, [`StoreMaintenance`] the work that no client waits for, and
//! [`SharedStore`] the ownership of data that several processes have open.

use std::cmp::Ordering;
use std::ops::ControlFlow;

use oribi_types::{CollectionId, DocKey, Seqno, Vbid};

use crate::load_plan::{LoadPart, LoadPlan, LoadValues, LoadVisitor};
use crate::seqno_scan::{SeqnoRange, SeqnoScan};
use crate::visitor::{RecordVisitor, ReserveMemory, reserve_for, unlimited};
use crate::{Record, SharedStore, StoreError, StoreStats, VbBatch, VbucketState};

/// The result of [`KvStore::get_many`] for a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LookupResult<'a> {
    /// There is no record.
    Absent,
    Record(Record<'a>),
    /// A record above the caller's limit. The store did not read it, so it may be of another key.
    Large,
}

impl LookupResult<'_> {
    /// The result for a record that is in memory already.
    pub fn of(record: Record<'_>, record_bytes_max: usize) -> LookupResult<'_> {
        match record.value.len() > record_bytes_max {
            true => LookupResult::Large,
            false => LookupResult::Record(record),
        }
    }
}

/// Receives the result for the key at an index; `Break` ends the look-ups early without error.
pub type GetVisitor<'v> = dyn FnMut(usize, LookupResult<'_>) -> ControlFlow<()> + 'v;

/// Constants of an open store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoreProperties {
    /// Groups of vbuckets that are committed in parallel: vbucket `v` is in group
    /// `v % commit_groups`. Commits within a group wait for each other. At least one.
    pub commit_groups: usize,
    /// False when the last owner did not close the store, or when its data does not end as it was
    /// closed. A store that cannot know says true.
    pub ended_in_order: bool,
}

impl Default for StoreProperties {
    fn default() -> StoreProperties {
        StoreProperties { commit_groups: 1, ended_in_order: true }
    }
}

/// Durable storage of one bucket.
///
/// All methods may be called from several threads. `commit` for one vbucket is only ever called by
/// one thread at a time.
pub trait KvStore: StoreMaintenance {
    /// Makes every batch durable before it returns `Ok` (one group commit). Each batch is atomic by
    /// itself: after a crash its records and its state are all there or none is. A vbucket may have
    /// several, which then take effect in their order, none without those before it. After `Err`
    /// nothing in `batches` may be trusted to be durable, though some of it may be.
    fn commit(&self, batches: &[VbBatch<'_>]) -> Result<(), StoreError>;

    /// Constants of the open store.
    fn properties(&self) -> StoreProperties {
        StoreProperties::default()
    }

    /// Calls `visit` with the stored version of `key`, tombstones included; `Ok(false)` when there
    /// is none. The store reserves memory before it reads a large record, or before it shows one
    /// that it has read by then. It does not show a record whose reservation fails; the answer is
    /// then `Ok(true)`, too.
    fn get(
        &self,
        vbid: Vbid,
        key: DocKey<'_>,
        reserve: &mut ReserveMemory<'_>,
        visit: &mut dyn FnMut(Record<'_>),
    ) -> Result<bool, StoreError>;

    /// [`KvStore::get`] for many keys, in whatever order is fastest: `visit` gets the index of each
    /// key once, until it breaks. Records of more than `record_bytes_max`, as stored, are reported
    /// as large. After an error the keys that were not visited are unknown, and a caller can still
    /// get them one by one.
    fn get_many(
        &self,
        keys: &[(Vbid, DocKey<'_>)],
        record_bytes_max: usize,
        visit: &mut GetVisitor<'_>,
    ) -> Result<(), StoreError> {
        for (index, (vbid, key)) in keys.iter().enumerate() {
            let mut flow = ControlFlow::Continue(());
            let exists = self.get(*vbid, *key, &mut unlimited, &mut |record| {
                flow = visit(index, LookupResult::of(record, record_bytes_max));
            });
            if !exists? {
                flow = visit(index, LookupResult::Absent);
            }
            if flow.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// False only when [`KvStore::get`] would find nothing; true says nothing. Never reads the disk
    /// and never waits for it, so a thread that serves clients may call it.
    fn may_contain(&self, vbid: Vbid, key: DocKey<'_>) -> bool {
        let _ = (vbid, key);
        true
    }

    /// Starts loading the memory that [`KvStore::may_contain`] will read for this key. A hint for
    /// callers that know several keys ahead.
    fn look_ahead(&self, vbid: Vbid, key: DocKey<'_>) {
        let _ = (vbid, key);
    }

    /// Bytes of memory that the store needs for its documents: more, the more there are.
    fn memory_bytes(&self) -> u64 {
        0
    }

    /// Visits every record of the vbucket, tombstones included, in order of (collection, key).
    fn scan_keys(&self, vbid: Vbid, visit: &mut RecordVisitor<'_>) -> Result<(), StoreError>;

    /// Visits the records of one collection from a key on, tombstones included, in order of keys.
    /// All are shown as they were at one point in time, however long `visit` takes, as far as the
    /// store has memory for that; of a larger collection each key is shown once. `visit` may wait
    /// for a client; the store holds no lock while it runs. The store reserves memory before it
    /// reads a large record, or before it shows it where it reads several at a time.
    fn scan_collection(
        &self,
        vbid: Vbid,
        from: DocKey<'_>,
        reserve: &mut ReserveMemory<'_>,
        visit: &mut RecordVisitor<'_>,
    ) -> Result<(), StoreError> {
        self.scan_keys(vbid, &mut |record| match record.key.collection.cmp(&from.collection) {
            Ordering::Less => ControlFlow::Continue(()),
            Ordering::Equal if record.key.key < from.key => ControlFlow::Continue(()),
            Ordering::Equal => {
                reserve_for(&record, reserve)?;
                visit(record)
            }
            Ordering::Greater => ControlFlow::Break(()),
        })
    }

    /// Begins a scan of the records in a range, in ascending seqno, as they are now. No commit of
    /// the vbucket is seen in part.
    fn begin_scan(&self, vbid: Vbid, range: SeqnoRange) -> Result<Box<dyn SeqnoScan>, StoreError>;

    /// Splits a load of every record of every vbucket that has a state into parts.
    fn plan_load(&self) -> Result<LoadPlan, StoreError> {
        let states = self.vbucket_states()?;
        Ok(LoadPlan::by_vbucket(states.into_iter().map(|(vbid, _)| vbid)))
    }

    /// Visits every record of one part, tombstones included, once and in whatever order is fastest.
    /// A key that is committed during the load is shown as it was, as it is, or not at all. An
    /// error may come after some records; others of the same part may be readable by
    /// [`KvStore::scan_keys`].
    fn load_part(
        &self,
        part: LoadPart,
        values: LoadValues,
        visit: &mut LoadVisitor<'_>,
    ) -> Result<(), StoreError> {
        let vbid = part.whole_vbucket().ok_or_else(StoreError::foreign_part)?;
        self.scan_keys(vbid, &mut |record| values.show(vbid, record, visit))
    }

    /// State of every vbucket that was ever committed, in any order.
    fn vbucket_states(&self) -> Result<Vec<(Vbid, VbucketState)>, StoreError>;

    /// Reads a small named document of the bucket (manifest, settings).
    fn get_local(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError>;

    /// Writes a small named document durably.
    fn put_local(&self, name: &str, value: &[u8]) -> Result<(), StoreError>;

    /// The store as one that several processes can have open at once; `None` when the data belongs
    /// to one process.
    fn shared(&self) -> Option<&dyn SharedStore> {
        None
    }
}

/// Work on the stored data that no client waits for, and the counts of a store.
pub trait StoreMaintenance: Send + Sync {
    /// Removes every record of a dropped collection from the vbucket. Idempotent; not required to
    /// be atomic, because the caller repeats it after a crash.
    fn purge_collection(&self, vbid: Vbid, collection: CollectionId) -> Result<(), StoreError>;

    /// Removes the vbucket's records durably, and replaces its state by `next` or by none. Atomic
    /// where the data belongs to one process. A shared store may be left with the old state and
    /// some of the records.
    fn drop_vbucket(&self, vbid: Vbid, next: Option<&VbucketState>) -> Result<(), StoreError>;

    /// Removes tombstones of the vbucket that were deleted before `purge_before` (UNIX seconds) and
    /// gives space back. Returns the highest seqno removed, if any. The purge seqno of the
    /// vbucket's state is durable before the first tombstone is gone, and no commit takes it back.
    fn compact(&self, vbid: Vbid, purge_before: u32) -> Result<Option<Seqno>, StoreError>;

    /// Removes prepares that are completed according to the vbucket's stored state, so that their
    /// space can come back. Returns how many. A restart may bring some back, until the next call.
    fn forget_prepares(&self, _vbid: Vbid) -> Result<u64, StoreError> {
        Ok(0)
    }

    /// Requests that the store gives the space of superseded records back now, although there is
    /// less of it than the store would wait for. The store compacts in the background.
    fn request_compaction(&self) {}

    /// Ends an orderly shutdown: the owner has written everything. The store records that durably
    /// where it has to tell a clean end from a crash.
    fn finish(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn stats(&self) -> StoreStats;
}

/// Loads all parts of a store one after the other, with values.
///
/// # Errors
/// Those of [`KvStore::plan_load`] and [`KvStore::load_part`].
pub fn load_all(
    store: &dyn KvStore,
    visit: &mut dyn FnMut(Vbid, Record<'_>) -> ControlFlow<()>,
) -> Result<(), StoreError> {
    let mut flow = ControlFlow::Continue(());
    for part in store.plan_load()?.parts {
        store.load_part(part, LoadValues::Read, &mut |vbid, record, _| {
            flow = visit(vbid, record);
            flow
        })?;
        if flow.is_break() {
            break;
        }
    }
    Ok(())
}
