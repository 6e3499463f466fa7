//! Waits until the other nodes have what a client has changed by this one.
//!
//! Owns: how long an answer waits for new buckets and for collections, because clients may ask
//! another node next. Nothing depends on the outcome: a node that is late follows by itself.
//! Callers: the admin HTTP, for new buckets; `member`, for collections.

use tokio::time::Instant;

use crate::agent::understood;
use crate::agreement::AgreementError;
use crate::buckets::SharedBucket;
use crate::limits::{ARRIVAL_LIMIT, REFRESH_LIMIT};
use crate::member::{ClusterMember, LOOK_PAUSE};
use crate::records::NodeRecord;
use crate::settings_report::{SettingsInForce, SettingsReport};

/// Where records are missing, and the revision at which they were.
type Missing = Option<(String, i64)>;

impl ClusterMember {
    /// Announces a new bucket, and waits until all nodes have it and its vbuckets are served, for a
    /// few seconds at most. Blocks; do not call it from an event loop.
    pub fn await_new_bucket(&self, handle: &dyn SharedBucket) {
        self.wake();
        self.runtime.block_on(self.await_arrival(handle, None));
    }

    /// Waits until the nodes that have a bucket have this revision of its collections in force, for
    /// a few seconds at most.
    pub(crate) fn await_manifest(&self, handle: &dyn SharedBucket, revision: i64) {
        assert!(revision > 0, "a change has a revision");
        self.runtime.block_on(self.await_arrival(handle, Some(revision)));
    }

    async fn await_arrival(&self, handle: &dyn SharedBucket, manifest_revision: Option<i64>) {
        let bucket = handle.name();
        let give_up = Instant::now() + ARRIVAL_LIMIT;
        loop {
            let missing = match manifest_revision {
                Some(revision) => self.missing_manifests(handle.uuid(), revision).await,
                None => self.missing_bucket(handle).await,
            };
            let (prefix, seen) = match missing {
                Ok(None) => return,
                Ok(Some(missing)) => missing,
                Err(error) => {
                    tracing::info!(bucket, %error, "whether other nodes have the change is unknown");
                    return;
                }
            };
            let left = give_up.saturating_duration_since(Instant::now());
            if left.is_zero() {
                tracing::info!(bucket, "answered before every node has the change");
                return;
            }
            if self.agreement.watch(&prefix, seen, left.min(LOOK_PAUSE)).await.is_err() {
                tokio::time::sleep(left.min(LOOK_PAUSE)).await;
            }
        }
    }

    async fn missing_bucket(&self, handle: &dyn SharedBucket) -> Result<Missing, AgreementError> {
        let has_it = |in_force: Option<&SettingsInForce>| in_force.is_some();
        if let Some(missing) = self.missing_reports(handle.uuid(), has_it).await? {
            return Ok(Some(missing));
        }
        let prefix = self.keys.held_of(handle.name(), handle.uuid());
        let held = self.agreement.list(&prefix, REFRESH_LIMIT).await?;
        let vbuckets = usize::from(handle.bucket().config().vbuckets);
        debug_assert!(held.records.len() <= vbuckets, "a vbucket has one key");
        Ok((held.records.len() < vbuckets).then_some((prefix, held.revision)))
    }

    async fn missing_manifests(
        &self,
        uuid: &str,
        revision: i64,
    ) -> Result<Missing, AgreementError> {
        let has_it = |in_force: Option<&SettingsInForce>| {
            in_force.is_none_or(|in_force| in_force.manifest_revision >= revision)
        };
        self.missing_reports(uuid, has_it).await
    }

    /// Whether reports of other nodes that stay lack what they are to have.
    async fn missing_reports(
        &self,
        uuid: &str,
        has_it: impl Fn(Option<&SettingsInForce>) -> bool,
    ) -> Result<Missing, AgreementError> {
        let nodes = self.agreement.list(&self.keys.nodes(), REFRESH_LIMIT).await?;
        let prefix = self.keys.settings_reports();
        let found = self.agreement.list(&prefix, REFRESH_LIMIT).await?;
        let is_missing = |name: &str| {
            let key = self.keys.settings_report(name);
            let entry = found.records.iter().find(|entry| entry.key == key);
            let report = entry.and_then(understood::<SettingsReport>).unwrap_or_default();
            !has_it(report.buckets.get(uuid))
        };
        let others = nodes.records.iter().filter_map(|entry| {
            let name = entry.key.strip_prefix(&self.keys.nodes())?;
            let stays = understood::<NodeRecord>(entry).is_some_and(|record| !record.leaving);
            Some(name).filter(|name| stays && *name != self.name).map(str::to_owned)
        });
        let is_late = others.into_iter().any(|name| is_missing(&name));
        Ok(is_late.then_some((prefix, found.revision)))
    }
}
