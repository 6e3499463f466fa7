//! The store: the trait's methods, the runtime behind them, and what all of them share.
//!
//! Owns: opening a bucket's table, the runtime, the lock that lets one caller write at a time, the figures.
//! Invariants: a method waits on its caller's thread and never runs on one of the runtime; commits wait for
//! as long as Kudu is away, other writers give up when the lock is not free or Kudu does not answer in time; the lock
//! is never held by a reader. The work itself is in `writer`, `reader`, `scan`, `removal` and `fence`.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use oribi_kudu::{Client, ClientBuilder, Error, MasterErrorCode, Predicate, Table};
use oribi_storage::{
    Counters, GetVisitor, KvStore, LoadPart, LoadPlan, MetadataVisitor, Ownership, ReadCount,
    Record, RecordVisitor, StoreError, StoreStats, VbBatch, VbucketState, assert_fits,
};
use oribi_types::{CollectionId, DocKey, Seqno, Vbid};
use parking_lot::{Mutex, MutexGuard, RwLock};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::time::Instant;

use crate::block_on::block_on;
use crate::failure::{of_kudu, passes};
use crate::layout::{COLUMNS, Opening, column, open_or_create, refusal};
use crate::owned_record::OwnedRecord;
use crate::patience::{Attempts, Patience};
use crate::reader::Lookups;
use crate::rows::Unit;
use crate::scan::Bounds;
use crate::url::KuduUrl;
use crate::writer::Writer;

/// Threads of the runtime: they read and write sockets; rows are encoded and read on the callers' threads.
const RUNTIME_THREADS: usize = 2;
/// How long a writer other than the flusher waits for its turn, and then for Kudu.
pub(crate) const TURN: Duration = Duration::from_secs(30);
/// How often Kudu is asked how large the table is.
const SIZE_INTERVAL: Duration = Duration::from_secs(10);
/// How long one attempt to open, make or alter the table takes. All of them are repeated.
const ADMIN_TIMEOUT: Duration = Duration::from_secs(10);

/// A [`KvStore`] over a table of Kudu. Nothing can be written before vbuckets are taken over.
pub struct KuduStore {
    shared: Arc<Shared>,
    writer: Mutex<Writer>,
    counters: Counters,
    /// Taken when the store is dropped.
    runtime: Option<Runtime>,
}

/// What reading, writing and waiting share.
pub(crate) struct Shared {
    pub(crate) client: Client,
    pub(crate) name: String,
    /// As it was when the store was opened. Its documents' columns never change.
    pub(crate) table: Table,
    pub(crate) lookups: Lookups,
    pub(crate) vbuckets: u16,
    pub(crate) patience: Arc<Patience>,
    pub(crate) ownership: RwLock<Option<Arc<dyn Ownership>>>,
    runtime: Handle,
    /// What Kudu said last, 0 for nothing.
    disk_bytes: AtomicU64,
    rows: AtomicU64,
}

impl KuduStore {
    /// Opens the table of a bucket and makes it if it is not there. Waits for as long as Kudu cannot be reached
    /// and `goes_on` says yes, which is asked between attempts.
    ///
    /// # Errors
    /// `Foreign` when the table is not that of such a bucket; `Io` when waiting was ended.
    pub fn open(
        url: &KuduUrl,
        bucket: &str,
        vbuckets: u16,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<KuduStore, StoreError> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(RUNTIME_THREADS)
            .thread_name(format!("kudu {bucket}"))
            .enable_all()
            .build()
            .map_err(|error| StoreError::Io(format!("threads for Kudu: {error}")))?;
        let patience = Arc::<Patience>::default();
        let opening = open_table(url, bucket, vbuckets, &patience, goes_on);
        let (client, table) = block_on(runtime.handle(), opening)?;
        let shared = Arc::new(Shared {
            name: table.name().to_owned(),
            lookups: Lookups::of(&table)?,
            client,
            table,
            vbuckets,
            patience,
            ownership: RwLock::new(None),
            runtime: runtime.handle().clone(),
            disk_bytes: AtomicU64::new(0),
            rows: AtomicU64::new(0),
        });
        runtime.spawn(watch_size(Arc::downgrade(&shared)));
        Ok(KuduStore {
            shared,
            writer: Mutex::default(),
            counters: Counters::default(),
            runtime: Some(runtime),
        })
    }

    /// Removes the table of this id ([`KvStore::shared_id`]) of a bucket that is deleted, if it is still there.
    ///
    /// # Errors
    /// Kudu cannot be reached, or refuses.
    pub fn remove(url: &KuduUrl, id: &str) -> Result<(), StoreError> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .map_err(|error| StoreError::Io(format!("threads for Kudu: {error}")))?;
        let removed = block_on(runtime.handle(), async {
            let builder = ClientBuilder::from_addresses(&url.masters())
                .map_err(|error| StoreError::Foreign(error.to_string()))?;
            let client = builder.admin_timeout(ADMIN_TIMEOUT).build().await;
            delete(&client.map_err(|error| of_kudu(&error))?, id).await
        });
        runtime.shutdown_background();
        removed
    }

    /// Attempts that had to be repeated because Kudu was away or busy, since the store was opened.
    pub fn retries(&self) -> u64 {
        self.shared.patience.retries()
    }

    fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        block_on(&self.shared.runtime, future)
    }

    /// The turn of a writer that has no time for Kudu's return.
    fn turn(&self) -> Result<MutexGuard<'_, Writer>, StoreError> {
        self.writer
            .try_lock_for(TURN)
            .ok_or_else(|| StoreError::Io("commits to Kudu take too long to wait for".into()))
    }
}

/// Connects and opens the table, again and again.
async fn open_table(
    url: &KuduUrl,
    bucket: &str,
    vbuckets: u16,
    patience: &Patience,
    goes_on: &dyn Fn() -> bool,
) -> Result<(Client, Table), StoreError> {
    let (name, masters) = (url.table_of(bucket), url.masters());
    let builder = ClientBuilder::from_addresses(&masters)
        .map_err(|error| StoreError::Foreign(error.to_string()))?
        .admin_timeout(ADMIN_TIMEOUT);
    let what = format!("table {name:?} is to be opened at {masters}");
    tracing::info!(table = name, masters, "opening the bucket's table in Kudu");
    let mut attempts = Attempts::default();
    loop {
        let opened = async {
            let client = builder.clone().build().await.map_err(Opening::Kudu)?;
            let table = open_or_create(&client, url, &name, vbuckets).await?;
            Ok((client, table))
        };
        match opened.await {
            Ok(opened) => {
                patience.succeeded("the bucket's table is open");
                return Ok(opened);
            }
            Err(Opening::Kudu(error)) if may_start_later(&error) && goes_on() => {
                patience.pause(&mut attempts, &what, &error).await?;
            }
            Err(other) => return Err(refusal(other)),
        }
    }
}

/// Deletes a table by its id: another one may have its name by now.
async fn delete(client: &Client, id: &str) -> Result<(), StoreError> {
    match client.delete_table_by_id(id).await {
        Ok(()) | Err(Error::TableNotFound { .. }) => Ok(()),
        Err(error) => Err(of_kudu(&error)),
    }
}

/// Whether a cluster that is only starting can have answered this.
fn may_start_later(error: &Error) -> bool {
    let lacks_servers =
        matches!(error, Error::Master { code: MasterErrorCode::ReplicationFactorTooHigh, .. });
    lacks_servers || passes(error)
}

/// Asks now and then how large the table is, until the store is gone.
async fn watch_size(shared: Weak<Shared>) {
    loop {
        let Some(now) = shared.upgrade() else { return };
        // Figures may lag, so an answer that does not come is no news.
        if let Ok(statistics) = now.client.table_statistics(&now.name).await {
            now.disk_bytes.store(statistics.on_disk_bytes.unwrap_or(0), Ordering::Relaxed);
            now.rows.store(statistics.live_row_count.unwrap_or(0), Ordering::Relaxed);
        }
        drop(now);
        tokio::time::sleep(SIZE_INTERVAL).await;
    }
}

impl KvStore for KuduStore {
    fn commit(&self, batches: &[VbBatch<'_>]) -> Result<(), StoreError> {
        batches.iter().for_each(assert_fits);
        let units: Vec<Unit<'_>> = batches.iter().map(Unit::Batch).collect();
        let mut writer = self.writer.lock();
        self.counters.commit(batches, self.block_on(self.shared.write(&mut writer, &units, None)))
    }

    fn get(
        &self,
        vbid: Vbid,
        key: DocKey<'_>,
        visit: &mut dyn FnMut(Record<'_>),
    ) -> Result<bool, StoreError> {
        let mut count = ReadCount::default();
        let found = self.block_on(self.shared.get(vbid, key, &mut count, visit));
        self.counters.read(&count, found)
    }

    fn get_many(
        &self,
        keys: &[(Vbid, DocKey<'_>)],
        visit: &mut GetVisitor<'_>,
    ) -> Result<(), StoreError> {
        let mut count = ReadCount::default();
        let result = self.block_on(self.shared.get_many(keys, &mut count, visit));
        self.counters.read(&count, result)
    }

    fn scan_keys(&self, vbid: Vbid, visit: &mut RecordVisitor<'_>) -> Result<(), StoreError> {
        let mut count = ReadCount::default();
        let bounds = Bounds::documents(vbid);
        let result = self.block_on(self.shared.scan_documents(vbid, bounds, &[], &mut |record| {
            count.add(&record);
            visit(record)
        }));
        self.counters.read(&count, result)
    }

    /// Holds the documents of the range in memory, because Kudu has them in order of their keys.
    fn scan_seqnos(
        &self,
        vbid: Vbid,
        from: Seqno,
        to: Seqno,
        visit: &mut RecordVisitor<'_>,
    ) -> Result<(), StoreError> {
        let mut found = Vec::new();
        let bounds = Bounds::documents(vbid);
        let predicates = seqno_predicates(from, to);
        let mut keep = |record: Record<'_>| {
            if from <= record.seqno && record.seqno <= to {
                found.push(OwnedRecord::of(&record));
            }
            ControlFlow::Continue(())
        };
        let scan = self.shared.scan_documents(vbid, bounds, &predicates, &mut keep);
        let result = self.block_on(scan);
        found.sort_unstable_by_key(|record| record.seqno());
        let mut count = ReadCount::default();
        if result.is_ok() {
            for record in &found {
                let record = record.borrow();
                count.add(&record);
                if visit(record).is_break() {
                    break;
                }
            }
        }
        self.counters.read(&count, result)
    }

    fn plan_load(&self) -> Result<LoadPlan, StoreError> {
        let states = self.vbucket_states()?;
        let records_estimate = self.shared.rows.load(Ordering::Relaxed);
        let plan = LoadPlan::by_vbucket(states.into_iter().map(|(vbid, _)| vbid));
        Ok(LoadPlan { records_estimate, ..plan })
    }

    fn load_metadata(
        &self,
        part: LoadPart,
        visit: &mut MetadataVisitor<'_>,
    ) -> Result<(), StoreError> {
        let vbid = part.whole_vbucket();
        let vbid = vbid.ok_or_else(|| StoreError::Foreign("a part of another store".into()))?;
        let mut count = ReadCount::default();
        let mut show = |record: Record<'_>, value_bytes: usize| {
            count.add(&record);
            visit(vbid, record, value_bytes)
        };
        let result = self.block_on(self.shared.scan_metadata(vbid, &mut show));
        self.counters.read(&count, result)
    }

    fn vbucket_states(&self) -> Result<Vec<(Vbid, VbucketState)>, StoreError> {
        self.block_on(self.shared.states(&self.shared.all_vbuckets(), Attempts::default()))
    }

    fn get_local(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.block_on(self.shared.get_local(name, Attempts::default()))
    }

    fn put_local(&self, name: &str, value: &[u8]) -> Result<(), StoreError> {
        let mut writer = self.turn()?;
        let limit = Some(Instant::now() + TURN);
        self.block_on(self.shared.put_local(&mut writer, (name, value), limit))
    }

    fn purge_collection(&self, vbid: Vbid, collection: CollectionId) -> Result<(), StoreError> {
        let mut writer = self.turn()?;
        self.block_on(self.shared.purge_collection(&mut writer, vbid, collection))
    }

    fn drop_vbucket(&self, vbid: Vbid) -> Result<(), StoreError> {
        let mut writer = self.turn()?;
        self.block_on(self.shared.drop_vbucket(&mut writer, vbid))
    }

    fn compact(&self, vbid: Vbid, purge_before: u32) -> Result<Option<Seqno>, StoreError> {
        let compacted = self.turn().and_then(|mut writer| {
            self.block_on(self.shared.compact(&mut writer, vbid, purge_before))
        });
        self.counters.compact(compacted)
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn take_over(&self, vbuckets: &[Vbid]) -> Result<Vec<(Vbid, VbucketState)>, StoreError> {
        let mut writer = self.writer.lock();
        self.block_on(self.shared.take_over(&mut writer, vbuckets))
    }

    fn set_ownership(&self, owned: Arc<dyn Ownership>) {
        *self.shared.ownership.write() = Some(owned);
    }

    fn end_waits(&self) {
        self.shared.patience.end();
    }

    fn shared_id(&self) -> Option<String> {
        Some(self.shared.table.id().to_owned())
    }

    fn remove_remote(&self) -> Result<(), StoreError> {
        self.block_on(delete(&self.shared.client, self.shared.table.id()))
    }

    fn stats(&self) -> StoreStats {
        let stats = self.counters.stats();
        // Kudu counts what it has flushed; until then what was committed is the better guess.
        let disk_bytes = match self.shared.disk_bytes.load(Ordering::Relaxed) {
            0 => stats.bytes_committed,
            bytes => bytes,
        };
        StoreStats { disk_bytes, ..stats }
    }
}

impl Drop for KuduStore {
    fn drop(&mut self) {
        self.shared.patience.end();
        if let Some(runtime) = self.runtime.take() {
            // Does not wait, so that a store can be dropped on the thread of another runtime.
            runtime.shutdown_background();
        }
    }
}

/// What a server can leave out. Numbers beyond 63 bits are negative there, so a range that reaches them is not
/// asked for.
fn seqno_predicates(from: Seqno, to: Seqno) -> Vec<Predicate> {
    match (i64::try_from(from.0), i64::try_from(to.0)) {
        (Ok(from), Ok(to)) => vec![
            Predicate::greater_or_equal(COLUMNS[column::SEQNO], from),
            Predicate::less_or_equal(COLUMNS[column::SEQNO], to),
        ],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests;
