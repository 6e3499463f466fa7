//! Which buckets and collections there are, the same on every node.
//!
//! Owns: that this node's shared buckets follow what stands in etcd. A bucket that was created here is made known;
//! one that others created is opened; one that was deleted is closed. Invariants: where both have a bucket of one
//! name and they differ, etcd's counts; what is forgotten here is this node's settings of it, never a document;
//! manifests only go forward.

use std::sync::Arc;

use super::agent::{Agent, View, understood};
use super::etcd::{Change, Condition, EtcdError, KeyValue};
use super::leading::BucketOutline;
use super::lease::BucketOwnership;
use crate::buckets::BucketHandle;

impl Agent {
    /// Opens, closes and makes known what has to be.
    pub(super) async fn follow_buckets(&mut self, view: &View) -> Result<(), EtcdError> {
        for handle in self.shared_buckets() {
            let uuid = &handle.bucket().config().uuid;
            let agreed = view.buckets.get(handle.name());
            let outline = agreed.and_then(understood::<BucketOutline>);
            let is_gone = view.deleted.contains(uuid) || self.followed.contains(uuid);
            match outline {
                Some(outline) if outline.uuid == *uuid => self.follow(view, &handle),
                Some(_) => self.forget(&handle).await,
                // It is there, in a form that this version does not know.
                None if agreed.is_some() => {}
                None if is_gone => self.forget(&handle).await,
                None => self.make_known(&handle).await?,
            }
        }
        for (name, entry) in &view.buckets {
            match self.buckets.get(name) {
                None => self.adopt(view, name, entry).await,
                Some(handle) if !handle.bucket().is_shared() => {
                    tracing::debug!(
                        bucket = name,
                        "a bucket of the cluster has the name of one that is this node's alone"
                    );
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    fn follow(&mut self, view: &View, handle: &Arc<BucketHandle>) {
        let bucket = handle.bucket();
        if self.followed.insert(bucket.config().uuid.clone()) {
            let lease = Arc::clone(&self.lease);
            bucket
                .set_ownership(Arc::new(BucketOwnership { lease, bucket: Arc::downgrade(bucket) }));
        }
        if let Some(manifest) = view.manifests.get(handle.name()) {
            install(handle, manifest);
        }
    }

    async fn make_known(&self, handle: &Arc<BucketHandle>) -> Result<(), EtcdError> {
        let name = handle.name();
        let settings = match self.buckets.settings_text(name) {
            Ok(settings) => settings,
            Err(error) => {
                tracing::error!(bucket = name, %error, "the bucket cannot be made known to the cluster");
                return Ok(());
            }
        };
        let manifest = handle.bucket().manifest().to_stored_json().into_bytes();
        let (bucket_key, manifest_key) = (self.keys.bucket(name), self.keys.manifest(name));
        let absent =
            [Condition::Absent(bucket_key.clone()), Condition::Absent(manifest_key.clone())];
        let puts = [Change::Put(bucket_key, settings, 0), Change::Put(manifest_key, manifest, 0)];
        if self.etcd.transact(&absent, &puts, self.limit()).await?.is_some() {
            tracing::info!(bucket = name, "the cluster knows the bucket");
        }
        Ok(())
    }

    async fn adopt(&mut self, view: &View, name: &str, entry: &KeyValue) {
        let (buckets, options) = (Arc::clone(&self.buckets), self.bucket_defaults.clone());
        let (name, settings) = (name.to_owned(), entry.value.clone());
        let bucket = name.clone();
        let opening =
            tokio::task::spawn_blocking(move || buckets.adopt(&bucket, &settings, &options));
        match opening.await {
            Ok(Ok(handle)) => {
                tracing::info!(bucket = name, "opened a bucket of the cluster");
                self.follow(view, &handle);
            }
            Ok(Err(error)) => {
                tracing::warn!(bucket = name, %error, "a bucket of the cluster cannot be opened here yet");
            }
            Err(_) => tracing::error!(bucket = name, "a thread that opened a bucket panicked"),
        }
    }

    async fn forget(&mut self, handle: &Arc<BucketHandle>) {
        let bucket = handle.bucket();
        self.followed.remove(&bucket.config().uuid);
        let (buckets, handle) = (Arc::clone(&self.buckets), Arc::clone(handle));
        let name = handle.name().to_owned();
        let closing = tokio::task::spawn_blocking(move || {
            let bucket = handle.bucket();
            bucket.owned().into_iter().for_each(|vbid| bucket.deactivate(vbid));
            buckets.forget(handle.name())
        });
        match closing.await {
            Ok(Ok(())) => {
                tracing::info!(bucket = name, "closed a bucket that the cluster does not have")
            }
            Ok(Err(error)) => tracing::warn!(bucket = name, %error, "a bucket could not be closed"),
            Err(_) => tracing::error!(bucket = name, "a thread that closed a bucket panicked"),
        }
    }

    /// Brings the manifest of a bucket up to what stands in etcd right now.
    pub(super) async fn refresh_manifest(&self, handle: &BucketHandle) -> Result<(), EtcdError> {
        let key = self.keys.manifest(handle.name());
        if let Some(manifest) = self.etcd.get(&key, self.limit()).await? {
            install(handle, &manifest);
        }
        Ok(())
    }
}

fn install(handle: &BucketHandle, manifest: &KeyValue) {
    let text = String::from_utf8_lossy(&manifest.value);
    if let Err(error) = handle.bucket().install_manifest(&text, false) {
        tracing::error!(bucket = handle.name(), %error, "the cluster's collections cannot be taken up");
    }
}
