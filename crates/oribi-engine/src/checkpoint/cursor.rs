//! Named readers of the checkpoint queue.
//!
//! Owns: how far each has processed and how far it has read. The two differ while a batch is being
//! written or sent: a failed write goes back to the position, and nothing between the two leaves
//! the queue. The persistence cursor stands at the end of a checkpoint, except where it was
//! registered. A stream's cursor may also stand inside the open checkpoint. It can be taken away,
//! and it knows whom to wake.

use std::sync::Arc;

use oribi_types::Seqno;

use super::wake::StreamWaker;

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
    /// Everything from this seqno on is in the queue, and reads return it.
    pub first: Seqno,
    /// True when items behind the requested seqno have left memory: they must be read from the
    /// store, up to `first`, before what the cursor reads.
    pub needs_backfill: bool,
}

pub(super) struct Cursor {
    pub(super) name: Arc<str>,
    pub(super) number: u64,
    /// The last seqno processed.
    pub(super) position: u64,
    /// The last seqno handed out by a read; at least `position`.
    pub(super) read_to: u64,
    /// Reads so far.
    pub(super) visits: u64,
    /// Of a stream's cursor, which memory recovery may take away.
    pub(super) stream: Option<StreamSide>,
}

/// What the queue knows of a stream.
pub(super) struct StreamSide {
    pub(super) waker: StreamWaker,
    /// It has read to the end and waits to be woken.
    pub(super) is_idle: bool,
}

impl Cursor {
    pub(super) fn is_stream(&self) -> bool {
        self.stream.is_some()
    }
}

/// Cursors of streams that were taken away, to be freed without the queue's lock.
#[must_use = "their owners are to be told"]
pub struct TakenStreams(Vec<Cursor>);

impl TakenStreams {
    /// Their owners.
    pub fn iter(&self) -> impl Iterator<Item = &StreamWaker> {
        self.0.iter().filter_map(|cursor| cursor.stream.as_ref()).map(|stream| &stream.waker)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True when there was none to take.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// All cursors of a queue, in order of registration where none was dropped.
#[derive(Default)]
pub(super) struct Cursors {
    places: Vec<Option<Cursor>>,
    count: usize,
    numbers: u64,
}

impl Cursors {
    pub(super) fn add(&mut self, name: &str, at: u64, stream: Option<StreamSide>) -> CursorId {
        self.numbers += 1;
        self.count += 1;
        let number = self.numbers;
        let cursor =
            Cursor { name: name.into(), number, position: at, read_to: at, visits: 0, stream };
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

    /// Takes out the streams that `gone` accepts.
    pub(super) fn take_streams(&mut self, gone: impl Fn(&Cursor) -> bool) -> TakenStreams {
        TakenStreams(self.take_if(|cursor| cursor.is_stream() && gone(cursor)))
    }

    /// Takes out those that `gone` accepts. They are only moved, with one allocation at most.
    pub(super) fn take_if(&mut self, gone: impl Fn(&Cursor) -> bool) -> Vec<Cursor> {
        let mut taken = Vec::new();
        for place in &mut self.places {
            if let Some(cursor) = place.take_if(|cursor| gone(cursor)) {
                if taken.is_empty() {
                    taken.reserve_exact(self.count);
                }
                taken.push(cursor);
            }
        }
        self.count -= taken.len();
        taken
    }

    /// Takes out one.
    pub(super) fn take(&mut self, id: CursorId) -> Option<Cursor> {
        let place = self.places.get_mut(id.place)?;
        let taken = place.take_if(|cursor| cursor.number == id.number)?;
        self.count -= 1;
        Some(taken)
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
        self.iter().filter(|cursor| of(cursor)).map(|cursor| cursor.position).min()
    }
}
