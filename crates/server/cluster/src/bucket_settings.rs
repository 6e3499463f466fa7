//! Settings of shared buckets, which all nodes have alike.
//!
//! Owns: changes of the record `c/buckets/NAME`, that each node puts them in force, and what the
//! nodes report about that. Invariants:
//! - the record changes only by compare-and-set, so no change is lost;
//! - a node serves vbuckets of a bucket only after it has reported, in its session, which revision
//!   of the record it has in force, in a transaction in which that revision was still the newest.
//!   So a change that is answered waits for every node that may serve the bucket, and a node that
//!   was away has the change before it serves;
//! - settings that a node cannot have are reported by name, and those before stay in force there.
//!
//! [`crate::buckets::ClusterBuckets`] knows the meaning of settings. Callers: the agent's tick;
//! the server, for changes by clients.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;

use crate::agent::{Agent, ClusterView, understood};
use crate::agreement::{AgreementError, AgreementRecord, RecordChange, RecordComparison};
use crate::buckets::SharedBucket;
use crate::leading::BucketOutline;
use crate::limits::{CHANGE_LIMIT, CHANGE_TRIES};
use crate::member::{ClusterMember, LOOK_PAUSE};
use crate::settings_report::{SettingsInForce, SettingsReport};

/// Buckets of one transaction: etcd allows 128 comparisons.
const TRANSACTION_BUCKETS: usize = 100;

/// A change of a bucket's settings: the record as it is to be.
pub type BucketSettingsChange<'c, E> = dyn FnMut(&[u8]) -> Result<Vec<u8>, E> + 'c;

/// Settings of a bucket that a node does not have in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SettingsTrouble {
    pub bucket: String,
    pub node: String,
    pub reason: String,
}

/// Why the settings of a bucket were not changed on all nodes.
#[derive(Debug, thiserror::Error)]
pub enum BucketSettingsError<E> {
    /// The change may be in effect later.
    #[error(transparent)]
    Agreement(#[from] AgreementError),
    #[error("the cluster does not know the bucket yet")]
    Unknown,
    #[error("other nodes change the settings again and again")]
    Contended,
    #[error("the cluster has the change, and not every node has it in force: {0}")]
    Partial(String),
    #[error("the change was rejected")]
    Rejected(E),
}

impl Agent {
    /// Puts the settings of a record in force here. Stores them in the background.
    pub(crate) fn follow_settings(&mut self, entry: &AgreementRecord, handle: &dyn SharedBucket) {
        let revision = entry.mod_revision;
        assert!(revision > 0, "a record was written");
        let before = self.settings_in_force.buckets.get(handle.uuid());
        if before.is_some_and(|before| before.revision == revision) {
            return;
        }
        let name = handle.name();
        let outcome = self.buckets.apply_settings(name, &entry.value);
        let failure = outcome.as_ref().err().map(ToString::to_string);
        if let Some(error) = &failure {
            tracing::error!(
                bucket = name,
                error,
                "this node cannot have the bucket's settings of the cluster, and keeps its own"
            );
        }
        // The collections are noted next.
        let in_force = SettingsInForce { revision, failure, manifest_revision: 0 };
        self.settings_in_force.buckets.insert(handle.uuid().to_owned(), in_force);
        if matches!(outcome, Ok(true)) {
            tracing::info!(bucket = name, "the cluster's settings of the bucket are in force");
            let (buckets, settings) = (Arc::clone(&self.buckets), entry.value.clone());
            let bucket = name.to_owned();
            self.change(name, move || {
                if let Err(error) = buckets.store_settings(&bucket, &settings) {
                    // The next start reads the cluster's again.
                    tracing::warn!(bucket, %error, "the settings of a bucket cannot be stored");
                }
            });
        }
    }

    /// Reports the settings that are in force here; false when some are no longer the newest, or
    /// not reported yet.
    pub(crate) async fn report_settings(
        &mut self,
        view: &ClusterView,
    ) -> Result<bool, AgreementError> {
        let open: Vec<String> =
            self.buckets.shared().iter().map(|handle| handle.uuid().to_owned()).collect();
        self.settings_in_force.buckets.retain(|uuid, _| open.contains(uuid));
        let own = self.settings.node.name.as_str();
        let mut report = view.settings_reports.get(own).cloned().unwrap_or_default();
        report.buckets.retain(|uuid, _| open.contains(uuid));
        let is_new = |(uuid, in_force): &(&String, &SettingsInForce)| {
            report.buckets.get(*uuid) != Some(*in_force)
        };
        let new: Vec<(String, SettingsInForce)> = self
            .settings_in_force
            .buckets
            .iter()
            .filter(is_new)
            .map(|(uuid, in_force)| (uuid.clone(), in_force.clone()))
            .collect();
        if new.is_empty() {
            return Ok(true);
        }
        let is_all = new.len() <= TRANSACTION_BUCKETS;
        let part: BTreeMap<_, _> = new.into_iter().take(TRANSACTION_BUCKETS).collect();
        let newest = |entry: &AgreementRecord| {
            let revision = part.get(&understood::<BucketOutline>(entry)?.uuid)?.revision;
            Some(RecordComparison::ModifiedAt(entry.key.clone(), revision))
        };
        let unchanged: Vec<RecordComparison> = view.buckets.values().filter_map(newest).collect();
        debug_assert!(unchanged.len() <= TRANSACTION_BUCKETS, "etcd allows no more");
        report.buckets.extend(part);
        let value = serde_json::to_vec(&report).expect("plain structs");
        let put = [self.put_in_session(self.keys.settings_report(own), value)];
        let written = self.agreement.transact(&unchanged, &put, self.limit()).await?;
        Ok(written.is_some() && is_all)
    }
}

impl ClusterMember {
    /// Changes the settings of a shared bucket. When it returns `Ok`, every node that serves the
    /// bucket, or will, has them in force. `change` runs again when another node was faster.
    /// Blocks; do not call it from an event loop.
    ///
    /// # Errors
    /// See [`BucketSettingsError`].
    pub fn change_bucket<E>(
        &self,
        handle: &dyn SharedBucket,
        change: &mut BucketSettingsChange<'_, E>,
    ) -> Result<(), BucketSettingsError<E>> {
        self.runtime.block_on(async {
            let revision = self.agree_on_settings(handle.name(), change).await?;
            self.wake();
            self.await_settings(handle.uuid(), revision).await
        })
    }

    /// Returns the revision of the record that has the change.
    async fn agree_on_settings<E>(
        &self,
        bucket: &str,
        change: &mut BucketSettingsChange<'_, E>,
    ) -> Result<i64, BucketSettingsError<E>> {
        let key = self.keys.bucket(bucket);
        for _ in 0..CHANGE_TRIES {
            let found = self.agreement.get(&key, CHANGE_LIMIT).await?;
            let found = found.ok_or(BucketSettingsError::Unknown)?;
            let settings = change(&found.value).map_err(BucketSettingsError::Rejected)?;
            if settings == found.value {
                return Ok(found.mod_revision);
            }
            let unchanged = [RecordComparison::ModifiedAt(key.clone(), found.mod_revision)];
            let put = [RecordChange::put(key.clone(), settings)];
            let written = self.agreement.transact(&unchanged, &put, CHANGE_LIMIT).await?;
            if let Some(revision) = written {
                return Ok(revision);
            }
        }
        Err(BucketSettingsError::Contended)
    }

    /// Waits until every live node has a revision of the settings in force: a node that does not
    /// answer loses its lease.
    async fn await_settings<E>(
        &self,
        uuid: &str,
        revision: i64,
    ) -> Result<(), BucketSettingsError<E>> {
        assert!(revision > 0, "a change has a revision");
        let limit = Duration::from_secs(self.lease_s) + CHANGE_LIMIT;
        let give_up = Instant::now() + limit;
        loop {
            // First the nodes: one that joins later reports a revision that is at least as new.
            let nodes = self.agreement.list(&self.keys.nodes(), CHANGE_LIMIT).await?;
            let reports = self.keys.settings_reports();
            let found = self.agreement.list(&reports, CHANGE_LIMIT).await?;
            let live =
                |name: &&str| nodes.records.iter().any(|node| node.key == self.keys.node(name));
            let reported = found.records.iter().filter_map(|entry| {
                let name = entry.key.strip_prefix(&reports).filter(live)?;
                let report = understood::<SettingsReport>(entry)?;
                Some((name, report.buckets.get(uuid)?.clone()))
            });
            let reported: Vec<(&str, SettingsInForce)> = reported.collect();
            let is_late = |(_, in_force): &&(&str, SettingsInForce)| in_force.revision < revision;
            let late: Vec<&str> = reported.iter().filter(is_late).map(|(name, _)| *name).collect();
            if late.is_empty() {
                let failed = reported.iter().filter_map(|(name, in_force)| {
                    Some(format!("{name}: {}", in_force.failure.as_ref()?))
                });
                let failed: Vec<String> = failed.collect();
                return match failed.is_empty() {
                    true => Ok(()),
                    false => Err(BucketSettingsError::Partial(failed.join("; "))),
                };
            }
            let left = give_up.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let late = format!("{} did not answer in time", late.join(", "));
                return Err(BucketSettingsError::Partial(late));
            }
            let seen = found.revision;
            if self.agreement.watch(&reports, seen, left.min(LOOK_PAUSE)).await.is_err() {
                tokio::time::sleep(left.min(LOOK_PAUSE)).await;
            }
        }
    }
}

/// Settings that live nodes do not have in force.
pub(crate) fn settings_troubles(view: &ClusterView) -> Vec<SettingsTrouble> {
    let mut troubles = Vec::new();
    for (bucket, entry) in &view.buckets {
        let Some(outline) = understood::<BucketOutline>(entry) else { continue };
        let live = view.settings_reports.iter().filter(|(name, _)| view.nodes.contains_key(*name));
        for (node, report) in live {
            let Some(in_force) = report.buckets.get(&outline.uuid) else { continue };
            let reason = match &in_force.failure {
                Some(failure) => failure.clone(),
                None if in_force.revision < entry.mod_revision => "it is late".to_owned(),
                None => continue,
            };
            let (bucket, node) = (bucket.clone(), node.clone());
            troubles.push(SettingsTrouble { bucket, node, reason });
        }
    }
    troubles
}
