//! A backend's medium: its bytes, on which a store can be opened repeatedly.

use crate::{KvStore, StoreError};

/// Where a store keeps its bytes: a directory, a block of memory, a cluster. It outlives the store
/// object, so opening it twice in a row is a restart.
pub trait Medium {
    /// Opens a store on the bytes as they are. At most one store is open at a time.
    fn open(&self) -> Result<Box<dyn KvStore>, StoreError>;
}
