//! The seam to the memory of the process.

/// Memory for the kept values of a statement or an index.
pub trait MemoryBudget {
    /// Whether the owner may keep that many bytes more.
    fn reserve(&self, bytes: usize) -> bool;

    fn release(&self, bytes: usize);
}
