//! What operators ask of a rebalance: to begin, and to stop.
//!
//! Owns: the checks of a request and its record. A request names all nodes that the operator knows,
//! so that it is refused when the cluster has changed since. Blocks; not for event loops.

use std::collections::BTreeSet;

use crate::agent::ClusterView;
use crate::agreement::{AgreementError, RecordChange, RecordComparison};
use crate::copies::moves::{RebalanceRecord, RebalanceState};
use crate::identity::ClusterIdentity;
use crate::limits::CHANGE_LIMIT;
use crate::member::ClusterMember;
use crate::status::shown_nodes;

/// Attempts while the leader changes the record concurrently.
const STOP_TRIES: usize = 32;

/// Why a rebalance did not begin, or did not stop.
#[derive(Debug, thiserror::Error)]
pub enum RebalanceError {
    #[error(transparent)]
    Agreement(#[from] AgreementError),
    #[error("a rebalance is running; wait for its end, or stop it")]
    Running,
    /// The request names other nodes than the cluster has.
    #[error("the cluster has these nodes: {}", nodes.join(", "))]
    Mismatch { nodes: Vec<String> },
    #[error("the request names no nodes")]
    NoKnownNodes,
    #[error("the cluster has no node {0:?} to remove")]
    UnknownNode(String),
    #[error("no node would be left that may have copies")]
    NoNodeLeft,
    #[error("the rebalance changed while it was being stopped; try again")]
    Contended,
}

impl ClusterMember {
    /// Begins to spread copies evenly over the nodes `known`, without those `ejected`; returns the
    /// rebalance's id. The leading node does the rest.
    ///
    /// # Errors
    /// See [`RebalanceError`].
    pub fn rebalance(
        &self,
        known: &BTreeSet<String>,
        ejected: &BTreeSet<String>,
    ) -> Result<String, RebalanceError> {
        let begun = self.runtime.block_on(self.request_rebalance(known, ejected));
        self.wake();
        begun
    }

    async fn request_rebalance(
        &self,
        known: &BTreeSet<String>,
        ejected: &BTreeSet<String>,
    ) -> Result<String, RebalanceError> {
        if known.is_empty() {
            return Err(RebalanceError::NoKnownNodes);
        }
        let list = self.agreement.list(self.keys.all(), CHANGE_LIMIT).await?;
        let view = ClusterView::read(&self.keys, "", list.records);
        let nodes = shown_nodes(&view);
        if *known != nodes {
            return Err(RebalanceError::Mismatch { nodes: nodes.into_iter().collect() });
        }
        if let Some(unknown) = ejected.difference(&nodes).next() {
            return Err(RebalanceError::UnknownNode(unknown.clone()));
        }
        let mut nodes_left = view.nodes.iter().filter(|(_, node)| !node.leaving);
        let has_place =
            view.copies.is_empty() || !view.staying().all(|(_, it)| ejected.contains(it));
        if !has_place || nodes_left.all(|(name, _)| ejected.contains(name)) {
            return Err(RebalanceError::NoNodeLeft);
        }
        let key = self.keys.rebalance();
        let (unchanged, before) = match &view.rebalance {
            None => (RecordComparison::Absent(key.clone()), BTreeSet::new()),
            Some((record, _)) if record.is_running() => return Err(RebalanceError::Running),
            Some((record, revision)) => (
                RecordComparison::ModifiedAt(key.clone(), *revision),
                record.ejected.difference(&nodes).cloned().collect(),
            ),
        };
        // Nodes that were removed and are gone stay out, should they return.
        let ejected = ejected.union(&before).cloned().collect();
        let record = RebalanceRecord::new(ClusterIdentity::random().uuid, ejected);
        let put = [RecordChange::put(key, record.encode())];
        let written = self.agreement.transact(&[unchanged], &put, CHANGE_LIMIT).await?;
        if written.is_none() {
            self.running_record().await?;
            return Err(RebalanceError::Running);
        }
        Ok(record.id)
    }

    /// Stops the rebalance that is running; does nothing without one. Vbuckets under way are
    /// completed or go back to the copies that they had.
    ///
    /// # Errors
    /// The agreement's.
    pub fn stop_rebalance(&self) -> Result<(), RebalanceError> {
        let stopped = self.runtime.block_on(self.request_stop());
        self.wake();
        stopped
    }

    /// The rebalance that is running, with the revision of its record.
    async fn running_record(&self) -> Result<Option<(RebalanceRecord, i64)>, AgreementError> {
        let found = self.agreement.get(&self.keys.rebalance(), CHANGE_LIMIT).await?;
        let Some(found) = found else { return Ok(None) };
        let record = RebalanceRecord::decode(&found.value)
            .map_err(|detail| AgreementError::Answer { path: "c/rebalance", detail })?;
        Ok(record.is_running().then_some((record, found.mod_revision)))
    }

    async fn request_stop(&self) -> Result<(), RebalanceError> {
        let key = self.keys.rebalance();
        for _ in 0..STOP_TRIES {
            let Some((record, revision)) = self.running_record().await? else { return Ok(()) };
            let stopped = record.ended(RebalanceState::Stopped);
            let unchanged = [RecordComparison::ModifiedAt(key.clone(), revision)];
            let put = [RecordChange::put(key.clone(), stopped.encode())];
            if self.agreement.transact(&unchanged, &put, CHANGE_LIMIT).await?.is_some() {
                return Ok(());
            }
        }
        Err(RebalanceError::Contended)
    }
}
