//! The collection that a statement reads: what look-ups and scans share.
//!
//! Invariant: documents of a collection that was dropped are never returned; reading it ends with
//! an error.

use std::sync::Arc;

use anyhow::{Result, bail};
use oribi_engine::OperationRejection;
use oribi_types::{CollectionId, Vbid};

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
        (0..self.handle.vbuckets()).map(Vbid).try_for_each(|vbid| self.check_vbucket(vbid))
    }

    /// Checks that the documents of a vbucket can be read here.
    ///
    /// # Errors
    /// When another node serves it, or it commits what it inherited.
    pub fn check_vbucket(&self, vbid: Vbid) -> Result<()> {
        match self.handle.bucket().scannable_vbucket(vbid) {
            Ok(_) => Ok(()),
            Err(OperationRejection::Recommitting) => Err(self.control.unavailable(format!(
                "a copy of {:?} was promoted, and commits durable writes of the one before; try \
                 again",
                self.handle.name()
            ))),
            Err(_) => Err(self.not_here()),
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
