//! What leaves memory when a bucket runs short of it.
//!
//! Owns: the choice, which is part of a bucket's configuration. Who leaves is the item pager's business,
//! how it comes back that of the background fetch; `docs/memory.md` says why there are four.

use crate::bucket::Storage;

/// What the item pager takes out of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum EvictionPolicy {
    /// Values of persisted documents. Keys and metadata stay, so a miss never asks the store.
    #[default]
    Value,
    /// Persisted documents whole. Memory need not hold every key, and a miss may ask the store.
    Full,
    /// Nothing: writes are refused at the quota.
    None,
    /// Documents of a bucket in memory only are deleted, those not recently used first.
    Nru,
}

impl EvictionPolicy {
    /// What a bucket does that was told nothing else.
    pub fn for_storage(storage: Storage) -> EvictionPolicy {
        match storage {
            Storage::Persistent => EvictionPolicy::Value,
            Storage::Memory => EvictionPolicy::None,
        }
    }

    /// True when a bucket of this storage can be run like this.
    pub fn fits(self, storage: Storage) -> bool {
        match storage {
            Storage::Persistent => self != EvictionPolicy::Nru,
            Storage::Memory => matches!(self, EvictionPolicy::None | EvictionPolicy::Nru),
        }
    }
}
