//! Dense items: a block with its value compressed by a dictionary of its collection.
//!
//! Owns: their layout. A dense block says that it is evicted, so a reader that does not know dense
//! values sees a document without its value and asks for a fetch; none can take the compressed
//! bytes for the document. The header's length is that of the plain value. After the key follow
//! the number of the dictionary's slot and the length of a frame, 2 bytes each, and the frame.
//!
//! A dense block is counted in its dictionary until its last reference is given up. The numbers of
//! unsafe invariants are those of `item.rs`.

use oribi_types::DocKey;

use super::{Item, ItemFields, ItemRef, NewItem};
use crate::dense::{DenseError, count_value, release_value, with_inflated};
use crate::limits::DENSE_PLAIN_BYTES_MAX;

/// Bytes of the dense form before the frame: slot and length.
const FRAME_AT: usize = 4;
const _: () = assert!(DENSE_PLAIN_BYTES_MAX <= u16::MAX as usize, "a frame is shorter");
const _: () = assert!(DENSE_PLAIN_BYTES_MAX <= super::wide::NARROW_VALUE_BYTES_MAX);

/// The compressed form of a value.
struct DenseValue<'a> {
    slot: u16,
    frame: &'a [u8],
}

impl Item {
    /// Bytes of the dense form; 0 for an evicted block that is not dense.
    #[cold]
    pub(super) fn dense_bytes(&self) -> usize {
        if !self.is_dense() {
            return 0;
        }
        let [_, frame_bytes] = self.frame_head();
        FRAME_AT + usize::from(frame_bytes)
    }

    /// Slot of the dictionary and length of the frame.
    fn frame_head(&self) -> [u16; 2] {
        debug_assert!(self.is_dense(), "only a dense block has a frame");
        // SAFETY: (1, 2) a dense block has both after its key.
        unsafe { self.0.cast::<u8>().add(self.value_offset()).cast::<[u16; 2]>().read_unaligned() }
    }

    /// The block leaves its dictionary's count.
    #[inline]
    pub(super) fn release_dictionary(&self) {
        if self.is_dense() {
            release_value(self.dense_value().slot, self.plain_bytes(), self.dense_bytes());
        }
    }

    /// Slot of the dictionary that a dense value needs.
    pub(crate) fn dictionary_slot(&self) -> Option<u16> {
        self.is_dense().then(|| self.dense_value().slot)
    }

    fn dense_value(&self) -> DenseValue<'_> {
        let [slot, frame_bytes] = self.frame_head();
        let frame = self.bytes(self.value_offset() + FRAME_AT, usize::from(frame_bytes));
        DenseValue { slot, frame }
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
        assert!(plain_bytes <= DENSE_PLAIN_BYTES_MAX, "a dense value has a bound");
        if FRAME_AT + frame.len() >= plain_bytes {
            return None;
        }
        Some(NewItem::dense_block(item, plain_bytes, &DenseValue { slot, frame }))
    }

    /// A copy of a dense block.
    pub(super) fn copy_of_dense(item: &ItemRef) -> NewItem {
        NewItem::dense_block(item, item.plain_bytes(), &item.dense_value())
    }

    fn dense_block(item: &ItemRef, plain_bytes: usize, value: &DenseValue<'_>) -> NewItem {
        let fields = ItemFields { evicted: true, ..item.fields() };
        let key: DocKey<'_> = item.key();
        let (slot, frame) = (value.slot, value.frame);
        let dense_bytes = FRAME_AT + frame.len();
        let (mut new, place) = NewItem::allocate(key, &fields, plain_bytes, Some(dense_bytes));
        // SAFETY: (1) the dense form has this length, which is below 2^16.
        unsafe {
            place.cast::<[u16; 2]>().write_unaligned([slot, frame.len() as u16]);
            place.add(FRAME_AT).as_ptr().copy_from_nonoverlapping(frame.as_ptr(), frame.len());
        }
        new.set_version(item.cas(), item.seqno(), item.rev_seqno());
        debug_assert_eq!(new.0.dense_bytes(), dense_bytes, "a form is read as it is written");
        count_value(slot, plain_bytes, dense_bytes);
        new
    }
}
