//! The memory of large values that a statement makes.
//!
//! A value holds its reservation and gives it back when its last reader drops it. Small values
//! hold none: `runtime::memory` decides which do.

use std::sync::Arc;

use bytes::Bytes;

use super::reservation::ValueReservation;
use super::{Object, QueryValue, Text};

impl QueryValue {
    /// The bytes that an operation on this value walks, roughly.
    #[inline]
    pub fn walked_bytes(&self) -> usize {
        const PART_BYTES: usize = 64;
        match self {
            QueryValue::Str(text) => text.as_bytes().len(),
            QueryValue::Json(json) => json.len(),
            QueryValue::Array(items) => items.len() * PART_BYTES,
            QueryValue::Object(object) => object.len() * PART_BYTES,
            _ => 0,
        }
    }

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
