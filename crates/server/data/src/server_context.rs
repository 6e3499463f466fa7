//! State that all workers share, in parts by owner: buckets, access, cluster, connections,
//! diagnostics.
//!
//! Immutable after the start; the parts that change synchronise themselves. Operations write
//! nothing here.

mod access_control;
mod cluster_facts;
mod server_connections;
mod server_diagnostics;

use std::sync::Arc;

use oribi_auth::UserStore;
use oribi_types::Timestamp;

use crate::buckets::{BucketOptions, Buckets, MemcachedPlace};
use crate::cluster_config::ClusterConfig;
use crate::connection::memory::ConnectionMemory;
use crate::connection::memory::ticket::BackfillMemory;
use crate::diagnostics::counters::ServerCounters;

pub use access_control::AccessControl;
pub use cluster_facts::{ClusterFacts, ClusterNameError};
pub use server_connections::{ConnectionLimits, LockTimeouts, ServerConnections};
pub use server_diagnostics::ServerDiagnostics;

/// See the module text.
pub struct ServerContext {
    pub buckets: Arc<Buckets>,
    /// Default options of a new bucket.
    pub bucket_defaults: BucketOptions,
    /// Bucket and collection of clients that can select neither.
    pub(crate) memcached: MemcachedPlace,
    pub access: AccessControl,
    pub cluster: ClusterFacts,
    pub connections: ServerConnections,
    pub diagnostics: ServerDiagnostics,
}

impl ServerContext {
    /// A context without connections.
    pub fn new(
        buckets: Arc<Buckets>,
        users: Arc<UserStore>,
        cluster: Arc<ClusterConfig>,
        counters: Arc<ServerCounters>,
        limits: ConnectionLimits,
        bucket_defaults: BucketOptions,
        started: Timestamp,
    ) -> ServerContext {
        let memory = Arc::new(ConnectionMemory::default());
        memory.set_quotas(buckets.quota_bytes());
        buckets.set_reader_memory(Arc::new(BackfillMemory(Arc::clone(&memory))));
        ServerContext {
            buckets,
            bucket_defaults,
            memcached: MemcachedPlace::default(),
            access: AccessControl::new(users),
            cluster: ClusterFacts::new(cluster),
            connections: ServerConnections::new(limits, memory),
            diagnostics: ServerDiagnostics::new(counters, started),
        }
    }
}
