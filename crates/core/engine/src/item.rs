//! The item: one allocation that holds a version of a document, shared by everyone.
//!
//! Owns: the block layout and its reference count. The hash table, the checkpoint queue, the
//! flusher and a connection's write queue hold [`ItemRef`]s to the same block; key and value are
//! copied into it once, by [`NewItem::new`], and never out of it except into a response buffer.
//!
//! Layout of a block, native endian, aligned to 8 bytes:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | reference count (low 28 bits), incompressible, frequency of use |
//! | 4 | 2 | value length (low 14 bits), wide, dense (top bit) |
//! | 6 | 2 | revision |
//! | 8 | 8 | CAS |
//! | 16 | 4 | seqno, low 32 bits |
//! | 20 | 2 | seqno, high 16 bits |
//! | 22 | 1 | key length |
//! | 23 | 1 | datatype (low bits), evicted, which optional fields follow, deleted (top bit) |
//! | 24 | n | optional fields, key, then value |
//!
//! Flags, expiry and collection are optional, in this order, 4 bytes each and unaligned: most
//! documents lack two of the three, and 24 to 28 bytes of header instead of 36 are worth an
//! addition per read. A long value or a large revision has room before the header
//! (`item/wide.rs`). An evicted version has no value after its key, but still has the value's
//! length. A tombstone of an expired document has room for flags, which are 0: no other block has
//! that.
//!
//! Unsafe invariants, cited below by number:
//! 1. A block is allocated by `NewItem::allocate` or `NewItem::widen` with `allocated_bytes` of
//!    what it says: its lengths and which fields it has never change, and it is freed with the same
//!    length. It is aligned to 8 bytes, as the arena's blocks are, and so is its header.
//! 2. Wide fields, header, optional fields and key are written before `NewItem::allocate` returns,
//!    the value before `NewItem::new` and `FillingItem::finish` return.
//! 3. A `NewItem` or `FillingItem` is the only pointer to its block, so it may write to it; once it
//!    has become an `ItemRef` only the reference count is ever written.
//! 4. A dropped `NewItem` frees its block. Each `ItemRef` owns one count; the last retires the
//!    block, which is freed when the grace period is over and nothing leads to it any more.
//! 5. An [`Item`] is reached through an `ItemRef`, or through a slot of the hash table within a
//!    read section. The slot holds a reference, so the block was not retired before the section
//!    began, and it outlives the section. No reference can be made of it: the count may be zero.

use std::mem::offset_of;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic;

use oribi_types::{Cas, CollectionId, Datatype, DocKey, RevSeqno, Seqno};

use crate::block_arena::{self, Round};

mod dense;
mod dropping;
mod filling;
mod new_item;
mod reference_count;
mod slot;
#[cfg(test)]
mod tests;
mod wide;

pub(crate) use dropping::drop_both;
pub use filling::FillingItem;
pub use new_item::NewItem;
use reference_count::ReferenceCount;
pub(crate) use slot::ItemSlot;
pub use slot::SharedItem;

#[repr(C)]
struct Header {
    refcount: ReferenceCount,
    lengths: u16,
    rev: u16,
    cas: u64,
    seqno_low: u32,
    seqno_high: u16,
    key_bytes: u8,
    kind: u8,
}

/// Bytes of a block before optional fields and key. Source: the table above, compared with it by a
/// test.
pub const HEADER_BYTES: usize = 24;
const DELETED: u8 = 0x80;
const HAS_FLAGS: u8 = 0x40;
const HAS_EXPIRY: u8 = 0x20;
const HAS_COLLECTION: u8 = 0x10;
/// The plain value is not in the block; see `item/dense.rs`.
const EVICTED: u8 = 0x08;
/// The datatypes that there are: JSON, Snappy, extended attributes.
const DATATYPE_BITS: u8 = 0x07;
const OPTIONAL_BYTES: usize = 4;
const OPTIONAL_SHIFT: u32 = HAS_COLLECTION.trailing_zeros();
/// Bytes of the optional fields by the three bits that say which there are. Every comparison of
/// keys needs it, and not every processor has an instruction that counts bits.
const OPTIONAL_BYTES_OF: [u8; 8] = {
    let mut bytes = [0; 8];
    let mut bits = 0;
    while bits < bytes.len() {
        bytes[bits] = bits.count_ones() as u8 * OPTIONAL_BYTES as u8;
        bits += 1;
    }
    bytes
};
const _: () = assert!(HAS_FLAGS | HAS_EXPIRY | HAS_COLLECTION == 7 << OPTIONAL_SHIFT);
/// Revisions and seqnos have 48 bits, as on the wire of change streams.
const U48_MAX: u64 = (1 << 48) - 1;
const _: () = assert!(size_of::<Header>() == HEADER_BYTES);
const _: () = assert!(align_of::<Header>() == 8);
const _: () = assert!(offset_of!(Header, lengths) == 4);
const _: () = assert!(offset_of!(Header, rev) == 6);
const _: () = assert!(offset_of!(Header, cas) == 8);
const _: () = assert!(offset_of!(Header, seqno_low) == 16);
const _: () = assert!(offset_of!(Header, seqno_high) == 20);
const _: () = assert!(offset_of!(Header, key_bytes) == 22);
const _: () = assert!(offset_of!(Header, kind) == 23);
const _: () = assert!(HAS_FLAGS > HAS_EXPIRY && HAS_EXPIRY > HAS_COLLECTION, "their order");
const _: () =
    assert!(DELETED | HAS_FLAGS | HAS_EXPIRY | HAS_COLLECTION | EVICTED == !DATATYPE_BITS);

impl Header {
    /// Bytes of the optional fields that this kind of block has.
    #[inline]
    fn optional_bytes(kind: u8) -> usize {
        usize::from(
            OPTIONAL_BYTES_OF[usize::from(kind >> OPTIONAL_SHIFT) % OPTIONAL_BYTES_OF.len()],
        )
    }

    /// Offset of the key.
    fn key_at(&self) -> usize {
        HEADER_BYTES + Header::optional_bytes(self.kind)
    }
}

/// Fields of a new item, except key, value and the version that the checkpoint manager assigns.
#[derive(Clone, Copy, Debug, Default)]
pub struct ItemFields {
    pub flags: u32,
    /// Absolute expiry in UNIX seconds, 0 for none; time of deletion for a tombstone.
    pub expiry: u32,
    /// Datatype of the value.
    pub datatype: Datatype,
    /// True for a tombstone.
    pub deleted: bool,
    /// True for a document whose value is in the store only: the block has none.
    pub evicted: bool,
    /// True for a tombstone of a document that has expired. It has no flags.
    pub expired: bool,
    /// Make room for an expiry that [`NewItem::set_expiry`] will know.
    pub keeps_expiry: bool,
}

/// Bytes of a block that is not wide, of whose value `present_bytes` are in it.
#[inline]
fn narrow_bytes(kind: u8, key_bytes: usize, present_bytes: usize) -> usize {
    debug_assert!(key_bytes <= usize::from(u8::MAX), "a key's length is one byte");
    HEADER_BYTES + Header::optional_bytes(kind) + key_bytes + present_bytes
}

/// One immutable version of a document, whatever keeps it in memory.
pub struct Item(NonNull<Header>);

/// A counted reference to one version of a document.
pub struct ItemRef(Item);

// SAFETY: (3) the block is immutable but for its atomic count, so threads may share and send it.
unsafe impl Send for ItemRef {}
// SAFETY: as above.
unsafe impl Sync for ItemRef {}

impl Deref for ItemRef {
    type Target = Item;

    #[inline]
    fn deref(&self) -> &Item {
        &self.0
    }
}

impl Item {
    fn header(&self) -> &Header {
        // SAFETY: (2, 4, 5) the block is initialised, and whoever has the item keeps it.
        unsafe { self.0.as_ref() }
    }

    fn bytes(&self, from: usize, len: usize) -> &[u8] {
        debug_assert!(
            from + len + self.wide_bytes() <= self.allocated_bytes(),
            "the range is inside the block (1)"
        );
        // SAFETY: (1, 2) callers pass the range of key or value as the header gives it.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast::<u8>().add(from), len) }
    }

    /// Offset of the value, or of its dense form.
    #[inline]
    fn value_offset(&self) -> usize {
        let header = self.header();
        header.key_at() + usize::from(header.key_bytes)
    }

    /// Bytes of the allocation.
    #[inline]
    fn allocated_bytes(&self) -> usize {
        let header = self.header();
        match self.usual_value_bytes() {
            Some(bytes) => narrow_bytes(header.kind, usize::from(header.key_bytes), bytes),
            None => self.unusual_allocated_bytes(),
        }
    }

    /// As [`Item::allocated_bytes`], of a block that is wide or evicted.
    #[cold]
    fn unusual_allocated_bytes(&self) -> usize {
        let header = self.header();
        let present = match header.kind & EVICTED {
            0 => self.plain_bytes(),
            _ => self.dense_bytes(),
        };
        self.wide_bytes() + narrow_bytes(header.kind, usize::from(header.key_bytes), present)
    }

    /// Offset of an optional field, if the block has it.
    fn optional_at(&self, field: u8) -> Option<usize> {
        debug_assert!(field.is_power_of_two(), "one field at a time");
        let kind = self.header().kind;
        // Fields stand in descending order of their bits.
        let before = kind & !(field | (field - 1));
        (kind & field != 0).then(|| HEADER_BYTES + Header::optional_bytes(before))
    }

    /// An optional field; 0 when the block does not have it.
    fn optional(&self, field: u8) -> u32 {
        let Some(at) = self.optional_at(field) else { return 0 };
        // SAFETY: (1, 2) the field is inside the block and was written.
        unsafe { self.0.as_ptr().cast::<u8>().add(at).cast::<u32>().read_unaligned() }
    }

    /// Collection and logical key.
    pub fn key(&self) -> DocKey<'_> {
        let header = self.header();
        let key = self.bytes(header.key_at(), usize::from(header.key_bytes));
        DocKey { collection: CollectionId(self.optional(HAS_COLLECTION)), key }
    }

    /// True for the block of this key. Cheaper than comparing what [`Item::key`] returns.
    #[inline]
    pub(crate) fn has_key(&self, key: DocKey<'_>) -> bool {
        let header = self.header();
        usize::from(header.key_bytes) == key.key.len()
            && self.bytes(header.key_at(), key.key.len()) == key.key
            && self.optional(HAS_COLLECTION) == key.collection.0
    }

    /// Document body; empty for a tombstone, and for an evicted or dense version.
    pub fn value(&self) -> &[u8] {
        let bytes = match self.usual_value_bytes() {
            Some(bytes) => bytes,
            None if self.is_evicted() => 0,
            None => self.plain_bytes(),
        };
        self.bytes(self.value_offset(), bytes)
    }

    /// Length of the document body, wherever it is.
    pub fn value_bytes(&self) -> usize {
        self.plain_bytes()
    }

    pub fn cas(&self) -> Cas {
        Cas(self.header().cas)
    }

    /// Position in the vbucket's history.
    pub fn seqno(&self) -> Seqno {
        let header = self.header();
        Seqno(u64::from(header.seqno_low) | u64::from(header.seqno_high) << 32)
    }

    pub fn rev_seqno(&self) -> RevSeqno {
        RevSeqno(self.revision())
    }

    pub fn flags(&self) -> u32 {
        self.optional(HAS_FLAGS)
    }

    /// Absolute expiry in UNIX seconds, 0 for none; the time of deletion for a tombstone.
    pub fn expiry(&self) -> u32 {
        self.optional(HAS_EXPIRY)
    }

    /// Datatype of the value.
    pub fn datatype(&self) -> Datatype {
        Datatype(self.header().kind & DATATYPE_BITS)
    }

    /// True for a tombstone.
    pub fn is_deleted(&self) -> bool {
        self.header().kind & DELETED != 0
    }

    /// True for the tombstone of a document that has expired, rather than been deleted.
    pub fn is_expiration(&self) -> bool {
        self.is_deleted() && self.optional_at(HAS_FLAGS).is_some() && self.flags() == 0
    }

    /// True for a document whose plain value is not in the block: dense, or in the store only.
    pub fn is_evicted(&self) -> bool {
        self.header().kind & EVICTED != 0
    }

    /// True for a document whose value is in the store only.
    pub fn is_in_store_only(&self) -> bool {
        self.is_evicted() && !self.is_dense()
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

    /// Bytes of memory that the block takes, all in: those of its class in the arena.
    #[inline]
    pub fn block_bytes(&self) -> usize {
        block_arena::occupied_bytes(self.allocated_bytes())
    }

    /// Bytes of memory that the block would take with its plain value.
    pub(crate) fn block_bytes_plain(&self) -> usize {
        self.block_bytes_with(self.plain_bytes())
    }

    /// Bytes of memory that the block would take without its value.
    pub(crate) fn block_bytes_evicted(&self) -> usize {
        self.block_bytes_with(0)
    }

    fn block_bytes_with(&self, present_bytes: usize) -> usize {
        let header = self.header();
        let bytes = narrow_bytes(header.kind, usize::from(header.key_bytes), present_bytes);
        block_arena::occupied_bytes(self.wide_bytes() + bytes)
    }

    /// Bytes of key and value, evicted or not.
    pub fn document_bytes(&self) -> usize {
        usize::from(self.header().key_bytes) + self.plain_bytes()
    }

    /// How often the document was used of late, from 0 to 7.
    pub fn frequency(&self) -> u32 {
        self.header().refcount.frequency()
    }

    /// Lowers the frequency by one. The caller holds the lock of the table that the item is in.
    pub(crate) fn age(&self) {
        debug_assert!(self.references() > 0, "the table has a reference");
        self.header().refcount.age();
    }

    /// Notes that the pager could not make the value dense, which spares the next attempt.
    pub(crate) fn note_incompressible(&self) {
        debug_assert!(self.references() > 0, "the caller has a reference");
        self.header().refcount.note_incompressible();
    }

    /// True for a value that the pager could not make dense.
    pub(crate) fn is_incompressible(&self) -> bool {
        self.header().refcount.is_incompressible()
    }

    /// Number of references at this moment. It is reliable only under the table's lock, and only if
    /// it counts no reference but the table's and the caller's: every further one is made from one
    /// of these.
    pub(crate) fn references(&self) -> u32 {
        self.header().refcount.references()
    }

    /// True when the block should be replaced by a copy, so that memory can be given back. Reads
    /// only the address unless that is likely.
    #[inline]
    pub(crate) fn is_to_move(&self, round: &Round) -> bool {
        round.may_hold(self.0.addr().get()) && {
            // SAFETY: (1, 4) the block is live and has the length of its allocation.
            unsafe { round.is_to_move(self.allocation(), self.allocated_bytes()) }
        }
    }

    /// Where the header is, for a prefetch.
    pub(crate) fn address(&self) -> *const u8 {
        self.0.as_ptr().cast_const().cast()
    }

    /// True when both are the same block.
    pub fn same_block(&self, other: &Item) -> bool {
        self.0 == other.0
    }
}

impl ItemRef {
    /// The reference that owns a count of this block.
    fn owning(block: NonNull<Header>) -> ItemRef {
        ItemRef(Item(block))
    }

    fn block(&self) -> NonNull<Header> {
        self.0.0
    }

    /// The same count once more.
    ///
    /// # Safety
    /// (4) The caller forgets one of the two.
    pub(crate) unsafe fn same_count(&self) -> ItemRef {
        ItemRef::owning(self.block())
    }

    /// Another reference for a reader of the document, which raises the frequency. The caller holds
    /// the lock of the table that the item is in.
    #[inline]
    pub(crate) fn clone_for_use(&self) -> ItemRef {
        self.header().refcount.acquire_for_use();
        ItemRef::owning(self.block())
    }
}

impl Clone for ItemRef {
    fn clone(&self) -> ItemRef {
        self.header().refcount.acquire();
        ItemRef::owning(self.block())
    }
}

impl std::fmt::Debug for Item {
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

impl std::fmt::Debug for ItemRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        Item::fmt(self, f)
    }
}
