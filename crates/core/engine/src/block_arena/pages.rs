//! Memory from the system: aligned to a chunk, zero, on huge pages where they are wanted and
//! allowed.
//!
//! Owns: mappings and their release. A refusal of huge pages is not an error, and where the system
//! cannot map at all (not Linux, no address space left) the system's allocator takes over. Called
//! by the pool and for large tables.
//!
//! Unsafe invariants: A. a [`PageMapping`] is the only owner of its bytes, which start at a
//! multiple of `CHUNK_BYTES` and are given back by the way they came. B. The system never maps
//! fresh anonymous memory over memory in use.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

use super::taken;
use super::units::CHUNK_BYTES;

/// Page size of a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PageKind {
    /// The system's smallest, so that unused memory is not resident.
    Plain,
    /// Huge pages, so that random reads do not pay for page walks.
    Huge,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Source {
    Mapped,
    SystemAllocator,
}

/// Zeroed memory, given back when dropped.
#[derive(Debug)]
pub(super) struct PageMapping {
    base: NonNull<u8>,
    bytes: usize,
    source: Source,
    has_huge_pages: bool,
}

// SAFETY: (A) a mapping owns plain memory that no thread is tied to.
unsafe impl Send for PageMapping {}
// SAFETY: as above; through a shared reference only numbers are read.
unsafe impl Sync for PageMapping {}

impl PageMapping {
    /// `bytes`, a multiple of [`CHUNK_BYTES`], of zeroed memory.
    pub(super) fn new(bytes: usize, kind: PageKind) -> PageMapping {
        assert!(bytes > 0 && bytes.is_multiple_of(CHUNK_BYTES), "a mapping is whole chunks");
        taken::count_taken(bytes);
        system::map(bytes).map_or_else(
            || PageMapping::from_allocator(bytes),
            |base| {
                assert!(
                    base.addr().get().is_multiple_of(CHUNK_BYTES),
                    "a mapping is aligned to a chunk"
                );
                let has_huge_pages = system::advise(base, bytes, kind) && kind == PageKind::Huge;
                PageMapping { base, bytes, source: Source::Mapped, has_huge_pages }
            },
        )
    }

    fn from_allocator(bytes: usize) -> PageMapping {
        let layout = PageMapping::layout(bytes);
        // SAFETY: the size is not zero.
        let base = unsafe { alloc_zeroed(layout) };
        let Some(base) = NonNull::new(base) else { handle_alloc_error(layout) };
        assert!(
            base.addr().get().is_multiple_of(CHUNK_BYTES),
            "a mapping is aligned to a chunk (A)"
        );
        PageMapping { base, bytes, source: Source::SystemAllocator, has_huge_pages: false }
    }

    fn layout(bytes: usize) -> Layout {
        debug_assert!(bytes.is_multiple_of(CHUNK_BYTES), "a mapping is whole chunks");
        Layout::from_size_align(bytes, CHUNK_BYTES).expect("no table is near isize::MAX bytes")
    }

    pub(super) fn base(&self) -> NonNull<u8> {
        self.base
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// True when the system agreed to back it with huge pages; whether it found any is another
    /// matter.
    pub(super) fn has_huge_pages(&self) -> bool {
        self.has_huge_pages
    }
}

impl Drop for PageMapping {
    fn drop(&mut self) {
        taken::count_given_back(self.bytes);
        debug_assert!(self.base.addr().get().is_multiple_of(CHUNK_BYTES), "a whole chunk (A)");
        match self.source {
            // SAFETY: (A)
            Source::Mapped => unsafe { system::unmap(self.base.as_ptr(), self.bytes) },
            // SAFETY: (A) same layout as in `from_allocator`.
            Source::SystemAllocator => unsafe {
                dealloc(self.base.as_ptr(), PageMapping::layout(self.bytes));
            },
        }
    }
}

/// Maps `bytes`, a multiple of the page size, for one block; `is_filled` makes all of it resident
/// at once, which is cheaper than page by page. `None` where the system does not map.
pub(super) fn map_block(bytes: usize, is_filled: bool) -> Option<NonNull<u8>> {
    assert!(bytes > 0, "a block has bytes to map");
    system::map_block(bytes, is_filled)
}

/// Unmaps a block, or its end.
///
/// # Safety
/// (A) The range was returned by [`map_block`], or is the end of such a range from a page on. It is
/// no longer used.
pub(super) unsafe fn unmap_block(base: NonNull<u8>, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { system::unmap(base.as_ptr(), bytes) }
}

#[cfg(all(target_os = "linux", not(miri)))]
mod system {
    //! Anonymous mappings of Linux.

    use std::ffi::c_void;
    use std::ptr::{NonNull, null_mut};

    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

    use super::{CHUNK_BYTES, PageKind};

    /// Maps `bytes` at a multiple of `CHUNK_BYTES`. The kernel puts mappings side by side, so after
    /// an aligned one of whole chunks the next is mostly aligned too; otherwise more is mapped and
    /// the ends are cut off.
    pub(super) fn map(bytes: usize) -> Option<NonNull<u8>> {
        let base = map_anywhere(bytes)?;
        if base.addr().is_multiple_of(CHUNK_BYTES) {
            return NonNull::new(base.cast());
        }
        // SAFETY: (A) it was mapped above and is not shared.
        unsafe { unmap(base.cast(), bytes) };
        let base = map_anywhere(bytes + CHUNK_BYTES)?;
        let head = base.addr().next_multiple_of(CHUNK_BYTES) - base.addr();
        assert!(head < CHUNK_BYTES, "less is cut off than was added for alignment");
        // SAFETY: (A) both ends are inside what was mapped and outside what is returned.
        unsafe {
            let aligned = base.byte_add(head);
            unmap(base.cast(), head);
            unmap(aligned.byte_add(bytes).cast(), CHUNK_BYTES - head);
            NonNull::new(aligned.cast())
        }
    }

    fn map_anywhere(bytes: usize) -> Option<*mut c_void> {
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: (B) no address is asked for.
        unsafe { mmap_anonymous(null_mut(), bytes, access, flags) }.ok()
    }

    pub(super) fn map_block(bytes: usize, is_filled: bool) -> Option<NonNull<u8>> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let filled = if is_filled { MapFlags::POPULATE } else { MapFlags::empty() };
        // SAFETY: (B) no address is asked for.
        let base = unsafe { mmap_anonymous(null_mut(), bytes, access, MapFlags::PRIVATE | filled) };
        NonNull::new(base.ok()?.cast())
    }

    /// Requests pages of a kind; false when the kernel has no such pages.
    pub(super) fn advise(base: NonNull<u8>, bytes: usize, kind: PageKind) -> bool {
        let advice = match kind {
            PageKind::Plain => Advice::LinuxNoHugepage,
            PageKind::Huge => Advice::LinuxHugepage,
        };
        // SAFETY: the advice changes no content, and the range is one mapping of ours.
        unsafe { madvise(base.as_ptr().cast(), bytes, advice) }.is_ok()
    }

    /// # Safety
    /// (A) The range was returned by [`map`], or cut from it, and is no longer used.
    pub(super) unsafe fn unmap(base: *mut u8, bytes: usize) {
        if bytes > 0 {
            debug_assert!(!base.is_null(), "a range was mapped (A)");
            // The kernel refuses only when it cannot split its own records; then the range stays
            // mapped and unused, as if it were kept.
            // SAFETY: (A) the caller owns the range.
            let _ = unsafe { munmap(base.cast(), bytes) };
        }
    }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
mod system {
    //! Systems whose mappings are not used here: the allocator provides.

    use std::ptr::NonNull;

    use super::PageKind;

    pub(super) fn map(_bytes: usize) -> Option<NonNull<u8>> {
        None
    }

    pub(super) fn map_block(_bytes: usize, _is_filled: bool) -> Option<NonNull<u8>> {
        None
    }

    pub(super) fn advise(_base: NonNull<u8>, _bytes: usize, _kind: PageKind) -> bool {
        false
    }

    /// # Safety
    /// Never called, because nothing is mapped.
    pub(super) unsafe fn unmap(_base: *mut u8, _bytes: usize) {
        unreachable!("nothing was mapped")
    }
}
