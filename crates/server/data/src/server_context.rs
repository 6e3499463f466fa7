//! State that all workers share: buckets, users, cluster configuration, limits, counters.
//!
//! Immutable after the start; the parts that change synchronise themselves. Operations write
//! nothing here.

use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use oribi_auth::UserStore;
use oribi_auth::audit::AuditLog;
use oribi_config::SlowThresholds;
use oribi_config::Subnet;
use oribi_engine::collections::{BucketManifest, ManifestChange};
use oribi_engine::{FlushAllError, ManifestUpdateError};
use oribi_system::clock::wall_clock;
use oribi_system::data_file::DataFileError;
use oribi_types::Timestamp;
use parking_lot::Mutex;
use serde_json::Value;

use crate::buckets::{BucketHandle, BucketOptions, Buckets, MemcachedPlace};
use crate::cluster::{Cluster, EtcdError};
use crate::cluster_config::address::NodeAddress;
use crate::cluster_config::{BucketFacts, ClusterConfig, Document};
use crate::cluster_identity::ClusterIdentity;
use crate::connection::file_limit::FileLimits;
use crate::connection::memory::ConnectionMemory;
use crate::connection::memory::ticket::BackfillMemory;
use crate::connection::registry::ConnectionRegistry;
use crate::connection::tls::Tls;
use crate::diagnostics::counters::ServerCounters;
use crate::diagnostics::slow_operation_log::RecentSlowOperations;

/// Limits of connections, from the settings.
#[derive(Debug, Clone, Copy)]
pub struct ConnectionLimits {
    pub auth_deadline_ms: u64,
    /// Time to complete a frame, plus one second for each 64 KiB received of a large one.
    pub frame_deadline_ms: u64,
    /// Time for a client to read answers, plus one second for each 64 KiB read.
    pub send_deadline_ms: u64,
    /// Time without a request after which a connection is closed; 0 for never.
    pub idle_timeout_ms: u64,
    /// Unsent answers, in bytes, from which on a connection's requests wait.
    pub send_queue_bytes_max: usize,
    pub connections_max: usize,
    /// Of these, connections that only administrators may use.
    pub connections_reserved: usize,
    /// Files that connections leave to the store.
    pub files: FileLimits,
    /// Thresholds of the log of slow operations.
    pub slow: SlowThresholds,
    /// Keys that a connection announces ahead, at most `limits::PREFETCH_KEYS_MAX`.
    pub prefetch_keys: usize,
    /// Durations of document locks.
    pub lock_timeouts: LockTimeouts,
}

/// How long get-and-lock locks a document.
#[derive(Debug, Clone, Copy)]
pub struct LockTimeouts {
    /// When the client specifies no time.
    pub default_s: u32,
    /// Longest time; a client that asks for more gets the default.
    pub max_s: u32,
}

/// See the module text.
pub struct ServerContext {
    pub buckets: Arc<Buckets>,
    pub users: Arc<UserStore>,
    /// Cluster configuration documents for clients.
    pub cluster: Arc<ClusterConfig>,
    pub counters: Arc<ServerCounters>,
    /// The TLS configuration, if TLS is enabled.
    pub tls: Option<Arc<Tls>>,
    /// This node's part in a cluster, if it is in one.
    pub node: Option<Arc<Cluster>>,
    /// Connections and their records.
    pub(crate) registry: ConnectionRegistry,
    /// Memory budget of the connections.
    pub connection_memory: Arc<ConnectionMemory>,
    pub limits: ConnectionLimits,
    /// Default options of a new bucket.
    pub bucket_defaults: BucketOptions,
    /// When the server started.
    pub started: Timestamp,
    /// Random, so that references to log lines are unique across restarts. 0 in tests, which need
    /// equal answers to equal requests.
    pub(crate) reference_seed: u64,
    /// Balancers whose connections begin with the PROXY protocol; only they may then connect to the
    /// client ports. Empty: clients connect directly.
    pub(crate) proxies: Vec<Subnet>,
    /// Bucket and collection of clients that can select neither.
    pub(crate) memcached: MemcachedPlace,
    /// Logins and refusals, for the record.
    pub audit: AuditLog,
    /// The last slow operations.
    pub recent_slow: Arc<RecentSlowOperations>,
    /// Address of this machine in its network.
    pub own_ip: IpAddr,
    /// Directory with the cluster's identity; `None` in tests that persist nothing.
    pub data_dir: Mutex<Option<PathBuf>>,
    connections: AtomicUsize,
    rejected: AtomicUsize,
}

/// Why the cluster could not be named.
#[derive(Debug, thiserror::Error)]
pub enum ClusterNameError {
    /// The data directory refused the write.
    #[error(transparent)]
    File(#[from] DataFileError),
    /// The other nodes could not be notified.
    #[error(transparent)]
    Cluster(#[from] EtcdError),
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
        let connection_memory = Arc::new(ConnectionMemory::default());
        connection_memory.set_quotas(buckets.quota_bytes());
        buckets.set_reader_memory(Arc::new(BackfillMemory(Arc::clone(&connection_memory))));
        ServerContext {
            connection_memory,
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
            proxies: Vec::new(),
            memcached: MemcachedPlace::default(),
            audit: AuditLog::default(),
            recent_slow: Arc::default(),
            own_ip: Ipv4Addr::LOCALHOST.into(),
            data_dir: Mutex::default(),
            connections: AtomicUsize::new(0),
            rejected: AtomicUsize::new(0),
        }
    }

    /// The TLS configuration, if TLS is enabled.
    pub fn tls(&self) -> Option<&Arc<Tls>> {
        self.tls.as_ref()
    }

    /// Whole seconds since the start, by the wall clock.
    pub fn uptime_s(&self) -> u32 {
        wall_clock().unix_s().saturating_sub(self.started.unix_s())
    }

    /// Changes the collections of a bucket, on every node that has it; in force on this node when
    /// it returns. Blocks.
    ///
    /// # Errors
    /// As [`oribi_engine::Bucket::update_manifest`]; also when the cluster cannot agree now.
    pub fn update_manifest(
        &self,
        handle: &BucketHandle,
        change: &ManifestChange,
    ) -> Result<Arc<BucketManifest>, ManifestUpdateError> {
        let changed = match self.node_of(handle) {
            Some(node) => node.update_manifest(handle, change),
            None => handle.bucket().update_manifest(change),
        };
        self.cluster.advance();
        changed
    }

    /// Removes every document of a bucket, then announces a new revision of the configuration:
    /// clients that poll a vbucket's history look the new one up. Blocks.
    ///
    /// # Errors
    /// As [`oribi_engine::Bucket::flush_all`].
    pub fn flush_all(&self, handle: &BucketHandle, now: Timestamp) -> Result<(), FlushAllError> {
        let result = handle.flush_all(now);
        if !result.as_ref().is_err_and(FlushAllError::was_refused) {
            self.cluster.advance();
        }
        result
    }

    /// The cluster that a bucket is shared in.
    pub fn node_of(&self, handle: &BucketHandle) -> Option<&Arc<Cluster>> {
        self.node.as_ref().filter(|_| handle.bucket().shared_store().is_some())
    }

    /// The cluster configuration of a bucket as of now.
    pub fn bucket_document(&self, handle: &BucketHandle) -> Arc<Document> {
        self.cluster.bucket_document(&facts(handle))
    }

    /// The owners of a bucket's vbuckets as of now, for a client that knows this node as `host`.
    pub fn vbucket_server_map(&self, handle: &BucketHandle, host: &str) -> Value {
        self.cluster.vbucket_server_map(&facts(handle), host)
    }

    /// Names the cluster, durably. In a cluster the other nodes follow. Blocks.
    ///
    /// # Errors
    /// An I/O error, or an error of etcd; the old name remains.
    pub fn set_cluster_name(&self, name: &str) -> Result<(), ClusterNameError> {
        if let Some(node) = &self.node {
            return Ok(node.set_name(name)?);
        }
        // One change at a time, so that the file and the documents agree.
        let data_dir = self.data_dir.lock();
        let current = self.cluster.identity();
        let identity = ClusterIdentity { uuid: current.uuid.clone(), name: name.to_owned() };
        if let Some(data_dir) = &*data_dir {
            identity.write(data_dir)?;
        }
        self.cluster.set_identity(identity);
        self.cluster.advance();
        Ok(())
    }

    /// Changes the address of this node in the documents of clients, durably; in force when it
    /// returns. Blocks.
    ///
    /// # Errors
    /// An I/O error; the old address remains.
    pub fn change_address(
        &self,
        change: impl FnOnce(&mut NodeAddress),
    ) -> Result<(), DataFileError> {
        // One change at a time, so that the file and the documents agree.
        let data_dir = self.data_dir.lock();
        let before = self.cluster.address();
        let mut address = NodeAddress::clone(&before);
        change(&mut address);
        if address == *before {
            return Ok(());
        }
        if let Some(data_dir) = &*data_dir {
            address.write(data_dir)?;
        }
        self.cluster.set_address(address);
        self.cluster.advance();
        Ok(())
    }

    /// True when connections from this address are served. Counts a refusal.
    pub fn admits_address(&self, address: IpAddr) -> bool {
        let is_admitted =
            self.proxies.is_empty() || self.proxies.iter().any(|proxy| proxy.contains(address));
        if !is_admitted {
            self.rejected.fetch_add(1, Ordering::Relaxed);
        }
        is_admitted
    }

    /// True when a client's socket leaves enough files to the store.
    pub fn leaves_files(&self, socket: &impl AsRawFd) -> bool {
        let is_admitted = self.limits.files.admits_client(socket);
        if !is_admitted {
            self.rejected.fetch_add(1, Ordering::Relaxed);
        }
        is_admitted
    }

    /// Counts a new connection; false, without counting it, when there are too many.
    pub fn admit_connection(&self) -> bool {
        if self.connections.fetch_add(1, Ordering::AcqRel) >= self.limits.connections_max {
            self.connections.fetch_sub(1, Ordering::AcqRel);
            self.rejected.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        true
    }

    /// True when a connection, counted already, may be used by a user with or without the role
    /// `admin`.
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

    /// Bytes of the buffers of all connections.
    pub fn connection_buffer_bytes(&self) -> u64 {
        self.registry.buffer_bytes()
    }

    /// Current number of connections.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Acquire)
    }

    /// Connections refused because of either limit, the one for users or the one for all, because
    /// other files are the store's, or because they came from elsewhere than a balancer.
    pub fn rejected_connections(&self) -> usize {
        self.rejected.load(Ordering::Relaxed)
    }
}

fn facts(handle: &BucketHandle) -> BucketFacts<'_> {
    BucketFacts {
        name: handle.name(),
        uuid: &handle.bucket().config().uuid,
        bucket_type: handle.bucket_type(),
        vbuckets: handle.vbuckets(),
        manifest_uid: handle.bucket().manifest().uid().0,
    }
}
