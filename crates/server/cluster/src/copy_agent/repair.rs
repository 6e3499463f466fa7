//! The leader's changes of records without an operator: first records, and missing copies.
//!
//! Owns: those decisions, as pure functions of the records. The copies of a new bucket are spread
//! evenly. A vbucket with fewer copies than configured gets one on the node with the fewest, by a
//! joint record that is left once the new copy holds everything. A record is left alone while a
//! node knows a later epoch than it has, and while no node serves it.

use std::collections::BTreeMap;

use oribi_replication::copies::{CopiesEpoch, CopiesRecord, CopyId};
use oribi_types::Vbid;

use crate::agent::{ClusterView, understood};
use crate::agreement::{RecordChange, RecordComparison};
use crate::copies::placement::{CopyChain, place};
use crate::copies::record::{RecordStep, encode};
use crate::leading::BucketOutline;
use crate::records::{CopiesEntry, RecordKeys, VbucketPlace};

/// New copies that a node fills at the same time.
const JOINING_MAX: usize = 4;

/// Number of copies on each node that lives and stays.
pub(crate) struct CopyCounts(BTreeMap<u16, usize>);

impl CopyCounts {
    pub(crate) fn of(view: &ClusterView, without: Option<&str>) -> CopyCounts {
        let staying = view.staying().filter(|(_, name)| Some(*name) != without);
        let mut counts: BTreeMap<u16, usize> = staying.map(|(number, _)| (number, 0)).collect();
        for copy in view.copies.values().flat_map(|entry| entry.record.all()) {
            counts.entry(copy.node).and_modify(|count| *count += 1);
        }
        CopyCounts(counts)
    }

    /// The node with the fewest copies that has none of `taken`; it counts one more from then on.
    pub(crate) fn least(&mut self, taken: &[CopyId]) -> Option<u16> {
        let is_free = |node: &u16| taken.iter().all(|copy| copy.node != *node);
        let free = self.0.iter_mut().filter(|(node, _)| is_free(node));
        let (node, count) = free.min_by_key(|(node, count)| (**count, **node))?;
        *count += 1;
        Some(*node)
    }
}

/// Changes of the records of all buckets with copies, each of them by itself.
pub(crate) fn steps(keys: &RecordKeys, view: &ClusterView) -> Vec<RecordStep> {
    let mut steps = Vec::new();
    let mut counts = CopyCounts::of(view, None);
    for (name, entry) in &view.buckets {
        let Some(outline) = understood::<BucketOutline>(entry) else { continue };
        if let Some(replicas) = outline.replicas {
            let copies = usize::from(replicas) + 1;
            steps.extend(first_records(keys, view, (name, &outline), copies));
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
        if let Some(next) = next_record(view, (place, entry), &mut counts, &mut joining) {
            assert!(next.epoch > entry.record.epoch, "each change of a record is an epoch");
            assert!(next.members.contains(&next.active), "the active copy remains a member");
            let unchanged = RecordComparison::ModifiedAt(entry.key.clone(), entry.revision);
            let put = RecordChange::put(entry.key.clone(), encode(&next));
            steps.push(RecordStep { comparisons: vec![unchanged], changes: vec![put] });
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
    let nodes: Vec<u16> = view.staying().map(|(number, _)| number).collect();
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
    (place, entry): (&VbucketPlace, &CopiesEntry),
    counts: &mut CopyCounts,
    joining: &mut BTreeMap<u16, usize>,
) -> Option<CopiesRecord> {
    let record = &entry.record;
    let locals = || record.all().into_iter().filter_map(|copy| view.local_copy(place, copy));
    if locals().any(|local| local.report.recorded > record.epoch) {
        return None;
    }
    // Nothing can be filled, and a failover may begin.
    if !view.is_held_by(view.roster.name(record.active.node)?, place) {
        return None;
    }
    // A promotion that was not completed: the copies that promised need the next epoch.
    if view.running_failover().is_none() && locals().any(|local| local.promised > record.epoch) {
        return Some(record.abandoned());
    }
    if record.is_joint() {
        let stores = |copy: CopyId| {
            let local = view.local_copy(place, copy);
            local.is_some_and(|local| local.report.recorded == record.epoch)
        };
        let is_filled = record.can_settle(stores) && new_copies(record).all(stores);
        let is_lost = new_copies(record).any(|copy| !view.is_live(copy.node));
        return match (is_filled, is_lost) {
            (true, _) => Some(record.settled()),
            (false, true) => Some(record.abandoned()),
            (false, false) => None,
        };
    }
    let kept = record.members.iter().copied();
    let mut set: Vec<CopyId> = kept.filter(|copy| !view.roster.is_replaced(copy.node)).collect();
    if !set.contains(&record.active) || set.len() >= record.configured {
        return None;
    }
    let node = counts.least(&record.members)?;
    let count = joining.entry(node).or_insert(0);
    if *count >= JOINING_MAX {
        return None;
    }
    *count += 1;
    // What the node has of a former copy saves most of the transfer.
    let former = view.reports.get(&(place.uuid.clone(), node)).and_then(|all| all.of(place.vbid));
    let copy = former.map_or(record.epoch.next().0, |local| local.copy);
    set.push(CopyId { node, copy });
    Some(record.joint(set))
}

/// The copies of the joining set that are no members yet.
fn new_copies(record: &CopiesRecord) -> impl Iterator<Item = CopyId> {
    record.joining.iter().copied().filter(|copy| !record.members.contains(copy))
}
