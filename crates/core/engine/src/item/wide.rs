//! Wide blocks: those whose value is long or whose revision is large.
//!
//! Owns: the encoding of both. A header has 14 bits for the value's
//! length and 16 for the revision, which is enough for nearly every document. A wide block has
//! [`WIDE_BYTES`] before its header with both at full length. All pointers to a block lead to its
//! header, so a reader that finds the header's bit reads before it.
//!
//! The numbers of unsafe invariants are those of `item.rs`.

use std::ptr::NonNull;

use super::{EVICTED, Header, Item};

/// Of the header's lengths: the block is wide, and the length stands before the header.
const WIDE: u16 = 1 << 14;
/// Of the header's lengths, in an evicted block: the value follows the key in its dense form, and
/// the length is that of the plain value.
const DENSE: u16 = 1 << 15;
/// The longest value of a block that is not wide.
pub(super) const NARROW_VALUE_BYTES_MAX: usize = WIDE as usize - 1;

/// The fields before the header of a wide block.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub(super) struct WideFields {
    pub rev: u64,
    pub value_bytes: u32,
}

impl WideFields {
    /// Writes them before a header.
    ///
    /// # Safety
    /// (1, 3) `header` is in a new wide block.
    #[cold]
    pub(super) unsafe fn write(self, header: NonNull<Header>) {
        // SAFETY: as above.
        unsafe { header.cast::<WideFields>().sub(1).write(self) }
    }
}

/// Bytes of a wide block before its header.
pub(super) const WIDE_BYTES: usize = size_of::<WideFields>();
const _: () = assert!(WIDE_BYTES.is_multiple_of(align_of::<Header>()), "headers stay aligned");

/// The lengths of a block that becomes wide.
pub(super) fn widened(lengths: u16) -> u16 {
    lengths & DENSE | WIDE
}

/// The header's lengths for a value of so many bytes, which is dense or not.
pub(super) fn lengths_of(value_bytes: usize, is_dense: bool) -> u16 {
    let length = if value_bytes > NARROW_VALUE_BYTES_MAX { WIDE } else { value_bytes as u16 };
    length | if is_dense { DENSE } else { 0 }
}

impl Item {
    /// Length of the value of a block that is neither wide nor evicted, as most are.
    #[inline]
    pub(super) fn usual_value_bytes(&self) -> Option<usize> {
        let header = self.header();
        let is_usual = header.lengths < WIDE && header.kind & EVICTED == 0;
        is_usual.then(|| usize::from(header.lengths))
    }

    /// Length of the plain value, wherever it is.
    #[inline]
    pub(super) fn plain_bytes(&self) -> usize {
        let lengths = self.header().lengths;
        if lengths & WIDE != 0 {
            return self.wide_fields().value_bytes as usize;
        }
        usize::from(lengths & (WIDE - 1))
    }

    /// True when the block has the value in its dense form. Such an item is also
    /// [`Item::is_evicted`], because only [`super::ItemRef::to_plain`] shows its value.
    #[inline]
    pub fn is_dense(&self) -> bool {
        let header = self.header();
        header.kind & EVICTED != 0 && header.lengths & DENSE != 0
    }

    /// Bytes before the header.
    #[inline]
    pub(super) fn wide_bytes(&self) -> usize {
        if self.header().lengths & WIDE != 0 { WIDE_BYTES } else { 0 }
    }

    /// Where the allocation begins.
    #[inline]
    pub(super) fn allocation(&self) -> NonNull<u8> {
        // SAFETY: (1) a wide block begins that many bytes before its header.
        unsafe { self.0.cast::<u8>().sub(self.wide_bytes()) }
    }

    pub(super) fn revision(&self) -> u64 {
        match self.wide_bytes() {
            0 => u64::from(self.header().rev),
            _ => self.wide_fields().rev,
        }
    }

    #[cold]
    pub(super) fn wide_fields(&self) -> WideFields {
        debug_assert!(self.header().lengths & WIDE != 0, "only a wide block has such fields");
        // SAFETY: (1, 2) they stand before the header of a wide block and were written.
        unsafe { self.0.cast::<WideFields>().sub(1).read() }
    }
}
