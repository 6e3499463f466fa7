//! Synchronizes buckets and collections between the nodes.
//!
//! Owns: that this node's shared buckets follow etcd. The node announces a bucket created here,
//! opens a bucket that another node created, and closes a deleted one. Invariants:
//! - where a bucket here and one in etcd have the same name and differ, etcd's counts;
//! - a node closes a bucket only if etcd says that it was deleted, so nodes announce their buckets
//!   again to an etcd that has lost everything;
//! - forgetting a bucket removes this node's settings of it, never a document;
//! - manifests only go forward.
//!
//! Opening and closing wait for stores, so they run in the background, one at a time for a name.

use std::sync::Arc;

use super::agent::{Agent, View, understood};
use super::etcd::{Change, Condition, EtcdError, KeyValue};
use super::leading::BucketOutline;
use super::lease::BucketOwnership;
use crate::buckets::BucketHandle;

impl Agent {
    /// Opens, closes and announces buckets as needed.
    pub(super) async fn follow_buckets(&mut self, view: &View) -> Result<(), EtcdError> {
        self.changing.retain(|_, task| !task.is_finished());
        for handle in self.shared_buckets() {
            if self.changing.contains_key(handle.name()) {
                continue;
            }
            let uuid = &handle.bucket().config().uuid;
            let agreed = view.buckets.get(handle.name());
            let outline = agreed.and_then(understood::<BucketOutline>);
            match outline {
                Some(outline) if outline.uuid == *uuid => self.follow(view, &handle),
                _ if view.deleted.contains_key(uuid) => self.forget(handle),
                // The vbuckets that this node owns are handed over first.
                Some(_) if handle.bucket().owned().is_empty() => self.forget(handle),
                Some(_) => {}
                // The bucket exists, in a form that this version does not know.
                None if agreed.is_some() => {}
                None => self.make_known(&handle).await?,
            }
        }
        for (name, entry) in &view.buckets {
            match self.buckets.get(name) {
                _ if self.changing.contains_key(name) => {}
                None => self.adopt(name, entry),
                Some(handle) if handle.bucket().shared_store().is_none() => {
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

    fn adopt(&mut self, name: &str, entry: &KeyValue) {
        let (buckets, options) = (Arc::clone(&self.buckets), self.bucket_defaults.clone());
        let (bucket, settings) = (name.to_owned(), entry.value.clone());
        self.change(name, move || match buckets.adopt(&bucket, &settings, &options) {
            Ok(_) => tracing::info!(bucket, "opened a bucket of the cluster"),
            Err(error) => {
                tracing::warn!(bucket, %error, "a bucket of the cluster cannot be opened here yet");
            }
        });
    }

    fn forget(&mut self, handle: Arc<BucketHandle>) {
        self.followed.remove(&handle.bucket().config().uuid);
        let (buckets, name) = (Arc::clone(&self.buckets), handle.name().to_owned());
        self.change(&name.clone(), move || {
            let bucket = handle.bucket();
            bucket.owned().into_iter().for_each(|vbid| bucket.deactivate(vbid));
            match buckets.forget(&handle) {
                Ok(()) => {
                    tracing::info!(bucket = name, "closed a bucket that the cluster does not have");
                }
                Err(error) => tracing::warn!(bucket = name, %error, "a bucket could not be closed"),
            }
        });
    }

    /// Opens or closes a bucket in the background.
    fn change(&mut self, name: &str, change: impl FnOnce() + Send + 'static) {
        let wake = Arc::clone(&self.wake);
        let task = tokio::task::spawn_blocking(move || {
            change();
            wake.notify_one();
        });
        self.changing.insert(name.to_owned(), task);
    }

    /// Brings the manifest of a bucket up to date with etcd.
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
    if let Err(error) = handle.bucket().install_manifest(&text) {
        tracing::error!(bucket = handle.name(), %error, "the cluster's collections cannot be taken up");
    }
}
