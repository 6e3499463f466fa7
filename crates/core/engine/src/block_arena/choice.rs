//! The choice of the chunks that a round of compaction empties.
//!
//! Owns: the choice, which is arithmetic over a survey. Moving pays when it moves little for what
//! it gains, and when the live blocks find space in chunks that are not chosen: free blocks of
//! their class, or free units. So the sparsest chunks are chosen first, each only if its blocks
//! still fit, and only as many as are wanted.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::ptr::NonNull;

use super::chunk::ArenaChunk;
use super::class::{CLASSES, Class};
use super::pool::ChunkSurvey;
use super::units::{CHUNK_BYTES, UNIT_BYTES, UNITS};

/// Most chunks of one round, so that at most 2 GiB are out of use at a time.
const CHOSEN_MAX: usize = 1024;

/// Purpose of a round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Goal {
    /// Bytes that are to become free; no more chunks are chosen than that takes.
    pub gain_bytes: usize,
    /// Most bytes that may be moved for each byte that is gained.
    pub moved_per_gained: usize,
}

/// Free space outside the chosen chunks.
struct Room {
    blocks: [usize; CLASSES],
    units: usize,
}

/// Chooses chunks of a survey.
pub(super) fn choose(survey: &[ChunkSurvey], goal: Goal) -> HashSet<NonNull<ArenaChunk>> {
    let mut room = Room { blocks: [0; CLASSES], units: 0 };
    for chunk in survey {
        room.units += chunk.free_units;
        for slab in &chunk.slabs {
            room.blocks[slab.class.index()] += slab.free;
        }
    }
    let mut sparse: Vec<(usize, &ChunkSurvey)> = survey
        .iter()
        .filter(|chunk| !chunk.has_tables && chunk.free_units < UNITS)
        .map(|chunk| (live_bytes(chunk), chunk))
        .filter(|(live, _)| is_worth_it(*live, CHUNK_BYTES.saturating_sub(*live), goal))
        .collect();
    sparse.sort_unstable_by_key(|(live, _)| Reverse(CHUNK_BYTES.saturating_sub(*live)));
    let (mut chosen, mut gained) = (HashSet::new(), 0);
    for (live, chunk) in sparse {
        if gained >= goal.gain_bytes || chosen.len() >= CHOSEN_MAX {
            break;
        }
        let Some((rest, new_units)) = room.without(chunk) else { continue };
        // Slabs that the moved blocks need anew are no gain.
        let gain = CHUNK_BYTES.saturating_sub(new_units * UNIT_BYTES);
        if is_worth_it(live, gain.min(CHUNK_BYTES.saturating_sub(live)), goal) {
            room = rest;
            gained += gain;
            chosen.insert(chunk.chunk);
        }
    }
    debug_assert!(chosen.len() <= CHOSEN_MAX, "a round is bounded");
    chosen
}

/// Bytes of live blocks, and of those in threads' magazines.
pub(super) fn live_bytes(chunk: &ChunkSurvey) -> usize {
    debug_assert!(chunk.free_units <= UNITS, "a chunk has its number of units");
    chunk.slabs.iter().map(|slab| slab.live * slab.class.block_bytes()).sum()
}

fn is_worth_it(moved: usize, gained: usize, goal: Goal) -> bool {
    debug_assert!(gained <= CHUNK_BYTES, "a chunk gains at most its size");
    gained > 0 && moved <= gained * goal.moved_per_gained
}

impl Room {
    /// The space that is left without a chunk and after its blocks have moved, and the units of new
    /// slabs for them; `None` when they do not fit.
    fn without(&self, chunk: &ChunkSurvey) -> Option<(Room, usize)> {
        // An earlier choice may count on the space in this chunk.
        let units = self.units.checked_sub(chunk.free_units)?;
        let mut rest = Room { blocks: self.blocks, units };
        let mut live = [0; CLASSES];
        for slab in &chunk.slabs {
            let free = &mut rest.blocks[slab.class.index()];
            *free = free.checked_sub(slab.free)?;
            live[slab.class.index()] += slab.live;
        }
        let mut new_units = 0;
        for class in Class::all() {
            let (live, free) = (live[class.index()], &mut rest.blocks[class.index()]);
            if live > *free {
                let in_slab = class.slab_bytes() / class.block_bytes() - 1;
                debug_assert!(in_slab > 0, "a slab has blocks after the chunk's header");
                let slabs = (live - *free).div_ceil(in_slab);
                new_units += slabs << class.slab_order();
                *free += slabs * in_slab;
            }
            debug_assert!(live <= *free, "the moved blocks have room");
            *free -= live;
        }
        rest.units = rest.units.checked_sub(new_units)?;
        Some((rest, new_units))
    }
}
