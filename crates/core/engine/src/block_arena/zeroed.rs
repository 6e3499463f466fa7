//! Zeroed memory for the hash table's groups, on huge pages once it is large enough to matter.
//!
//! Owns: the memory and where it goes when dropped. Small tables come from the system's allocator,
//! those of one to sixteen units from chunks of huge pages, larger ones are their own mappings.
//! Memory that is fresh from the system is zero and is not touched, so a table that has just
//! doubled takes no memory yet.
//!
//! The numbers of unsafe invariants are those of `block_arena.rs`; one more:
//! 8. A [`ZeroedMemory`] is the only owner of its bytes; where they came from follows from the
//!    length.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::arena::ARENA;
use super::chunk::UnitRun;
use super::growth;
use super::pages::{PageKind, PageMapping};
use super::pool::{ChunkPool, RunDemand, UnitGrant};
use super::units::{CHUNK_BYTES, SYSTEM_BLOCKS, UNIT_BYTES};

/// Alignment of the memory: a cache line.
const ALIGNMENT: usize = 64;

static BYTES_NOW: AtomicUsize = AtomicUsize::new(0);

/// Bytes that all tables of the process have.
pub(super) fn bytes_now() -> usize {
    BYTES_NOW.load(Ordering::Relaxed)
}

#[derive(Debug)]
enum Source {
    Nothing,
    System(Layout),
    Units { order: u32 },
    Pages(PageMapping),
}

/// Memory that was all zero when it was made, aligned to 64 bytes, released when dropped.
#[derive(Debug)]
pub struct ZeroedMemory {
    base: NonNull<u8>,
    bytes: usize,
    source: Source,
}

// SAFETY: (8) it owns plain memory that no thread is tied to.
unsafe impl Send for ZeroedMemory {}
// SAFETY: (8) as above; a shared reference gives only the address.
unsafe impl Sync for ZeroedMemory {}

impl ZeroedMemory {
    /// `bytes` zeroed bytes; none at all for 0. From 64 KiB on, what it takes is `bytes` rounded up
    /// to a power of two below 2 MiB, and to a multiple of 2 MiB above.
    pub fn new(bytes: usize) -> ZeroedMemory {
        let (base, source) = if bytes == 0 {
            (NonNull::<Line>::dangling().cast(), Source::Nothing)
        } else if bytes < UNIT_BYTES || SYSTEM_BLOCKS {
            from_system(bytes)
        } else if bytes <= CHUNK_BYTES / 2 {
            let run = take_zeroed(&ARENA.pool, bytes);
            (run.start(), Source::Units { order: run.order })
        } else {
            let mapping = PageMapping::new(bytes.next_multiple_of(CHUNK_BYTES), PageKind::Huge);
            growth::grown();
            (mapping.base(), Source::Pages(mapping))
        };
        let memory = ZeroedMemory { base, bytes, source };
        assert!(base.addr().get().is_multiple_of(ALIGNMENT), "a table begins a cache line");
        assert!(memory.occupied_bytes() >= bytes, "a table has the requested bytes");
        BYTES_NOW.fetch_add(memory.occupied_bytes(), Ordering::Relaxed);
        memory
    }

    /// First byte; not to be read or written when there are none.
    pub fn as_ptr(&self) -> NonNull<u8> {
        self.base
    }

    /// Length that was asked for.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes of the memory, for accounting.
    pub fn occupied_bytes(&self) -> usize {
        match &self.source {
            Source::Nothing => 0,
            Source::System(layout) => layout.size(),
            Source::Units { order } => UNIT_BYTES << order,
            Source::Pages(mapping) => mapping.bytes(),
        }
    }
}

#[repr(align(64))]
struct Line;
const _: () = assert!(align_of::<Line>() == ALIGNMENT);

fn from_system(bytes: usize) -> (NonNull<u8>, Source) {
    let layout = Layout::from_size_align(bytes, ALIGNMENT).expect("tables are below isize::MAX");
    // SAFETY: the size is not zero.
    let base = unsafe { alloc_zeroed(layout) };
    let base = NonNull::new(base).unwrap_or_else(|| handle_alloc_error(layout));
    (base, Source::System(layout))
}

/// Units of zeroes that hold `bytes`. Only what was used before has to be overwritten.
pub(super) fn take_zeroed(pool: &ChunkPool, bytes: usize) -> UnitRun {
    let order = bytes.div_ceil(UNIT_BYTES).next_power_of_two().ilog2();
    let UnitGrant { run, dirty_units } = pool.take(order, RunDemand::Table);
    assert!(UNIT_BYTES << order >= bytes, "a run of units holds the table");
    assert_ne!(run.unit, 0, "table memory has no chunk header");
    for unit in 0..1 << order {
        if dirty_units & 1 << (run.unit + unit) != 0 {
            // SAFETY: (2) the pool has just made this thread the owner of the run.
            unsafe { run.start().add(unit * UNIT_BYTES).write_bytes(0, UNIT_BYTES) }
        }
    }
    run
}

impl Drop for ZeroedMemory {
    fn drop(&mut self) {
        let before = BYTES_NOW.fetch_sub(self.occupied_bytes(), Ordering::Relaxed);
        debug_assert!(before >= self.occupied_bytes(), "table memory that goes was counted");
        match self.source {
            // SAFETY: (8) same layout as when it was allocated.
            Source::System(layout) => unsafe { dealloc(self.base.as_ptr(), layout) },
            // SAFETY: (2, 8) the owner gives the run up.
            Source::Units { order } => unsafe {
                ARENA.pool.give(UnitRun::around(self.base, order))
            },
            // A mapping releases itself.
            Source::Nothing | Source::Pages(_) => {}
        }
    }
}
