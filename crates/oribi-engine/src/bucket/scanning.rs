//! Scans of persisted versions, past the documents in memory.
//!
//! Called by threads of their own, above all those of range scans. Invariant: a scan holds no lock
//! of the engine, so the visitor may take its time.

use oribi_storage::{RecordVisitor, StoreError};
use oribi_types::{DocKey, Seqno, Vbid};

use super::Bucket;

impl Bucket {
    /// Visits the persisted versions of one collection from a key on, tombstones included, in key
    /// order. It sees them as they are now, however long it takes.
    ///
    /// # Errors
    /// The store's.
    pub fn scan_persisted(
        &self,
        vbid: Vbid,
        from: DocKey<'_>,
        visit: &mut RecordVisitor<'_>,
    ) -> Result<(), StoreError> {
        self.core.store().scan_keys_from(vbid, from, visit)
    }

    /// Visits the persisted versions with these seqnos, tombstones included, in seqno order.
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
        self.core.store().scan_seqnos(vbid, from, to, visit)
    }
}
