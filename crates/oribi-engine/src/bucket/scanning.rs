//! Reading what is persisted, past the documents in memory.
//!
//! Called by whoever scans on a thread of its own, range scans above all. Invariant: no lock of the engine is held, so
//! the visitor may take its time.

use oribi_storage::{RecordVisitor, StoreError};
use oribi_types::{DocKey, Seqno, Vbid};

use super::Bucket;

impl Bucket {
    /// Visits the persisted versions of one collection's documents from a key on, tombstones included, in the order of
    /// keys and as they are now, however long it takes.
    ///
    /// # Errors
    /// The store's.
    pub fn scan_persisted(
        &self,
        vbid: Vbid,
        from: DocKey<'_>,
        visit: &mut RecordVisitor<'_>,
    ) -> Result<(), StoreError> {
        self.store.scan_keys_from(vbid, from, visit)
    }

    /// Visits the persisted versions with these seqnos, tombstones included, in the order of seqnos.
    ///
    /// # Errors
    /// The store's.
    pub fn scan_persisted_seqnos(
        &self,
        vbid: Vbid,
        from: Seqno,
        to: Seqno,
        visit: &mut RecordVisitor<'_>,
    ) -> Result<(), StoreError> {
        self.store.scan_seqnos(vbid, from, to, visit)
    }
}
