//! The leader's part in a rebalance: which moves run, and when it has ended.
//!
//! Owns: that decision, as a function of the records. Moves that are done, or whose node is gone,
//! leave the list, and moves of the plan take their places. No move begins during a failover, or
//! while a node with copies is gone that is not to be removed: it returns, or repair leaves its
//! copies out. The record names what it waits for.

use std::collections::{BTreeMap, BTreeSet};

use oribi_replication::copies::{CopiesRecord, CopyId};
use oribi_types::Vbid;

use super::plan::{PlanNode, PlannedMove, plan};
use crate::agent::{Agent, ClusterView, understood};
use crate::agreement::{AgreementError, RecordChange, RecordComparison};
use crate::copies::moves::{CopyMove, MOVES_PER_NODE, MoveCounts, RebalanceRecord, RebalanceState};
use crate::copies::placement::CopyChain;
use crate::copies::record::is_founding;
use crate::copies::waits::LeaderWaits;
use crate::leading::BucketOutline;
use crate::records::{CopiesEntry, VbucketPlace};

impl Agent {
    /// Brings the rebalance that is running further; this node leads.
    pub(crate) async fn lead_rebalance(
        &mut self,
        view: &ClusterView,
        leads: &RecordComparison,
    ) -> Result<(), AgreementError> {
        let Some((record, revision)) = view.rebalance.as_ref() else { return Ok(()) };
        if !record.is_running() {
            return Ok(());
        }
        let next = next(view, record, &mut self.copies.waits);
        if next == *record {
            return Ok(());
        }
        let key = self.keys.rebalance();
        let unchanged = RecordComparison::ModifiedAt(key.clone(), *revision);
        let put = [RecordChange::put(key, next.encode())];
        let comparisons = [leads.clone(), unchanged];
        if self.agreement.transact(&comparisons, &put, self.limit()).await?.is_some() {
            let (id, left, moving) = (&next.id, next.counts.left, next.moves.len());
            match &next.waits_for {
                _ if !next.is_running() => tracing::info!(id, "the rebalance is done"),
                Some(reason) if record.waits_for != next.waits_for => {
                    tracing::warn!(id, left, reason, "the rebalance waits");
                }
                _ => tracing::debug!(id, left, moving, "the rebalance continues"),
            }
        }
        Ok(())
    }
}

/// The record after one look.
pub(crate) fn next(
    view: &ClusterView,
    record: &RebalanceRecord,
    waits: &mut LeaderWaits,
) -> RebalanceRecord {
    assert!(record.is_running(), "a rebalance that has ended stays as it is");
    let mut next = record.clone();
    next.moves.retain(|it| continues(view, it, waits));
    if let Some(failover) = view.running_failover() {
        next.waits_for = Some(format!("the failover of node {}", failover.node));
        return next;
    }
    let planned = match planned(view, &next.moves) {
        Ok(planned) => planned,
        Err(reason) => {
            next.waits_for = Some(reason);
            return next;
        }
    };
    count(view, &mut next, &planned);
    if planned.is_empty() && next.moves.is_empty() {
        return next.ended(RebalanceState::Done);
    }
    let obstacle = start(view, &mut next.moves, &planned, waits);
    next.waits_for = obstacle.filter(|_| next.moves.is_empty());
    next
}

/// False when a move is done, or cannot be completed.
fn continues(view: &ClusterView, moved: &CopyMove, waits: &mut LeaderWaits) -> bool {
    let place = moved.place();
    let Some(entry) = view.copies.get(&place).filter(|_| !view.deleted.contains_key(&place.uuid))
    else {
        return false;
    };
    let record = &entry.record;
    let on = |node: u16| newest_set(record).iter().any(|copy| copy.node == node);
    let is_lost = |node: u16| !view.staying().any(|(number, _)| number == node);
    if moved.is_done(record)
        || moved.add.is_some_and(is_lost)
        || is_lost(moved.active)
        || is_lost(record.active.node)
        || !(on(moved.active) || moved.add == Some(moved.active))
    {
        return false;
    }
    // Repair has given the new copy up: it did not follow.
    let active = record.active.node;
    if moved.add.is_some_and(|node| !on(node) && waits.pauses(active, node)) {
        return false;
    }
    if let Some(heir) = view.moves_role_to(&place, entry)
        && !view.held.contains_key(&place)
        && waits.is_over(&place, record)
    {
        // The old active serves again.
        waits.note_unfollowed(active, heir);
        return false;
    }
    true
}

/// A move of the plan, with the vbucket that it is for.
struct PlacedMove {
    place: VbucketPlace,
    step: CopyMove,
}

/// The moves that are left besides those under way.
fn planned(view: &ClusterView, moves: &[CopyMove]) -> Result<Vec<PlacedMove>, String> {
    let mut totals: BTreeMap<u16, usize> = BTreeMap::new();
    for copy in view.copies.values().flat_map(|entry| entry.record.all()) {
        *totals.entry(copy.node).or_insert(0) += 1;
    }
    let mut all = Vec::new();
    for (name, entry) in &view.buckets {
        let Some(outline) = understood::<BucketOutline>(entry) else {
            return Err(format!("the record of bucket {name}, which this version cannot read"));
        };
        if outline.replicas.is_some() && !view.deleted.contains_key(&outline.uuid) {
            all.extend(planned_of(view, (name, &outline, moves), &mut totals)?);
        }
    }
    Ok(all)
}

fn planned_of(
    view: &ClusterView,
    (name, outline, moves): (&str, &BucketOutline, &[CopyMove]),
    totals: &mut BTreeMap<u16, usize>,
) -> Result<Vec<PlacedMove>, String> {
    let place_of = |vbid: u16| VbucketPlace { uuid: outline.uuid.clone(), vbid: Vbid(vbid) };
    let mut chains = Vec::new();
    for vbid in 0..outline.vbuckets {
        // Those of a new bucket are made in this tick.
        let Some(entry) = view.copies.get(&place_of(vbid)) else {
            return Err(format!("the record of {} of bucket {name}", Vbid(vbid)));
        };
        let moved = moves.iter().find(|it| it.vbucket == vbid && it.bucket == outline.uuid);
        chains.push(intended(entry, moved));
    }
    let staying: BTreeSet<u16> = view.staying().map(|(number, _)| number).collect();
    let used: BTreeSet<u16> = chains.iter().flatten().copied().collect();
    let leaves = |number: u16| view.is_ejected_number(number) || view.roster.is_replaced(number);
    if let Some(gone) = used.difference(&staying).find(|number| !leaves(**number)) {
        let name = view.roster.name(*gone).unwrap_or("?");
        return Err(format!("node {name}, which has copies and is gone or leaves"));
    }
    if staying.iter().all(|number| leaves(*number)) {
        return Err("a node that may have copies".to_owned());
    }
    let numbers: Vec<u16> = staying.union(&used).copied().collect();
    let node = |number: &u16| PlanNode {
        is_ejected: leaves(*number),
        total: totals.get(number).copied().unwrap_or(0),
    };
    let nodes: Vec<PlanNode> = numbers.iter().map(node).collect();
    let position = |node: &u16| numbers.binary_search(node).expect("every node has a position");
    let chains: Vec<CopyChain> =
        chains.iter().map(|chain| chain.iter().map(position).collect()).collect();
    let number = |at: usize| numbers[at];
    let named = |step: PlannedMove| {
        let vbucket = u16::try_from(step.vbucket).expect("a bucket has at most 1024 vbuckets");
        for (node, is_more) in [(step.add, true), (step.remove, false)] {
            let Some(node) = node else { continue };
            let total = totals.entry(number(node)).or_insert(0);
            *total = if is_more { *total + 1 } else { total.saturating_sub(1) };
        }
        let step = CopyMove {
            bucket: outline.uuid.clone(),
            vbucket,
            add: step.add.map(number),
            remove: step.remove.map(number),
            active: number(step.active),
        };
        PlacedMove { place: step.place(), step }
    };
    Ok(plan(&chains, &nodes).into_iter().map(named).collect())
}

/// The nodes of a vbucket's copies once everything under way is done, the active first.
fn intended(entry: &CopiesEntry, moved: Option<&CopyMove>) -> Vec<u16> {
    let record = &entry.record;
    let mut chain: Vec<u16> = newest_set(record).iter().map(|copy| copy.node).collect();
    let mut active = record.active.node;
    if let Some(moved) = moved {
        chain.extend(moved.add.filter(|node| !chain.contains(node)));
        // A copy that is being left out cannot become active: the move is given up soon.
        if chain.contains(&moved.active) {
            chain.retain(|node| Some(*node) != moved.remove);
            active = moved.active;
        }
    }
    let at = chain.iter().position(|node| *node == active).unwrap_or(0);
    assert!(!chain.is_empty(), "a vbucket has copies");
    chain.swap(0, at);
    chain
}

/// The members once the record is not joint any more.
fn newest_set(record: &CopiesRecord) -> &[CopyId] {
    if record.is_joint() { &record.joining } else { &record.members }
}

/// Counts the moves that are left. The total is the largest number that was ever left.
fn count(view: &ClusterView, next: &mut RebalanceRecord, planned: &[PlacedMove]) {
    let mut left: BTreeMap<String, usize> = BTreeMap::new();
    let all = planned.iter().map(|planned| &planned.step).chain(&next.moves);
    let mut sum = 0;
    for step in all {
        let source = view.copies.get(&step.place()).map(|entry| entry.record.active.node);
        let mut nodes: Vec<u16> = step.add.into_iter().chain(step.remove).collect();
        if source != Some(step.active) {
            nodes.extend(source.into_iter().chain([step.active]));
        }
        nodes.sort_unstable();
        nodes.dedup();
        for name in nodes.into_iter().filter_map(|node| view.roster.name(node)) {
            *left.entry(name.to_owned()).or_insert(0) += 1;
        }
        sum += 1;
    }
    let update = |counts: &mut MoveCounts, left: usize| {
        *counts = MoveCounts { total: counts.total.max(left), left };
    };
    update(&mut next.counts, sum);
    let names = left.keys().chain(next.nodes.keys()).cloned().collect::<BTreeSet<String>>();
    for name in names {
        let left = left.get(&name).copied().unwrap_or(0);
        update(next.nodes.entry(name).or_default(), left);
    }
}

/// Adds moves of the plan as far as their nodes have not enough to do. Of the moves of one vbucket
/// only the first may begin. Returns the first reason that kept a move from beginning.
fn start(
    view: &ClusterView,
    moves: &mut Vec<CopyMove>,
    planned: &[PlacedMove],
    waits: &mut LeaderWaits,
) -> Option<String> {
    let mut obstacle = None;
    let mut load = MoveLoad::of(view, moves);
    let mut seen: BTreeSet<&VbucketPlace> = BTreeSet::new();
    let moving: BTreeSet<VbucketPlace> = moves.iter().map(CopyMove::place).collect();
    for PlacedMove { place, step } in planned {
        if !seen.insert(place) || moving.contains(place) {
            continue;
        }
        let Some(entry) = view.copies.get(place) else { continue };
        if let Some(reason) = obstacle_of(view, (place, entry), step, waits) {
            obstacle.get_or_insert(reason);
        } else if load.takes(entry.record.active.node, step) {
            moves.push(step.clone());
        }
    }
    obstacle
}

/// Why a move cannot begin now.
fn obstacle_of(
    view: &ClusterView,
    (place, entry): (&VbucketPlace, &CopiesEntry),
    step: &CopyMove,
    waits: &LeaderWaits,
) -> Option<String> {
    let (record, active) = (&entry.record, entry.record.active.node);
    let vbucket = format!("{} of bucket {}", place.vbid, entry.bucket);
    let name = |node: u16| view.roster.name(node).unwrap_or("?").to_owned();
    if let Some(node) = step.add.filter(|node| view.is_unreadable(place, *node)) {
        let name = name(node);
        return Some(format!("the copy of {vbucket} on node {name}, which cannot be loaded"));
    }
    if !view.is_held_by(&name(active), place) || is_founding(record) {
        return Some(format!("node {}, which does not serve {vbucket}", name(active)));
    }
    if record.is_joint() {
        return Some(format!("a copy of {vbucket} that another node gets"));
    }
    let paused = step.add.into_iter().chain([step.active]).find(|node| waits.pauses(active, *node));
    paused.map(|node| format!("node {}, which did not follow {vbucket}", name(node)))
}

/// Copies under way into each node, and out of each.
struct MoveLoad {
    into: BTreeMap<u16, usize>,
    out_of: BTreeMap<u16, usize>,
}

impl MoveLoad {
    fn of(view: &ClusterView, moves: &[CopyMove]) -> MoveLoad {
        let mut load = MoveLoad { into: BTreeMap::new(), out_of: BTreeMap::new() };
        let joint = view.copies.iter().filter(|(_, entry)| entry.record.is_joint());
        for (place, entry) in joint {
            let record = &entry.record;
            let new = record.joining.iter().filter(|copy| !record.members.contains(copy));
            if view.move_of(place).is_none() {
                new.for_each(|copy| load.add(record.active.node, copy.node));
            }
        }
        for moved in moves {
            let active = view.copies.get(&moved.place()).map(|entry| entry.record.active.node);
            load.add(active.unwrap_or(moved.active), moved.add.unwrap_or(moved.active));
        }
        load
    }

    fn add(&mut self, from: u16, to: u16) {
        *self.out_of.entry(from).or_insert(0) += 1;
        *self.into.entry(to).or_insert(0) += 1;
    }

    /// Counts a move, if both nodes have capacity for it.
    fn takes(&mut self, active: u16, step: &CopyMove) -> bool {
        let to = step.add.unwrap_or(step.active);
        let count = |counts: &BTreeMap<u16, usize>, node| counts.get(&node).copied().unwrap_or(0);
        let is_free =
            count(&self.out_of, active) < MOVES_PER_NODE && count(&self.into, to) < MOVES_PER_NODE;
        if is_free {
            self.add(active, to);
        }
        is_free
    }
}

#[cfg(test)]
mod tests {
    use oribi_replication::copies::CopiesEpoch;

    use super::*;

    /// The active copy's node is to be removed, and repair leaves the other copy out.
    #[test]
    fn a_last_copy_is_not_planned_away() {
        let copy = |node: u16| CopyId { node, copy: 1 };
        let record = CopiesRecord {
            epoch: CopiesEpoch(7),
            active: copy(0),
            members: vec![copy(0), copy(1)],
            joining: vec![copy(0)],
            configured: 2,
            joining_configured: None,
            handover: None,
        };
        let entry = CopiesEntry { key: String::new(), bucket: "b".to_owned(), revision: 1, record };
        let moved =
            CopyMove { bucket: "b".to_owned(), vbucket: 0, add: None, remove: Some(0), active: 1 };
        assert_eq!(intended(&entry, Some(&moved)), [0]);
        let kept = CopiesEntry {
            record: CopiesRecord { joining: Vec::new(), ..entry.record.clone() },
            ..entry
        };
        assert_eq!(intended(&kept, Some(&moved)), [1]);
    }
}
