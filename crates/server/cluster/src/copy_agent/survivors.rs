//! What the copies that are left do by themselves when a node is not heard, without the leader.
//!
//! Owns: those decisions. A node that does not hear the node of an active copy promises the next
//! epoch for its own copy. When the promises decide for it, it writes the record and takes the
//! vbucket's key over in the same transaction, though the other node's session may last. An active
//! copy that would lack grants without a silent node leaves that one out, while it still serves,
//! once its disk has everything that it acknowledged.
//!
//! Why nothing is served twice: a promise is shown (`reports`) only while its node grants
//! nothing to the active copy's node, and grants nothing again before the record has reached the
//! promise. The promises of |M| - w + 1 members decide, and the active copy serves only while w - 1
//! others grant, so one of those that promised is missing to it (or the active copy itself has
//! promised, and stopped). It cannot begin again, because it reads the record after the first grant
//! that counts. Both changes compare the record, so only one of them comes true.

use std::collections::BTreeSet;
use std::sync::Arc;

use oribi_replication::copies::{CopiesEpoch, CopiesRecord, CopyId};
use oribi_replication::election::Election;

use crate::agent::{Agent, ClusterView};
use crate::agreement::{AgreementError, RecordChange, RecordComparison};
use crate::copies::progress::patience_ns;
use crate::copies::record::{RecordStep, encode, is_founding};
use crate::copies::{CopyWaker, LocalCopy, VbucketCopies};
use crate::copy_agent::is_failing_over;
use crate::grants::ServingCondition;
use crate::records::{CopiesEntry, VbucketPlace};

impl Agent {
    /// Takes note of the nodes that are not heard, and of those that grant nothing.
    pub(crate) fn note_silence(&self, view: &mut ClusterView) {
        let (own, grants) = (self.settings.node.name.as_str(), &self.lease.grants);
        let others = view.roster.names().filter(|name| *name != own);
        let times = (self.lease.now_ns(), patience_ns(self.settings.lease_s));
        view.silent = grants.silent(others, times);
        view.suspected = grants.suspected();
        assert!(!view.suspected.contains(own), "a node does not suspect itself");
    }

    /// The nodes whose active copies copies here have promised to replace: they get no grants.
    /// A bucket that is closed for a moment has reports still.
    pub(super) fn opposed<'l>(
        &self,
        view: &'l ClusterView,
        node: Option<u16>,
        locals: impl Iterator<Item = (&'l str, &'l [LocalCopy])>,
    ) -> BTreeSet<String> {
        let own = view.reports.iter().filter(|((_, of), _)| Some(*of) == node);
        let reported = own.map(|((uuid, _), report)| (uuid.as_str(), &report.copies[..]));
        let all = locals.chain(reported);
        let all = all.flat_map(|(uuid, local)| local.iter().map(move |one| (uuid, one)));
        let opposed = all.filter_map(|(uuid, one)| self.opposes(view, uuid, one));
        opposed.map(|(name, _)| name.to_owned()).collect()
    }

    /// The node of the active copy that a copy here has promised to replace, and the epoch of the
    /// record. An active copy that recovers does not serve, so it needs no grants.
    pub(super) fn opposes<'v>(
        &self,
        view: &'v ClusterView,
        uuid: &str,
        one: &LocalCopy,
    ) -> Option<(&'v str, CopiesEpoch)> {
        let place = VbucketPlace { uuid: uuid.to_owned(), vbid: one.vbid };
        let entry = view.copies.get(&place)?;
        let active = view.roster.name(entry.record.active.node)?;
        let opposes = one.promised > entry.record.epoch
            && active != self.settings.node.name
            && !view.recovers(&place, entry);
        opposes.then_some((active, entry.record.epoch))
    }

    /// True when this node asks for another active copy because it does not hear the present one's
    /// node.
    pub(super) fn suspects(
        &mut self,
        view: &ClusterView,
        (place, entry): (&VbucketPlace, &CopiesEntry),
        node: Option<u16>,
    ) -> bool {
        let record = &entry.record;
        let is_member = record.members.iter().any(|copy| Some(copy.node) == node);
        let is_asked = is_member && node != Some(record.active.node) && !is_founding(record);
        let is_suspected = view.is_suspected(record.active);
        let now_ns = self.lease.now_ns();
        is_asked && is_suspected && self.copies.suspicions.allow(place, record, now_ns)
    }

    /// The grants that this node needs to serve by a record.
    pub(super) fn serving_condition(
        &self,
        view: &ClusterView,
        record: &CopiesRecord,
    ) -> ServingCondition {
        let name = |copy: CopyId| view.roster.name(copy.node).unwrap_or_default().to_owned();
        let sets = record.granters();
        let sets = sets.map(|(set, needed)| (set.into_iter().map(name).collect(), needed));
        ServingCondition { epoch: record.epoch, sets: sets.collect(), read_ns: self.read_ns }
    }

    /// Promotes the copies of this node that the promises decide for.
    pub(super) async fn promote_own(
        &mut self,
        view: &ClusterView,
        node: u16,
        (uuid, local): (&str, &[LocalCopy]),
    ) -> Result<(), AgreementError> {
        let (mut common, mut steps, mut nodes) = (Vec::new(), Vec::new(), BTreeSet::new());
        for one in local {
            let place = VbucketPlace { uuid: uuid.to_owned(), vbid: one.vbid };
            let Some(entry) = view.copies.get(&place) else { continue };
            let Some((record, reports)) = self.won(view, (&place, entry), (node, one)) else {
                continue;
            };
            let key = self.keys.held(&entry.bucket, uuid, one.vbid);
            let held = match view.held.get(&place) {
                Some(holder) => RecordComparison::HasValue(key.clone(), holder.token.clone()),
                None => RecordComparison::Absent(key.clone()),
            };
            let unchanged = RecordComparison::ModifiedAt(entry.key.clone(), entry.revision);
            let put = RecordChange::put(entry.key.clone(), encode(&record));
            let take = self.put_in_session(key, self.token());
            steps.push(RecordStep { comparisons: vec![unchanged, held], changes: vec![put, take] });
            nodes.extend(view.roster.name(entry.record.active.node));
            for report in reports {
                if !common.contains(&report) {
                    common.push(report);
                }
            }
        }
        if steps.is_empty() {
            return Ok(());
        }
        let promoted = self.commit(&common, &steps).await?;
        tracing::warn!(
            ?nodes,
            promoted,
            elected = steps.len(),
            "nodes are not heard: copies here replace their active ones"
        );
        self.copies.failovers += u64::from(promoted > 0);
        self.wake.notify_one();
        Ok(())
    }

    /// The record in which the copy of this node is active, if the promises decide for it, and that
    /// the reports of the others are as they were read.
    fn won(
        &mut self,
        view: &ClusterView,
        (place, entry): (&VbucketPlace, &CopiesEntry),
        (node, one): (u16, &LocalCopy),
    ) -> Option<(CopiesRecord, Vec<RecordComparison>)> {
        let base = &entry.record;
        let own = base.members.iter().copied().find(|copy| copy.node == node)?;
        let mut election = Election::new(base.clone());
        let has_promised = one.promised == election.epoch() && one.copy == own.copy;
        let active = view.roster.name(base.active.node)?;
        let is_free = !self.lease.grants.may_be_held_by(active, self.lease.now_ns());
        let may_win =
            has_promised && !one.is_unreadable && own != base.active && !is_founding(base);
        if !may_win || !is_free || !view.is_suspected(base.active) {
            return None;
        }
        election.promised(own, one.report);
        let (mut reports, mut waits) = (Vec::new(), false);
        let others = base.members.iter().copied().filter(|copy| *copy != own);
        for member in others.filter(|copy| !view.is_suspected(*copy)) {
            match view.local_copy(place, member) {
                None if view.report_on(place, member.node).is_some() => election.lost(member),
                Some(local) if local.promised >= election.epoch() => {
                    election.promised(member, local.report);
                }
                _ => {
                    waits |= view.is_live(member.node);
                    continue;
                }
            }
            reports.extend(view.unchanged_report(place, member.node));
        }
        let since_ns = self.copies.suspicions.since_ns(place, one.promised).unwrap_or(0);
        let waited_ns = self.lease.now_ns().saturating_sub(since_ns);
        let record = election.decided()?;
        assert!(record.members.contains(&record.active), "a member is promoted");
        if waits && waited_ns < self.lease.grants.periods().given_ns {
            // The best copy may be any of those that live.
            self.look_again_soon();
            return None;
        }
        (record.active == own).then_some((record, reports))
    }

    /// Leaves the other copies of vbuckets out that are active here, where their nodes are silent
    /// and their grants are needed. By then the disk of the active copy has every acknowledged
    /// write, because the memories of the others do not count any more.
    pub(super) async fn leave_silent_out(
        &mut self,
        view: &ClusterView,
        node: u16,
        (uuid, copies, local): (&str, &dyn VbucketCopies, &[LocalCopy]),
    ) -> Result<(), AgreementError> {
        if view.silent.is_empty() && self.copies.lone.is_empty() {
            return Ok(());
        }
        let is_staying = !is_failing_over(view, Some(&self.settings.node.name));
        let (mut steps, mut left_alone) = (Vec::new(), Vec::new());
        for one in local {
            let place = VbucketPlace { uuid: uuid.to_owned(), vbid: one.vbid };
            let entry = view.copies.get(&place).filter(|_| is_staying);
            let lone = entry.and_then(|entry| alone(view, &entry.record, (node, one)));
            let Some((entry, record)) = entry.zip(lone) else {
                if self.copies.lone.remove(&place) {
                    copies.waive_storage(one.vbid);
                }
                continue;
            };
            // One wait at a time: a look follows its end.
            let waker = self.copies.lone.insert(place.clone()).then(|| {
                let wake = Arc::clone(&self.wake);
                Arc::new(move || wake.notify_one()) as CopyWaker
            });
            if !copies.demand_storage(one.vbid, waker) {
                continue;
            }
            let key = self.keys.held(&entry.bucket, uuid, one.vbid);
            let comparisons = vec![
                RecordComparison::ModifiedAt(entry.key.clone(), entry.revision),
                RecordComparison::HasValue(key, self.token()),
            ];
            let put = RecordChange::put(entry.key.clone(), encode(&record));
            steps.push(RecordStep { comparisons, changes: vec![put] });
            left_alone.push((place, self.serving_condition(view, &record)));
        }
        if steps.is_empty() {
            return Ok(());
        }
        let left_out = self.commit(&[], &steps).await?;
        tracing::warn!(
            silent = ?view.silent,
            vbuckets = left_out,
            "nodes grant nothing: their copies are left out, so that active ones here serve"
        );
        if left_out == steps.len() {
            // They need no grants by these records.
            for (place, condition) in &left_alone {
                self.lease.admit(self.session, place, condition);
            }
        }
        self.wake.notify_one();
        Ok(())
    }
}

/// The record with the active copy alone, if it is on this node and the others are silent that it
/// needs.
fn alone(
    view: &ClusterView,
    record: &CopiesRecord,
    (node, one): (u16, &LocalCopy),
) -> Option<CopiesRecord> {
    let is_active = record.active == CopyId { node, copy: one.copy };
    // The active copy may not have begun a record that takes in a copy which does not grant.
    let has_begun = one.report.recorded == record.epoch
        || (record.is_joint() && one.report.recorded.next() == record.epoch);
    let is_whole = one.report.is_intact && !one.is_unreadable && !one.hands_over && has_begun;
    if !is_active || !is_whole || one.promised > record.epoch || is_founding(record) {
        return None;
    }
    let grants = |copy: CopyId| copy == record.active || !view.is_silent(copy.node);
    if record.is_write_quorum(grants) {
        return None;
    }
    let alone = record.promoted(record.active);
    assert!(alone.active == record.active, "the active copy stays");
    (alone.members == [record.active]).then_some(alone)
}
