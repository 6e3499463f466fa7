//! The embedded store: one fjall keyspace per bucket, behind the [`KvStore`] seam.
//!
//! Owns: the directory of one bucket's data, its layout (`docs/storage-format.md`) and the one writer
//! at a time that fjall's journal allows. Invariants: a batch is one fjall write batch, so it is
//! atomic in the journal; `commit` returns `Ok` only after the journal was synced past all of its
//! batches; after the first failed write the store refuses every later one until it is reopened,
//! because a journal whose sync failed once cannot be trusted (Rebello et al., "Can applications
//! recover from fsync failures?", 2020).
//!
//! Everything is in one keyspace on purpose. fjall flushes a keyspace's memtable by size and keeps
//! a journal until every keyspace in it was flushed, so a small idle keyspace beside a busy one
//! pins journals for ever. With one keyspace the journal is bounded by what one memtable holds plus
//! fjall's rotation size of 64 MB. For the same reason this module decides itself when the memtable
//! is flushed and holds writers back itself: fjall's own back-pressure waits without an end for a
//! background thread that may be dead, and its flush requests can fill the bounded queue that its
//! background threads themselves write to.
//!
//! Callers: whoever opens a bucket. It does not index by seqno: see [`FjallStore::scan_seqnos`].

mod failure;
mod journal_check;
mod layout;
mod removal;
mod seqno_scan;
mod space;
#[cfg(test)]
mod tests;
mod writer;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fjall::compaction::Leveled;
use fjall::config::{BlockSizePolicy, CompressionPolicy};
use fjall::{
    CompressionType, Database, Keyspace, KeyspaceCreateOptions, KvSeparationOptions, PersistMode,
    Readable, Slice,
};
use oribi_types::{CollectionId, DocKey, Seqno, Vbid};

use self::failure::{guarded, store_error};
use self::writer::Writer;
use crate::counters::ReadCount;
use crate::directory::{Directory, Found, StoreKind};
use crate::{KvStore, Record, RecordVisitor, StoreError, StoreStats, VbBatch, VbucketState};

/// Name of the one keyspace.
const KEYSPACE: &str = "bucket";

/// Marker and files of this kind of store.
const STORE_KIND: StoreKind = StoreKind {
    marker_text: b"oribi-store 1 ",
    is_own_file: |name| ["lock", "version", "keyspaces"].contains(&name) || name.ends_with(".jnl"),
    required_file: Some("version"),
};

/// Values from this size on go to blob files, where compaction does not rewrite them. Below a few
/// KiB separation costs more than it saves: at 512 B it quarters the speed of a scan.
const SEPARATION_THRESHOLD_BYTES: u32 = 16 * 1024;

/// Larger blocks than fjall's 4 KiB: documents are read mostly by whole scans at warmup, and larger
/// blocks compress better.
const BLOCK_BYTES: u32 = 16 * 1024;

/// Size of one table. The first level that is kept sorted holds four of them, and merging into it
/// rewrites most of it at once; a quarter of fjall's 64 MiB keeps these merges, and with them the
/// longest wait of a commit, short.
const TABLE_BYTES: u64 = 16 << 20;

/// What may be chosen when a store is opened. The defaults suit many small buckets on one machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FjallOptions {
    /// Cache of uncompressed blocks. Small, because the engine keeps documents in memory itself.
    pub cache_bytes: u64,
    /// Size at which the memtable is written out as a table. Bounds memory (a few memtables may
    /// wait to be written) and the journal that a start has to replay.
    pub memtable_bytes: u64,
    /// Background threads that write tables out and merge them. With two, a full memtable does not
    /// wait behind a merge: the longest commit of a sustained load fell from 1-2 s to 0.3 s.
    pub worker_threads: usize,
    /// Most file descriptors that the store keeps open for tables.
    pub open_files_max: usize,
    /// Open a store whose journal is damaged, and give up what the journal holds behind the damage.
    /// For the operator who knows why: after a power loss the last group commit, which nobody was
    /// told is durable, can have holes that look like damage.
    pub accepts_damaged_journal: bool,
}

impl Default for FjallOptions {
    fn default() -> FjallOptions {
        FjallOptions {
            cache_bytes: 8 << 20,
            memtable_bytes: 16 << 20,
            worker_threads: 2,
            open_files_max: 256,
            accepts_damaged_journal: false,
        }
    }
}

/// A [`KvStore`] in a directory of its own.
pub struct FjallStore {
    // Fields drop in this order: the database writes its journal out before the lock is released.
    writer: Writer,
    keyspace: Keyspace,
    database: Database,
    path: PathBuf,
    _directory: Directory,
}

impl FjallStore {
    /// Opens the store in `path`, creating it when the directory is missing or empty. The name of a
    /// new directory is made durable; names of directories above its parent are the caller's.
    ///
    /// Errors: `Foreign` when the directory holds something else, a newer format, or is in use;
    /// `Corrupt` when it was a store and can no longer be read. Neither changes any file.
    pub fn open(path: &Path, options: FjallOptions) -> Result<FjallStore, StoreError> {
        let directory = Directory::claim(path, &STORE_KIND)?;
        if directory.found() == Found::Ready {
            match journal_check::check_journals(path) {
                Err(error) if options.accepts_damaged_journal => {
                    tracing::warn!(%error, "opened as told; what stands behind the damage is given up");
                }
                checked => checked?,
            }
        }
        let database = guarded("open", || {
            Database::builder(path)
                .cache_size(options.cache_bytes)
                .worker_threads(options.worker_threads.max(1))
                .max_cached_files(Some(options.open_files_max.max(10)))
                .open()
                .map_err(store_error)
        })?;
        if directory.found() == Found::Ready && !database.keyspace_exists(KEYSPACE) {
            return Err(StoreError::Corrupt(format!("keyspace {KEYSPACE} is missing")));
        }
        let keyspace = guarded("open keyspace", || {
            database.keyspace(KEYSPACE, create_options).map_err(store_error)
        })?;
        directory.mark_ready()?;
        let writer = Writer::new(database.clone(), keyspace.clone(), options.memtable_bytes);
        let store =
            FjallStore { writer, keyspace, database, path: path.to_owned(), _directory: directory };
        store.finish_interrupted_drops()?;
        Ok(store)
    }

    /// Visits every entry below `prefix` in order of key, as they were when the scan began.
    fn scan_prefix(&self, prefix: &[u8], visit: &mut EntryVisitor<'_>) -> Result<(), StoreError> {
        let mut entries = self.database.snapshot().prefix(&self.keyspace, prefix);
        while let Some((key, value)) = next_entry(&mut entries)? {
            if visit(&key, &value)?.is_break() {
                break;
            }
        }
        Ok(())
    }
}

/// Receives a stored key and value.
type EntryVisitor<'v> = dyn FnMut(&[u8], &[u8]) -> Result<ControlFlow<()>, StoreError> + 'v;

/// The next key and value of a scan. Only fjall's own work is guarded, not the visitor's: a panic
/// there is a bug of the caller and none of its business.
fn next_entry(entries: &mut fjall::Iter) -> Result<Option<(Slice, Slice)>, StoreError> {
    guarded("scan", || {
        entries.next().map(|entry| entry.into_inner().map_err(store_error)).transpose()
    })
}

/// Options are stored with the keyspace when it is created and not read again later, so a change
/// here affects new stores only.
fn create_options() -> KeyspaceCreateOptions {
    let separation = KvSeparationOptions::default()
        .separation_threshold(SEPARATION_THRESHOLD_BYTES)
        .compression(CompressionType::Lz4);
    KeyspaceCreateOptions::default()
        .with_kv_separation(Some(separation))
        .data_block_size_policy(BlockSizePolicy::all(BLOCK_BYTES))
        .data_block_compression_policy(CompressionPolicy::all(CompressionType::Lz4))
        .compaction_strategy(Arc::new(Leveled::default().with_table_target_size(TABLE_BYTES)))
        // The writer flushes by itself (see the module's text), so fjall never has a reason to.
        .max_memtable_size(u64::MAX)
        .manual_journal_persist(true)
}

impl KvStore for FjallStore {
    fn commit(&self, batches: &[VbBatch<'_>]) -> Result<(), StoreError> {
        self.writer.commit(batches)
    }

    fn get(
        &self,
        vbid: Vbid,
        key: DocKey<'_>,
        visit: &mut dyn FnMut(Record<'_>),
    ) -> Result<bool, StoreError> {
        let stored_key = layout::document_key(vbid, key);
        let mut count = ReadCount::default();
        let mut read = || {
            let value = guarded("get", || self.keyspace.get(&stored_key).map_err(store_error))?;
            let Some(value) = value else { return Ok(false) };
            let record = layout::decode_record(&stored_key, &value)?;
            count.add(&record);
            visit(record);
            Ok(true)
        };
        let result = read();
        self.writer.counters().read(&count, result)
    }

    fn scan_keys(&self, vbid: Vbid, visit: &mut RecordVisitor<'_>) -> Result<(), StoreError> {
        let mut count = ReadCount::default();
        let result = self.scan_prefix(&layout::vbucket_prefix(vbid), &mut |key, value| {
            let record = layout::decode_record(key, value)?;
            count.add(&record);
            Ok(visit(record))
        });
        self.writer.counters().read(&count, result)
    }

    fn scan_keys_from(
        &self,
        vbid: Vbid,
        from: DocKey<'_>,
        visit: &mut RecordVisitor<'_>,
    ) -> Result<(), StoreError> {
        let mut count = ReadCount::default();
        let end = layout::after_collection(vbid, from.collection);
        let range = layout::document_key(vbid, from)..Slice::from(end);
        let mut entries = self.database.snapshot().range(&self.keyspace, range);
        let mut scan = || {
            while let Some((key, value)) = next_entry(&mut entries)? {
                let record = layout::decode_record(&key, &value)?;
                count.add(&record);
                if visit(record).is_break() {
                    break;
                }
            }
            Ok(())
        };
        let result = scan();
        self.writer.counters().read(&count, result)
    }

    /// Reads the vbucket twice: once for seqnos and keys, which it sorts in memory (about 16 bytes
    /// and the key per record in range), then each document by key. An index from seqno to key
    /// would make this one ordered read, and would double the entries of every commit: 183,000
    /// instead of 273,000 items per second were measured with one. Until change streams read
    /// by seqno, nothing repays that.
    fn scan_seqnos(
        &self,
        vbid: Vbid,
        from: Seqno,
        to: Seqno,
        visit: &mut RecordVisitor<'_>,
    ) -> Result<(), StoreError> {
        let mut count = ReadCount::default();
        let result = self.scan_sorted_by_seqno(vbid, from, to, &mut |record| {
            count.add(&record);
            visit(record)
        });
        self.writer.counters().read(&count, result)
    }

    fn vbucket_states(&self) -> Result<Vec<(Vbid, VbucketState)>, StoreError> {
        let mut states = Vec::new();
        self.scan_prefix(&layout::STATE_PREFIX, &mut |key, value| {
            states.push((layout::vbid_of_state_key(key)?, layout::decode_state(value)?));
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(states)
    }

    fn get_local(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let value =
            guarded("get", || self.keyspace.get(layout::local_key(name)).map_err(store_error))?;
        Ok(value.map(|value| value.to_vec()))
    }

    fn put_local(&self, name: &str, value: &[u8]) -> Result<(), StoreError> {
        self.writer.write(PersistMode::SyncData, |batch| {
            batch.insert(layout::local_key(name), value);
            Ok(())
        })
    }

    fn purge_collection(&self, vbid: Vbid, collection: CollectionId) -> Result<(), StoreError> {
        self.remove_collection(vbid, collection)
    }

    fn drop_vbucket(&self, vbid: Vbid) -> Result<(), StoreError> {
        self.remove_vbucket(vbid)
    }

    fn compact(&self, vbid: Vbid, purge_before: u32) -> Result<Option<Seqno>, StoreError> {
        self.writer.counters().compact(self.purge_tombstones(vbid, purge_before))
    }

    fn stats(&self) -> StoreStats {
        StoreStats {
            disk_bytes: space::allocated_bytes(&self.path),
            ..self.writer.counters().stats()
        }
    }
}
