//! Hashes of keys.
//!
//! Owns: the hash function and its seed. An operation hashes its key once, before it takes a lock;
//! the table rehashes only the items that it moves.

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::FixedState;
use oribi_types::DocKey;

/// Hash of a key, computed once per operation, before any lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyHash(pub(crate) u64);

/// Seed of the key hash, chosen at random per bucket so that clients cannot aim at one group.
#[derive(Clone, Debug)]
pub struct HashSeed(FixedState);

impl HashSeed {
    /// A seed from 64 random bits.
    pub fn new(random: u64) -> HashSeed {
        HashSeed(FixedState::with_seed(random))
    }

    /// Hashes collection and key.
    #[inline]
    pub fn hash(&self, key: DocKey<'_>) -> KeyHash {
        let mut hasher = self.0.build_hasher();
        hasher.write_u32(key.collection.0);
        hasher.write(key.key);
        KeyHash(hasher.finish())
    }
}
