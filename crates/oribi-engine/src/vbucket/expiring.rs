//! What the expiry pager does to a vbucket: one slice of its table.
//!
//! Owns: finding what has expired under the table's lock, and deleting it after, each document only if it is still
//! the version that was found. Called by the expiry pager.

use super::VBucket;
use super::operations::Context;
use crate::item::ItemRef;

/// What a slice found, and how much of that it deleted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExpirySlice {
    pub(crate) found: usize,
    pub(crate) expired: usize,
}

impl VBucket {
    /// Deletes the expired documents in `count` groups from `first` on.
    pub(crate) fn expire_groups(
        &self,
        context: &Context<'_>,
        first: usize,
        count: usize,
    ) -> ExpirySlice {
        let now_s = context.now.unix_s();
        let mut expired: Vec<ItemRef> = Vec::new();
        {
            let table = self.table.lock();
            let end = first.saturating_add(count).min(table.index.group_count());
            for group in first..end {
                table.index.visit_group(group, |item| {
                    if item.is_expired(now_s) {
                        expired.push(item.clone());
                    }
                });
            }
        }
        let is_gone = |item: &&ItemRef| self.expire(context, self.seed.hash(item.key()), item);
        ExpirySlice { found: expired.len(), expired: expired.iter().filter(is_gone).count() }
    }
}
