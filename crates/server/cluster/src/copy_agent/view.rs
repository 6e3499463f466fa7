//! What the records and reports say of a vbucket's copies.
//!
//! Owns: those conclusions, and the placement of copies that clients see. Nothing changes here.

use oribi_replication::copies::{CopiesEpoch, CopiesRecord, CopyId};
use oribi_types::Vbid;

use crate::agent::{ClusterView, understood};
use crate::copies::record::{FailoverRequest, is_founding};
use crate::leading::BucketOutline;
use crate::records::{CopiesEntry, VbucketPlace};
use crate::topology::Placement;

impl ClusterView {
    /// The request to fail a node over, unless it was refused.
    pub(crate) fn running_failover(&self) -> Option<&FailoverRequest> {
        let (request, _) = self.failover.as_ref()?;
        request.refused.is_none().then_some(request)
    }

    /// True when the active copy of a record is lost, or ended in disorder since it was active, so
    /// that it may lack what it acknowledged. One that was elected has promised the record's epoch
    /// and not begun it: all others had less.
    pub(crate) fn recovers(&self, place: &VbucketPlace, entry: &CopiesEntry) -> bool {
        let record = &entry.record;
        if is_founding(record) || self.report_on(place, record.active.node).is_none() {
            return false;
        }
        self.local_copy(place, record.active).is_none_or(|local| {
            let (recorded, promised) = (local.report.recorded, local.promised);
            let is_new = recorded == CopiesEpoch(0) && promised == CopiesEpoch(0);
            let is_elected = recorded < record.epoch && promised == record.epoch;
            !local.report.is_intact && !is_new && !is_elected
        })
    }

    /// True when the active copy of a record reports that another one does not follow it.
    pub(crate) fn is_unfollowed(
        &self,
        place: &VbucketPlace,
        record: &CopiesRecord,
        copy: CopyId,
    ) -> bool {
        let is_of_epoch = self
            .local_copy(place, record.active)
            .is_some_and(|local| local.report.recorded == record.epoch);
        let report = self.report_on(place, record.active.node).filter(|_| is_of_epoch);
        let unfollowed = report.and_then(|report| report.unfollowed.get(&place.vbid));
        unfollowed.is_some_and(|nodes| nodes.contains(&copy.node))
    }

    /// True while the node of a record's active copy leaves, and serves the vbucket no more.
    pub(crate) fn is_leaving(&self, place: &VbucketPlace, entry: &CopiesEntry) -> bool {
        let name = self.roster.name(entry.record.active.node);
        let node = name.and_then(|name| self.nodes.get(name));
        node.is_some_and(|node| node.leaving) && !self.held.contains_key(place)
    }

    /// True while the copy of a node may be the next active one, once it has everything.
    pub(super) fn awaits(&self, place: &VbucketPlace, node: u16) -> bool {
        self.copies.get(place).is_some_and(|entry| {
            let record = &entry.record;
            let is_member = record.all().iter().any(|copy| copy.node == node);
            is_member && record.active.node != node && self.is_leaving(place, entry)
        })
    }

    /// True when vbuckets of this node wait for other copies to become active.
    pub(crate) fn has_heirs(&self, name: &str) -> bool {
        self.copies.values().any(|entry| {
            let record = &entry.record;
            let is_heir = |node: u16| self.staying().any(|(number, _)| number == node);
            self.roster.name(record.active.node) == Some(name)
                && record.all().iter().any(|copy| is_heir(copy.node))
        })
    }

    /// What clients see of buckets with copies: the active one of each vbucket, then the replicas.
    pub(crate) fn copy_placements(
        &self,
        map_revision: i64,
    ) -> impl Iterator<Item = (String, Placement)> {
        let view = self;
        let unsigned = |revision: i64| u64::try_from(revision).unwrap_or(0);
        view.buckets.iter().filter_map(move |(name, entry)| {
            let outline = understood::<BucketOutline>(entry)?;
            let replica_count = usize::from(outline.replicas?);
            let manifest = view.manifests.get(name).map_or(0, |manifest| manifest.mod_revision);
            let mut rev = map_revision.max(manifest);
            let position = |number: u16| {
                let name = view.roster.name(number).filter(|_| view.is_live(number))?;
                view.map.nodes.iter().position(|node| node.name == name)
            };
            let (mut owners, mut replicas) = (Vec::new(), Vec::new());
            for vbid in (0..outline.vbuckets).map(Vbid) {
                let entry = view.copies.get(&VbucketPlace { uuid: outline.uuid.clone(), vbid });
                let record = entry.map(|entry| &entry.record);
                rev = rev.max(entry.map_or(0, |entry| entry.revision));
                owners.push(record.and_then(|record| position(record.active.node)));
                let others = record.into_iter().flat_map(|record| {
                    record.members.iter().filter(|copy| **copy != record.active)
                });
                let mut chain: Vec<Option<usize>> =
                    others.map(|copy| position(copy.node)).collect();
                // Clients want the copies that exist first.
                chain.sort_by_key(Option::is_none);
                chain.resize(replica_count, None);
                replicas.push(chain);
            }
            let rev = unsigned(rev);
            Some((name.clone(), Placement { owners, replicas, replica_count, rev }))
        })
    }
}
