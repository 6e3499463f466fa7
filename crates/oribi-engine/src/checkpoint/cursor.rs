//! Named readers of the checkpoint queue.
//!
//! Owns: how far each has processed and how far it has read. The two differ while a batch is being
//! written: a failed write goes back to the position, and nothing between the two leaves the queue.
//! Both stand at the end of a checkpoint, but for the place at which a reader was registered,
//! and each knows how many items were queued up to it: how many remain follows by subtraction, and
//! going back counts nothing.

use std::sync::Arc;

/// Handle of a registered cursor. It is never given out twice, so the handle of a cursor that was
/// dropped reads nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CursorId {
    pub(super) place: usize,
    pub(super) number: u64,
}

/// What a registration found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Registered {
    /// The cursor.
    pub id: CursorId,
    /// True when items behind the requested seqno have left memory: they must be read from the store,
    /// up to where the first batch begins, before what the cursor reads.
    pub needs_backfill: bool,
}

/// A seqno, and how many items were queued up to there since the queue was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Mark {
    pub(super) seqno: u64,
    pub(super) items: u64,
}

pub(super) struct Cursor {
    pub(super) name: Arc<str>,
    pub(super) number: u64,
    /// Memory recovery may take it away.
    pub(super) droppable: bool,
    /// The last seqno processed.
    pub(super) position: Mark,
    /// The last seqno handed out by a read; at least `position`.
    pub(super) read_to: Mark,
    /// Reads so far.
    pub(super) visits: u64,
}

/// All cursors of a queue, in order of registration where none was dropped.
#[derive(Default)]
pub(super) struct Cursors {
    places: Vec<Option<Cursor>>,
    count: usize,
    numbers: u64,
}

impl Cursors {
    pub(super) fn add(&mut self, name: &str, droppable: bool, at: Mark) -> CursorId {
        self.numbers += 1;
        self.count += 1;
        let number = self.numbers;
        let cursor =
            Cursor { name: name.into(), number, droppable, position: at, read_to: at, visits: 0 };
        let free = self.places.iter().position(Option::is_none);
        let place = free.unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() - 1
        });
        self.places[place] = Some(cursor);
        CursorId { place, number }
    }

    pub(super) fn get(&self, id: CursorId) -> Option<&Cursor> {
        self.places.get(id.place)?.as_ref().filter(|cursor| cursor.number == id.number)
    }

    pub(super) fn get_mut(&mut self, id: CursorId) -> Option<&mut Cursor> {
        self.places.get_mut(id.place)?.as_mut().filter(|cursor| cursor.number == id.number)
    }

    /// Removes those that `gone` accepts; their number.
    pub(super) fn remove_if(&mut self, gone: impl Fn(&Cursor) -> bool) -> usize {
        let mut count = 0;
        for place in &mut self.places {
            if place.as_ref().is_some_and(&gone) {
                *place = None;
                count += 1;
            }
        }
        self.count -= count;
        count
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Cursor> {
        self.places.iter().flatten()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Cursor> {
        self.places.iter_mut().flatten()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The lowest position of those that `of` accepts.
    pub(super) fn lowest(&self, of: impl Fn(&Cursor) -> bool) -> Option<u64> {
        self.iter().filter(|cursor| of(cursor)).map(|cursor| cursor.position.seqno).min()
    }
}
