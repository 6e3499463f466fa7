//! Synchronizes buckets and collections between the nodes.
//!
//! Owns: that this node's shared buckets follow etcd. The node announces a bucket created here,
//! opens a bucket that another node created, puts its settings in force, and closes a deleted one.
//! Invariants:
//! - where a bucket here and one in etcd have the same name and differ, etcd's counts;
//! - a node closes a bucket only if etcd says that it was deleted, so nodes announce their buckets
//!   again to an etcd that has lost everything;
//! - forgetting a bucket removes this node's settings of it, never a document;
//! - manifests only go forward.
//!
//! Opening and closing wait for stores, so they run in the background, one at a time for a name.

use std::sync::Arc;

use crate::agent::{Agent, ClusterView, understood};
use crate::agreement::{AgreementError, AgreementRecord, RecordChange, RecordComparison};
use crate::buckets::SharedBucket;
use crate::leading::BucketOutline;
use crate::lease::BucketOwnership;

impl Agent {
    /// Opens, closes and announces buckets as needed.
    pub(crate) async fn follow_buckets(
        &mut self,
        view: &ClusterView,
    ) -> Result<(), AgreementError> {
        self.changing.retain(|_, task| !task.is_finished());
        self.closing.retain(|_, name| self.changing.contains_key(name));
        for handle in self.buckets.shared() {
            if self.changing.contains_key(handle.name()) {
                continue;
            }
            let uuid = handle.uuid();
            let agreed = view.buckets.get(handle.name());
            let outline = agreed.and_then(understood::<BucketOutline>);
            match outline {
                Some(outline) if outline.uuid == uuid => self.follow(view, &handle),
                _ if view.deleted.contains_key(uuid) => self.close(handle),
                Some(_) if handle.copies().is_some() => tracing::error!(
                    bucket = handle.name(),
                    "the cluster has another bucket of this name, so the documents here are left \
                     alone; back them up and drop the bucket on this node"
                ),
                // The vbuckets that this node owns are handed over first.
                Some(_) if handle.bucket().owned().is_empty() => self.close(handle),
                Some(_) => {}
                // The bucket exists, in a form that this version does not know.
                None if agreed.is_some() => {}
                None if handle.copies().is_some_and(|copies| !copies.local().is_empty()) => {
                    tracing::error!(
                        bucket = handle.name(),
                        "the cluster does not know the bucket, but documents of it are here: \
                         etcd has lost records; restore a newer backup of etcd"
                    );
                }
                None => self.announce(&*handle).await?,
            }
        }
        for (name, entry) in &view.buckets {
            if self.changing.contains_key(name) {
                continue;
            }
            if !self.buckets.is_open(name) {
                self.open(name, entry);
            } else if !self.buckets.shared().iter().any(|shared| shared.name() == name) {
                tracing::debug!(
                    bucket = name,
                    "a bucket of the cluster has the name of one that is this node's alone"
                );
            }
        }
        Ok(())
    }

    fn follow(&mut self, view: &ClusterView, handle: &Arc<dyn SharedBucket>) {
        let bucket = handle.bucket();
        let is_shared = handle.copies().is_none();
        if self.followed.insert(bucket.config().uuid.clone()) && is_shared {
            let lease = Arc::clone(&self.lease);
            bucket
                .set_ownership(Arc::new(BucketOwnership { lease, bucket: Arc::downgrade(bucket) }));
        }
        let manifest = view.manifests.get(handle.name());
        let manifest = manifest.filter(|manifest| install(&**handle, manifest));
        if let Some(settings) = view.buckets.get(handle.name()) {
            self.follow_settings(settings, &**handle);
        }
        let in_force = self.settings_in_force.buckets.get_mut(handle.uuid());
        if let (Some(manifest), Some(in_force)) = (manifest, in_force) {
            in_force.manifest_revision = manifest.mod_revision;
        }
    }

    async fn announce(&self, handle: &dyn SharedBucket) -> Result<(), AgreementError> {
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
        let absent = [
            RecordComparison::Absent(bucket_key.clone()),
            RecordComparison::Absent(manifest_key.clone()),
        ];
        let puts =
            [RecordChange::put(bucket_key, settings), RecordChange::put(manifest_key, manifest)];
        if self.agreement.transact(&absent, &puts, self.limit()).await?.is_some() {
            tracing::info!(bucket = name, "the cluster knows the bucket");
        }
        Ok(())
    }

    fn open(&mut self, name: &str, entry: &AgreementRecord) {
        let buckets = Arc::clone(&self.buckets);
        let (bucket, settings) = (name.to_owned(), entry.value.clone());
        self.change(name, move || match buckets.open(&bucket, &settings) {
            Ok(()) => tracing::info!(bucket, "opened a bucket of the cluster"),
            Err(error) => {
                tracing::warn!(bucket, %error, "a bucket of the cluster cannot be opened here yet");
            }
        });
    }

    fn close(&mut self, handle: Arc<dyn SharedBucket>) {
        self.followed.remove(handle.uuid());
        let closing = self.closing.insert(handle.uuid().to_owned(), handle.name().to_owned());
        assert!(closing.is_none(), "one task closes a bucket");
        let (buckets, name) = (Arc::clone(&self.buckets), handle.name().to_owned());
        self.change(&name.clone(), move || {
            if handle.copies().is_none() {
                let bucket = handle.bucket();
                bucket.owned().into_iter().for_each(|vbid| bucket.deactivate(vbid));
            }
            match buckets.close(handle.uuid()) {
                Ok(()) => {
                    tracing::info!(bucket = name, "closed a bucket that the cluster does not have");
                }
                Err(error) => tracing::warn!(bucket = name, %error, "a bucket could not be closed"),
            }
        });
    }

    /// Opens, closes or changes a bucket in the background.
    pub(crate) fn change(&mut self, name: &str, change: impl FnOnce() + Send + 'static) {
        let wake = Arc::clone(&self.wake);
        let task = tokio::task::spawn_blocking(move || {
            change();
            wake.notify_one();
        });
        let running = self.changing.insert(name.to_owned(), task);
        assert!(running.is_none(), "a bucket is opened or closed by one task at a time");
    }

    /// Brings the manifest of a bucket up to date with etcd.
    pub(crate) async fn refresh_manifest(
        &self,
        handle: &dyn SharedBucket,
    ) -> Result<(), AgreementError> {
        let key = self.keys.manifest(handle.name());
        if let Some(manifest) = self.agreement.get(&key, self.limit()).await? {
            install(handle, &manifest);
        }
        Ok(())
    }
}

/// Puts collections of the cluster in force; false when that is not possible.
pub(crate) fn install(handle: &dyn SharedBucket, manifest: &AgreementRecord) -> bool {
    let text = String::from_utf8_lossy(&manifest.value);
    let installed = handle.bucket().install_manifest(&text);
    if let Err(error) = &installed {
        tracing::error!(bucket = handle.name(), %error, "the cluster's collections cannot be installed");
    }
    installed.is_ok()
}
