//! A version that only its maker sees: allocated, filled, and given out by [`NewItem::publish`].

use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use oribi_types::{Cas, CollectionId, Datatype, DocKey, RevSeqno, Seqno};

use super::reference_count::ReferenceCount;
use super::wide::{NARROW_VALUE_BYTES_MAX, WIDE_BYTES, WideFields, lengths_of, widened};
use super::{
    DATATYPE_BITS, DELETED, EVICTED, HAS_COLLECTION, HAS_EXPIRY, HAS_FLAGS, HEADER_BYTES, Header,
    ItemFields, ItemRef, OPTIONAL_BYTES, U48_MAX, narrow_bytes,
};
use crate::block_arena;

/// A filled block that is not shared yet: the checkpoint manager still writes CAS and seqno. One
/// that never is, because its request failed or its client has gone, is freed at once.
pub struct NewItem(pub(super) ManuallyDrop<ItemRef>);

impl NewItem {
    /// Allocates one block and fills it. The value is `parts` laid end to end; of the value of an
    /// evicted version only the length is taken.
    ///
    /// # Panics
    /// When the key is longer than 255 bytes or the value longer than `u32::MAX`; callers check the
    /// protocol's limits (250 bytes, 20 MiB) before.
    pub fn new(key: DocKey<'_>, fields: ItemFields, parts: &[&[u8]]) -> NewItem {
        let value_len: usize = parts.iter().map(|part| part.len()).sum();
        let (new, mut value) = NewItem::allocate(key, &fields, value_len, None);
        if fields.evicted {
            return new;
        }
        for part in parts {
            // SAFETY: (1) the parts' lengths add up to the value's.
            unsafe {
                value.as_ptr().copy_from_nonoverlapping(part.as_ptr(), part.len());
                value = value.add(part.len());
            }
        }
        new
    }

    /// An evicted version whose value, in the store, has `value_bytes`.
    ///
    /// # Panics
    /// As [`NewItem::new`].
    pub fn evicted(key: DocKey<'_>, fields: ItemFields, value_bytes: usize) -> NewItem {
        let fields = ItemFields { evicted: true, ..fields };
        NewItem::allocate(key, &fields, value_bytes, None).0
    }

    /// The same version as `item`, with its value in the same form or, for `evicted`, without. Its
    /// frequency begins anew.
    pub(crate) fn copy_of(item: &ItemRef, evicted: bool) -> NewItem {
        if item.is_dense() && !evicted {
            return NewItem::copy_of_dense(item);
        }
        let fields = ItemFields { evicted, ..item.fields() };
        let mut new = match evicted {
            true => NewItem::evicted(item.key(), fields, item.value_bytes()),
            false => NewItem::new(item.key(), fields, &[item.value()]),
        };
        new.set_version(item.cas(), item.seqno(), item.rev_seqno());
        debug_assert!(evicted || !item.is_evicted(), "a copy has the value that its source has");
        debug_assert_eq!(
            new.as_item().value_bytes(),
            item.value_bytes(),
            "a copy is of the same length"
        );
        new
    }

    /// Begins with the frequency of the version before, and at least with one use.
    pub(crate) fn inherit_frequency(&mut self, from: &ItemRef) {
        debug_assert_eq!(self.0.references(), 1, "a new block is not shared (3)");
        self.0.header().refcount.inherit(&from.header().refcount);
    }

    /// Is used as often as the block that it is a copy of.
    pub(crate) fn copy_frequency(&mut self, of: &ItemRef) {
        debug_assert_eq!(self.0.references(), 1, "a new block is not shared (3)");
        self.0.header().refcount.copy_frequency(&of.header().refcount);
    }

    /// A block with everything but its value of `value_bytes`, and where that goes, or its dense
    /// form of so many bytes.
    pub(super) fn allocate(
        key: DocKey<'_>,
        fields: &ItemFields,
        value_bytes: usize,
        dense_bytes: Option<usize>,
    ) -> (NewItem, NonNull<u8>) {
        let value_length = u32::try_from(value_bytes).expect("the caller checked the value limit");
        let key_bytes = u8::try_from(key.key.len()).expect("the caller checked the key limit");
        let given = |is_given: bool, bit: u8| if is_given { bit } else { 0 };
        let is_expiration = fields.deleted && fields.expired;
        let flags = if is_expiration { 0 } else { fields.flags };
        let kind = fields.datatype.0 & DATATYPE_BITS
            | given(fields.deleted, DELETED)
            | given(fields.evicted, EVICTED)
            | given(flags != 0 || is_expiration, HAS_FLAGS)
            | given(fields.expiry != 0 || fields.keeps_expiry, HAS_EXPIRY)
            | given(key.collection != CollectionId::DEFAULT, HAS_COLLECTION);
        let new_header = Header {
            refcount: ReferenceCount::one(),
            lengths: lengths_of(value_bytes, dense_bytes.is_some()),
            rev: 0,
            cas: 0,
            seqno_low: 0,
            seqno_high: 0,
            key_bytes,
            kind,
        };
        let present_bytes = dense_bytes.unwrap_or(if fields.evicted { 0 } else { value_bytes });
        let is_wide = value_bytes > NARROW_VALUE_BYTES_MAX;
        let before_bytes = if is_wide { WIDE_BYTES } else { 0 };
        let after_bytes = narrow_bytes(kind, key.key.len(), present_bytes);
        let block = block_arena::allocate(before_bytes + after_bytes);
        // SAFETY: (1) the block is large and aligned enough for wide fields, the header, then
        // optional fields, key and value from HEADER_BYTES on.
        unsafe {
            let header = block.add(before_bytes).cast::<Header>();
            if is_wide {
                WideFields { rev: 0, value_bytes: value_length }.write(header);
            }
            header.write(new_header);
            let mut at = header.cast::<u8>().add(HEADER_BYTES).as_ptr();
            let optional = [
                (HAS_FLAGS, flags),
                (HAS_EXPIRY, fields.expiry),
                (HAS_COLLECTION, key.collection.0),
            ];
            for (bit, value) in optional {
                if kind & bit != 0 {
                    at.cast::<u32>().write_unaligned(value);
                    at = at.add(OPTIONAL_BYTES);
                }
            }
            at.copy_from_nonoverlapping(key.key.as_ptr(), key.key.len());
            let new = ManuallyDrop::new(ItemRef::owning(header));
            (NewItem(new), NonNull::new_unchecked(at.add(key.key.len())))
        }
    }

    /// Where the value begins.
    pub(super) fn value_at(&self) -> NonNull<u8> {
        debug_assert!(!self.0.is_evicted(), "a value in the block has a place");
        // SAFETY: (1) the value begins inside the block, or at its end when it is empty.
        unsafe { self.0.block().cast::<u8>().add(self.0.value_offset()) }
    }

    /// Sets the version. Called once, under the queue lock or while loading from the store.
    pub fn set_version(&mut self, cas: Cas, seqno: Seqno, rev_seqno: RevSeqno) {
        assert!(seqno.0 <= U48_MAX, "a vbucket has 2^48 seqnos");
        self.set_revision(rev_seqno.0.min(U48_MAX));
        // SAFETY: (3) the block is not shared yet.
        let header = unsafe { self.0.block().as_mut() };
        header.cas = cas.0;
        (header.seqno_low, header.seqno_high) = (seqno.0 as u32, (seqno.0 >> 32) as u16);
        debug_assert_eq!(self.as_item().seqno(), seqno, "a seqno is read as it is written");
    }

    /// Sets the revision, in a wide block if it needs one.
    #[inline]
    fn set_revision(&mut self, rev: u64) {
        match u16::try_from(rev) {
            // SAFETY: (3) the block is not shared yet.
            Ok(narrow) if self.0.wide_bytes() == 0 => unsafe {
                self.0.block().as_mut().rev = narrow
            },
            _ => self.set_wide_revision(rev),
        }
        debug_assert_eq!(self.0.revision(), rev, "a revision is read as it is written");
    }

    #[cold]
    fn set_wide_revision(&mut self, rev: u64) {
        if self.0.wide_bytes() == 0 {
            self.widen();
        }
        let fields = WideFields { rev, ..self.0.wide_fields() };
        // SAFETY: (1, 3) the block is wide and not shared yet.
        unsafe { fields.write(self.0.block()) }
    }

    /// Copies everything to a wide block: at most 16 KiB, of a document that was written 65,536
    /// times. The revision becomes known when a version is queued, after its value is in the block.
    fn widen(&mut self) {
        let (old, old_bytes) = (self.0.allocation(), self.0.allocated_bytes());
        let value_bytes = self.0.plain_bytes() as u32;
        let block = block_arena::allocate(WIDE_BYTES + old_bytes);
        // SAFETY: (1, 3) the new block has room for the old one after the wide fields. The old one
        // has no other pointer and no destructor left to run: what it counts in has moved.
        unsafe {
            let header = block.add(WIDE_BYTES);
            header.copy_from_nonoverlapping(old, old_bytes);
            let mut header = header.cast::<Header>();
            WideFields { rev: 0, value_bytes }.write(header);
            header.as_mut().lengths = widened(header.as_ref().lengths);
            self.0 = ManuallyDrop::new(ItemRef::owning(header));
            block_arena::free(old, old_bytes);
        }
        debug_assert_eq!(self.0.plain_bytes(), value_bytes as usize, "the same value");
        debug_assert_eq!(self.0.allocated_bytes(), WIDE_BYTES + old_bytes, "and the wide fields");
    }

    /// Sets the absolute expiry, for a write that keeps the expiry of the version before it.
    ///
    /// # Panics
    /// When the item was not made with `keeps_expiry` or an expiry, so that it has no room for one.
    pub fn set_expiry(&mut self, expiry: u32) {
        let at = self.0.optional_at(HAS_EXPIRY).expect("it was made to keep an expiry");
        debug_assert_eq!(self.0.references(), 1, "a new block is not shared (3)");
        // SAFETY: (1, 3) the field is inside the block, which is not shared yet.
        unsafe {
            self.0.block().as_ptr().cast::<u8>().add(at).cast::<u32>().write_unaligned(expiry)
        }
    }

    /// Overwrites a part of the value that depends on the version.
    ///
    /// # Panics
    /// When the part is not inside the value.
    pub fn patch_value(&mut self, at: usize, bytes: &[u8]) {
        let value = self.0.value();
        let has_place = value.len().checked_sub(at).is_some_and(|rest| bytes.len() <= rest);
        assert!(has_place, "a patched part is inside the value");
        let value_at = value.as_ptr() as usize - self.0.block().as_ptr() as usize;
        // SAFETY: (1, 3) the part is inside the value, and the block is not shared yet.
        unsafe {
            let begin = self.0.block().as_ptr().cast::<u8>().add(value_at + at);
            begin.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
    }

    /// Sets the datatype, for a value that was only complete once it was in the block.
    pub fn with_datatype(self, datatype: Datatype) -> NewItem {
        debug_assert_eq!(self.0.references(), 1, "a new block is not shared (3)");
        // SAFETY: (3) the block is not shared yet.
        let header = unsafe { self.0.block().as_mut() };
        header.kind = header.kind & !DATATYPE_BITS | datatype.0 & DATATYPE_BITS;
        self
    }

    /// Gives up the right to write; from here on the block is immutable.
    pub fn publish(self) -> ItemRef {
        debug_assert_eq!(self.0.references(), 1, "a new block is not shared (3)");
        let mut new = ManuallyDrop::new(self);
        // SAFETY: (3) the count passes on to the result; `new` is not used again.
        unsafe { ManuallyDrop::take(&mut new.0) }
    }

    /// [`NewItem::publish`] for two holders. No other thread can see the block yet, so that no
    /// locked instruction is needed.
    #[inline]
    pub fn publish_twice(self) -> (ItemRef, ItemRef) {
        let item = self.publish();
        item.header().refcount.acquire_unshared();
        // SAFETY: (4) the count of the second one was added above.
        let second = unsafe { item.same_count() };
        debug_assert_eq!(item.references(), 2, "table and queue have a reference each (4)");
        (item, second)
    }

    /// Reads the block like any other holder.
    pub fn as_item(&self) -> &ItemRef {
        &self.0
    }
}

impl Drop for NewItem {
    fn drop(&mut self) {
        debug_assert_eq!(self.0.references(), 1, "a new block is not shared (3)");
        self.0.release_dictionary();
        let bytes = self.0.allocated_bytes();
        debug_assert!(bytes >= HEADER_BYTES, "a block has a whole header (1)");
        // SAFETY: (1, 3) this is the only pointer to the block, so no reader has to be waited for.
        unsafe { block_arena::free(self.0.allocation(), bytes) }
    }
}
