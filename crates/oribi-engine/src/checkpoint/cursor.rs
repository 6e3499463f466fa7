//! A named reader of the checkpoint queue.
//!
//! Owns: how far it has processed and how far it has read. The two differ while a batch is being
//! written: a failed write goes back to the position, and nothing between the two is expelled.

/// Handle of a registered cursor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CursorId(pub(super) usize);

pub(super) struct Cursor {
    /// For stats.
    pub(super) name: &'static str,
    /// Last seqno processed.
    pub(super) position: u64,
    /// Last seqno handed out by a read; at least `position`.
    pub(super) read_to: u64,
    /// Live slots behind `read_to`.
    pub(super) remaining: usize,
    /// Reads so far.
    pub(super) visits: u64,
}

impl Cursor {
    pub(super) fn new(name: &'static str, position: u64, remaining: usize) -> Cursor {
        Cursor { name, position, read_to: position, remaining, visits: 0 }
    }
}
