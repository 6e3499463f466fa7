//! Copies of vbuckets that are active on other nodes: following them.
//!
//! Owns: which copies of this node follow which node ([`links`]), and what is said on a link: one
//! connection to another node for one bucket ([`consumer`]). A worker drives it.
//!
//! Caller: the bucket's copies, as the cluster's records say.

pub(crate) mod consumer;
pub(crate) mod failure;
pub mod followed_copy;
pub mod links;
pub(crate) mod message;
mod resolver;
pub(crate) mod work;

pub use followed_copy::{ReplicaPhase, ReplicaStatus};
pub use links::ReplicationLinks;

#[cfg(test)]
mod tests;
