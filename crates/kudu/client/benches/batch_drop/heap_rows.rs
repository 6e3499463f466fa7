//! Rows as a client holds them that makes objects of them, laid out as Kudu's C++ client does.
//!
//! For each row: an operation in flight, that points to a write operation, that points to the row's
//! image with its bitmaps, that points to the copy of its string; and a reference to the table,
//! counted by all. The batch owns them through a hash set of pointers, which is walked in an order
//! that has nothing to do with where they are. The walk is done plainly, and with each level
//! prefetched a step ahead of the one that needs it. Invariant: both free the same objects in the
//! same order.

use std::sync::Arc;

/// Bytes of the string of a row, as in `perf loadgen`.
const STRING: &[u8; 32] = b"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx";

/// What stands for the table that every row refers to.
struct Table;

/// The image of a row.
struct RowImage {
    /// Which cells are set, and which of them own memory.
    _is_set: u8,
    _is_owned: u8,
    _key: i64,
    _int_val: i32,
    _string_val: Box<[u8]>,
}

/// What the application made.
struct WriteOperation {
    _table: Arc<Table>,
    _kind: u32,
    row: Box<RowImage>,
}

/// What the session made of it.
struct InFlightOperation {
    _state: u32,
    _tablet: usize,
    operation: Box<WriteOperation>,
}

/// A batch, in the order in which it is walked when it is done.
#[expect(clippy::vec_box, reason = "each row is an object of its own, that is the point")]
pub(crate) struct Batch {
    operations: Vec<Box<InFlightOperation>>,
}

/// Makes a batch: the objects one row after the other, the order of the walk shuffled.
pub(crate) fn batch(rows: usize) -> Batch {
    let table = Arc::new(Table);
    let mut operations: Vec<Box<InFlightOperation>> = (0..rows)
        .map(|number| {
            let row = RowImage {
                _is_set: 7,
                _is_owned: 4,
                _key: number as i64,
                _int_val: number as i32,
                _string_val: Box::from(&STRING[..]),
            };
            let operation = WriteOperation { _table: table.clone(), _kind: 1, row: Box::new(row) };
            Box::new(InFlightOperation {
                _state: 1,
                _tablet: number % 8,
                operation: Box::new(operation),
            })
        })
        .collect();
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    for last in (1..operations.len()).rev() {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        operations.swap(last, (random % (last as u64 + 1)) as usize);
    }
    Batch { operations }
}

impl Batch {
    /// One row after the other.
    pub(crate) fn drop_plainly(self) {
        drop(self.operations);
    }

    /// The same, with the object of each level fetched one step before the next level is read from
    /// it.
    pub(crate) fn drop_prefetched(self) {
        let mut operations: std::collections::VecDeque<_> = self.operations.into();
        loop {
            if let Some(third) = operations.get(3) {
                prefetch(&raw const **third);
            }
            if let Some(second) = operations.get(2) {
                prefetch(&raw const *second.operation);
            }
            if let Some(first) = operations.get(1) {
                prefetch(&raw const *first.operation.row);
            }
            if operations.pop_front().is_none() {
                return;
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn prefetch<T>(address: *const T) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a prefetch is a hint; it neither reads nor faults, whatever the address.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
}

/// Elsewhere the two ways are the same.
#[cfg(not(target_arch = "x86_64"))]
fn prefetch<T>(_address: *const T) {}
