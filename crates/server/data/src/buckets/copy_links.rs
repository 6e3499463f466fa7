//! The interface by which a bucket makes its copies follow other nodes.
//!
//! Owns: where the active copy is, as plain data, and what links to other nodes offer. The links
//! themselves are in `replication`.

use std::sync::Arc;

use oribi_cluster::buckets::SharedBucket;
use oribi_types::{CopiesEpoch, CopyId, Vbid};

/// The node that has the active copy, and the epoch in which it has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaSource {
    /// Its name in the cluster.
    pub node: String,
    pub host: String,
    /// Port for key-value clients.
    pub port: u16,
    /// The stream is refused unless the active copy is that of this epoch.
    pub epoch: CopiesEpoch,
    /// The copy that follows.
    pub copy: CopyId,
}

/// The links of a node to others.
pub trait CopyLinks: Send + Sync {
    /// Makes a replica follow the active copy that `source` has in its epoch, until
    /// [`CopyLinks::stop`]. May be repeated; another source or epoch replaces the former one. The
    /// vbucket is a replica by then, and calls for it come one after the other. This does not wait
    /// for the connection, only for a change of the copy under way.
    fn follow(&self, bucket: Arc<dyn SharedBucket>, vbid: Vbid, source: ReplicaSource);

    /// Ends what [`CopyLinks::follow`] began. When this returns, no stream changes the copy. Waits
    /// for the change under way, which may wait for the store. May be repeated.
    fn stop(&self, bucket_uuid: &str, vbid: Vbid);

    /// As [`CopyLinks::stop`], for all vbuckets of a bucket.
    fn stop_bucket(&self, bucket_uuid: &str);
}
