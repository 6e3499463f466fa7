//! What look-ups and scans of a table share.
//!
//! Owns: which collections a table shows, and the user's rights in them. Invariant: a collection
//! that was dropped is never shown; a table of which nothing is left ends with an error.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::{Result, bail};
use oribi_auth::PrivilegeSet;
use oribi_types::CollectionId;

use super::control::StatementControl;
use oribi_server::admin_api::rights::Rights;
use oribi_server::buckets::BucketHandle;

/// See the module text.
pub(super) struct DocumentReader {
    pub handle: Arc<BucketHandle>,
    name: String,
    collections: Vec<CollectionId>,
    pub control: Arc<StatementControl>,
}

impl DocumentReader {
    /// What reads these collections of a bucket.
    pub fn new(
        handle: Arc<BucketHandle>,
        name: String,
        mut collections: Vec<CollectionId>,
        control: Arc<StatementControl>,
    ) -> DocumentReader {
        collections.sort_unstable();
        DocumentReader { handle, name, collections, control }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// The error for a vbucket of another node.
    pub fn not_here(&self) -> anyhow::Error {
        self.control.unavailable(format!(
            "this node does not serve all vbuckets of {:?}; `oribi sql` reads from all nodes",
            self.handle.name()
        ))
    }

    /// A collection in which the user lacks a privilege.
    pub fn lacking(&self, needed: PrivilegeSet) -> Option<CollectionId> {
        let mut rights = Rights::of(self.control.identity(), self.handle.name());
        let manifest = self.handle.bucket().manifest();
        let mut has = |id: &CollectionId| rights.within(*id, Arc::clone(&manifest)).holds(needed);
        self.collections.iter().copied().find(|id| !has(id))
    }

    /// The table's collections that exist, of those that the statement wants.
    ///
    /// # Errors
    /// When none of the table's exists any more, or the bucket is gone.
    pub fn existing(&self, wanted: Option<&BTreeSet<CollectionId>>) -> Result<Vec<CollectionId>> {
        if self.handle.is_deleted() {
            return Err(self.control.unavailable(format!(
                "the bucket {:?} was deleted while the statement read it",
                self.handle.name()
            )));
        }
        let manifest = self.handle.bucket().manifest();
        let existing = self.collections.iter().filter(|id| manifest.contains(**id));
        let existing = existing.copied().collect::<Vec<_>>();
        if existing.is_empty() {
            bail!("the collection of {:?} was dropped while the statement read it", self.name);
        }
        let is_wanted = |id: &CollectionId| wanted.is_none_or(|wanted| wanted.contains(id));
        Ok(existing.into_iter().filter(is_wanted).collect())
    }
}
