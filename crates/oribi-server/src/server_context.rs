//! What all workers share: buckets, users, cluster configuration, limits, counters.
//!
//! Immutable after the start but for what its parts synchronise themselves. Nothing here is written
//! per operation.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use oribi_engine::ManifestUpdateError;
use oribi_engine::collections::{Manifest, ManifestChange};
use oribi_types::Timestamp;

use crate::audit::AuditLog;
use crate::auth::UserStore;
use crate::buckets::{BucketHandle, BucketOptions, Buckets};
use crate::cluster::Cluster;
use crate::cluster_config::{BucketFacts, ClusterConfig, Document};
use crate::connection_registry::ConnectionRegistry;
use crate::counters::ServerCounters;
use crate::slow_operation_log::SlowThresholds;
use crate::tls::Tls;
use crate::worker::wall_clock;

/// What connections may do, from the settings.
#[derive(Debug, Clone, Copy)]
pub struct ConnectionLimits {
    /// Time to authenticate.
    pub auth_deadline_ms: u64,
    /// Time to complete a frame, plus one second for each 64 KiB of it.
    pub frame_deadline_ms: u64,
    /// Time to take answers, plus one second for each 64 KiB taken.
    pub send_deadline_ms: u64,
    /// Time without a request after which a connection is closed; 0 for never.
    pub idle_timeout_ms: u64,
    /// Answers that are not sent, in bytes, from which on a connection's requests wait.
    pub send_queue_bytes_max: usize,
    /// Connections at once.
    pub connections_max: usize,
    /// How many of these only administrators may use.
    pub connections_reserved: usize,
    /// What is logged as slow.
    pub slow: SlowThresholds,
    /// Keys that a connection announces ahead, at most [`crate::limits::PREFETCH_KEYS_MAX`].
    pub prefetch_keys: usize,
    /// How long documents are locked.
    pub lock_timeouts: LockTimeouts,
}

/// How long get-and-lock locks a document.
#[derive(Debug, Clone, Copy)]
pub struct LockTimeouts {
    /// When the client does not say.
    pub default_s: u32,
    /// Longest; who asks for more gets the default.
    pub max_s: u32,
}

/// See the module text.
pub struct ServerContext {
    /// All buckets.
    pub buckets: Arc<Buckets>,
    /// All users.
    pub users: Arc<UserStore>,
    /// Documents for clients.
    pub cluster: Arc<ClusterConfig>,
    /// Operation counters.
    pub counters: Arc<ServerCounters>,
    /// How TLS is spoken, where it is.
    pub(crate) tls: Option<Arc<Tls>>,
    /// This node's part in a cluster, where it has one.
    pub(crate) node: Option<Arc<Cluster>>,
    /// Connections and what each of them is.
    pub(crate) registry: ConnectionRegistry,
    /// Deadlines and caps.
    pub limits: ConnectionLimits,
    /// Options of a bucket that is created without saying otherwise.
    pub bucket_defaults: BucketOptions,
    /// When the server started.
    pub started: Timestamp,
    /// Random, so that references to log lines are not given out twice. 0 in tests, which want equal
    /// answers to equal requests.
    pub(crate) reference_seed: u64,
    /// Who got in and what was refused, for the record.
    pub(crate) audit: AuditLog,
    connections: AtomicUsize,
    rejected: AtomicUsize,
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
        ServerContext {
            buckets,
            users,
            cluster,
            counters,
            tls: None,
            node: None,
            registry: ConnectionRegistry::default(),
            limits,
            bucket_defaults,
            started,
            reference_seed: 0,
            audit: AuditLog::default(),
            connections: AtomicUsize::new(0),
            rejected: AtomicUsize::new(0),
        }
    }

    /// How TLS is spoken, where it is.
    pub fn tls(&self) -> Option<&Arc<Tls>> {
        self.tls.as_ref()
    }

    /// Whole seconds since the start, by the wall clock.
    pub fn uptime_s(&self) -> u32 {
        wall_clock().unix_s().saturating_sub(self.started.unix_s())
    }

    /// Changes the collections of a bucket, on every node that has it; in force here when it returns. Blocks.
    ///
    /// # Errors
    /// As [`oribi_engine::Bucket::update_manifest`]; also when the cluster cannot agree now.
    pub(crate) fn update_manifest(
        &self,
        handle: &BucketHandle,
        change: &ManifestChange,
    ) -> Result<Arc<Manifest>, ManifestUpdateError> {
        let changed = match self.node_of(handle) {
            Some(node) => node.update_manifest(handle, change),
            None => handle.bucket().update_manifest(change),
        };
        self.cluster.advance();
        changed
    }

    /// The cluster that a bucket is shared in.
    pub(crate) fn node_of(&self, handle: &BucketHandle) -> Option<&Arc<Cluster>> {
        self.node.as_ref().filter(|_| handle.bucket().is_shared())
    }

    /// The cluster configuration of a bucket as of now.
    pub fn bucket_document(&self, handle: &BucketHandle) -> Arc<Document> {
        self.cluster.bucket_document(&BucketFacts {
            name: handle.name(),
            uuid: &handle.bucket().config().uuid,
            bucket_type: handle.bucket_type(),
            vbuckets: handle.vbuckets(),
            manifest_uid: handle.bucket().manifest().uid().0,
        })
    }

    /// Counts a new connection; false when there are too many, and then it is not counted.
    pub fn admit_connection(&self) -> bool {
        if self.connections.fetch_add(1, Ordering::AcqRel) >= self.limits.connections_max {
            self.connections.fetch_sub(1, Ordering::AcqRel);
            self.rejected.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        true
    }

    /// True when a connection, counted already, may be used by somebody with or without the role `admin`.
    pub fn admit_user(&self, is_admin: bool) -> bool {
        let ConnectionLimits { connections_max, connections_reserved, .. } = self.limits;
        let is_admitted = is_admin || self.connections() + connections_reserved <= connections_max;
        if !is_admitted {
            self.rejected.fetch_add(1, Ordering::Relaxed);
        }
        is_admitted
    }

    /// Counts the end of a connection.
    pub fn release_connection(&self) {
        self.connections.fetch_sub(1, Ordering::AcqRel);
    }

    /// Connections right now.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Acquire)
    }

    /// Connections refused because there were too many, for users or for anybody.
    pub fn rejected_connections(&self) -> usize {
        self.rejected.load(Ordering::Relaxed)
    }
}
