//! What the records and reports say of a vbucket's copies.
//!
//! Owns: those conclusions, and the placement of copies that clients see. Nothing changes here.

use oribi_replication::copies::{CopiesEpoch, CopiesRecord, CopyId};
use oribi_types::Vbid;

use crate::agent::{ClusterView, understood};
use crate::agreement::RecordComparison;
use crate::copies::LocalCopy;
use crate::copies::record::{FailoverRequest, NodeReport, is_founding};
use crate::leading::BucketOutline;
use crate::records::{CopiesEntry, VbucketPlace};
use crate::topology::Placement;

impl ClusterView {
    /// Numbers of the nodes that live and have a disk for copies.
    pub(crate) fn live_numbers(&self) -> impl Iterator<Item = u16> {
        self.numbered().map(|(number, _, _)| number)
    }

    /// True when this node heard a copy's node, and does not hear it any more.
    pub(crate) fn is_suspected(&self, copy: CopyId) -> bool {
        self.roster.name(copy.node).is_some_and(|name| self.suspected.contains(name))
    }

    /// True while the grants of the node of this number to this one are about to end, or have.
    pub(crate) fn is_silent(&self, number: u16) -> bool {
        self.roster.name(number).is_some_and(|name| self.silent.contains(name))
    }

    /// True while the node of this number lives.
    pub(crate) fn is_live(&self, number: u16) -> bool {
        self.numbered().any(|(live, _, _)| live == number)
    }

    /// A member as its node reports it.
    pub(crate) fn local_copy(&self, place: &VbucketPlace, copy: CopyId) -> Option<&LocalCopy> {
        let report = self.reports.get(&(place.uuid.clone(), copy.node))?;
        report.of(place.vbid).filter(|local| local.copy == copy.copy && !local.is_unreadable)
    }

    /// True when a node has a copy of a vbucket that it cannot load, so it gets no other.
    pub(crate) fn is_unreadable(&self, place: &VbucketPlace, node: u16) -> bool {
        let local = self.report_on(place, node).and_then(|report| report.of(place.vbid));
        local.is_some_and(|local| local.is_unreadable)
    }

    /// The report of a node on a bucket.
    pub(crate) fn report_on(&self, place: &VbucketPlace, node: u16) -> Option<&NodeReport> {
        self.reports.get(&(place.uuid.clone(), node))
    }

    /// That a report is as it was read; that there is none is no comparison.
    pub(crate) fn unchanged_report(
        &self,
        place: &VbucketPlace,
        node: u16,
    ) -> Option<RecordComparison> {
        let (key, revision) = self.report_revisions.get(&(place.uuid.clone(), node))?;
        Some(RecordComparison::ModifiedAt(key.clone(), *revision))
    }

    /// True when a node that lives has any copy of a vbucket.
    pub(crate) fn has_copy(&self, place: &VbucketPlace) -> bool {
        let reports = self.reports.iter().filter(|((uuid, _), _)| *uuid == place.uuid);
        reports.into_iter().any(|(_, report)| report.of(place.vbid).is_some())
    }

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

    /// True while the node of a record's active copy leaves, or the role moves to another node, and
    /// no node serves the vbucket.
    pub(crate) fn is_handed_over(&self, place: &VbucketPlace, entry: &CopiesEntry) -> bool {
        let moves = self.moves_role_to(place, entry).is_some();
        (moves || self.is_on_leaving(entry)) && !self.held.contains_key(place)
    }

    /// True while the node of a record's active copy leaves.
    pub(crate) fn is_on_leaving(&self, entry: &CopiesEntry) -> bool {
        let name = self.roster.name(entry.record.active.node);
        name.and_then(|name| self.nodes.get(name)).is_some_and(|node| node.leaving)
    }

    /// True while the copy of a node may be the next active one, once it has everything.
    pub(super) fn awaits(&self, place: &VbucketPlace, node: u16) -> bool {
        self.copies.get(place).is_some_and(|entry| {
            let record = &entry.record;
            let is_member = record.all().iter().any(|copy| copy.node == node);
            is_member && record.active.node != node && self.is_handed_over(place, entry)
        })
    }

    /// True while the copy of a node is the active one and waits for another to be.
    pub(super) fn gives(&self, place: &VbucketPlace, node: u16) -> bool {
        let entry = self.copies.get(place).filter(|entry| entry.record.active.node == node);
        entry.is_some_and(|entry| self.is_handed_over(place, entry))
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

    /// True while other nodes have members of vbuckets whose active copies are on this node.
    pub(crate) fn has_successors(&self, name: &str) -> bool {
        self.copies.values().any(|entry| {
            let record = &entry.record;
            let is_successor = |copy: &CopyId| {
                *copy != record.active && self.staying().any(|(number, _)| number == copy.node)
            };
            self.roster.name(record.active.node) == Some(name)
                && record.members.iter().any(is_successor)
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
            let mut rev = map_revision.max(manifest).max(entry.mod_revision);
            let position = |number: u16| {
                let name = view.roster.name(number)?;
                view.map.nodes.iter().position(|node| node.name == name)
            };
            // The map names the node of an active copy until another one is promoted.
            let of_active =
                |number: u16| position(number).filter(|_| !view.roster.is_replaced(number));
            let of_replica = |number: u16| {
                let stays = |at: &usize| !view.map.nodes[*at].record.leaving;
                position(number).filter(|at| stays(at) && view.is_live(number))
            };
            let (mut owners, mut replicas) = (Vec::new(), Vec::new());
            for vbid in (0..outline.vbuckets).map(Vbid) {
                let entry = view.copies.get(&VbucketPlace { uuid: outline.uuid.clone(), vbid });
                let record = entry.map(|entry| &entry.record);
                rev = rev.max(entry.map_or(0, |entry| entry.revision));
                owners.push(record.and_then(|record| of_active(record.active.node)));
                let others = record.into_iter().flat_map(|record| {
                    record.members.iter().filter(|copy| **copy != record.active)
                });
                let mut chain: Vec<Option<usize>> =
                    others.map(|copy| of_replica(copy.node)).collect();
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
