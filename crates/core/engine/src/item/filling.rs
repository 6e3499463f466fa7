//! A value received straight into its block.
//!
//! Owns: how much of the value is there. The numbers of unsafe invariants are those of `item.rs`.

use std::mem::MaybeUninit;
use std::ptr::NonNull;

use oribi_types::DocKey;

use super::{ItemFields, NewItem};

/// A block whose value is still being received, straight into its place.
pub struct FillingItem {
    block: NewItem,
    value: NonNull<u8>,
    filled_bytes: usize,
    is_settled: bool,
}

// SAFETY: (3) it is the only pointer to its block.
unsafe impl Send for FillingItem {}

impl FillingItem {
    /// A block for a value of `value_bytes`, none of which is there yet.
    ///
    /// # Panics
    /// As [`NewItem::new`].
    pub fn new(key: DocKey<'_>, fields: ItemFields, value_bytes: usize) -> FillingItem {
        let (block, value) = NewItem::allocate(key, &fields, value_bytes, None);
        debug_assert!(!fields.evicted, "a value that is received is in its block");
        FillingItem { block, value, filled_bytes: 0, is_settled: false }
    }

    /// A block whose value is complete and that was not shared after all.
    pub(crate) fn filled(block: NewItem) -> FillingItem {
        let value = block.value_at();
        let filled_bytes = block.0.value_bytes();
        FillingItem { block, value, filled_bytes, is_settled: true }
    }

    /// True when the value is already in its final form and its datatype is known.
    pub(crate) fn is_settled(&self) -> bool {
        self.is_settled
    }

    /// Bytes of the value that are still to come.
    pub fn missing_bytes(&self) -> usize {
        debug_assert!(
            self.filled_bytes <= self.value_bytes(),
            "a value is filled up to its length"
        );
        self.block.0.value_bytes() - self.filled_bytes
    }

    /// Where the value lies in memory, which tells items apart.
    pub fn value_address(&self) -> usize {
        self.value.addr().get()
    }

    /// Bytes of the whole value.
    pub fn value_bytes(&self) -> usize {
        self.block.0.value_bytes()
    }

    /// Has `read` write up to `bytes_max` bytes of the value to where they belong; it returns the
    /// part of its room that it wrote, which begins where the room does. Returns the number of
    /// bytes.
    ///
    /// # Errors
    /// Those of `read`; nothing was received then.
    ///
    /// # Panics
    /// When `read` returns another part of memory.
    pub fn fill_by<E>(
        &mut self,
        bytes_max: usize,
        read: impl for<'a> FnOnce(&'a mut [MaybeUninit<u8>]) -> Result<&'a mut [u8], E>,
    ) -> Result<usize, E> {
        let room_bytes = self.missing_bytes().min(bytes_max);
        // SAFETY: (1, 3) the rest of the value is inside the block, which is not shared.
        let room = unsafe {
            let at = self.value.as_ptr().add(self.filled_bytes).cast::<MaybeUninit<u8>>();
            std::slice::from_raw_parts_mut(at, room_bytes)
        };
        let begin = room.as_ptr().cast::<u8>();
        let filled = read(room)?;
        // A slice of bytes is initialised, so what begins here and has this length is received.
        assert!(filled.as_ptr() == begin, "a reader returns the part of its room that it wrote");
        assert!(filled.len() <= room_bytes, "a reader writes into its room");
        self.filled_bytes += filled.len();
        Ok(filled.len())
    }

    /// Appends `bytes` to the value.
    ///
    /// # Panics
    /// When there is not that much room.
    pub fn append(&mut self, bytes: &[u8]) {
        assert!(bytes.len() <= self.missing_bytes(), "more was received than there was room for");
        // SAFETY: (1, 3) the rest of the value has room for the bytes, and is not shared.
        unsafe {
            let at = self.value.as_ptr().add(self.filled_bytes);
            at.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
        self.filled_bytes += bytes.len();
    }

    /// The item, once its value is complete.
    ///
    /// # Panics
    /// When bytes are missing.
    pub fn finish(self) -> NewItem {
        assert_eq!(self.missing_bytes(), 0, "a value is finished when all of it was received");
        self.block
    }
}
