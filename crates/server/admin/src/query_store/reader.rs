//! The collection that a statement reads: what look-ups and scans share.
//!
//! Invariant: documents of a collection that was dropped are never returned; reading it ends with
//! an error.

use std::sync::Arc;

use anyhow::{Result, bail};
use oribi_types::CollectionId;

use crate::statement_control::StatementControl;
use oribi_server::buckets::BucketHandle;

/// See the module text.
pub(super) struct KeyspaceReader {
    pub handle: Arc<BucketHandle>,
    /// The keyspace's full name.
    pub path: String,
    pub collection: CollectionId,
    pub control: Arc<StatementControl>,
}

impl KeyspaceReader {
    /// The error for a vbucket of another node.
    pub fn not_here(&self) -> anyhow::Error {
        self.control.unavailable(format!(
            "this node does not serve all vbuckets of {:?}; `oribi query` and SDKs can ask the \
             node that does",
            self.handle.name()
        ))
    }

    /// Checks that the collection can be read, and that this node serves all of it.
    ///
    /// # Errors
    /// When it was dropped, the bucket was deleted, or vbuckets are served by other nodes.
    pub fn check_served(&self) -> Result<()> {
        self.check_exists()?;
        let mut vbuckets = self.handle.bucket().vbuckets().iter();
        match vbuckets.all(oribi_engine::VBucket::is_serving) {
            true => Ok(()),
            false => Err(self.not_here()),
        }
    }

    /// Checks that the collection can be read.
    ///
    /// # Errors
    /// When it was dropped, or the bucket was deleted.
    pub fn check_exists(&self) -> Result<()> {
        if self.handle.is_deleted() {
            return Err(self.control.unavailable(format!(
                "the bucket {:?} was deleted while the statement read it",
                self.handle.name()
            )));
        }
        if !self.handle.bucket().manifest().contains(self.collection) {
            bail!("the collection of {:?} was dropped while the statement read it", self.path);
        }
        Ok(())
    }
}
