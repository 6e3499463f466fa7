//! The segment that compaction is emptying, and how far its reading has come.

use super::reader::SegmentReader;

/// State of compaction between steps.
#[derive(Default)]
pub(super) struct Compaction {
    pub(super) victim: Option<Victim>,
    /// A client asked for space: segments older than this one count as due, however little garbage
    /// there is. 0 when no client waits.
    pub(super) asked_below: u32,
}

pub(super) struct Victim {
    pub(super) slot: u16,
    pub(super) id: u32,
    pub(super) reader: SegmentReader,
    /// How often the writer had cut off copies when this began. Those of this victim may be among
    /// later ones, and its reading is past their originals.
    pub(super) cuts: u64,
    /// Continues after what cannot be read.
    pub(super) skips_damage: bool,
}
