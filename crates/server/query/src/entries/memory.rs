//! The memory of one index: counted exactly, reserved in steps.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::memory_budget::MemoryBudget;

/// Bytes reserved at a time.
const STEP_BYTES: usize = 64 << 10;

pub struct EntryMemory {
    budget: Arc<dyn MemoryBudget + Send + Sync>,
    used: AtomicUsize,
    /// What the budget has granted.
    reserved: Mutex<usize>,
}

impl EntryMemory {
    pub fn new(budget: Arc<dyn MemoryBudget + Send + Sync>) -> Arc<EntryMemory> {
        Arc::new(EntryMemory { budget, used: AtomicUsize::new(0), reserved: Mutex::new(0) })
    }

    /// The budget of all memory of the index.
    pub fn budget(&self) -> &dyn MemoryBudget {
        &*self.budget
    }

    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Counts bytes, unless the budget refuses them.
    pub fn reserve(&self, bytes: usize) -> bool {
        let mut reserved = self.reserved.lock();
        let used = self.used() + bytes;
        if used > *reserved {
            let step = (used - *reserved).next_multiple_of(STEP_BYTES);
            if !self.budget.reserve(step) {
                return false;
            }
            *reserved += step;
        }
        assert!(used <= *reserved, "used bytes are reserved");
        self.used.store(used, Ordering::Relaxed);
        true
    }

    pub fn release(&self, bytes: usize) {
        if bytes == 0 {
            return;
        }
        let mut reserved = self.reserved.lock();
        debug_assert!(bytes <= self.used(), "memory is given back once");
        let used = self.used().saturating_sub(bytes);
        self.used.store(used, Ordering::Relaxed);
        // Two steps stay, so that a block that comes and goes asks the budget for nothing.
        let spare = reserved.saturating_sub(used + 2 * STEP_BYTES) / STEP_BYTES * STEP_BYTES;
        if spare > 0 {
            *reserved -= spare;
            assert!(used <= *reserved, "used bytes are reserved");
            self.budget.release(spare);
        }
    }
}

impl Drop for EntryMemory {
    fn drop(&mut self) {
        self.budget.release(*self.reserved.get_mut());
    }
}
