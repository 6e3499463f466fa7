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
    place: usize,
    number: u64,
    is_stream: bool,
}

impl CursorId {
    pub(super) const NONE: CursorId = CursorId { place: 0, number: 0, is_stream: false };
}

/// Result of a registration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CursorRegistration {
    pub id: CursorId,
    /// Everything from this seqno on is in the queue, and reads return it.
    pub first: Seqno,
    /// True when items after the requested seqno have left memory: they must be read from the
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
    pub(super) visits: u64,
    /// Of a stream's cursor, which memory recovery may take away.
    pub(super) stream: Option<StreamSide>,
}

/// The queue's state of a stream.
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
#[derive(Default)]
pub struct DetachedStreams(Group);

impl DetachedStreams {
    pub fn iter(&self) -> impl Iterator<Item = &StreamWaker> {
        self.0.iter().filter_map(|cursor| cursor.stream.as_ref()).map(|stream| &stream.waker)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.count
    }

    /// True when there was none to take.
    pub fn is_empty(&self) -> bool {
        self.0.count == 0
    }
}

/// Cursors by place.
///
/// Their positions are kept a second time, because the queue's lock is held while the lowest is
/// looked for. A cursor is moved as one pointer, and all of a group are as well.
#[derive(Default)]
struct Group {
    places: Vec<Option<Box<Cursor>>>,
    positions: Positions,
    count: usize,
}

impl Group {
    /// Adds a cursor and returns its place.
    fn add(&mut self, cursor: Cursor) -> usize {
        let free = self.places.iter().position(Option::is_none);
        let place = free.unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() - 1
        });
        self.positions.set(place, cursor.position);
        assert!(self.places[place].is_none(), "a cursor gets a free place");
        self.places[place] = Some(Box::new(cursor));
        self.count += 1;
        assert!(self.count <= self.places.len(), "every cursor has a place");
        place
    }

    fn iter(&self) -> impl Iterator<Item = &Cursor> {
        self.places.iter().flatten().map(Box::as_ref)
    }

    fn iter_mut(&mut self) -> impl Iterator<Item = &mut Cursor> {
        self.places.iter_mut().flatten().map(Box::as_mut)
    }

    fn take_at(&mut self, place: usize) -> Option<Box<Cursor>> {
        let taken = self.places[place].take()?;
        assert!(self.count > 0, "a group counts its cursors");
        self.positions.remove(place);
        self.count -= 1;
        Some(taken)
    }

    fn drop_named(&mut self, name: &str) {
        for place in 0..self.places.len() {
            if self.places[place].as_ref().is_some_and(|cursor| *cursor.name == *name) {
                self.take_at(place);
            }
        }
    }

    /// Moves all cursors: they have processed and read everything up to `position`.
    fn all_to(&mut self, position: u64) {
        for (place, cursor) in self.places.iter_mut().enumerate() {
            let Some(cursor) = cursor else { continue };
            (cursor.position, cursor.read_to) = (position, position);
            self.positions.set(place, position);
        }
    }

    /// Takes out the cursors that have processed less than `kept`: all of them as one, if so. The
    /// others are only moved, with one allocation at most.
    fn take_below(&mut self, kept: u64) -> Group {
        if self.positions.lowest().is_none_or(|lowest| lowest >= kept) {
            return Group::default();
        }
        if self.positions.are_below(kept) {
            return std::mem::take(self);
        }
        let mut taken = Group { places: Vec::with_capacity(self.count), ..Group::default() };
        for place in 0..self.places.len() {
            if self.positions.get(place).is_some_and(|position| position < kept) {
                taken.places.push(self.take_at(place));
            }
        }
        taken.count = taken.places.len();
        assert!(taken.count > 0, "the lowest cursor was below the limit");
        assert!(self.count > 0, "one cursor was not below the limit");
        taken
    }

    /// Panics unless the positions agree with the cursors.
    fn check(&self, is_stream: bool) {
        for (place, cursor) in self.places.iter().enumerate() {
            let expected = cursor.as_ref().map(|cursor| cursor.position);
            assert_eq!(self.positions.get(place), expected, "position at place {place}");
        }
        assert!(self.iter().all(|cursor| cursor.is_stream() == is_stream), "one kind of cursor");
        assert_eq!(self.iter().count(), self.count, "number of cursors");
    }
}

/// All cursors of a queue: those of streams, and the others.
#[derive(Default)]
pub(super) struct Cursors {
    others: Group,
    streams: Group,
    numbers: u64,
}

impl Cursors {
    pub(super) fn add(&mut self, name: &str, at: u64, stream: Option<StreamSide>) -> CursorId {
        self.numbers += 1;
        let (number, is_stream) = (self.numbers, stream.is_some());
        let name = name.into();
        let cursor = Cursor { name, number, position: at, read_to: at, visits: 0, stream };
        let place = self.group(is_stream).add(cursor);
        let id = CursorId { place, number, is_stream };
        debug_assert!(self.get(id).is_some(), "a new cursor is found by its id");
        id
    }

    pub(super) fn get(&self, id: CursorId) -> Option<&Cursor> {
        let group = if id.is_stream { &self.streams } else { &self.others };
        let cursor = group.places.get(id.place)?.as_deref();
        cursor.filter(|cursor| cursor.number == id.number)
    }

    pub(super) fn get_mut(&mut self, id: CursorId) -> Option<&mut Cursor> {
        let cursor = self.group(id.is_stream).places.get_mut(id.place)?.as_deref_mut();
        cursor.filter(|cursor| cursor.number == id.number)
    }

    /// Moves a cursor: it has processed everything up to `position`.
    pub(super) fn process_to(&mut self, id: CursorId, position: u64) {
        let Some(cursor) = self.get_mut(id) else { return };
        assert!(cursor.position <= position, "a cursor goes forward");
        assert!(position <= cursor.read_to, "a cursor processes what it has read");
        cursor.position = position;
        self.group(id.is_stream).positions.set(id.place, position);
    }

    /// Moves all cursors: they have processed and read everything up to `position`.
    pub(super) fn all_to(&mut self, position: u64) {
        self.others.all_to(position);
        self.streams.all_to(position);
        debug_assert!(
            self.lowest().is_none_or(|lowest| lowest == position),
            "every cursor is at the position"
        );
    }

    /// Takes out the streams that have processed less than `kept`.
    pub(super) fn take_streams_below(&mut self, kept: u64) -> DetachedStreams {
        DetachedStreams(self.streams.take_below(kept))
    }

    /// Takes out every stream.
    pub(super) fn take_streams(&mut self) -> DetachedStreams {
        DetachedStreams(std::mem::take(&mut self.streams))
    }

    /// Drops those of a name.
    pub(super) fn drop_named(&mut self, name: &str) {
        self.others.drop_named(name);
        self.streams.drop_named(name);
        debug_assert!(self.iter().all(|cursor| *cursor.name != *name), "a name has no cursor");
    }

    /// Drops one, if it is still there.
    pub(super) fn drop_one(&mut self, id: CursorId) {
        if self.get(id).is_some() {
            self.group(id.is_stream).take_at(id.place);
            debug_assert!(self.get(id).is_none(), "a cursor is dropped once");
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Cursor> {
        self.others.iter().chain(self.streams.iter())
    }

    pub(super) fn streams_mut(&mut self) -> impl Iterator<Item = &mut Cursor> {
        self.streams.iter_mut()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.others.count + self.streams.count == 0
    }

    /// The lowest position; `None` without a cursor.
    pub(super) fn lowest(&self) -> Option<u64> {
        let (streams, others) = (self.streams.positions.lowest(), self.lowest_of_others());
        debug_assert_eq!(
            streams.is_none() && others.is_none(),
            self.is_empty(),
            "each cursor has a position"
        );
        [streams, others].into_iter().flatten().min()
    }

    /// The lowest position of the cursors that are no streams.
    pub(super) fn lowest_of_others(&self) -> Option<u64> {
        self.others.positions.lowest()
    }

    /// Panics unless the positions agree with the cursors.
    pub(super) fn check_positions(&self) {
        self.others.check(false);
        self.streams.check(true);
    }

    fn group(&mut self, is_stream: bool) -> &mut Group {
        if is_stream { &mut self.streams } else { &mut self.others }
    }
}
