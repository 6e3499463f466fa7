//! Chunks that a round of compaction has chosen, and the survey that it chooses from.
//!
//! Owns: the marks. A chunk is marked when it is chosen. It loses the mark when the round gives it
//! up or ends, or when a thread needs its space and no other is left. It stays chosen, and so
//! mapped, until the end of the round, unless the round finds it empty.
//!
//! The numbers of unsafe invariants are those of `block_arena.rs`.

use std::collections::HashSet;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use super::super::chunk::{ArenaChunk, Slab, UnitRun};
use super::super::class::Class;
use super::super::pages::{PageKind, PageMapping};
use super::{ChunkPool, RunDemand, State, UNUSED_KEPT, is_marked, run_in};

/// Chunks that a survey looks at under one hold of the lock.
const SURVEYED_AT_ONCE: usize = 32;

/// A chunk as it was a moment ago.
#[derive(Clone, Debug)]
pub(in super::super) struct ChunkSurvey {
    pub(in super::super) chunk: NonNull<ArenaChunk>,
    pub(in super::super) free_units: usize,
    pub(in super::super) has_tables: bool,
    pub(in super::super) slabs: Vec<SlabSurvey>,
}

/// A slab as it was a moment ago.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct SlabSurvey {
    pub(in super::super) class: Class,
    pub(in super::super) live: usize,
    pub(in super::super) free: usize,
}

impl ChunkPool {
    /// Every chunk and its slabs, for estimates: the lock is held for some chunks at a time.
    pub(in super::super) fn survey(&self) -> Vec<ChunkSurvey> {
        let mut surveyed = Vec::new();
        loop {
            let state = self.state.lock();
            let rest = state.all.get(surveyed.len()..).unwrap_or_default();
            if rest.is_empty() {
                return surveyed;
            }
            surveyed.extend(rest.iter().take(SURVEYED_AT_ONCE).map(|chunk| survey(*chunk)));
        }
    }

    /// Marks those chunks of `wanted` that are still there, for a round of compaction.
    pub(in super::super) fn choose(&self, wanted: &HashSet<NonNull<ArenaChunk>>) {
        let mut state = self.state.lock();
        assert!(state.chosen.is_empty(), "one round of compaction at a time");
        state.gained_units = 0;
        let present: Vec<NonNull<ArenaChunk>> =
            state.all.iter().copied().filter(|chunk| wanted.contains(chunk)).collect();
        for chunk in present {
            // SAFETY: (3) under the lock.
            let pool_part = unsafe { &mut *ArenaChunk::state(chunk) };
            if pool_part.is_unused() || pool_part.table_units != 0 {
                continue;
            }
            assert!(!pool_part.is_chosen, "a chunk is chosen by one round at a time");
            pool_part.is_chosen = true;
            state.kind(pool_part.page_kind).unlink(chunk);
            // SAFETY: (10) under the lock.
            unsafe { ArenaChunk::mark(chunk) }.store(true, Ordering::Relaxed);
            state.chosen.push(chunk);
        }
    }

    /// The chosen chunks that are still marked, as they are now.
    pub(in super::super) fn survey_chosen(&self) -> Vec<ChunkSurvey> {
        let state = self.state.lock();
        state.chosen.iter().filter(|chunk| is_marked(**chunk)).map(|chunk| survey(*chunk)).collect()
    }

    /// Slabs of the chosen chunks, marked or not.
    pub(in super::super) fn chosen_slabs(&self) -> Vec<(UnitRun, Class)> {
        let state = self.state.lock();
        let chosen = state.chosen.iter();
        // SAFETY: (3) under the lock.
        chosen.flat_map(|chunk| unsafe { (*ArenaChunk::state(*chunk)).slabs(*chunk) }).collect()
    }

    /// Removes the mark of a chosen chunk.
    ///
    /// # Safety
    /// (10) The caller has a block or a unit of the chunk, or runs the round that has chosen it.
    pub(in super::super) unsafe fn unmark(&self, chunk: NonNull<ArenaChunk>) {
        self.state.lock().unmark(chunk);
    }

    /// Gives marked chunks that have become empty back to the system.
    pub(in super::super) fn release_emptied(&self) {
        let _unneeded: Vec<PageMapping> = {
            let mut state = self.state.lock();
            let (emptied, chosen) =
                std::mem::take(&mut state.chosen).into_iter().partition(|chunk| {
                    // SAFETY: (3) under the lock.
                    is_marked(*chunk) && unsafe { (*ArenaChunk::state(*chunk)).is_unused() }
                });
            state.chosen = chosen;
            let emptied: Vec<NonNull<ArenaChunk>> = emptied;
            emptied.into_iter().map(|chunk| state.remove(chunk)).collect()
        };
    }

    /// Releases the chunks that are still chosen, after their marks are gone and the depots have
    /// followed. Returns the units that all chosen chunks got back.
    pub(in super::super) fn end_round(&self) -> usize {
        let mut unneeded = Vec::new();
        let mut state = self.state.lock();
        for chunk in std::mem::take(&mut state.chosen) {
            // SAFETY: (3) under the lock.
            let pool_part = unsafe { &mut *ArenaChunk::state(chunk) };
            assert!(pool_part.is_chosen, "a round ends with the chunks that it has chosen");
            assert!(!is_marked(chunk), "the marks of a round are gone before it ends");
            pool_part.is_chosen = false;
            let page_kind = pool_part.page_kind;
            if pool_part.is_unused() && state.kind(page_kind).unused > UNUSED_KEPT {
                state.kind(page_kind).unlink(chunk);
                state.kind(page_kind).unused -= 1;
                unneeded.push(state.remove(chunk));
            }
        }
        let gained = std::mem::take(&mut state.gained_units);
        drop(state);
        gained
    }
}

impl State {
    /// A chunk without a mark allocates its free blocks again.
    pub(super) fn unmark(&mut self, chunk: NonNull<ArenaChunk>) {
        // SAFETY: (10) under the lock.
        if !unsafe { ArenaChunk::mark(chunk) }.swap(false, Ordering::Relaxed) {
            return;
        }
        // SAFETY: (3) under the lock.
        let (page_kind, is_unused) = unsafe {
            ((*ArenaChunk::state(chunk)).page_kind, (*ArenaChunk::state(chunk)).is_unused())
        };
        let kind = self.kind(page_kind);
        debug_assert!(kind.chunks > 0, "a marked chunk is one of the kind's");
        kind.unused += usize::from(is_unused);
        kind.link(chunk);
    }

    /// Takes the mark away from a chunk that has a run of `order`; false when none has.
    pub(super) fn unmark_with_room(&mut self, order: u32, want: RunDemand) -> bool {
        let has_room = |chunk: &NonNull<ArenaChunk>| {
            // SAFETY: (3) under the lock.
            let page_kind = unsafe { (*ArenaChunk::state(*chunk)).page_kind };
            let is_of_kind = want != RunDemand::Table || page_kind == PageKind::Huge;
            is_of_kind && is_marked(*chunk) && run_in(*chunk, order, want).is_some()
        };
        let Some(chunk) = self.chosen.iter().copied().find(has_room) else { return false };
        self.unmark(chunk);
        true
    }
}

fn survey(chunk: NonNull<ArenaChunk>) -> ChunkSurvey {
    // SAFETY: (3) the caller holds the lock.
    let state = unsafe { &*ArenaChunk::state(chunk) };
    let slabs = state.slabs(chunk).map(|(run, class)| {
        let total = run.blocks(class);
        // A slab that is just being made may have any number.
        let free = Slab::free_now(run.slab()).min(total);
        debug_assert!(total > 0, "a slab has blocks");
        SlabSurvey { class, live: total - free, free }
    });
    ChunkSurvey {
        chunk,
        free_units: state.free_units.count_ones() as usize,
        has_tables: state.table_units != 0,
        slabs: slabs.collect(),
    }
}
