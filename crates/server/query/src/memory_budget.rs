//! The seam to the memory of the process.

/// Memory for what a statement or an index keeps.
pub trait MemoryBudget {
    /// Whether the owner may keep that many bytes more.
    fn reserve(&self, bytes: usize) -> bool;

    fn release(&self, bytes: usize);
}
