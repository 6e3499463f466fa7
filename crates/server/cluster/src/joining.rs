//! How a node joins: it compares its secret with the cluster's, and keeps its record.
//!
//! Invariant: a name is one node's at a time; a node waits until the lease of an earlier one of its
//! name has ended. Called by the agent at each tick.

use crate::agent::{Agent, ClusterView, understood};
use crate::agreement::{AgreementError, RecordChange, RecordComparison};
use crate::records::{BeaconRecord, NodeRecord};
use crate::secret::SecretProof;
use crate::signals::LeaveStage;

impl Agent {
    /// False when this node has another secret than the cluster. The first node that has a secret
    /// makes the record by which the others compare theirs.
    pub(crate) async fn compare_secrets(
        &mut self,
        view: &ClusterView,
    ) -> Result<bool, AgreementError> {
        let Some(secret) = &self.settings.secret else { return Ok(true) };
        let key = self.keys.secret();
        let Some(record) = &view.secret else {
            let proof = serde_json::to_vec(&secret.prove()).expect("a plain struct");
            let put = [RecordChange::put(key.clone(), proof)];
            let absent = [RecordComparison::Absent(key)];
            // The next tick compares with the record that is there then.
            self.agreement.transact(&absent, &put, self.limit()).await?;
            return Ok(false);
        };
        let fits = understood::<SecretProof>(record)
            .is_some_and(|proof| proof.version == SecretProof::VERSION && secret.fits(&proof));
        if !fits && !self.is_foreign {
            tracing::error!(
                node = self.settings.node.name,
                "this node stays out of the cluster: the secret in cluster_secret_file is not the \
                 one of the other nodes; copy theirs, or choose another cluster_name"
            );
        }
        self.is_foreign = !fits;
        if let Some(users) = self.users.as_ref().filter(|_| !fits) {
            users.set_admitted(false);
        }
        Ok(fits)
    }

    /// Keeps this node's record up to date. False while another node has the name.
    pub(crate) async fn register(&mut self, view: &ClusterView) -> Result<bool, AgreementError> {
        let name = &self.settings.node.name;
        let (leaving, unable) =
            (self.stage() >= LeaveStage::Leaving, self.takeovers.unable(self.patience()));
        // Nodes copy vbuckets over links, which need the secret.
        let disk = self.settings.secret.as_ref().map(|_| self.settings.disk.clone());
        let process = self.lease.grants.process();
        let beacons = self.peers.own.map(|own| BeaconRecord { port: own.port(), process });
        let record =
            NodeRecord { disk, beacons, ..NodeRecord::of(&self.settings.node, leaving, unable) };
        let key = self.keys.node(name);
        let value = serde_json::to_vec(&record).expect("a plain struct");
        let comparisons = match view.own_session {
            Some(session) if session == self.session_id => {
                if view.nodes.get(name) == Some(&record) {
                    return Ok(true);
                }
                Vec::new()
            }
            Some(_) => {
                tracing::info!(
                    node = name,
                    "waiting for the lease of an earlier node of this name to end"
                );
                return Ok(false);
            }
            None => vec![RecordComparison::Absent(key.clone())],
        };
        let put = [self.put_in_session(key, value)];
        Ok(self.agreement.transact(&comparisons, &put, self.limit()).await?.is_some())
    }
}
