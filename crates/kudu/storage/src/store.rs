//! The store: the trait's methods, their runtime, and their shared state.
//!
//! Owns: opening a bucket's table, the runtime, the lock that lets one caller write at a time, the
//! figures. Invariants: a method waits on its caller's thread and never runs on one of the runtime;
//! commits wait for as long as Kudu is unreachable, other writers fail when the lock is not free or
//! Kudu does not answer in time; a reader never holds the lock. `writer`, `reader`, `scan`,
//! `removal` and `fence` do the work itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use oribi_kudu::{Client, ClientBuilder, Error, MasterErrorCode, Table};
use oribi_storage::{
    Counters, GetVisitor, KvStore, LoadPart, LoadPlan, LoadValues, LoadVisitor, Ownership,
    PartVisitor, ReadCount, Record, RecordVisitor, ReserveMemory, SeqnoRange, SeqnoScan,
    SharedStore, StoreError, StoreMaintenance, StoreStats, VbBatch, VbucketState, assert_fits,
    reserve_for,
};
use oribi_types::{CollectionId, DocKey, Seqno, Vbid};
use parking_lot::{Mutex, MutexGuard, RwLock};
use tokio::runtime::{Builder, Runtime};
use tokio::time::Instant;

use crate::block_on::block_on;
use crate::failure::{of_kudu, passes};
use crate::layout::{Opening, open_or_create, refusal};
use crate::lookups::Lookups;
use crate::patience::{Attempts, Patience};
use crate::readable::Readable;
use crate::reader::READ_TIME_MAX;
use crate::rows::Unit;
use crate::scan::Bounds;
use crate::seqno_scan::KuduScan;
use crate::shared::{StoreState, watch_size};
use crate::url::KuduUrl;
use crate::writer::Writer;

/// Threads of the runtime. They read and write sockets; the callers' threads encode and read rows.
const RUNTIME_THREADS: usize = 2;
/// Longest time that a writer other than the flusher waits for its turn, and then for Kudu.
pub(crate) const TURN: Duration = Duration::from_secs(30);
/// Timeout of one attempt to open, create or alter the table. All attempts are repeated.
const ADMIN_TIMEOUT: Duration = Duration::from_secs(10);

/// A [`KvStore`] over a table of Kudu. It accepts no writes before vbuckets are taken over.
pub struct KuduStore {
    shared: Arc<StoreState>,
    writer: Mutex<Writer>,
    counters: Arc<Counters>,
    /// Taken when the store is dropped.
    runtime: Option<Runtime>,
}

impl KuduStore {
    /// Opens the table of a bucket and creates it if it does not exist. Waits for as long as Kudu
    /// is unreachable and `goes_on`, called between attempts, returns true.
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
        let shared = Arc::new(StoreState {
            name: table.name().to_owned(),
            lookups: Lookups::of(&table)?,
            client,
            table,
            vbuckets,
            patience,
            readable: Readable::new(vbuckets),
            ownership: RwLock::new(None),
            runtime: runtime.handle().clone(),
            disk_bytes: AtomicU64::new(0),
            rows: AtomicU64::new(0),
        });
        runtime.spawn(watch_size(Arc::downgrade(&shared)));
        Ok(KuduStore {
            shared,
            writer: Mutex::default(),
            counters: Arc::default(),
            runtime: Some(runtime),
        })
    }

    /// Removes the table of this id ([`SharedStore::id`]) of a deleted bucket, if it still
    /// exists.
    ///
    /// # Errors
    /// Kudu is unreachable, or refuses.
    pub fn remove_table(url: &KuduUrl, id: &str) -> Result<(), StoreError> {
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

    /// Retries since the store was opened because Kudu was unreachable or busy.
    pub fn retries(&self) -> u64 {
        self.shared.patience.retries()
    }

    fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        block_on(&self.shared.runtime, future)
    }

    /// Reads for a client, or loads. Ends when the store is being closed, and at the limit.
    fn read<T>(
        &self,
        time_max: Option<Duration>,
        read: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let limit = time_max.map(|time_max| Instant::now() + time_max);
        self.block_on(self.shared.patience.read(limit, read))
    }

    /// Writes, however long Kudu is unreachable, but not beyond the grace period when the store is
    /// being closed.
    fn write<T>(
        &self,
        writer: &mut Writer,
        write: impl AsyncFnOnce(&mut Writer) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let written = self.block_on(self.shared.patience.within_grace(write(writer)));
        written.unwrap_or_else(|| Err(writer.abandon()))
    }

    /// The turn of a writer that cannot wait for Kudu's return.
    fn turn(&self) -> Result<MutexGuard<'_, Writer>, StoreError> {
        self.writer
            .try_lock_for(TURN)
            .ok_or_else(|| StoreError::Io("commits to Kudu take too long to wait for".into()))
    }
}

/// Connects and opens the table, with retries.
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

/// Deletes a table by its id, because another table may have its name by now.
async fn delete(client: &Client, id: &str) -> Result<(), StoreError> {
    match client.delete_table_by_id(id).await {
        Ok(()) | Err(Error::TableNotFound { .. }) => Ok(()),
        Err(error) => Err(of_kudu(&error)),
    }
}

/// True for errors that a starting cluster can return.
fn may_start_later(error: &Error) -> bool {
    let lacks_servers =
        matches!(error, Error::Master { code: MasterErrorCode::ReplicationFactorTooHigh, .. });
    lacks_servers || passes(error)
}

impl KvStore for KuduStore {
    fn commit(&self, batches: &[VbBatch<'_>]) -> Result<(), StoreError> {
        batches.iter().for_each(assert_fits);
        let units: Vec<Unit<'_>> = batches.iter().map(Unit::Batch).collect();
        let written = self.write(&mut self.writer.lock(), async |writer| {
            self.shared.write(writer, &units, None).await
        });
        self.counters.commit(batches, written)
    }

    fn get(
        &self,
        vbid: Vbid,
        key: DocKey<'_>,
        reserve: &mut ReserveMemory<'_>,
        visit: &mut dyn FnMut(Record<'_>),
    ) -> Result<bool, StoreError> {
        let mut count = ReadCount::default();
        let mut show = |record: Record<'_>| {
            if reserve_for(&record, reserve).is_continue() {
                visit(record);
            }
        };
        let read = self.shared.get(vbid, key, &mut count, &mut show);
        let found = self.read(Some(READ_TIME_MAX), read);
        self.counters.read(&count, found)
    }

    fn get_many(
        &self,
        keys: &[(Vbid, DocKey<'_>)],
        record_bytes_max: usize,
        visit: &mut GetVisitor<'_>,
    ) -> Result<(), StoreError> {
        let mut count = ReadCount::default();
        let read = self.shared.get_many(keys, record_bytes_max, &mut count, visit);
        let result = self.read(Some(READ_TIME_MAX), read);
        self.counters.read(&count, result)
    }

    fn scan_keys(&self, vbid: Vbid, visit: &mut RecordVisitor<'_>) -> Result<(), StoreError> {
        let mut count = ReadCount::default();
        let bounds = Bounds::documents(vbid);
        let mut show = |record: Record<'_>| {
            count.add(&record);
            visit(record)
        };
        let result = self.read(None, self.shared.scan_documents(vbid, bounds, &[], &mut show));
        self.counters.read(&count, result)
    }

    fn scan_collection(
        &self,
        vbid: Vbid,
        from: DocKey<'_>,
        reserve: &mut ReserveMemory<'_>,
        visit: &mut RecordVisitor<'_>,
    ) -> Result<(), StoreError> {
        let mut count = ReadCount::default();
        let mut show = |record: Record<'_>| {
            count.add(&record);
            visit(record)
        };
        let result = self.read(None, self.shared.scan_windows(vbid, from, reserve, &mut show));
        self.counters.read(&count, result)
    }

    fn begin_scan(&self, vbid: Vbid, range: SeqnoRange) -> Result<Box<dyn SeqnoScan>, StoreError> {
        let scan = KuduScan::begin(&self.shared, &self.counters, vbid, range)?;
        Ok(Box::new(scan))
    }

    fn plan_load(&self) -> Result<LoadPlan, StoreError> {
        let all = self.shared.all_vbuckets();
        let states = self.read(None, self.shared.states(&all, Attempts::default()))?;
        let records_estimate = self.shared.rows.load(Ordering::Relaxed);
        let plan = LoadPlan::by_vbucket(states.into_iter().map(|(vbid, _)| vbid));
        Ok(LoadPlan { records_estimate, ..plan })
    }

    fn load_part(
        &self,
        part: LoadPart,
        values: LoadValues,
        visit: &mut LoadVisitor<'_>,
    ) -> Result<(), StoreError> {
        let vbid = part.whole_vbucket().ok_or_else(StoreError::foreign_part)?;
        if values == LoadValues::Read {
            return self.scan_keys(vbid, &mut |record| values.show(vbid, record, visit));
        }
        let mut count = ReadCount::default();
        let mut show = |record: Record<'_>, value_bytes: usize| {
            count.add(&record);
            visit(vbid, record, value_bytes)
        };
        let result = self.read(None, self.shared.scan_metadata(vbid, &mut show));
        self.counters.read(&count, result)
    }

    fn vbucket_states(&self) -> Result<Vec<(Vbid, VbucketState)>, StoreError> {
        let all = self.shared.all_vbuckets();
        self.read(None, self.shared.states(&all, Attempts::default()))
    }

    fn get_local(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.read(None, self.shared.get_local(name, Attempts::default()))
    }

    fn put_local(&self, name: &str, value: &[u8]) -> Result<(), StoreError> {
        let mut writer = self.turn()?;
        let limit = Some(Instant::now() + TURN);
        self.write(&mut writer, async |writer| {
            self.shared.put_local(writer, (name, value), limit).await
        })
    }

    fn shared(&self) -> Option<&dyn SharedStore> {
        Some(self)
    }
}

impl StoreMaintenance for KuduStore {
    fn purge_collection(&self, vbid: Vbid, collection: CollectionId) -> Result<(), StoreError> {
        self.write(&mut *self.turn()?, async |writer| {
            self.shared.purge_collection(writer, vbid, collection).await
        })
    }

    fn drop_vbucket(&self, vbid: Vbid, next: Option<&VbucketState>) -> Result<(), StoreError> {
        self.write(&mut *self.turn()?, async |writer| {
            self.shared.drop_vbucket(writer, vbid, next).await
        })
    }

    fn compact(&self, vbid: Vbid, purge_before: u32) -> Result<Option<Seqno>, StoreError> {
        let compacted = self.turn().and_then(|mut writer| {
            self.write(&mut writer, async |writer| {
                self.shared.compact(writer, vbid, purge_before).await
            })
        });
        self.counters.compact(compacted)
    }

    fn stats(&self) -> StoreStats {
        let stats = self.counters.stats();
        // Kudu counts only flushed data; until the first flush the committed bytes are the better
        // estimate.
        let disk_bytes = match self.shared.disk_bytes.load(Ordering::Relaxed) {
            0 => stats.bytes_committed,
            bytes => bytes,
        };
        StoreStats { disk_bytes, ..stats }
    }
}

impl SharedStore for KuduStore {
    fn take_over(
        &self,
        vbuckets: &[Vbid],
        ready: &mut PartVisitor<'_>,
    ) -> Result<Vec<Vbid>, StoreError> {
        self.write(&mut self.writer.lock(), async |writer| {
            self.shared.take_over(writer, vbuckets, ready).await
        })
    }

    fn set_ownership(&self, ownership: Arc<dyn Ownership>) {
        *self.shared.ownership.write() = Some(ownership);
    }

    fn id(&self) -> Option<String> {
        Some(self.shared.table.id().to_owned())
    }

    fn remove(&self) -> Result<(), StoreError> {
        self.block_on(delete(&self.shared.client, self.shared.table.id()))
    }

    fn end_waits(&self) {
        self.shared.patience.end();
    }
}

impl Drop for KuduStore {
    fn drop(&mut self) {
        self.shared.patience.end();
        if let Some(runtime) = self.runtime.take() {
            // This does not wait, so that a store can be dropped on a thread of another runtime.
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests;
