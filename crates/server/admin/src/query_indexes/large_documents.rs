//! Memory for large documents while the feed evaluates them.

use std::any::Any;
use std::sync::Arc;

use oribi_server::admin_api::memory::ConnectionMemory;

/// The memory for documents that are too large to be evaluated uncounted. Tests have their own.
pub(super) trait LargeDocuments: Send + Sync {
    /// Memory until the result is dropped; none if it is in use.
    fn reserve(&self, bytes: usize) -> Option<Box<dyn Any>>;
}

impl LargeDocuments for Arc<ConnectionMemory> {
    fn reserve(&self, bytes: usize) -> Option<Box<dyn Any>> {
        let bytes = bytes.min(self.reservable_bytes());
        self.hold(bytes).map(|held| Box::new(held) as Box<dyn Any>)
    }
}
