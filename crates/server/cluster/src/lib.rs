//! The cluster: several nodes that serve the same buckets.
//!
//! Owns: this node's membership in a cluster, and what the nodes agree on. Code map, from the top;
//! arrows go down:
//! - [`ClusterMember`] starts the agent, and changes what all nodes have to see;
//! - `agent`, one thread: a session begins and ends with a lease; in between a tick reads the
//!   records and acts on them. Its steps: `following` (buckets and collections), `leading` (the
//!   map), `deletions` (data of deleted buckets), `ownership` (takeover and hand-over), `takeovers`
//!   (takeovers that wait for a store), `copy_agent` (copies of vbuckets), [`users`],
//!   [`bucket_settings`];
//! - `arrival`: an answer waits until the other nodes have what it is about;
//! - [`NodeLease`]: until when this node may serve; `renewal`, its thread;
//! - `grants`: which nodes let this one serve, and `beacons`, the threads that keep them;
//! - `assignment`: which node gets what, a pure function;
//! - [`rebalance`]: copies move until every node has its share;
//! - `records`: the layout of keys and records;
//! - [`copies`]: copies of vbuckets on several nodes;
//! - [`secret`]: the secret by which nodes know each other;
//! - [`agreement`]: the linearizable store of the records, etcd in production;
//! - [`status`]: the records as operators see them; [`nodes`], its plain data;
//! - [`buckets`]: the node's registry of buckets, implemented by the server; [`identity`] and
//!   [`topology`], plain data.
//!
//! Invariants:
//! - a vbucket is served here only while this node's lease holds and `held/BUCKET/UUID/VBUCKET` in
//!   the agreement is this session's; that key disappears with the lease, or when the other copies
//!   have promised another epoch;
//! - before a takeover of a vbucket the node reads its bucket's manifest again, so it never
//!   attributes a document to a dropped collection;
//! - only buckets on a store that several nodes share take part, and those of which nodes have
//!   copies; other buckets stay local to their node;
//! - the data of a deleted bucket is removed when no node holds a vbucket of it.
//!
//! docs/cluster.md argues why no stale owner can do harm. This crate sees no client's socket:
//! the server shows the topology to clients and asks the lease before it answers.

#![forbid(unsafe_code)]

mod agent;
pub mod agreement;
mod arrival;
mod assignment;
mod beacon_peers;
mod beacons;
pub mod bucket_settings;
pub mod buckets;
pub mod copies;
mod copy_agent;
mod deletions;
mod following;
mod grants;
mod host;
pub mod identity;
mod joining;
mod leading;
mod lease;
mod limits;
mod member;
pub mod nodes;
mod ownership;
mod rebalance;
mod records;
mod renewal;
pub mod secret;
mod settings;
mod settings_report;
mod signals;
pub mod status;
mod takeovers;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
pub mod topology;
pub mod users;
mod users_record;

pub use host::{ClusterHost, PublishTopology};
pub use lease::NodeLease;
pub use member::{BucketDeletionError, ClusterError, ClusterMember, FailoverError};
pub use rebalance::RebalanceError;
pub use settings::ClusterSettings;
