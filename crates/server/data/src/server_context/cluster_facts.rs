//! This node's view of the cluster: documents for clients, its own address and identity, and its
//! membership.
//!
//! Invariant: a changed identity, address or manifest is durable before clients can read it.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::Arc;

use oribi_cluster::ClusterMember;
use oribi_cluster::agreement::AgreementError;
use oribi_cluster::bucket_settings::BucketSettingsError;
use oribi_cluster::identity::ClusterIdentity;
use oribi_engine::collections::{BucketManifest, ManifestChange};
use oribi_engine::{FlushAllError, ManifestUpdateError};
use oribi_system::data_file::DataFileError;
use oribi_types::Timestamp;
use parking_lot::Mutex;
use serde_json::Value;

use crate::buckets::{BucketChange, BucketError, BucketHandle, Buckets, changed_settings};
use crate::cluster_config::address::NodeAddress;
use crate::cluster_config::{BucketFacts, ClusterConfig, ConfigDocument};
use crate::replication::ReplicationLinks;

/// See the module text.
pub struct ClusterFacts {
    /// Cluster configuration documents for clients.
    pub config: Arc<ClusterConfig>,
    /// This node's part in a cluster, if it is in one.
    pub node: Option<Arc<ClusterMember>>,
    /// The copies of vbuckets here that follow other nodes.
    pub links: Arc<ReplicationLinks>,
    /// Address of this machine in its network.
    pub own_ip: IpAddr,
    /// Directory with the cluster's identity; `None` in tests that persist nothing.
    pub data_dir: Mutex<Option<PathBuf>>,
}

/// Why the cluster could not be named.
#[derive(Debug, thiserror::Error)]
pub enum ClusterNameError {
    /// The data directory rejected the write.
    #[error(transparent)]
    File(#[from] DataFileError),
    /// The other nodes could not be notified.
    #[error(transparent)]
    Cluster(#[from] AgreementError),
}

impl ClusterFacts {
    /// A node that is in no cluster and persists nothing.
    pub fn new(config: Arc<ClusterConfig>) -> ClusterFacts {
        ClusterFacts {
            config,
            node: None,
            links: Arc::default(),
            own_ip: Ipv4Addr::LOCALHOST.into(),
            data_dir: Mutex::default(),
        }
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
        self.config.advance();
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
            self.config.advance();
        }
        result
    }

    /// Changes the settings of a bucket, on every node that has it. Blocks.
    ///
    /// # Errors
    /// As [`Buckets::update`]; also when the cluster cannot agree now, or a node does not follow.
    pub fn change_bucket(
        &self,
        buckets: &Buckets,
        handle: &BucketHandle,
        change: BucketChange,
    ) -> Result<(), BucketError> {
        let Some(node) = self.node_of(handle) else { return buckets.update(handle.name(), change) };
        let changed =
            node.change_bucket(handle, &mut |text| changed_settings(handle, text, &change));
        changed.map_err(|error| match error {
            BucketSettingsError::Rejected(error) => error,
            error => BucketError::Cluster {
                name: handle.name().to_owned(),
                error: error.to_string().into(),
            },
        })
    }

    /// The cluster that a bucket is shared in.
    pub fn node_of(&self, handle: &BucketHandle) -> Option<&Arc<ClusterMember>> {
        self.node.as_ref().filter(|_| handle.is_shared())
    }

    /// Nodes that the cluster has agreed on; 1 without a cluster.
    pub fn node_count(&self) -> usize {
        self.config.topology().map_or(1, |topology| topology.nodes.len().max(1))
    }

    /// The cluster configuration of a bucket as of now.
    pub fn bucket_document(&self, handle: &BucketHandle) -> Arc<ConfigDocument> {
        self.config.bucket_document(&facts(handle))
    }

    /// The owners of a bucket's vbuckets as of now, for a client that knows this node as `host`.
    pub fn vbucket_server_map(&self, handle: &BucketHandle, host: &str) -> Value {
        self.config.vbucket_server_map(&facts(handle), host)
    }

    /// Names the cluster, durably. In a cluster the other nodes follow. Blocks.
    ///
    /// # Errors
    /// An I/O error, or an error of etcd; the old name remains.
    pub fn set_name(&self, name: &str) -> Result<(), ClusterNameError> {
        if let Some(node) = &self.node {
            return Ok(node.set_name(name)?);
        }
        // One change at a time, so that the file and the documents agree.
        let data_dir = self.data_dir.lock();
        let current = self.config.identity();
        let identity = ClusterIdentity { uuid: current.uuid.clone(), name: name.to_owned() };
        if let Some(data_dir) = &*data_dir {
            identity.write(data_dir)?;
        }
        self.config.set_identity(identity);
        self.config.advance();
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
        let before = self.config.address();
        let mut address = NodeAddress::clone(&before);
        change(&mut address);
        if address == *before {
            return Ok(());
        }
        if let Some(data_dir) = &*data_dir {
            address.write(data_dir)?;
        }
        self.config.set_address(address);
        self.config.advance();
        Ok(())
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
