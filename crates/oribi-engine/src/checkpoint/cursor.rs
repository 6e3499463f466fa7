//! Named readers of the checkpoint queue.
//!
//! Owns: how far each has processed and how far it has read. The two differ while a batch is being
//! written or sent: a failed write goes back to the position, and nothing between the two leaves
//! the queue. The persistence cursor stands at the end of a checkpoint, except where it was
//! registered. A stream's cursor may also stand inside the open checkpoint. It can be taken away,
//! and it knows whom to wake.

use std::sync::Arc;

use oribi_types::Seqno;

use super::positions::Positions;
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
    /// The last seqno processed. [`Cursors::process_to`] changes it.
    position: u64,
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
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    pub(super) fn is_stream(&self) -> bool {
        self.stream.is_some()
    }
}

/// Cursors of streams that were taken away, to be freed without the queue's lock.
#[must_use = "their owners are to be told"]
#[expect(clippy::vec_box, reason = "they are moved while the queue is locked")]
pub struct TakenStreams(Vec<Box<Cursor>>);

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
///
/// Their positions are kept a second time, because the queue's lock is held while the lowest is
/// looked for. A cursor is moved as one pointer.
#[derive(Default)]
pub(super) struct Cursors {
    places: Vec<Option<Box<Cursor>>>,
    /// Positions by place, of streams and of the others.
    stream_positions: Positions,
    other_positions: Positions,
    count: usize,
    numbers: u64,
}

impl Cursors {
    pub(super) fn add(&mut self, name: &str, at: u64, stream: Option<StreamSide>) -> CursorId {
        self.numbers += 1;
        self.count += 1;
        let number = self.numbers;
        let (name, is_stream) = (name.into(), stream.is_some());
        let cursor = Cursor { name, number, position: at, read_to: at, visits: 0, stream };
        let free = self.places.iter().position(Option::is_none);
        let place = free.unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() - 1
        });
        self.places[place] = Some(Box::new(cursor));
        self.positions_of(is_stream).set(place, at);
        CursorId { place, number }
    }

    pub(super) fn get(&self, id: CursorId) -> Option<&Cursor> {
        self.places.get(id.place)?.as_deref().filter(|cursor| cursor.number == id.number)
    }

    pub(super) fn get_mut(&mut self, id: CursorId) -> Option<&mut Cursor> {
        self.places.get_mut(id.place)?.as_deref_mut().filter(|cursor| cursor.number == id.number)
    }

    /// Moves a cursor: it has processed everything up to `position`.
    pub(super) fn process_to(&mut self, id: CursorId, position: u64) {
        let Some(cursor) = self.get_mut(id) else { return };
        cursor.position = position;
        let is_stream = cursor.is_stream();
        self.positions_of(is_stream).set(id.place, position);
    }

    /// Moves all cursors: they have processed and read everything up to `position`.
    pub(super) fn all_to(&mut self, position: u64) {
        for (place, cursor) in self.places.iter_mut().enumerate() {
            let Some(cursor) = cursor else { continue };
            (cursor.position, cursor.read_to) = (position, position);
            let positions = match cursor.is_stream() {
                true => &mut self.stream_positions,
                false => &mut self.other_positions,
            };
            positions.set(place, position);
        }
    }

    /// Takes out the streams that have processed less than `kept`. They are only moved, with one
    /// allocation at most.
    pub(super) fn take_streams_below(&mut self, kept: u64) -> TakenStreams {
        let mut taken = Vec::new();
        for place in 0..self.stream_positions.places() {
            if self.stream_positions.get(place).is_none_or(|position| position >= kept) {
                continue;
            }
            if taken.is_empty() {
                taken.reserve_exact(self.count);
            }
            taken.extend(self.take_at(place));
        }
        TakenStreams(taken)
    }

    /// Takes out every stream.
    pub(super) fn take_streams(&mut self) -> TakenStreams {
        self.take_streams_below(u64::MAX)
    }

    /// Drops those of a name.
    pub(super) fn drop_named(&mut self, name: &str) {
        for place in 0..self.places.len() {
            if self.places[place].as_ref().is_some_and(|cursor| *cursor.name == *name) {
                self.take_at(place);
            }
        }
    }

    /// Drops one, if it is still there.
    pub(super) fn drop_one(&mut self, id: CursorId) {
        if self.get(id).is_some() {
            self.take_at(id.place);
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Cursor> {
        self.places.iter().flatten().map(Box::as_ref)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Cursor> {
        self.places.iter_mut().flatten().map(Box::as_mut)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The lowest position; `None` without a cursor.
    pub(super) fn lowest(&self) -> Option<u64> {
        let (streams, others) = (self.stream_positions.lowest(), self.lowest_of_others());
        [streams, others].into_iter().flatten().min()
    }

    /// The lowest position of the cursors that are no streams.
    pub(super) fn lowest_of_others(&self) -> Option<u64> {
        self.other_positions.lowest()
    }

    /// Panics unless the positions agree with the cursors.
    pub(super) fn check_positions(&self) {
        for (place, cursor) in self.places.iter().enumerate() {
            let found = (self.stream_positions.get(place), self.other_positions.get(place));
            let expected = match cursor {
                None => (None, None),
                Some(cursor) if cursor.is_stream() => (Some(cursor.position), None),
                Some(cursor) => (None, Some(cursor.position)),
            };
            assert_eq!(found, expected, "positions at place {place}");
        }
    }

    fn take_at(&mut self, place: usize) -> Option<Box<Cursor>> {
        self.stream_positions.remove(place);
        self.other_positions.remove(place);
        let taken = self.places[place].take()?;
        self.count -= 1;
        Some(taken)
    }

    fn positions_of(&mut self, is_stream: bool) -> &mut Positions {
        if is_stream { &mut self.stream_positions } else { &mut self.other_positions }
    }
}
