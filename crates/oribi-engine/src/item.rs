//! The item: one allocation that holds a version of a document, shared by everyone.
//!
//! Owns: the block layout and its reference count. The hash table, the checkpoint queue, the flusher
//! and a connection's write queue hold [`ItemRef`]s to the same block; key and value are copied into
//! it once, by [`NewItem::new`], and never out of it except into a response buffer.
//!
//! Layout of a block, native endian, aligned to 8 bytes:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | reference count |
//! | 4 | 4 | value length |
//! | 8 | 8 | CAS |
//! | 16 | 8 | seqno |
//! | 24 | 4 | revision, low 32 bits |
//! | 28 | 4 | expiry |
//! | 32 | 4 | flags |
//! | 36 | 4 | collection |
//! | 40 | 2 | revision, high 16 bits |
//! | 42 | 1 | key length |
//! | 43 | 1 | datatype (low bits), deleted (top bit) |
//! | 44 | n | key, then value |
//!
//! Unsafe invariants, cited below by number:
//! 1. A block is allocated by `NewItem::new` with `block_layout(key_bytes, value_bytes)`, both lengths
//!    are stored in its header and never change, and it is freed with the same layout.
//! 2. Header, key and value are fully written before `NewItem::new` returns.
//! 3. A `NewItem` is the only pointer to its block, so it may write header fields; once it has become
//!    an `ItemRef` nothing but the reference count is ever written.
//! 4. Each `ItemRef` owns one count; the block is freed by whoever takes the count to zero.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::mem::offset_of;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use oribi_types::{Cas, CollectionId, Datatype, DocKey, RevSeqno, Seqno};

#[cfg(test)]
mod tests;

#[repr(C)]
struct Header {
    refcount: AtomicU32,
    value_bytes: u32,
    cas: u64,
    seqno: u64,
    rev_low: u32,
    expiry: u32,
    flags: u32,
    collection: u32,
    rev_high: u16,
    key_bytes: u8,
    kind: u8,
}

/// Bytes of a block before the key. Source: the table above, compared with it by a test.
pub const HEADER_BYTES: usize = 44;
const DELETED: u8 = 0x80;
const REV_MAX: u64 = (1 << 48) - 1;
const _: () = assert!(offset_of!(Header, kind) + 1 == HEADER_BYTES);

/// What a new item is made of, apart from key, value and what the checkpoint manager assigns.
#[derive(Clone, Copy, Debug, Default)]
pub struct ItemFields {
    /// Opaque client flags.
    pub flags: u32,
    /// Absolute expiry in UNIX seconds, 0 for none; time of deletion for a tombstone.
    pub expiry: u32,
    /// What the value is.
    pub datatype: Datatype,
    /// True for a tombstone.
    pub deleted: bool,
}

/// At least a whole `Header`, whose size is rounded up past `HEADER_BYTES`, so that a reference to
/// the header never reaches beyond the block.
fn block_bytes(key_bytes: usize, value_bytes: usize) -> usize {
    (HEADER_BYTES + key_bytes + value_bytes).max(size_of::<Header>())
}

fn block_layout(key_bytes: usize, value_bytes: usize) -> Layout {
    Layout::from_size_align(block_bytes(key_bytes, value_bytes), align_of::<Header>())
        .expect("lengths are u8 and u32, far below isize::MAX")
}

/// A filled block that nobody else can see yet: the checkpoint manager still writes CAS and seqno.
pub struct NewItem(ItemRef);

impl NewItem {
    /// Allocates one block and fills it. The value is `parts` laid end to end.
    ///
    /// # Panics
    /// When the key is longer than 255 bytes or the value longer than `u32::MAX`; callers check the
    /// protocol's limits (250 bytes, 20 MiB) before.
    pub fn new(key: DocKey<'_>, fields: ItemFields, parts: &[&[u8]]) -> NewItem {
        let key_bytes = u8::try_from(key.key.len()).expect("the caller checked the key limit");
        let value_len: usize = parts.iter().map(|part| part.len()).sum();
        let value_bytes = u32::try_from(value_len).expect("the caller checked the value limit");
        let layout = block_layout(key.key.len(), value_len);
        // SAFETY: the layout has a non-zero size because it covers at least the header.
        let block = unsafe { alloc(layout) };
        let Some(header) = NonNull::new(block.cast::<Header>()) else { handle_alloc_error(layout) };
        let deleted = if fields.deleted { DELETED } else { 0 };
        // SAFETY: (1) the block is large and aligned enough for the header, then key and value at
        // HEADER_BYTES; the header goes first because its trailing padding overlaps the key.
        unsafe {
            header.write(Header {
                refcount: AtomicU32::new(1),
                value_bytes,
                cas: 0,
                seqno: 0,
                rev_low: 0,
                expiry: fields.expiry,
                flags: fields.flags,
                collection: key.collection.0,
                rev_high: 0,
                key_bytes,
                kind: fields.datatype.0 & !DELETED | deleted,
            });
            let mut at = block.add(HEADER_BYTES);
            for part in std::iter::once(&key.key).chain(parts) {
                at.copy_from_nonoverlapping(part.as_ptr(), part.len());
                at = at.add(part.len());
            }
        }
        NewItem(ItemRef(header))
    }

    /// Sets the version. Called once, under the queue lock or while loading from the store.
    pub fn set_version(&mut self, cas: Cas, seqno: Seqno, rev_seqno: RevSeqno) {
        let rev = rev_seqno.0.min(REV_MAX);
        // SAFETY: (3) the block is not shared yet.
        let header = unsafe { self.0.0.as_mut() };
        header.cas = cas.0;
        header.seqno = seqno.0;
        header.rev_low = rev as u32;
        header.rev_high = (rev >> 32) as u16;
    }

    /// Sets the absolute expiry, for a write that keeps the expiry of the version before it.
    pub fn set_expiry(&mut self, expiry: u32) {
        // SAFETY: (3) the block is not shared yet.
        unsafe { self.0.0.as_mut() }.expiry = expiry;
    }

    /// Sets the datatype, for a value that was only complete once it was in the block.
    pub fn with_datatype(mut self, datatype: Datatype) -> NewItem {
        // SAFETY: (3) the block is not shared yet.
        let header = unsafe { self.0.0.as_mut() };
        header.kind = header.kind & DELETED | datatype.0 & !DELETED;
        self
    }

    /// Gives up the right to write; from here on the block is immutable.
    pub fn publish(self) -> ItemRef {
        self.0
    }

    /// Reads the block like any other holder.
    pub fn as_item(&self) -> &ItemRef {
        &self.0
    }
}

/// A counted reference to one immutable version of a document.
pub struct ItemRef(NonNull<Header>);

// SAFETY: (3) the block is immutable but for its atomic count, so threads may share and send it.
unsafe impl Send for ItemRef {}
// SAFETY: as above.
unsafe impl Sync for ItemRef {}

impl ItemRef {
    fn header(&self) -> &Header {
        // SAFETY: (2, 4) the block is initialised and lives as long as this count.
        unsafe { self.0.as_ref() }
    }

    fn bytes(&self, from: usize, len: usize) -> &[u8] {
        // SAFETY: (1, 2) callers pass ranges inside key and value as the header's lengths give them.
        unsafe {
            std::slice::from_raw_parts(self.0.as_ptr().cast::<u8>().add(HEADER_BYTES + from), len)
        }
    }

    /// Collection and logical key.
    pub fn key(&self) -> DocKey<'_> {
        let header = self.header();
        let key = self.bytes(0, usize::from(header.key_bytes));
        DocKey { collection: CollectionId(header.collection), key }
    }

    /// Document body; empty for a tombstone.
    pub fn value(&self) -> &[u8] {
        let header = self.header();
        self.bytes(usize::from(header.key_bytes), header.value_bytes as usize)
    }

    /// Version.
    pub fn cas(&self) -> Cas {
        Cas(self.header().cas)
    }

    /// Position in the vbucket's history.
    pub fn seqno(&self) -> Seqno {
        Seqno(self.header().seqno)
    }

    /// Revision count.
    pub fn rev_seqno(&self) -> RevSeqno {
        let header = self.header();
        RevSeqno(u64::from(header.rev_low) | u64::from(header.rev_high) << 32)
    }

    /// Opaque client flags.
    pub fn flags(&self) -> u32 {
        self.header().flags
    }

    /// Absolute expiry in UNIX seconds, 0 for none; the time of deletion for a tombstone.
    pub fn expiry(&self) -> u32 {
        self.header().expiry
    }

    /// What the value is.
    pub fn datatype(&self) -> Datatype {
        Datatype(self.header().kind & !DELETED)
    }

    /// True for a tombstone.
    pub fn is_deleted(&self) -> bool {
        self.header().kind & DELETED != 0
    }

    /// True for a document that its expiry has ended by `now_s`.
    pub fn is_expired(&self, now_s: u32) -> bool {
        let expiry = self.expiry();
        !self.is_deleted() && expiry != 0 && expiry <= now_s
    }

    /// True for a document that a reader may see at `now_s`.
    pub fn is_live(&self, now_s: u32) -> bool {
        !self.is_deleted() && !self.is_expired(now_s)
    }

    /// Bytes that the block occupies, without the allocator's own overhead.
    pub fn block_bytes(&self) -> usize {
        let header = self.header();
        block_bytes(usize::from(header.key_bytes), header.value_bytes as usize)
    }

    /// Bytes of key and value.
    pub fn document_bytes(&self) -> usize {
        let header = self.header();
        usize::from(header.key_bytes) + header.value_bytes as usize
    }

    /// Where the block is, for a prefetch.
    pub(crate) fn address(&self) -> *const u8 {
        self.0.as_ptr().cast_const().cast()
    }

    /// True when both refer to the same block.
    pub fn same_block(&self, other: &ItemRef) -> bool {
        self.0 == other.0
    }
}

impl Clone for ItemRef {
    fn clone(&self) -> ItemRef {
        let before = self.header().refcount.fetch_add(1, Ordering::Relaxed);
        // A count that wraps would free a block in use; half the range is out of any real reach.
        assert!(before < u32::MAX / 2, "item reference count overflow");
        ItemRef(self.0)
    }
}

impl Drop for ItemRef {
    fn drop(&mut self) {
        let header = self.header();
        if header.refcount.fetch_sub(1, Ordering::Release) != 1 {
            return;
        }
        // Only the last holder must see every other holder's reads finished. A load instead of a
        // fence, because ThreadSanitizer does not follow fences.
        header.refcount.load(Ordering::Acquire);
        let layout = block_layout(usize::from(header.key_bytes), header.value_bytes as usize);
        // SAFETY: (1, 4) this was the last count, and the layout is the one of the allocation.
        unsafe { dealloc(self.0.as_ptr().cast::<u8>(), layout) }
    }
}

impl std::fmt::Debug for ItemRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Item")
            .field("key", &self.key())
            .field("value_bytes", &self.value().len())
            .field("cas", &self.cas())
            .field("seqno", &self.seqno())
            .field("deleted", &self.is_deleted())
            .finish_non_exhaustive()
    }
}
