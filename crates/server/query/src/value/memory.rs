//! The memory of large values that a statement makes.
//!
//! A value holds its reservation and gives it back when its last reader drops it. Small values
//! hold none: `runtime::memory` decides which do.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

use super::{Object, QueryValue, Text};

/// Bytes of a statement's budget that one value holds.
#[derive(Debug)]
pub struct ValueReservation {
    held_bytes: Arc<AtomicUsize>,
    bytes: usize,
}

impl ValueReservation {
    /// Takes `bytes` that the budget has granted.
    pub fn new(held_bytes: &Arc<AtomicUsize>, bytes: usize) -> ValueReservation {
        held_bytes.fetch_add(bytes, Ordering::Relaxed);
        ValueReservation { held_bytes: Arc::clone(held_bytes), bytes }
    }
}

impl Drop for ValueReservation {
    fn drop(&mut self) {
        self.held_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The reservations of a value. A copy of the value has none of them.
#[derive(Debug, Default)]
pub struct HeldMemory(Vec<ValueReservation>);

impl HeldMemory {
    pub fn push(&mut self, reservation: ValueReservation) {
        self.0.push(reservation);
    }

    pub fn into_iter(self) -> impl Iterator<Item = ValueReservation> {
        self.0.into_iter()
    }
}

impl Clone for HeldMemory {
    fn clone(&self) -> HeldMemory {
        HeldMemory::default()
    }
}

/// The elements of an array that a statement built.
#[derive(Clone, Debug, Default)]
pub struct ArrayItems {
    items: Vec<QueryValue>,
    memory: HeldMemory,
}

impl ArrayItems {
    pub fn new(items: Vec<QueryValue>, memory: HeldMemory) -> ArrayItems {
        ArrayItems { items, memory }
    }
}

impl Deref for ArrayItems {
    type Target = Vec<QueryValue>;

    fn deref(&self) -> &Vec<QueryValue> {
        &self.items
    }
}

impl DerefMut for ArrayItems {
    fn deref_mut(&mut self) -> &mut Vec<QueryValue> {
        &mut self.items
    }
}

/// A text with its reservation.
struct HeldText {
    bytes: Bytes,
    _reservation: ValueReservation,
}

impl AsRef<[u8]> for HeldText {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl QueryValue {
    /// The bytes that only this value has: those that a function has just allocated.
    pub fn own_bytes(&self) -> usize {
        let fields = |object: &Object| {
            let fields = object.fields().iter();
            fields.map(|(name, value)| text_bytes(name) + value.own_bytes()).sum::<usize>()
        };
        let inner = match self {
            QueryValue::Str(text) => text_bytes(text),
            QueryValue::Json(json) => json.own_bytes(),
            QueryValue::Binary(bytes) if bytes.is_unique() => bytes.len(),
            QueryValue::Array(items) if Arc::strong_count(items) == 1 => {
                items.iter().map(QueryValue::own_bytes).sum()
            }
            QueryValue::Object(object) if Arc::strong_count(object) == 1 => fields(object),
            _ => 0,
        };
        size_of::<QueryValue>() + inner
    }

    /// The value with a reservation, which it keeps unless it shares its memory with another.
    pub fn holding(self, reservation: ValueReservation) -> QueryValue {
        match self {
            QueryValue::Str(text) => {
                QueryValue::Str(Text::from_bytes(held(text.into_bytes(), reservation)))
            }
            QueryValue::Binary(bytes) => QueryValue::Binary(held(bytes, reservation)),
            QueryValue::Json(json) => QueryValue::Json(json.map(|bytes| held(bytes, reservation))),
            QueryValue::Array(mut items) => {
                if let Some(items) = Arc::get_mut(&mut items) {
                    items.memory.push(reservation);
                }
                QueryValue::Array(items)
            }
            QueryValue::Object(mut object) => {
                if let Some(object) = Arc::get_mut(&mut object) {
                    object.hold(reservation);
                }
                QueryValue::Object(object)
            }
            other => other,
        }
    }
}

fn held(bytes: Bytes, reservation: ValueReservation) -> Bytes {
    if !bytes.is_unique() {
        return bytes;
    }
    Bytes::from_owner(HeldText { bytes, _reservation: reservation })
}

/// The bytes of a text that shares its memory with no other, and its owner.
fn text_bytes(text: &Text) -> usize {
    const OWNER_BYTES: usize = 32;
    if text.is_unique() { text.as_bytes().len() + OWNER_BYTES } else { 0 }
}
