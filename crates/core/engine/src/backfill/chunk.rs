//! Records that a scan has copied, or versions in memory, shared by all streams of the scan.
//!
//! Owns: the copy, each record once, and its place in the account of memory: a chunk is counted
//! from its creation until its last holder releases it. Of versions in memory only the references
//! count while the chunk is in an inbox, because most of the blocks are the hash table's, and the
//! inboxes can be emptied; from when a stream takes it, the blocks count as well. A reader may
//! attach to a chunk of copied records the frames that it has made of them, for the other readers
//! of the scan. That is counted, too. A large record is alone in its chunk. It has a grant of the
//! process's budget instead of a place in the account, and readers send it from where it is.

use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use oribi_storage::{LARGE_RECORD_BYTES, Record};
use oribi_types::{Cas, CollectionId, Datatype, DocKey, RevSeqno, Seqno};

use crate::item::ItemRef;
use crate::reader_memory::MemoryGrant;
use crate::record;

/// A record but for its key and value, which are `key_bytes` and `value_bytes` from `at` on.
struct Head {
    at: usize,
    key_bytes: usize,
    value_bytes: usize,
    collection: CollectionId,
    cas: Cas,
    seqno: Seqno,
    rev_seqno: RevSeqno,
    flags: u32,
    expiry: u32,
    datatype: Datatype,
    deleted: bool,
    expired: bool,
}

/// Records, as they are being copied.
#[derive(Default)]
pub(super) struct ChunkRecords {
    heads: Vec<Head>,
    bytes: Vec<u8>,
}

impl ChunkRecords {
    /// Room for about this many bytes of records, so that they are not moved as they come.
    pub(super) fn with_room(bytes: usize) -> ChunkRecords {
        ChunkRecords { heads: Vec::new(), bytes: Vec::with_capacity(bytes) }
    }

    pub(super) fn push(&mut self, record: &Record<'_>) {
        self.heads.push(Head {
            at: self.bytes.len(),
            key_bytes: record.key.key.len(),
            value_bytes: record.value.len(),
            collection: record.key.collection,
            cas: record.cas,
            seqno: record.seqno,
            rev_seqno: record.rev_seqno,
            flags: record.flags,
            expiry: record.expiry,
            datatype: record.datatype,
            deleted: record.deleted,
            expired: record.expired,
        });
        self.bytes.extend_from_slice(record.key.key);
        self.bytes.extend_from_slice(record.value);
        debug_assert!(
            self.heads.iter().rev().nth(1).is_none_or(|before| before.seqno < record.seqno),
            "records are in seqno order"
        );
    }

    pub(super) fn bytes(&self) -> u64 {
        (self.bytes.len() + self.heads.len() * size_of::<Head>()) as u64
    }

    pub(super) fn is_empty(&self) -> bool {
        self.heads.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.heads.len()
    }

    fn record(&self, index: usize) -> Option<Record<'_>> {
        let head = self.heads.get(index)?;
        debug_assert!(
            head.at + head.key_bytes + head.value_bytes <= self.bytes.len(),
            "a whole record"
        );
        let (key, rest) = self.bytes[head.at..].split_at(head.key_bytes);
        Some(Record {
            key: DocKey { collection: head.collection, key },
            value: &rest[..head.value_bytes],
            cas: head.cas,
            seqno: head.seqno,
            rev_seqno: head.rev_seqno,
            flags: head.flags,
            expiry: head.expiry,
            datatype: head.datatype,
            deleted: head.deleted,
            expired: head.expired,
        })
    }
}

enum Content {
    Copied(ChunkRecords, Option<Box<dyn MemoryGrant>>),
    /// Versions that were in memory at the moment of the scan.
    Shared {
        items: Vec<ItemRef>,
        plain: OnceLock<Vec<ItemRef>>,
    },
}

/// A reader's result for a chunk, and its bytes.
struct DerivedData {
    made: Arc<dyn Any + Send + Sync>,
    bytes: u64,
}

/// A part of a snapshot, in ascending seqno.
pub(crate) struct BackfillChunk {
    content: Content,
    /// Of the records, or of the versions' blocks.
    bytes: u64,
    /// The part of it that is in the account.
    counted: AtomicU64,
    /// That of all records, where there is only one.
    collection: Option<CollectionId>,
    kept: OnceLock<DerivedData>,
    /// Bytes of all chunks of the bucket.
    account: Arc<AtomicU64>,
}

impl BackfillChunk {
    pub(super) fn of_records(
        mut records: ChunkRecords,
        account: &Arc<AtomicU64>,
    ) -> Arc<BackfillChunk> {
        debug_assert!(!records.is_empty(), "a chunk has a record");
        records.bytes.shrink_to_fit();
        let bytes = records.bytes();
        let collection = only(records.heads.iter().map(|head| head.collection));
        BackfillChunk::new(Content::Copied(records, None), (bytes, bytes), collection, account)
    }

    /// A chunk of one large record, which `grant` pays for.
    pub(super) fn of_granted(
        records: ChunkRecords,
        mut grant: Box<dyn MemoryGrant>,
        account: &Arc<AtomicU64>,
    ) -> Arc<BackfillChunk> {
        let bytes = records.bytes();
        debug_assert_eq!(records.len(), 1, "a large record is alone in its chunk");
        grant.shrink_to(bytes as usize);
        let collection = only(records.heads.iter().map(|head| head.collection));
        BackfillChunk::new(Content::Copied(records, Some(grant)), (bytes, 0), collection, account)
    }

    pub(super) fn of_items(items: Vec<ItemRef>, account: &Arc<AtomicU64>) -> Arc<BackfillChunk> {
        debug_assert!(!items.is_empty(), "a chunk has a version");
        debug_assert!(items.is_sorted_by_key(|item| item.seqno()), "versions are in order");
        let references = size_of_val(&items[..]) as u64;
        let blocks = items.iter().map(|item| item.block_bytes_plain() as u64);
        let bytes = references + blocks.sum::<u64>();
        let collection = only(items.iter().map(|item| item.key().collection));
        let content = Content::Shared { items, plain: OnceLock::new() };
        BackfillChunk::new(content, (bytes, references), collection, account)
    }

    fn new(
        content: Content,
        (bytes, counted): (u64, u64),
        collection: Option<CollectionId>,
        account: &Arc<AtomicU64>,
    ) -> Arc<BackfillChunk> {
        assert!(counted <= bytes, "a chunk counts at most its bytes");
        account.fetch_add(counted, Ordering::Relaxed);
        let (kept, account) = (OnceLock::new(), Arc::clone(account));
        Arc::new(BackfillChunk {
            content,
            bytes,
            counted: counted.into(),
            collection,
            kept,
            account,
        })
    }

    /// Counts all of it: from now on it stays until the stream that takes it has sent it. Inflates
    /// dense versions. False when one is damaged; the chunk has nothing to show then.
    #[must_use]
    pub(super) fn count_whole(&self) -> bool {
        if self.is_granted() {
            return true;
        }
        let before = self.counted.swap(self.bytes, Ordering::Relaxed);
        assert!(before <= self.bytes, "a chunk counts at most its bytes");
        self.account.fetch_add(self.bytes - before, Ordering::Relaxed);
        let Content::Shared { items, plain } = &self.content else { return true };
        if plain.get().is_some() || !items.iter().any(|item| item.is_dense()) {
            return true;
        }
        match items.iter().map(ItemRef::to_plain).collect() {
            Ok(inflated) => {
                plain.get_or_init(|| inflated);
                true
            }
            Err(error) => {
                tracing::error!("{error}; a stream cannot be served from memory");
                false
            }
        }
    }

    /// The collection of all records; `None` when there are several.
    pub(crate) fn collection(&self) -> Option<CollectionId> {
        self.collection
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// True for a large record with a grant of the process's budget.
    pub(crate) fn is_granted(&self) -> bool {
        matches!(self.content, Content::Copied(_, Some(_)))
    }

    pub(crate) fn len(&self) -> usize {
        match &self.content {
            Content::Copied(records, _) => records.len(),
            Content::Shared { items, .. } => items.len(),
        }
    }

    pub(crate) fn record(&self, index: usize) -> Option<Record<'_>> {
        match &self.content {
            Content::Copied(records, _) => records.record(index),
            Content::Shared { .. } => self.item(index).map(record::of),
        }
    }

    /// The block of a version in memory.
    pub(crate) fn item(&self, index: usize) -> Option<&ItemRef> {
        match &self.content {
            Content::Copied(..) => None,
            Content::Shared { items, plain } => plain.get().unwrap_or(items).get(index),
        }
    }

    /// The first reader's result for the records, with its bytes. `None` when it is of another
    /// type, when nothing was made and no other reader is left to use it, for a large record, and
    /// for versions in memory, which can be large.
    pub(crate) fn kept<T: Any + Send + Sync>(
        self: &Arc<BackfillChunk>,
        make: impl FnOnce() -> (T, usize),
    ) -> Option<Arc<T>> {
        let is_alone = self.kept.get().is_none() && Arc::strong_count(self) == 1;
        let is_large = self.bytes > LARGE_RECORD_BYTES as u64;
        if is_alone || is_large || matches!(self.content, Content::Shared { .. }) {
            return None;
        }
        let kept = self.kept.get_or_init(|| {
            let (made, bytes) = make();
            self.account.fetch_add(bytes as u64, Ordering::Relaxed);
            DerivedData { made: Arc::new(made), bytes: bytes as u64 }
        });
        Arc::clone(&kept.made).downcast().ok()
    }
}

fn only(mut collections: impl Iterator<Item = CollectionId>) -> Option<CollectionId> {
    let first = collections.next()?;
    collections.all(|collection| collection == first).then_some(first)
}

impl Drop for BackfillChunk {
    fn drop(&mut self) {
        let kept = self.kept.get().map_or(0, |kept| kept.bytes);
        let gone = *self.counted.get_mut() + kept;
        let before = self.account.fetch_sub(gone, Ordering::Relaxed);
        debug_assert!(before >= gone, "a chunk that goes was counted");
    }
}
