//! The reservation of a large value: given back when the value's last reader drops it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

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
        let held = self.held_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        debug_assert!(held >= self.bytes, "a reservation is given back once");
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
