//! Copies of vbuckets on several nodes, for buckets whose documents are on each node's disk.
//!
//! Owns: the interface by which the cluster tells a bucket what each of its vbuckets is on this
//! node. Parts: `record` (the records and their codec), `roster` (numbers of nodes' disks),
//! `heirs` (which copy may be the next active one),
//! `placement` (which node gets which copy), `role` (what a node does about a record), all of them
//! plain data and pure functions. `copy_agent` has the leader's changes of records, and carries
//! everything out. Invariants:
//! - a record changes only by compare-and-set against the revision that was read;
//! - a node serves a vbucket only while its session holds `held/BUCKET/UUID/VBUCKET`, and it gets
//!   that key only while the record names its copy as the active one, so one copy serves at a time;
//! - another copy is promoted only while no session holds that key;
//! - a node whose disk knows a later epoch than the record does nothing: agreement lost changes.
//!
//! Caller: the agent.

pub(crate) mod heirs;
pub mod moves;
pub(crate) mod placement;
pub(crate) mod progress;
pub(crate) mod record;
pub(crate) mod role;
pub(crate) mod roster;
pub(crate) mod tasks;
pub(crate) mod waits;

use std::error::Error;
use std::sync::Arc;

use oribi_replication::copies::CopiesEpoch;
pub use oribi_replication::copies::{CopiesRecord, CopyId};
pub use oribi_replication::election::PromiseReport;
use oribi_types::{Seqno, Vbid};

use crate::topology::TopologyNode;

/// Why a copy could not become what it has to be.
pub type CopyFailure = Box<dyn Error + Send + Sync>;

/// Called once when a copy is as the caller waits for.
pub type CopyWaker = Arc<dyn Fn() + Send + Sync>;

/// Most replicas of a vbucket besides the active copy.
pub const REPLICAS_MAX: u8 = 3;

/// A copy that this node's disk holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalCopy {
    pub vbid: Vbid,
    /// Distinguishes the copies that a node has had of the vbucket.
    pub copy: u64,
    /// The copy accepts nothing of earlier epochs.
    pub promised: CopiesEpoch,
    pub report: PromiseReport,
    /// Of an active copy: it hands over, so the end is final.
    pub hands_over: bool,
    /// Its documents are on the disk and could not be loaded: it has no vote, and nothing takes
    /// its place there.
    pub is_unreadable: bool,
}

/// A copy on another node that the active copy here feeds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FollowingCopy {
    pub vbid: Vbid,
    /// Name of its node.
    pub node: String,
    /// It has everything up to here.
    pub complete_end: Seqno,
}

/// The copies of one bucket on this node. Every call may be repeated; calls that return a result
/// may block.
pub trait VbucketCopies: Send + Sync {
    /// All copies, as the disk has them.
    fn local(&self) -> Vec<LocalCopy>;

    /// The copies on other nodes that follow those here now.
    fn following(&self) -> Vec<FollowingCopy>;

    /// The last seqno that a copy on another node acknowledged to the active copy here, in the
    /// epoch of that one.
    fn acknowledged(&self, vbid: Vbid, copy: CopyId) -> Option<Seqno>;

    /// Begins empty copies of these numbers.
    ///
    /// # Errors
    /// An error of the store.
    fn create(&self, copies: &[(Vbid, u64)]) -> Result<(), CopyFailure>;

    /// Notes that an empty copy has everything up to the beginning of the epoch that founds the
    /// vbucket, durably.
    ///
    /// # Errors
    /// An error of the store, or the copy has promised a later epoch.
    fn found(&self, vbid: Vbid, epoch: CopiesEpoch) -> Result<(), CopyFailure>;

    /// Accepts nothing more of epochs before `epoch`, durably. Everything that the copy has is
    /// durable by then, so it holds after a restart what it reports with the promise.
    ///
    /// # Errors
    /// An error of the store; nothing is promised then.
    fn promise(&self, vbid: Vbid, epoch: CopiesEpoch) -> Result<(), CopyFailure>;

    /// Begins the record's epoch as its active copy. Clients are not served yet.
    ///
    /// # Errors
    /// An error of the store, or the copy has promised a later epoch.
    fn begin(&self, vbid: Vbid, record: &CopiesRecord) -> Result<(), CopyFailure>;

    /// Serves clients, if the copy has begun `epoch`. Does not block.
    fn start_serving(&self, vbid: Vbid, epoch: CopiesEpoch);

    /// Follows, as this copy, the active copy of the record, which the node has.
    ///
    /// # Errors
    /// An error of the store, or the copy has promised a later epoch.
    fn replicate(
        &self,
        vbid: Vbid,
        record: &CopiesRecord,
        source: (CopyId, &TopologyNode),
    ) -> Result<(), CopyFailure>;

    /// Makes an active copy ready to be the only one: from here on it acknowledges durable writes
    /// once its disk has them, until it begins another epoch. True when the disk has everything
    /// that was acknowledged before; otherwise `when_stored` is called once it has, or once the
    /// store has failed. Does not block.
    fn demand_storage(&self, vbid: Vbid, when_stored: Option<CopyWaker>) -> bool;

    /// The copy is not to be alone: it acknowledges again as the levels say. Does not block.
    fn waive_storage(&self, vbid: Vbid);

    /// The epoch in which a vbucket serves clients here.
    fn serves(&self, vbid: Vbid) -> Option<CopiesEpoch>;

    /// True for an active copy that can hand over without a wait, or does so: its documents are
    /// loaded, and no durable write of an earlier epoch is open.
    fn can_hand_over(&self, vbid: Vbid) -> bool;

    /// Answers "not my vbucket" from here on, and feeds the copies that follow until they are
    /// promoted. `when_final` is called once the last durable write has its outcome, which may be
    /// at once. Does not block.
    fn hand_over(&self, vbid: Vbid, when_final: CopyWaker);

    /// Answers "not my vbucket" from here on; the copy remains, and one that hands over continues
    /// to. Does not block.
    fn stop_serving(&self, vbid: Vbid);

    /// Removes a copy.
    ///
    /// # Errors
    /// An error of the store, or the copy's documents could not be loaded.
    fn remove(&self, vbid: Vbid) -> Result<(), CopyFailure>;
}
