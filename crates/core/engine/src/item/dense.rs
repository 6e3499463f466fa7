//! Dense items: a block with its value compressed by a dictionary of its collection.
//!
//! Owns: their layout. A dense block says that it is evicted, so a reader that does not know dense
//! values sees a document without its value and asks for a fetch; none can take the compressed
//! bytes for the document. The top bit of the value's length then says that the compressed form is
//! behind the key: the number of the dictionary's slot, and a frame. Below are the lengths of the
//! plain value and of that form, 15 bits each.
//!
//! A dense block is counted in its dictionary until its last reference is given up. The numbers of
//! unsafe invariants are those of `item.rs`.

use oribi_types::DocKey;

use super::{EVICTED, Header, Item, ItemFields, ItemRef, NewItem};
use crate::dense::{DenseError, count_value, release_value, with_inflated};
use crate::limits::DENSE_PLAIN_BYTES_MAX;

/// Of the value's length of an evicted block: the value is behind the key, in its dense form.
const DENSE: u32 = 1 << 31;
const LENGTH_BITS: u32 = 15;
const LENGTH_MASK: u32 = (1 << LENGTH_BITS) - 1;
/// Bytes of the slot's number before the frame.
const SLOT_BYTES: usize = 2;
const _: () = assert!(DENSE_PLAIN_BYTES_MAX <= LENGTH_MASK as usize);
const _: () = assert!(2 * LENGTH_BITS < 31, "both lengths fit below the bit");
/// The length of a plain or evicted value never has the bit.
const _: () = assert!(crate::limits::VALUE_BYTES_MAX < DENSE as usize);

/// The compressed form of a value.
struct DenseValue<'a> {
    slot: u16,
    frame: &'a [u8],
}

impl Header {
    #[inline]
    pub(super) fn is_dense(&self) -> bool {
        self.kind & EVICTED != 0 && self.value_bytes & DENSE != 0
    }

    /// Bytes of the dense form; 0 for an evicted block that is not dense.
    #[cold]
    pub(super) fn dense_bytes(&self) -> usize {
        if self.is_dense() { (self.value_bytes & LENGTH_MASK) as usize } else { 0 }
    }

    /// Length of the value, inflated, wherever it is.
    #[inline]
    pub(super) fn plain_bytes(&self) -> usize {
        match self.value_bytes & DENSE {
            0 => self.value_bytes as usize,
            _ => (self.value_bytes >> LENGTH_BITS & LENGTH_MASK) as usize,
        }
    }

    /// The block leaves its dictionary's count.
    #[inline]
    pub(super) fn release_dictionary(&self, item: &Item) {
        if self.is_dense() {
            let value = item.dense_value();
            release_value(value.slot, self.plain_bytes(), self.dense_bytes());
        }
    }
}

impl Item {
    /// True when the block has the value in its dense form. Such an item is also
    /// [`Item::is_evicted`], because only [`ItemRef::to_plain`] shows its value.
    #[inline]
    pub fn is_dense(&self) -> bool {
        self.header().is_dense()
    }

    /// Slot of the dictionary that a dense value needs.
    pub(crate) fn dictionary_slot(&self) -> Option<u16> {
        self.is_dense().then(|| self.dense_value().slot)
    }

    fn dense_value(&self) -> DenseValue<'_> {
        let header = self.header();
        let at = header.key_at() + usize::from(header.key_bytes);
        let (slot, frame) = self.bytes(at, header.dense_bytes()).split_at(SLOT_BYTES);
        DenseValue { slot: u16::from_le_bytes([slot[0], slot[1]]), frame }
    }
}

impl ItemRef {
    /// The version with its plain value: itself, unless it is dense. What it returns for a dense
    /// one is in no table. An evicted version stays one.
    ///
    /// # Errors
    /// [`DenseError`].
    pub fn to_plain(&self) -> Result<ItemRef, DenseError> {
        if !self.is_dense() {
            return Ok(self.clone());
        }
        let value = self.dense_value();
        let mut new = with_inflated(value.slot, value.frame, self.value_bytes(), |plain| {
            NewItem::new(self.key(), self.fields(), &[plain])
        })?;
        new.set_version(self.cas(), self.seqno(), self.rev_seqno());
        new.copy_frequency(self);
        Ok(new.publish())
    }

    /// Fields of a copy that has the same value.
    pub(super) fn fields(&self) -> ItemFields {
        ItemFields {
            flags: self.flags(),
            expiry: self.expiry(),
            datatype: self.datatype(),
            deleted: self.is_deleted(),
            expired: self.is_expiration(),
            evicted: false,
            keeps_expiry: false,
        }
    }
}

impl NewItem {
    /// The same version as `item` with its value in a dense form: a frame of the dictionary in
    /// `slot`, of a value of so many bytes. `None` when the block would not become smaller.
    pub(crate) fn dense(
        item: &ItemRef,
        slot: u16,
        frame: &[u8],
        plain_bytes: usize,
    ) -> Option<NewItem> {
        let dense_bytes = SLOT_BYTES + frame.len();
        assert!(plain_bytes <= DENSE_PLAIN_BYTES_MAX, "a dense value has a bound");
        if dense_bytes >= plain_bytes {
            return None;
        }
        let lengths = DENSE | (plain_bytes as u32) << LENGTH_BITS | dense_bytes as u32;
        Some(NewItem::dense_block(item, lengths, [&slot.to_le_bytes(), frame], slot))
    }

    /// A copy of a dense block.
    pub(super) fn copy_of_dense(item: &ItemRef) -> NewItem {
        let value = item.dense_value();
        let parts = [&value.slot.to_le_bytes()[..], value.frame];
        NewItem::dense_block(item, item.header().value_bytes, parts, value.slot)
    }

    fn dense_block(item: &ItemRef, lengths: u32, parts: [&[u8]; 2], slot: u16) -> NewItem {
        let fields = ItemFields { evicted: true, ..item.fields() };
        let key: DocKey<'_> = item.key();
        let (mut new, mut value) = NewItem::allocate(key, &fields, lengths);
        for part in parts {
            // SAFETY: (1) the dense form has the length that `lengths` says, both parts together.
            unsafe {
                value.as_ptr().copy_from_nonoverlapping(part.as_ptr(), part.len());
                value = value.add(part.len());
            }
        }
        new.set_version(item.cas(), item.seqno(), item.rev_seqno());
        let header = new.0.header();
        count_value(slot, header.plain_bytes(), header.dense_bytes());
        new
    }
}
