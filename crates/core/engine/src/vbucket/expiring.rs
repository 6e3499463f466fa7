//! The expiry pager's work on a vbucket: one slice of its table.
//!
//! Owns: finding expired documents under the table's lock, and deleting each after it, if it is
//! still the version that was found. Called by the expiry pager.

use super::VBucket;
use super::context::Context;
use crate::hash_table::ScanCursor;
use crate::item::ItemRef;

/// How many expired documents a slice found, and how many of these it deleted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExpirySlice {
    pub(crate) found: usize,
    pub(crate) expired: usize,
    /// The scan is complete.
    pub(crate) is_last: bool,
}

impl VBucket {
    /// Deletes the expired documents in the next `groups` groups after the cursor.
    pub(crate) fn expire_slice(
        &self,
        context: &Context<'_>,
        cursor: &mut ScanCursor,
        groups: usize,
    ) -> ExpirySlice {
        if self.is_replica() {
            // Its active expires documents.
            return ExpirySlice { found: 0, expired: 0, is_last: true };
        }
        let now_s = context.now.unix_s();
        let (expired, is_last) =
            self.table.lock().pick(cursor, groups, |item| item.is_expired(now_s));
        let is_gone =
            |item: &&ItemRef| self.expire(context, self.table.seed().hash(item.key()), item);
        let found = expired.len();
        let deleted = expired.iter().filter(is_gone).count();
        debug_assert!(deleted <= found, "a slice deletes what it has found");
        ExpirySlice { found, expired: deleted, is_last }
    }
}
