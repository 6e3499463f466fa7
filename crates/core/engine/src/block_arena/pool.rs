//! The pool: chunks and their free units.
//!
//! Owns: the chunks' lists and unit masks. Units are handed out in aligned runs of a power of two;
//! a chunk is listed by the largest run it still has, and the tightest fit is taken first, which
//! leaves the emptier chunks to become empty. A few unused chunks are kept, the others go back to
//! the system. Nothing is mapped or unmapped under the lock. Called by depots (slabs), by table
//! memory, and by rounds of compaction (`round.rs`), which mark chunks.
//!
//! A marked chunk is in no list, so it gives nothing out while another chunk has space. Before a
//! new chunk is mapped, a marked one with room loses its mark: compaction never makes the process
//! larger.
//!
//! The numbers of unsafe invariants are those of `block_arena.rs`.

use std::ptr::{NonNull, null_mut};
use std::sync::atomic::Ordering;

use parking_lot::Mutex;

mod chosen;

pub(super) use chosen::ChunkSurvey;

use super::chunk::{ArenaChunk, ChunkState, UnitRun, find_run, largest_run};
use super::class::Class;
use super::growth;
use super::pages::{PageKind, PageMapping};
use super::units::{CHUNK_BYTES, CHUNK_ORDER, UNITS};

/// Chunks of plain pages that are mapped before the first of huge pages: 32 MiB, within which page
/// walks are short because the page tables fit the caches.
const PLAIN_CHUNKS: usize = 16;
/// Unused chunks kept of each kind, so that a load that goes up and down does not map and unmap.
const UNUSED_KEPT: usize = 2;
const ORDERS: usize = CHUNK_ORDER as usize + 1;
/// Chunks of one list that are looked at for a run that must not be in unit 0.
const LOOKS_MAX: usize = 8;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RunDemand {
    /// A slab: any pages, any units.
    Slab(Class),
    /// Table memory: huge pages only, and all of the units, so not unit 0.
    Table,
}

/// Units that were handed out, and which of them may not be zero.
#[derive(Clone, Copy, Debug)]
pub(super) struct UnitGrant {
    pub(super) run: UnitRun,
    /// One bit for each unit of the chunk that may hold something other than zero.
    pub(super) dirty_units: u32,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PoolStats {
    pub(super) chunks: usize,
    pub(super) huge_chunks: usize,
    pub(super) free_units: usize,
}

/// Chunks of one kind of page.
struct Kind {
    /// By order of the largest free run; a chunk without a free unit is in no list.
    lists: [*mut ArenaChunk; ORDERS],
    chunks: usize,
    unused: usize,
}

struct State {
    plain: Kind,
    huge: Kind,
    /// Every chunk, in no order.
    all: Vec<NonNull<ArenaChunk>>,
    /// Chunks of the round of compaction under way. They stay mapped until the round unmarks them.
    chosen: Vec<NonNull<ArenaChunk>>,
    /// Units that chosen chunks have got back.
    gained_units: usize,
    stats: PoolStats,
}

// SAFETY: (3) chunks belong to no thread; the lock around the state guards what the pointers lead
// to.
unsafe impl Send for State {}

/// See the top of the file.
pub(super) struct ChunkPool {
    state: Mutex<State>,
}

impl ChunkPool {
    pub(super) const fn new() -> ChunkPool {
        const NONE: Kind = Kind { lists: [null_mut(); ORDERS], chunks: 0, unused: 0 };
        let stats = PoolStats { chunks: 0, huge_chunks: 0, free_units: 0 };
        ChunkPool {
            state: Mutex::new(State {
                plain: NONE,
                huge: NONE,
                all: Vec::new(),
                chosen: Vec::new(),
                gained_units: 0,
                stats,
            }),
        }
    }

    /// Hands out `1 << order` units: of a marked chunk if the others have no space, of a new one if
    /// no chunk has.
    pub(super) fn take(&self, order: u32, want: RunDemand) -> UnitGrant {
        let kind = {
            let mut state = self.state.lock();
            if let Some(taken) = state.take(order, want) {
                return taken;
            }
            if state.unmark_with_room(order, want)
                && let Some(taken) = state.take(order, want)
            {
                return taken;
            }
            match want {
                RunDemand::Slab(_) if state.plain.chunks < PLAIN_CHUNKS => PageKind::Plain,
                RunDemand::Slab(_) | RunDemand::Table => PageKind::Huge,
            }
        };
        let chunk = ArenaChunk::write_header(PageMapping::new(CHUNK_BYTES, kind), kind);
        let taken = self.state.lock().take_from_new(chunk, kind, order, want);
        growth::grown();
        taken
    }

    /// Hands out units of an existing chunk that is not marked.
    pub(super) fn take_unmarked(&self, order: u32, want: RunDemand) -> Option<UnitGrant> {
        self.state.lock().take(order, want)
    }

    /// Takes units back.
    ///
    /// # Safety
    /// (2) The run came from [`ChunkPool::take`] with the same order, and its owner gives it up.
    pub(super) unsafe fn give(&self, run: UnitRun) {
        // A mapping that is no longer needed is dropped after the lock.
        // SAFETY: the caller's promise.
        let _unneeded = unsafe { self.state.lock().give(run) };
    }

    pub(super) fn stats(&self) -> PoolStats {
        self.state.lock().stats
    }
}

impl State {
    fn take(&mut self, order: u32, want: RunDemand) -> Option<UnitGrant> {
        let kinds: &mut [&mut Kind] = match want {
            RunDemand::Slab(_) => &mut [&mut self.plain, &mut self.huge],
            RunDemand::Table => &mut [&mut self.huge],
        };
        let taken = kinds.iter_mut().find_map(|kind| kind.take(order, want))?;
        assert!(self.stats.free_units >= 1 << order, "the pool counts its free units");
        self.stats.free_units -= 1 << order;
        Some(taken)
    }

    fn take_from_new(
        &mut self,
        chunk: NonNull<ArenaChunk>,
        page_kind: PageKind,
        order: u32,
        want: RunDemand,
    ) -> UnitGrant {
        // SAFETY: (3) under the lock.
        let state = unsafe { &mut *ArenaChunk::state(chunk) };
        assert!(state.is_unused() && !state.is_chosen, "a new chunk has handed nothing out");
        self.stats.chunks += 1;
        self.stats.huge_chunks += usize::from(state.mapping.has_huge_pages());
        self.stats.free_units += state.free_units.count_ones() as usize;
        state.at = self.all.len();
        self.all.push(chunk);
        let kind = self.kind(page_kind);
        kind.chunks += 1;
        kind.unused += 1;
        kind.link(chunk);
        let run = run_in(chunk, order, want).expect("a whole chunk has a run of every order");
        let taken = kind.take_run(run, want);
        self.stats.free_units -= 1 << order;
        taken
    }

    /// # Safety
    /// As for [`ChunkPool::give`].
    unsafe fn give(&mut self, run: UnitRun) -> Option<PageMapping> {
        // SAFETY: (3) under the lock.
        let (page_kind, is_chosen) = unsafe {
            ((*ArenaChunk::state(run.chunk)).page_kind, (*ArenaChunk::state(run.chunk)).is_chosen)
        };
        self.stats.free_units += 1 << run.order;
        if is_chosen {
            self.gained_units += 1 << run.order;
        }
        // SAFETY: the caller's promise.
        let is_unneeded = unsafe { self.kind(page_kind).give(run) };
        is_unneeded.then(|| self.remove(run.chunk))
    }

    /// Forgets a chunk that is unused and in no list. The caller gives its memory back.
    fn remove(&mut self, chunk: NonNull<ArenaChunk>) -> PageMapping {
        // SAFETY: (2, 3) no unit of the chunk has another owner, so this is the last use of its
        // header.
        let (at, page_kind, mapping) = unsafe {
            let state = &*ArenaChunk::state(chunk);
            assert!(state.is_unused(), "only an unused chunk leaves the pool");
            (state.at, state.page_kind, (&raw const state.mapping).read())
        };
        let removed = self.all.swap_remove(at);
        assert_eq!(removed, chunk, "a chunk knows its place");
        if let Some(moved) = self.all.get(at) {
            // SAFETY: (3) under the lock.
            unsafe { (*ArenaChunk::state(*moved)).at = at }
        }
        assert!(self.stats.chunks > 0, "the pool counts its chunks");
        assert!(self.stats.free_units >= UNITS, "the pool counts its free units");
        self.kind(page_kind).chunks -= 1;
        self.stats.chunks -= 1;
        self.stats.huge_chunks -= usize::from(mapping.has_huge_pages());
        self.stats.free_units -= UNITS;
        mapping
    }

    fn kind(&mut self, page_kind: PageKind) -> &mut Kind {
        match page_kind {
            PageKind::Plain => &mut self.plain,
            PageKind::Huge => &mut self.huge,
        }
    }
}

impl Kind {
    fn take(&mut self, order: u32, want: RunDemand) -> Option<UnitGrant> {
        debug_assert!((order as usize) < ORDERS, "a run of units fits a chunk");
        let lists = &self.lists[order as usize..];
        let run = lists.iter().find_map(|first| {
            chunks_from(*first).take(LOOKS_MAX).find_map(|chunk| run_in(chunk, order, want))
        })?;
        Some(self.take_run(run, want))
    }

    fn take_run(&mut self, run: UnitRun, want: RunDemand) -> UnitGrant {
        self.unlink(run.chunk);
        // SAFETY: (3) under the lock.
        let state = unsafe { &mut *ArenaChunk::state(run.chunk) };
        assert_eq!(state.free_units & run.mask(), run.mask(), "units are handed out once");
        assert!(!is_marked(run.chunk), "a marked chunk gives nothing out");
        assert!(self.unused >= usize::from(state.is_unused()), "unused chunks are counted");
        self.unused -= usize::from(state.is_unused());
        let dirty_units = state.dirty_units;
        state.free_units &= !run.mask();
        state.dirty_units |= run.mask();
        match want {
            RunDemand::Table => state.table_units |= run.mask(),
            RunDemand::Slab(class) => state.classes[run.unit] = Some(class),
        }
        self.link(run.chunk);
        UnitGrant { run, dirty_units }
    }

    /// True when the chunk is not needed any more; it is in no list then.
    ///
    /// # Safety
    /// As for [`ChunkPool::give`].
    unsafe fn give(&mut self, run: UnitRun) -> bool {
        self.unlink(run.chunk);
        // SAFETY: (3) under the lock.
        let state = unsafe { &mut *ArenaChunk::state(run.chunk) };
        assert!(state.free_units & run.mask() == 0, "units are given back once");
        assert_eq!(state.dirty_units & run.mask(), run.mask(), "returned units were allocated");
        state.free_units |= run.mask();
        state.table_units &= !run.mask();
        state.classes[run.unit] = None;
        // A marked chunk is in no list, and its round looks whether it is unused.
        if state.is_unused() && !is_marked(run.chunk) {
            if self.unused >= UNUSED_KEPT && !state.is_chosen {
                return true;
            }
            self.unused += 1;
            assert!(self.unused <= self.chunks, "an unused chunk is one of the kind's");
        }
        self.link(run.chunk);
        false
    }

    /// Puts a chunk at the front of the list it belongs to.
    fn link(&mut self, chunk: NonNull<ArenaChunk>) {
        // SAFETY: (3) under the lock.
        let state = unsafe { &mut *ArenaChunk::state(chunk) };
        let Some(order) = largest_run(state.free_units) else { return };
        if is_marked(chunk) {
            return;
        }
        let first = &mut self.lists[order as usize];
        debug_assert_ne!(*first, chunk.as_ptr(), "a chunk is in one list, once");
        (state.previous, state.next) = (null_mut(), *first);
        if let Some(next) = NonNull::new(*first) {
            // SAFETY: (3) as above; chunks in a list differ from the one that joins it.
            unsafe { (*ArenaChunk::state(next)).previous = chunk.as_ptr() }
        }
        *first = chunk.as_ptr();
    }

    /// Takes a chunk out of its list. The free units are still as they were when it was linked.
    fn unlink(&mut self, chunk: NonNull<ArenaChunk>) {
        // SAFETY: (3) under the lock.
        let (free, next, previous) = unsafe {
            let state = &*ArenaChunk::state(chunk);
            (state.free_units, state.next, state.previous)
        };
        let Some(order) = largest_run(free) else { return };
        debug_assert_ne!(next, chunk.as_ptr(), "a chunk is in one list, once");
        if is_marked(chunk) {
            return;
        }
        match NonNull::new(previous) {
            // SAFETY: (3) as above.
            Some(previous) => unsafe { (*ArenaChunk::state(previous)).next = next },
            None => self.lists[order as usize] = next,
        }
        if let Some(next) = NonNull::new(next) {
            // SAFETY: (3) as above.
            unsafe { (*ArenaChunk::state(next)).previous = previous }
        }
    }
}

/// (10) Whether a chunk is to become empty; the caller holds the lock.
fn is_marked(chunk: NonNull<ArenaChunk>) -> bool {
    // SAFETY: (10) under the lock.
    unsafe { ArenaChunk::mark(chunk) }.load(Ordering::Relaxed)
}

/// (3) The chunks of a list; the caller holds the lock.
fn chunks_from(first: *mut ArenaChunk) -> impl Iterator<Item = NonNull<ArenaChunk>> {
    std::iter::successors(NonNull::new(first), |chunk| {
        let state: *const ChunkState = ArenaChunk::state(*chunk);
        // SAFETY: (3) under the lock.
        NonNull::new(unsafe { (*state).next })
    })
}

/// (3) A free run of `order` in `chunk`; the caller holds the lock.
fn run_in(chunk: NonNull<ArenaChunk>, order: u32, want: RunDemand) -> Option<UnitRun> {
    // SAFETY: (3) under the lock.
    let free = unsafe { (*ArenaChunk::state(chunk)).free_units };
    let usable = match want {
        RunDemand::Slab(_) => free,
        RunDemand::Table => free & !1,
    };
    find_run(usable, order).map(|unit| UnitRun { chunk, unit, order })
}
