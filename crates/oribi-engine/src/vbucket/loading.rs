//! What warmup does to a vbucket.
//!
//! Owns: how stored records enter the table, and the end of loading. Callers: warmup.

use std::sync::atomic::Ordering;

use oribi_storage::{Record, VbucketPhase};

use super::{LOADING, VBucket};
use crate::item::{ItemFields, NewItem};

impl VBucket {
    /// Puts a stored document into the table. Only while loading, when nobody else writes.
    pub(crate) fn load(&self, record: &Record<'_>) {
        let fields = ItemFields {
            flags: record.flags,
            expiry: record.expiry,
            datatype: record.datatype,
            ..ItemFields::default()
        };
        let mut new = NewItem::new(record.key, fields, &[record.value]);
        new.set_version(record.cas, record.seqno, record.rev_seqno);
        let hash = self.seed.hash(record.key);
        let retired = {
            let mut table = self.table.lock();
            table.load(hash, new.publish());
            table.index.show_to(&self.groups);
            table.index.take_retired()
        };
        drop(retired);
    }

    /// Takes note of a stored tombstone, which stays in the store. Only while loading.
    pub(crate) fn load_tombstone(&self, record: &Record<'_>) {
        self.table.lock().load_tombstone(record);
    }

    /// Ends loading: from here on the vbucket serves.
    pub(crate) fn finish_loading(&self) {
        self.phase.store(VbucketPhase::Active as u8, Ordering::Release);
    }

    pub(crate) fn is_loading(&self) -> bool {
        self.phase.load(Ordering::Acquire) == LOADING
    }
}
