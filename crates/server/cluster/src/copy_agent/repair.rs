//! The leader's changes of records without an operator: first records, and missing copies.
//!
//! Owns: those decisions, as functions of the records and of how long the leader waits. The copies
//! of a new bucket are spread evenly; the vbucket is served from the epoch after, in which copies
//! that did not begin are no members. A member that does not follow the active copy is left out, by
//! a joint record. A vbucket with fewer copies than configured gets one, on a node that has a
//! former one or else the fewest, by a joint record that is left once the new copy holds
//! everything; so does one that a rebalance moves. Surplus copies are left out. The number of
//! configured copies in a record follows the bucket's: it grows with each copy that has joined, so
//! that durable writes never wait for one that is being filled, and shrinks together with the set.
//! A record is left alone while a node knows a later epoch than it has, and while no node serves
//! it.

use std::collections::BTreeMap;

use oribi_replication::copies::{CopiesEpoch, CopiesRecord, CopyId};
use oribi_types::Vbid;

use crate::agent::{ClusterView, understood};
use crate::agreement::{RecordChange, RecordComparison};
use crate::copies::placement::{CopyChain, place};
use crate::copies::record::{RecordStep, encode, is_founding};
use crate::copies::waits::LeaderWaits;
use crate::leading::BucketOutline;
use crate::records::{CopiesEntry, RecordKeys, VbucketPlace};

/// New copies that a node fills at the same time.
const JOINING_MAX: usize = 4;

/// Number of copies on each node that may get more.
pub(crate) struct CopyCounts(BTreeMap<u16, usize>);

impl CopyCounts {
    pub(crate) fn of(view: &ClusterView, without: Option<&str>) -> CopyCounts {
        let receiving = view.receiving().filter(|(_, name)| Some(*name) != without);
        let mut counts: BTreeMap<u16, usize> = receiving.map(|(number, _)| (number, 0)).collect();
        for copy in view.copies.values().flat_map(|entry| entry.record.all()) {
            counts.entry(copy.node).and_modify(|count| *count += 1);
        }
        CopyCounts(counts)
    }

    /// The node with the least rank, and of these with the fewest copies, that has none of `taken`;
    /// it counts one more from then on. A node without rank gets none.
    pub(crate) fn least(
        &mut self,
        taken: &[CopyId],
        rank: impl Fn(u16) -> Option<u8>,
    ) -> Option<u16> {
        let is_free = |node: &u16| taken.iter().all(|copy| copy.node != *node);
        let free = self.0.iter_mut().filter(|(node, _)| is_free(node));
        let ranked = free.filter_map(|(node, count)| Some((rank(*node)?, *node, count)));
        let (_, node, count) = ranked.min_by_key(|(rank, node, count)| (*rank, **count, *node))?;
        *count += 1;
        Some(node)
    }
}

/// Changes of the records of all buckets with copies, each of them by itself.
pub(crate) fn steps(
    keys: &RecordKeys,
    view: &ClusterView,
    waits: &mut LeaderWaits,
) -> Vec<RecordStep> {
    let mut steps = Vec::new();
    let (mut counts, mut wanted) = (CopyCounts::of(view, None), BTreeMap::new());
    for (name, entry) in &view.buckets {
        let Some(outline) = understood::<BucketOutline>(entry) else { continue };
        if let Some(replicas) = outline.replicas {
            let copies = usize::from(replicas) + 1;
            steps.extend(first_records(keys, view, (name, &outline), copies));
            wanted.insert(outline.uuid, copies);
        }
    }
    let mut joining = BTreeMap::new();
    for entry in view.copies.values().filter(|entry| entry.record.is_joint()) {
        for copy in new_copies(&entry.record) {
            *joining.entry(copy.node).or_insert(0_usize) += 1;
        }
    }
    for (place, entry) in &view.copies {
        if view.deleted.contains_key(&place.uuid) {
            let unchanged = RecordComparison::ModifiedAt(entry.key.clone(), entry.revision);
            let gone = RecordChange::delete(entry.key.clone());
            steps.push(RecordStep { comparisons: vec![unchanged], changes: vec![gone] });
            continue;
        }
        let next = match is_founding(&entry.record) {
            true => founded(view, (place, entry), &mut counts, waits),
            false => {
                let copies = wanted.get(&place.uuid).copied().unwrap_or(entry.record.configured);
                next_record(view, (place, entry, copies), (&mut counts, &mut joining), waits)
            }
        };
        if let Some(next) = next {
            assert!(next.epoch > entry.record.epoch, "each change of a record is an epoch");
            assert!(next.members.contains(&next.active), "the active copy remains a member");
            let unchanged = RecordComparison::ModifiedAt(entry.key.clone(), entry.revision);
            // A copy that ended in disorder since it reported has to recover in this epoch.
            let active = view.unchanged_report(place, entry.record.active.node);
            let put = RecordChange::put(entry.key.clone(), encode(&next));
            let comparisons = std::iter::once(unchanged).chain(active).collect();
            steps.push(RecordStep { comparisons, changes: vec![put] });
        }
    }
    steps
}

/// Records for the vbuckets of a new bucket.
fn first_records(
    keys: &RecordKeys,
    view: &ClusterView,
    (name, outline): (&str, &BucketOutline),
    copies: usize,
) -> Vec<RecordStep> {
    let nodes: Vec<u16> = view.receiving().map(|(number, _)| number).collect();
    let place_of = |vbid: u16| VbucketPlace { uuid: outline.uuid.clone(), vbid: Vbid(vbid) };
    let is_missing = |vbid: &u16| {
        let place = place_of(*vbid);
        // A copy without a record: agreement has lost the record.
        !view.copies.contains_key(&place)
            && !view.unreadable.contains(&place)
            && !view.has_copy(&place)
    };
    let missing: Vec<u16> = (0..outline.vbuckets).filter(is_missing).collect();
    if missing.is_empty() || nodes.is_empty() {
        return Vec::new();
    }
    let position = |copy: &CopyId| nodes.iter().position(|node| *node == copy.node);
    let before = |vbid: u16| -> CopyChain {
        let entry = view.copies.get(&place_of(vbid));
        entry.map_or_else(Vec::new, |entry| {
            entry.record.members.iter().filter_map(position).collect()
        })
    };
    let before: Vec<CopyChain> = (0..outline.vbuckets).map(before).collect();
    let chains = place(&before, nodes.len(), copies);
    debug_assert!(chains.iter().all(|chain| !chain.is_empty()), "each vbucket has an active copy");
    let record = |vbid: u16| {
        let chain = &chains[usize::from(vbid)];
        let members: Vec<CopyId> =
            chain.iter().map(|node| CopyId { node: nodes[*node], copy: 1 }).collect();
        let record = CopiesRecord {
            epoch: CopiesEpoch(1),
            active: members[0],
            members,
            joining: Vec::new(),
            configured: copies,
            joining_configured: None,
            handover: None,
        };
        let key = keys.copies(name, &outline.uuid, Vbid(vbid));
        RecordStep {
            comparisons: vec![RecordComparison::Absent(key.clone())],
            changes: vec![RecordChange::put(key, encode(&record))],
        }
    };
    missing.into_iter().map(record).collect()
}

fn next_record(
    view: &ClusterView,
    (place, entry, wanted): (&VbucketPlace, &CopiesEntry, usize),
    (counts, joining): (&mut CopyCounts, &mut BTreeMap<u16, usize>),
    waits: &mut LeaderWaits,
) -> Option<CopiesRecord> {
    let (record, active) = (&entry.record, entry.record.active.node);
    let locals = || record.all().into_iter().filter_map(|copy| view.local_copy(place, copy));
    if locals().any(|local| local.report.recorded > record.epoch) {
        return None;
    }
    // Nothing can be filled, and a failover may begin.
    let name = view.roster.name(active)?;
    let is_gone = view.suspected.contains(name) || !view.is_held_by(name, place);
    if is_gone || view.recovers(place, entry) {
        return None;
    }
    // A promotion that was not completed: the copies that promised need the next epoch. Until then
    // their nodes grant nothing, so the active copy may not have begun this one.
    if view.running_failover().is_none() && locals().any(|local| local.promised > record.epoch) {
        return waits.is_election_over(place, record).then(|| record.renewed());
    }
    // The active copy begins every epoch, so one that ends in disorder is known for it.
    let begun = view.local_copy(place, record.active).map(|local| local.report.recorded);
    if begun != Some(record.epoch) {
        return None;
    }
    let kept = kept_copies(view, place, record, waits);
    if record.is_joint() {
        let stores = |copy: CopyId| {
            let local = view.local_copy(place, copy);
            local.is_some_and(|local| local.report.recorded == record.epoch)
        };
        let is_filled = record.can_settle(stores) && new_copies(record).all(stores);
        if is_filled {
            new_copies(record).for_each(|copy| waits.note_filled(active, copy.node));
            return Some(record.settled());
        }
        return match kept {
            kept if kept == record.joining => None,
            kept if kept == record.members => Some(record.abandoned()),
            kept => Some(record.joint(kept)),
        };
    }
    if kept != record.members {
        return Some(record.joint(kept));
    }
    let former = |node: u16| view.report_on(place, node).and_then(|all| all.of(place.vbid));
    // What a node has of a former copy saves most of the transfer.
    let copy_on = |node: u16| former(node).map_or(record.epoch.next().0, |local| local.copy);
    if let Some(moved) = view.move_of(place) {
        return moved.next_record(record, copy_on);
    }
    let mut set = kept;
    while set.len() > wanted {
        let surplus = surplus(view, (record, &set), counts);
        set.retain(|copy| *copy != surplus);
    }
    let configured = next_configured(view, record, wanted);
    if set != record.members || configured != record.configured {
        return Some(record.resized(set, configured));
    }
    let may_return =
        |node: u16| (!view.is_live(node) || view.is_silent(node)) && !view.is_ejected_number(node);
    if set.len() == wanted || waits.keeps_place(active, |node| !may_return(node)) {
        return None;
    }
    let rank = |node: u16| {
        let is_ready = !view.is_silent(node)
            && !waits.pauses(active, node)
            && !view.is_unreadable(place, node);
        is_ready.then(|| u8::from(former(node).is_none()))
    };
    let node = counts.least(&record.members, rank)?;
    let count = joining.entry(node).or_insert(0);
    if *count >= JOINING_MAX {
        return None;
    }
    *count += 1;
    set.push(CopyId { node, copy: copy_on(node) });
    Some(record.joint(set))
}

/// The next number of configured copies on the way to the one that the bucket asks for.
fn next_configured(view: &ClusterView, record: &CopiesRecord, wanted: usize) -> usize {
    assert!(wanted > 0, "the active is a copy");
    let (members, configured) = (record.members.len(), record.configured);
    let has_copy = |(node, _): (u16, &str)| record.members.iter().any(|copy| copy.node == node);
    // Without a node for another copy, the bucket has as few as one that begins with this number.
    if members >= wanted || configured >= wanted || view.receiving().all(has_copy) {
        return wanted;
    }
    members.max(configured)
}

/// The copy that leaves a set of members with more copies than are configured.
fn surplus(
    view: &ClusterView,
    (record, set): (&CopiesRecord, &[CopyId]),
    counts: &CopyCounts,
) -> CopyId {
    let others = set.iter().copied().filter(|copy| *copy != record.active);
    let rank = |copy: &CopyId| {
        let count = counts.0.get(&copy.node).copied().unwrap_or(0);
        (view.is_ejected_number(copy.node), count, copy.node)
    };
    others.max_by_key(rank).expect("one copy is active, and there are more")
}

/// The newest set of a record, without copies that do not follow or never come back.
fn kept_copies(
    view: &ClusterView,
    place: &VbucketPlace,
    record: &CopiesRecord,
    waits: &mut LeaderWaits,
) -> Vec<CopyId> {
    let active = record.active;
    let set = if record.is_joint() { &record.joining } else { &record.members };
    let is_kept = |copy: &CopyId| {
        if *copy == active {
            return true;
        }
        let is_new = !record.members.contains(copy);
        let is_gone = view.roster.is_replaced(copy.node) || (is_new && !view.is_live(copy.node));
        let is_unfollowed = view.is_unfollowed(place, record, *copy);
        if is_unfollowed {
            waits.note_unfollowed(active.node, copy.node);
        }
        !is_gone && !is_unfollowed
    };
    let kept: Vec<CopyId> = set.iter().copied().filter(is_kept).collect();
    assert!(kept.contains(&active), "the active copy stays");
    kept
}

/// The successor of a record whose members begin: they are those that have begun when all have, or
/// had time to. Nothing was served, so any of them may be active, and others may begin instead.
fn founded(
    view: &ClusterView,
    (place, entry): (&VbucketPlace, &CopiesEntry),
    counts: &mut CopyCounts,
    waits: &mut LeaderWaits,
) -> Option<CopiesRecord> {
    let record = &entry.record;
    let has_begun = |copy: &CopyId| {
        let local = view.local_copy(place, *copy);
        local.is_some_and(|local| local.report.recorded == record.epoch)
    };
    let begun: Vec<CopyId> = record.members.iter().copied().filter(has_begun).collect();
    if begun.len() < record.members.len() && !waits.is_over(place, record) {
        return None;
    }
    let epoch = record.epoch.next();
    let members = match begun.is_empty() {
        false => begun,
        true => {
            let mut members = Vec::new();
            while members.len() < record.configured {
                let Some(node) = counts.least(&members, |_| Some(0)) else { break };
                members.push(CopyId { node, copy: epoch.0 });
            }
            members
        }
    };
    let keeps_active = members.contains(&record.active);
    let active = if keeps_active { record.active } else { *members.first()? };
    Some(CopiesRecord { epoch, active, members, joining: Vec::new(), ..record.clone() })
}

/// The copies of the joining set that are no members yet.
fn new_copies(record: &CopiesRecord) -> impl Iterator<Item = CopyId> {
    record.joining.iter().copied().filter(|copy| !record.members.contains(copy))
}
