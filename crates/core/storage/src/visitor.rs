//! Arguments of reads: visitors of records, and the reservation of memory for large ones.

use std::ops::ControlFlow;

use crate::Record;

/// Receives records in scan order; `Break` ends the scan early without error.
pub type RecordVisitor<'v> = dyn FnMut(Record<'_>) -> ControlFlow<()> + 'v;

/// Reserves so many bytes before a store reads a record of more than [`LARGE_RECORD_BYTES`]. It may
/// wait; the store holds no other such record until then. `Break` means that the reservation
/// failed: it ends a scan as a visitor does.
pub type ReserveMemory<'v> = dyn FnMut(usize) -> ControlFlow<()> + 'v;

/// Records up to this size, as stored, are read without a reservation.
pub const LARGE_RECORD_BYTES: usize = 256 << 10;

/// A [`ReserveMemory`] for callers that bound the memory of their reads in another way.
pub fn unlimited(_bytes: usize) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// Reserves memory for a record that the store has in memory already.
pub fn reserve_for(record: &Record<'_>, reserve: &mut ReserveMemory<'_>) -> ControlFlow<()> {
    match record.value.len() {
        bytes if bytes > LARGE_RECORD_BYTES => reserve(bytes),
        _ => ControlFlow::Continue(()),
    }
}
