//! Copies of vbuckets that are active on other nodes: following them.
//!
//! Owns: which copies of this node follow which node ([`links`]). A link is one connection to
//! another node for one bucket; a worker drives it.
//!
//! Caller: the bucket's copies, as the cluster's records say.

pub mod followed_copy;
pub mod links;

/// True once links bring documents to copies; until then buckets get no replicas.
pub const FEEDS_COPIES: bool = false;

pub use followed_copy::{ReplicaPhase, ReplicaSource, ReplicaStatus};
pub use links::ReplicationLinks;
