//! A row as Kudu's C++ client holds it between `Apply` and the server's answer, rebuilt from the description of
//! its objects: an in-flight record, the write operation that the program made, the block with bitmaps and cells,
//! and the copy of each text; each of them allocated for itself, each known only through the one before.
//!
//! Unsafe invariant: 1. a prefetch instruction never faults, reads nothing that the program can observe, and is
//! allowed on any address.

use std::sync::Arc;

use super::{ROW_BYTES, TEXT_BYTES, row_of};

/// The record of a row that is under way: state, the key's place among the tablets, and the operation.
pub struct Operation {
    _state: [u64; 4],
    _partition_key: [u8; 64],
    write: Box<Write>,
}

/// The operation that the program made.
struct Write {
    _table: Arc<()>,
    _schema: usize,
    /// Bitmaps and cells.
    block: Box<[u8; ROW_BYTES]>,
    _text: Box<[u8; TEXT_BYTES]>,
}

impl Operation {
    /// An INSERT of a row of the load generator.
    pub fn insert(table: &Arc<()>, key: u64) -> Box<Operation> {
        let write = Box::new(Write {
            _table: table.clone(),
            _schema: 0,
            block: Box::new(row_of(key)),
            _text: Box::new([b'x'; TEXT_BYTES]),
        });
        Box::new(Operation { _state: [0; 4], _partition_key: [0; 64], write })
    }
}

/// Destroys operations one after the other.
pub fn destroy(batch: Vec<Option<Box<Operation>>>) {
    batch.into_iter().for_each(drop);
}

/// The same, with each of the three dependent loads of the next operations started ahead of its use: the record
/// three steps ahead, the operation two, the block one.
pub fn destroy_prefetching(mut batch: Vec<Option<Box<Operation>>>) {
    // Apart from the loop, so that the loop needs no comparisons with the end.
    let whole = batch.len().saturating_sub(3);
    for index in 0..whole {
        if let Some(operation) = &batch[index + 3] {
            prefetch(&raw const **operation);
        }
        if let Some(operation) = &batch[index + 2] {
            prefetch(&raw const *operation.write);
        }
        if let Some(operation) = &batch[index + 1] {
            prefetch(&raw const *operation.write.block);
        }
        batch[index] = None;
    }
}

#[inline]
fn prefetch<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: invariant 1.
        unsafe { _mm_prefetch(address.cast::<i8>(), _MM_HINT_T0) };
    }
    // Elsewhere there is no such instruction in stable Rust, and the two ways are the same.
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
