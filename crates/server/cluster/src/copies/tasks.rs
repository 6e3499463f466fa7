//! What an agent keeps between two looks at the records of copies.
//!
//! Owns: the background work on copies, and which vbuckets it may still begin to serve. Invariant:
//! the key of a vbucket is released only after its permit was withdrawn, so work that began before
//! that serves nothing after it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use oribi_replication::copies::CopiesEpoch;
use oribi_types::Vbid;
use parking_lot::Mutex;
use tokio::task::JoinHandle;

/// See the module text.
#[derive(Default)]
pub(crate) struct CopyTasks {
    /// By uuid of the bucket.
    pub(crate) running: HashMap<String, JoinHandle<()>>,
    /// By uuid of the bucket.
    permits: HashMap<String, Arc<ServePermits>>,
    /// The last reports that were written in a session, by uuid.
    pub(crate) reported: HashMap<String, (u64, Vec<u8>)>,
    /// Highest revision of agreement.
    pub(crate) revision_seen: i64,
    /// Agreement has lost changes.
    pub(crate) is_stopped: bool,
    /// The request to fail over that this leader saw last, and when it saw it first.
    pub(crate) failover_seen: Option<(i64, u64)>,
}

impl CopyTasks {
    pub(crate) fn permits(&mut self, uuid: &str) -> Arc<ServePermits> {
        Arc::clone(self.permits.entry(uuid.to_owned()).or_default())
    }
}

/// The vbuckets that background work may begin to serve, each in one epoch.
#[derive(Default)]
pub(crate) struct ServePermits(Mutex<BTreeMap<Vbid, CopiesEpoch>>);

impl ServePermits {
    pub(crate) fn grant(&self, vbid: Vbid, epoch: CopiesEpoch) {
        self.0.lock().insert(vbid, epoch);
    }

    /// Work under way begins to serve the vbucket no more when this returns; it may have begun.
    pub(crate) fn withdraw(&self, vbid: Vbid) {
        self.0.lock().remove(&vbid);
    }

    /// Begins to serve by `start`, if that is still permitted. The permit is not withdrawn before
    /// `start` has returned, so it must not block.
    pub(crate) fn start(&self, vbid: Vbid, epoch: CopiesEpoch, start: impl FnOnce()) {
        let permits = self.0.lock();
        if permits.get(&vbid) == Some(&epoch) {
            start();
        }
    }
}
