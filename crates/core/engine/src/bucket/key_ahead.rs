//! A key that is announced before its operation.
//!
//! Owns: the hash that the announcement has computed, which the operation reuses, and the
//! prefetches into the processor's cache until then. Called by the dispatcher, which announces the
//! keys of a turn's requests before it serves the first.

use oribi_types::{DocKey, Vbid};

use super::Bucket;
use crate::grace_period::ReadSection;
use crate::hash_table::KeyHash;
use crate::prefetch::{load_line, load_lines};

/// A key that an operation will need soon, and its hash in that bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyAhead {
    vbid: Vbid,
    hash: KeyHash,
}

impl KeyAhead {
    #[inline]
    pub fn vbid(&self) -> Vbid {
        self.vbid
    }

    #[inline]
    pub fn hash(&self) -> KeyHash {
        self.hash
    }
}

impl Bucket {
    /// Hashes a key and starts loading where the table would have it; `None` outside the vbucket
    /// map.
    #[inline]
    pub fn announce(&self, vbid: Vbid, key: DocKey<'_>) -> Option<KeyAhead> {
        let vbucket = self.vbucket(vbid)?;
        let hash = vbucket.hash_of(key);
        load_line(vbucket.group_hint(hash));
        Some(KeyAhead { vbid, hash })
    }

    /// [`Bucket::locate`] for a write. For a key that is not in memory, the store loads where it
    /// would have it. No line is loaded to be written this early: until the write is served, other
    /// cores may need the lines again, which then move twice more.
    #[inline]
    pub fn locate_to_write(
        &self,
        section: &ReadSection,
        ahead: &KeyAhead,
        key: Option<DocKey<'_>>,
        bytes: usize,
    ) {
        let Some(vbucket) = self.vbucket(ahead.vbid) else { return };
        debug_assert!(key.is_none_or(|key| vbucket.hash_of(key) == ahead.hash), "another key");
        let Some(item) = vbucket.candidate_address(section, ahead.hash) else {
            if let Some(key) = key.filter(|_| vbucket.is_absence_uncertain()) {
                self.core.store().look_ahead(ahead.vbid, key);
            }
            return;
        };
        load_lines(item, bytes);
    }

    /// Starts loading the first `bytes` of the item that an announced key most likely has. A
    /// processor core has about a dozen lines in flight, so a line that no request needs costs as
    /// much as a missing one.
    #[inline]
    pub fn locate(&self, section: &ReadSection, ahead: &KeyAhead, bytes: usize) {
        let Some(vbucket) = self.vbucket(ahead.vbid) else { return };
        debug_assert_eq!(vbucket.id(), ahead.vbid, "a key was announced in its vbucket");
        let Some(item) = vbucket.candidate_address(section, ahead.hash) else { return };
        load_lines(item, bytes);
    }
}
