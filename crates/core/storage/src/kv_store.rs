//! The seam between the engine and what keeps its data: trait, records and errors.

use std::cmp::Ordering;
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::load_plan::{LoadPart, LoadPlan, Part};
use oribi_types::{Cas, CollectionId, Datatype, DocKey, RevSeqno, Seqno, VbUuid, Vbid};

/// One version of one document, or its tombstone, as it crosses the seam in either direction.
/// Bytes are borrowed: from item blocks on the way down, from store pages on the way up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    /// Collection and logical key.
    pub key: DocKey<'a>,
    /// Document body; empty for a tombstone.
    pub value: &'a [u8],
    /// Version.
    pub cas: Cas,
    /// Position in the vbucket's history, at least 1.
    pub seqno: Seqno,
    /// Revision count, at least 1.
    pub rev_seqno: RevSeqno,
    /// Opaque client flags, host order.
    pub flags: u32,
    /// Expiry in UNIX seconds, 0 for none; for a tombstone the time of deletion.
    pub expiry: u32,
    /// What the body is.
    pub datatype: Datatype,
    /// True for a tombstone.
    pub deleted: bool,
    /// True for a tombstone that expiry made, never for anything else.
    pub expired: bool,
}

/// What a vbucket does on this node. Persisted as its discriminant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum VbucketPhase {
    /// Serves reads and writes.
    Active = 1,
    /// Copy kept up to date by another node.
    Replica = 2,
    /// About to become active.
    Pending = 3,
    /// Serves nothing.
    Dead = 4,
}

/// One entry of a failover table: the history `uuid` began after `seqno`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FailoverEntry {
    /// Identity of the history.
    pub uuid: VbUuid,
    /// Last seqno of the history before it.
    pub seqno: Seqno,
}

/// State of a vbucket that is committed together with its records.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VbucketState {
    /// What the vbucket does.
    pub phase: VbucketPhase,
    /// Highest seqno in the store once the batch is committed.
    pub high_seqno: Seqno,
    /// Highest CAS handed out up to `high_seqno`.
    pub max_cas: Cas,
    /// Highest revision among deletions, so that a re-created document continues above it.
    pub max_deleted_rev_seqno: RevSeqno,
    /// Tombstones up to this seqno may have been purged. It never falls while the vbucket exists: a
    /// store keeps the highest one that it knows in a state whose sender knew less.
    pub purge_seqno: Seqno,
    /// Newest first, at most 25 entries.
    pub failover_table: Vec<FailoverEntry>,
}

impl VbucketState {
    /// An active vbucket that nothing was written to, without a history.
    pub fn empty() -> VbucketState {
        VbucketState {
            phase: VbucketPhase::Active,
            high_seqno: Seqno(0),
            max_cas: Cas(0),
            max_deleted_rev_seqno: RevSeqno(0),
            purge_seqno: Seqno(0),
            failover_table: Vec::new(),
        }
    }

    /// This state, without taking back what `known` says of purges: see
    /// [`VbucketState::purge_seqno`].
    pub fn knowing_purges_of(&self, known: Option<&VbucketState>) -> VbucketState {
        let purge_seqno = known.map_or(Seqno(0), |known| known.purge_seqno).max(self.purge_seqno);
        VbucketState { purge_seqno, ..self.clone() }
    }
}

/// Everything one flush writes for one vbucket. Atomic: all of it becomes durable or none.
#[derive(Debug)]
pub struct VbBatch<'a> {
    /// The vbucket.
    pub vbid: Vbid,
    /// Ascending seqnos, at most one record per key.
    pub records: Vec<Record<'a>>,
    /// State after these records.
    pub state: VbucketState,
}

/// Why a store could not do what it was asked. Each carries text for the log.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The operating system refused: no space, I/O error, permission.
    #[error("storage I/O: {0}")]
    Io(String),
    /// The store behind a network does not answer, whatever it is asked. Nothing is known to be
    /// wrong with it.
    #[error("storage away: {0}")]
    Away(String),
    /// Bytes on disk are not what this version wrote.
    #[error("storage corrupt: {0}")]
    Corrupt(String),
    /// The data belongs to something else or to an unknown format version.
    #[error("storage not usable: {0}")]
    Foreign(String),
    /// An earlier failure left the store's memory in doubt, so it refuses work until it is
    /// reopened.
    #[error("storage poisoned by an earlier error: {0}")]
    Poisoned(String),
    /// Another owner has taken the data over: nothing of what was asked counts, however often it is
    /// repeated.
    #[error("storage taken over by another owner: {0}")]
    Fenced(String),
}

impl StoreError {
    pub(crate) fn foreign_part() -> StoreError {
        StoreError::Foreign("a part of another store's load".into())
    }
}

/// What tells a shared store which vbuckets this process still owns. Asked by the store's own
/// threads when another process has changed something, so it may be called at any time from several
/// threads.
pub trait Ownership: Send + Sync {
    /// Whether this process may still write the vbucket. "Yes" must hold by a lease's deadline on a
    /// monotonic clock, not by a message that could be late.
    fn owns(&self, vbid: Vbid) -> bool;
}

/// Counts for `stats` and metrics. Estimates are allowed and may lag.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StoreStats {
    /// Bytes on disk.
    pub disk_bytes: u64,
    /// Records committed since open, tombstones included.
    pub records_committed: u64,
    /// Of these, tombstones.
    pub deletions_committed: u64,
    /// Bytes of their keys and values, before headers and compression.
    pub bytes_committed: u64,
    /// Records of the last commit.
    pub last_commit_records: u64,
    /// Durable commits (groups) since open.
    pub commits: u64,
    /// Failed commits since open.
    pub commit_failures: u64,
    /// Documents in failed commits; a repeated one counts each time.
    pub set_failures: u64,
    /// Tombstones in failed commits; a repeated one counts each time.
    pub delete_failures: u64,
    /// Vbucket states in failed commits; a repeated one counts each time.
    pub vbucket_state_failures: u64,
    /// Records that look-ups and scans have read since open, tombstones included.
    pub records_read: u64,
    /// Bytes of their keys and values.
    pub bytes_read: u64,
    /// Look-ups and scans that failed since open.
    pub read_failures: u64,
    /// Purges of tombstones since open.
    pub compactions: u64,
    /// Those that failed.
    pub compact_failures: u64,
    /// The last step of compaction in the background failed.
    pub compaction_fails: bool,
}

/// Receives records in scan order; `Break` ends the scan early without error.
pub type RecordVisitor<'v> = dyn FnMut(Record<'_>) -> ControlFlow<()> + 'v;

/// Asked before a scan reads a record of more than [`LARGE_RECORD_BYTES`]: for room for so many
/// bytes, in vain when it breaks, which ends the scan as a visitor does. It may wait; the scan
/// holds no other such record meanwhile.
pub type RoomVisitor<'v> = dyn FnMut(usize) -> ControlFlow<()> + 'v;

/// Records up to this size, as stored, are read without asking for room.
pub const LARGE_RECORD_BYTES: usize = 256 << 10;

/// Asks for a record that is in memory already.
pub fn ask_for(record: &Record<'_>, room: &mut RoomVisitor<'_>) -> ControlFlow<()> {
    match record.value.len() {
        bytes if bytes > LARGE_RECORD_BYTES => room(bytes),
        _ => ControlFlow::Continue(()),
    }
}

/// Receives vbuckets that were taken over, and the states of those that have one.
pub type PartVisitor<'v> = dyn FnMut(&[Vbid], Vec<(Vbid, VbucketState)>) + 'v;

/// The answer of [`KvStore::get_many`] for a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer<'a> {
    /// There is no record.
    Absent,
    /// The stored version.
    Record(Record<'a>),
    /// A record of more bytes than were asked for. It was not read, so it may be of another key.
    Large,
}

impl Answer<'_> {
    /// The answer for a record that is in memory already.
    pub fn of(record: Record<'_>, record_bytes_max: usize) -> Answer<'_> {
        match record.value.len() > record_bytes_max {
            true => Answer::Large,
            false => Answer::Record(record),
        }
    }
}

/// Receives the answer for the key at an index; `Break` ends the look-ups early without error.
pub type GetVisitor<'v> = dyn FnMut(usize, Answer<'_>) -> ControlFlow<()> + 'v;

/// Receives records with their vbuckets in no particular order; `Break` ends the load early
/// without error.
pub type LoadVisitor<'v> = dyn FnMut(Vbid, Record<'_>) -> ControlFlow<()> + 'v;

/// Receives records without their values, and how many bytes these have, in no particular order;
/// `Break` ends the load early without error.
pub type MetadataVisitor<'v> = dyn FnMut(Vbid, Record<'_>, usize) -> ControlFlow<()> + 'v;

/// The vbucket when a [`SeqnoScan`] began, whatever the range of the scan.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ScanMoment {
    /// Highest seqno; 0 for a vbucket that was never committed.
    pub high_seqno: Seqno,
    /// Tombstones up to this seqno may have been purged.
    pub purge_seqno: Seqno,
}

impl ScanMoment {
    /// Of a vbucket that has this state, or none.
    pub fn of(state: Option<&VbucketState>) -> ScanMoment {
        let (high_seqno, purge_seqno) =
            state.map(|state| (state.high_seqno, state.purge_seqno)).unwrap_or_default();
        ScanMoment { high_seqno, purge_seqno }
    }
}

/// Whether a [`SeqnoScan`] has more to show.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScanProgress {
    /// The visitor paused it.
    Paused,
    /// Every record was visited.
    Ended,
}

/// The records of a vbucket with seqnos in a range, tombstones included, in ascending seqno.
///
/// All are shown as they were when the scan began, whatever is committed, removed or compacted
/// since. The scan takes no lock between two calls and holds none while `visit` runs. It may
/// outlive the store, and keeps the space of what it has yet to show.
pub trait SeqnoScan: Send {
    /// The moment that the scan shows.
    fn moment(&self) -> ScanMoment;

    /// Visits the next records until `visit` breaks or none is left. The record at which it breaks
    /// counts as visited. An error ends the scan; another one, from behind the last record on,
    /// shows another moment.
    fn resume(&mut self, visit: &mut RecordVisitor<'_>) -> Result<ScanProgress, StoreError>;

    /// As [`SeqnoScan::resume`]; asks for room before it reads a large record, or before it shows
    /// it where the store reads several at a time.
    fn resume_asking(
        &mut self,
        room: &mut RoomVisitor<'_>,
        visit: &mut RecordVisitor<'_>,
    ) -> Result<ScanProgress, StoreError> {
        self.resume(&mut |record| {
            ask_for(&record, room)?;
            visit(record)
        })
    }
}

/// Durable storage of one bucket.
///
/// All methods may be called from several threads. `commit` for one vbucket is only ever called by
/// one thread at a time.
pub trait KvStore: Send + Sync {
    /// Makes every batch durable before it returns `Ok` (one group commit). Each batch is atomic by
    /// itself: after a crash its records and its state are all there or none is. A vbucket may have
    /// several, which then take effect in their order, none without those before it. After `Err`
    /// nothing in `batches` may be trusted to be durable, though some of it may be.
    fn commit(&self, batches: &[VbBatch<'_>]) -> Result<(), StoreError>;

    /// Groups of vbuckets that are committed side by side: vbucket `v` is in group
    /// `v % commit_groups()`. Commits within a group wait for each other, those of different groups
    /// do not. At least one, and the same for as long as the store is open.
    fn commit_groups(&self) -> usize {
        1
    }

    /// Calls `visit` with the stored version of `key`, tombstones included; `Ok(false)` when there
    /// is none.
    fn get(
        &self,
        vbid: Vbid,
        key: DocKey<'_>,
        visit: &mut dyn FnMut(Record<'_>),
    ) -> Result<bool, StoreError>;

    /// As [`KvStore::get`]; asks for room before it reads a large record, or before it shows it
    /// where the store has it by then. A record for which there is no room is not shown; the answer
    /// is then `Ok(true)`, too.
    fn get_asking(
        &self,
        vbid: Vbid,
        key: DocKey<'_>,
        room: &mut RoomVisitor<'_>,
        visit: &mut dyn FnMut(Record<'_>),
    ) -> Result<bool, StoreError> {
        self.get(vbid, key, &mut |record| {
            if ask_for(&record, room).is_continue() {
                visit(record);
            }
        })
    }

    /// Bytes of memory that the store needs for what it has: more, the more documents there are.
    fn memory_bytes(&self) -> u64 {
        0
    }

    /// False only when [`KvStore::get`] would find nothing; true says nothing. Never reads the disk
    /// and never waits for it, so a thread that serves clients may ask.
    fn may_contain(&self, vbid: Vbid, key: DocKey<'_>) -> bool {
        let _ = (vbid, key);
        true
    }

    /// Starts loading the memory at which [`KvStore::may_contain`] will look for this key. A hint:
    /// for a caller that asks soon, and knows several keys ahead.
    fn look_ahead(&self, vbid: Vbid, key: DocKey<'_>) {
        let _ = (vbid, key);
    }

    /// [`KvStore::get`] for many keys, in whatever order is fastest: `visit` is told the index of
    /// each key once, until it breaks. Of records of more than `record_bytes_max`, as stored, it is
    /// told that they are large. After an error the keys that were not visited are unknown, and a
    /// caller can still ask for them one by one.
    fn get_many(
        &self,
        keys: &[(Vbid, DocKey<'_>)],
        record_bytes_max: usize,
        visit: &mut GetVisitor<'_>,
    ) -> Result<(), StoreError> {
        for (index, (vbid, key)) in keys.iter().enumerate() {
            let mut flow = ControlFlow::Continue(());
            let is_there = self.get(*vbid, *key, &mut |record| {
                flow = visit(index, Answer::of(record, record_bytes_max));
            });
            if !is_there? {
                flow = visit(index, Answer::Absent);
            }
            if flow.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Visits every record of the vbucket, tombstones included, in order of (collection, key).
    fn scan_keys(&self, vbid: Vbid, visit: &mut RecordVisitor<'_>) -> Result<(), StoreError>;

    /// Visits the records of one collection from a key on, tombstones included, in order of keys.
    /// All are shown as they were at one moment, however long `visit` takes, as far as the store
    /// has memory for that; of a larger collection each key is shown once. `visit` may wait for a
    /// client, and no lock is held meanwhile.
    fn scan_keys_from(
        &self,
        vbid: Vbid,
        from: DocKey<'_>,
        visit: &mut RecordVisitor<'_>,
    ) -> Result<(), StoreError> {
        self.scan_keys(vbid, &mut |record| match record.key.collection.cmp(&from.collection) {
            Ordering::Less => ControlFlow::Continue(()),
            Ordering::Equal if record.key.key < from.key => ControlFlow::Continue(()),
            Ordering::Equal => visit(record),
            Ordering::Greater => ControlFlow::Break(()),
        })
    }

    /// As [`KvStore::scan_keys_from`]; asks for room before it reads a large record, or before it
    /// shows it where the store reads several at a time.
    fn scan_keys_asking(
        &self,
        vbid: Vbid,
        from: DocKey<'_>,
        room: &mut RoomVisitor<'_>,
        visit: &mut RecordVisitor<'_>,
    ) -> Result<(), StoreError> {
        self.scan_keys_from(vbid, from, &mut |record| {
            ask_for(&record, room)?;
            visit(record)
        })
    }

    /// Begins a scan of records with `from <= seqno <= to`, in ascending seqno, as they are now. No
    /// commit of the vbucket is seen in part.
    fn begin_scan(
        &self,
        vbid: Vbid,
        from: Seqno,
        to: Seqno,
    ) -> Result<Box<dyn SeqnoScan>, StoreError>;

    /// Visits all records of such a scan at once.
    fn scan_seqnos(
        &self,
        vbid: Vbid,
        from: Seqno,
        to: Seqno,
        visit: &mut RecordVisitor<'_>,
    ) -> Result<(), StoreError> {
        self.begin_scan(vbid, from, to)?.resume(visit).map(|_| ())
    }

    /// Begins a scan of the records of one collection, in ascending seqno, as they are now. Records
    /// of other collections may come, too.
    fn begin_collection_scan(
        &self,
        vbid: Vbid,
        _collection: CollectionId,
    ) -> Result<Box<dyn SeqnoScan>, StoreError> {
        self.begin_scan(vbid, Seqno(1), Seqno(u64::MAX))
    }

    /// Splits a load of every record of every vbucket that has a state into parts.
    fn plan_load(&self) -> Result<LoadPlan, StoreError> {
        let states = self.vbucket_states()?;
        Ok(LoadPlan::by_vbucket(states.into_iter().map(|(vbid, _)| vbid)))
    }

    /// Visits every record of one part, tombstones included, once and in whatever order is fastest.
    /// A key that is committed meanwhile is shown as it was, as it is, or not at all. An error may
    /// come after some records; others of the same part may be readable by [`KvStore::scan_keys`].
    fn load_part(&self, part: LoadPart, visit: &mut LoadVisitor<'_>) -> Result<(), StoreError> {
        match part.0 {
            Part::Vbucket(vbid) => self.scan_keys(vbid, &mut |record| visit(vbid, record)),
            Part::Own(_) => Err(StoreError::foreign_part()),
        }
    }

    /// [`KvStore::load_part`] for callers that keep no values. A store that has them elsewhere than
    /// keys and metadata does not read them.
    fn load_metadata(
        &self,
        part: LoadPart,
        visit: &mut MetadataVisitor<'_>,
    ) -> Result<(), StoreError> {
        self.load_part(part, &mut |vbid, record| {
            visit(vbid, Record { value: &[], ..record }, record.value.len())
        })
    }

    /// All parts one after the other.
    fn load(&self, visit: &mut LoadVisitor<'_>) -> Result<(), StoreError> {
        let mut flow = ControlFlow::Continue(());
        for part in self.plan_load()?.parts {
            self.load_part(part, &mut |vbid, record| {
                flow = visit(vbid, record);
                flow
            })?;
            if flow.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// State of every vbucket that was ever committed, in any order.
    fn vbucket_states(&self) -> Result<Vec<(Vbid, VbucketState)>, StoreError>;

    /// Reads a small named document of the bucket (manifest, settings).
    fn get_local(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError>;

    /// Writes a small named document durably.
    fn put_local(&self, name: &str, value: &[u8]) -> Result<(), StoreError>;

    /// Removes every record of a dropped collection from the vbucket. Idempotent; not required to
    /// be atomic, because the caller repeats it after a crash.
    fn purge_collection(&self, vbid: Vbid, collection: CollectionId) -> Result<(), StoreError>;

    /// Removes the vbucket's records and state durably.
    fn drop_vbucket(&self, vbid: Vbid) -> Result<(), StoreError>;

    /// Removes tombstones of the vbucket that were deleted before `purge_before` (UNIX seconds) and
    /// gives space back. Returns the highest seqno removed, if any. The purge seqno of the
    /// vbucket's state is durable before the first tombstone is gone, and no commit takes it back.
    fn compact(&self, vbid: Vbid, purge_before: u32) -> Result<Option<Seqno>, StoreError>;

    /// Asks the store to give back the space of superseded records now, although there is less of
    /// it than the store would wait for. The store does it in the background.
    fn ask_for_compaction(&self) {}

    /// Whether several processes can have this store's data open at once, so that
    /// [`KvStore::take_over`] comes before the first write.
    fn is_shared(&self) -> bool {
        false
    }

    /// Makes this process the owner of these vbuckets: whatever an earlier owner has sent and will
    /// ever send fails as a whole, however late it arrives, unless that owner is told by its
    /// [`Ownership`] that it still owns the vbucket. Returns what the vbuckets' states are from now
    /// on; one that was never committed has none.
    fn take_over(&self, vbuckets: &[Vbid]) -> Result<Vec<(Vbid, VbucketState)>, StoreError> {
        let _ = vbuckets;
        Err(StoreError::Foreign("this kind of store belongs to one process".into()))
    }

    /// [`KvStore::take_over`] that tells of each vbucket as soon as it can be served: `ready` gets
    /// some of them, and the states of those that have one. Every vbucket is told of once, unless
    /// there is an error. A later write may wait until the store accepts it. Returns those of which
    /// it told too early, because an earlier owner has written since: they have to be given up.
    /// With an [`Ownership`] that is possible, because that owner acknowledges nothing any more.
    fn take_over_in_parts(
        &self,
        vbuckets: &[Vbid],
        ready: &mut PartVisitor<'_>,
    ) -> Result<Vec<Vbid>, StoreError> {
        let states = self.take_over(vbuckets)?;
        ready(vbuckets, states);
        Ok(Vec::new())
    }

    /// Sets who is asked which vbuckets this process owns. Without it the process owns what it has
    /// taken over, until another process takes anything over.
    fn set_ownership(&self, owned: Arc<dyn Ownership>) {
        let _ = owned;
    }

    /// The owner is about to close the store. Reads for clients and loads end at once from now on,
    /// with [`StoreError::Away`], and any other call that waits for a store behind a network within
    /// half a minute.
    fn end_waits(&self) {}

    /// The owner has written everything. Says so durably where that tells a store that was cut off
    /// later from one that ends here.
    fn finish(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Names what several processes share, alike for all of them and for as long as it is there.
    /// `None` for a store of one process.
    fn shared_id(&self) -> Option<String> {
        None
    }

    /// Removes what the store has outside of its directory, for a bucket that is deleted. Nothing
    /// is called afterwards.
    fn remove_remote(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// False when the store was not closed, or does not end as it was left when it was. One that
    /// cannot tell says true.
    fn ended_in_order(&self) -> bool {
        true
    }

    /// Counts and sizes.
    fn stats(&self) -> StoreStats;
}
