//! A key that is announced before its operation.
//!
//! Owns: the hash that the announcement has computed. The operation takes it along.

use oribi_types::Vbid;

use crate::hash_table::KeyHash;

/// A key that an operation will need soon, and its hash in that bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyAhead {
    pub(super) vbid: Vbid,
    pub(super) hash: KeyHash,
}
