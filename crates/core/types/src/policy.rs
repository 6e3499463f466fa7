//! Policies of a bucket: eviction, compression, conflict resolution.
//!
//! Owns: the choices. The engine acts on them, `oribi-config` names them in settings.

/// Where a bucket keeps its documents.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Storage {
    /// In memory and in the store: flushed documents survive a restart.
    #[default]
    Persistent,
    /// In memory only, like memcached: a restart begins empty. The store holds the collections.
    Memory,
}

/// The parts of documents that the item pager evicts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum EvictionPolicy {
    /// Values of persisted documents. Keys and metadata stay, so a miss never reads the store.
    #[default]
    Value,
    /// Persisted documents whole. Memory need not hold every key, and a miss may read the store.
    Full,
    /// Nothing: writes are refused at the quota.
    None,
    /// Documents of a bucket in memory only are deleted, those not recently used first.
    Nru,
}

impl EvictionPolicy {
    /// The policy of a bucket whose configuration names none.
    pub fn for_storage(storage: Storage) -> EvictionPolicy {
        match storage {
            Storage::Persistent => EvictionPolicy::Value,
            Storage::Memory => EvictionPolicy::None,
        }
    }

    /// Every policy, by its number.
    pub const ALL: [EvictionPolicy; 4] =
        [EvictionPolicy::Value, EvictionPolicy::Full, EvictionPolicy::None, EvictionPolicy::Nru];

    /// True when a bucket of this storage can be run like this.
    pub fn fits(self, storage: Storage) -> bool {
        match storage {
            Storage::Persistent => self != EvictionPolicy::Nru,
            Storage::Memory => matches!(self, EvictionPolicy::None | EvictionPolicy::Nru),
        }
    }
}

/// A bucket's policy for compression.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum CompressionMode {
    /// Compressed values are inflated when they are stored.
    Off,
    /// Values are stored as they came.
    #[default]
    Passive,
    /// Values that came uncompressed are compressed when that saves enough.
    Active,
}

/// How a bucket treats cold values before it evicts them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum MemoryTier {
    /// They are evicted.
    #[default]
    Off,
    /// They are compressed with a dictionary of their collection and stay in memory; eviction
    /// begins when everything cold is dense.
    Dense,
}

/// Which of two versions of a document wins when they were written in different places.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ConflictResolution {
    /// The one that was changed more often.
    #[default]
    Seqno,
    /// The one that was written last, by the clocks in CAS values.
    LastWriteWins,
}
