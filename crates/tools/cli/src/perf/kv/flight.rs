//! The operations of one batch in flight on one connection.
//!
//! The opaque of a request identifies its operation: the position in the batch in the low half, the
//! number of the batch in the high half. Answers may therefore come in any order, and a duplicate
//! or stale answer is recognised. Batches reuse the memory.

use super::operation::KvOperation;

/// Most operations in one batch: positions are the low half of an opaque.
pub const BATCH_OPERATIONS_MAX: usize = 1 << 16;

/// See the module text.
#[derive(Debug, Default)]
pub struct Flight {
    slots: Vec<Option<KvOperation>>,
    open: usize,
    batch: u16,
}

impl Flight {
    /// Adds an operation; returns the opaque for its request. There may be
    /// [`BATCH_OPERATIONS_MAX`].
    pub fn add(&mut self, operation: KvOperation) -> u32 {
        let position = self.slots.len();
        assert!(position < BATCH_OPERATIONS_MAX, "the size of a batch is limited");
        self.slots.push(Some(operation));
        self.open += 1;
        u32::from(self.batch) << 16 | position as u32
    }

    /// The operation that an answer belongs to, once.
    pub fn take(&mut self, opaque: u32) -> Option<KvOperation> {
        if (opaque >> 16) as u16 != self.batch {
            return None;
        }
        let operation = self.slots.get_mut((opaque & 0xffff) as usize)?.take()?;
        self.open -= 1;
        Some(operation)
    }

    /// Operations without an answer.
    pub fn open(&self) -> usize {
        self.open
    }

    /// Begins the next batch; forgets operations without an answer and returns how many there were.
    pub fn begin(&mut self) -> usize {
        self.slots.clear();
        self.batch = self.batch.wrapping_add(1);
        std::mem::take(&mut self.open)
    }
}

#[cfg(test)]
mod tests {
    //! Each answer belongs to one operation, or to none.

    use super::*;
    use crate::perf::kv::operation::OperationKind;

    fn operation(index: u64) -> KvOperation {
        let kind = OperationKind::Get;
        KvOperation {
            index,
            due_ns: 0,
            value_bytes: 0,
            version: 0,
            collection: 0,
            attempts: 0,
            kind,
        }
    }

    #[test]
    fn answers_in_any_order_find_their_operation_once() {
        let mut flight = Flight::default();
        let opaques: Vec<u32> = (0..10).map(|index| flight.add(operation(index))).collect();
        for index in [3usize, 0, 9] {
            assert_eq!(flight.take(opaques[index]).unwrap().index, index as u64);
            assert_eq!(flight.take(opaques[index]), None);
        }
        assert_eq!(flight.open(), 7);
        assert_eq!(flight.take(10), None);
        assert_eq!(flight.begin(), 7);
        flight.add(operation(77));
        assert_eq!(flight.take(opaques[0]), None, "an answer to the batch before");
        assert_eq!(flight.open(), 1);
    }

    /// An operation is kept for each of tens of thousands in flight.
    #[test]
    fn an_operation_in_flight_is_small() {
        assert!(size_of::<Option<KvOperation>>() <= 32);
    }
}
