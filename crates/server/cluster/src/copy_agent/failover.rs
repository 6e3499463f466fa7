//! Failover on an operator's request: another copy of each vbucket of a node is promoted.
//!
//! Owns: the leader's next step for a request. The copies that are left promise the next epoch and
//! report what they hold (`role`); the promises decide by the rules of `oribi_replication`. Nothing
//! is promoted before it is known what becomes of every vbucket of the node, so a refused request
//! has changed no record. Called by the leading node at each tick.

use std::collections::BTreeMap;

use oribi_replication::copies::{CopiesRecord, CopyId};
use oribi_replication::election::Election;

use super::repair::CopyCounts;
use crate::agent::ClusterView;
use crate::agreement::{RecordChange, RecordComparison};
use crate::copies::record::{FailoverRequest, RecordStep, encode};
use crate::records::{CopiesEntry, RecordKeys, VbucketPlace};

/// The next step of a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FailoverStep {
    /// Promises are missing, or the node may serve still.
    Wait,
    Promote(Vec<RecordStep>),
    Refuse(String),
    /// No vbucket has its active copy on the node.
    Done,
}

/// What is known of one vbucket.
enum Outcome {
    Wait,
    Promote(CopiesRecord),
    /// Only what may be incomplete is left, or nothing.
    Lost(CopiesRecord),
}

pub(crate) fn next_step(
    keys: &RecordKeys,
    view: &ClusterView,
    request: &FailoverRequest,
) -> FailoverStep {
    let is_of_node =
        |entry: &CopiesEntry| view.roster.name(entry.record.active.node) == Some(&request.node);
    let mut counts = CopyCounts::of(view, Some(&request.node));
    let (mut steps, mut losing, mut lost) = (Vec::new(), Vec::new(), Vec::new());
    let (mut is_waiting, mut is_affected) = (false, false);
    for (place, entry) in view.copies.iter().filter(|(_, entry)| is_of_node(entry)) {
        is_affected = true;
        match outcome(view, (place, entry), Some(&request.node), &mut counts) {
            Outcome::Wait => is_waiting = true,
            Outcome::Promote(record) => steps.push(step(keys, (place, entry), &record)),
            Outcome::Lost(record) => {
                lost.push(format!("{} of bucket {}", place.vbid, entry.bucket));
                losing.push(step(keys, (place, entry), &record));
            }
        }
    }
    match (is_affected, is_waiting) {
        (false, _) => FailoverStep::Done,
        (true, false) if lost.is_empty() || request.allow_data_loss => {
            steps.extend(losing);
            FailoverStep::Promote(steps)
        }
        // The vbuckets of the others continue.
        (true, _) if request.is_automatic && !steps.is_empty() => FailoverStep::Promote(steps),
        (true, true) => FailoverStep::Wait,
        (true, false) => FailoverStep::Refuse(format!(
            "{} vbuckets of node {} have no other complete copy on a node that answers, the first \
             is {}; start those nodes, or allow the loss of data",
            lost.len(),
            request.node,
            lost[0],
        )),
    }
}

/// The promotions of vbuckets whose active copy recovers, as far as promises decide.
pub(crate) fn recoveries(keys: &RecordKeys, view: &ClusterView) -> Vec<RecordStep> {
    let mut counts = CopyCounts::of(view, None);
    let recovering = view.copies.iter().filter(|(place, entry)| view.recovers(place, entry));
    let steps = recovering.filter_map(|(place, entry)| {
        match outcome(view, (place, entry), None, &mut counts) {
            Outcome::Promote(record) => Some(step(keys, (place, entry), &record)),
            // Nodes have to come back, or an operator decides.
            Outcome::Wait | Outcome::Lost(_) => None,
        }
    });
    steps.collect()
}

/// The records in which copies take over from those of nodes that leave: a copy that has everything
/// up to the last seqno of the active one begins without promises.
pub(crate) fn hand_overs(keys: &RecordKeys, view: &ClusterView) -> Vec<RecordStep> {
    let mut loads = BTreeMap::new();
    for entry in view.copies.values() {
        *loads.entry(entry.record.active.node).or_insert(0_usize) += 1;
    }
    let leaving = view.copies.iter().filter(|(place, entry)| view.is_leaving(place, entry));
    let steps = leaving.filter_map(|(place, entry)| {
        let record = &entry.record;
        let of_epoch = |copy: CopyId| {
            let local = view.local_copy(place, copy)?;
            let knows = (local.promised, local.report.recorded) == (record.epoch, record.epoch);
            (local.hands_over && knows && local.report.is_intact).then_some(local)
        };
        let last = of_epoch(record.active)?.report.complete_end;
        let stays = |copy: &CopyId| view.staying().any(|(number, _)| number == copy.node);
        let has_all =
            |copy: &CopyId| of_epoch(*copy).is_some_and(|local| local.report.complete_end == last);
        let joins = |copy: &CopyId| !record.is_joint() || record.joining.contains(copy);
        let heirs = record.members.iter().copied();
        let heirs = heirs.filter(|copy| *copy != record.active && stays(copy) && joins(copy));
        let heir =
            heirs.filter(has_all).min_by_key(|copy| loads.get(&copy.node).copied().unwrap_or(0))?;
        *loads.entry(heir.node).or_insert(0) += 1;
        Some(step(keys, (place, entry), &record.handed_over(heir, last)))
    });
    steps.collect()
}

fn outcome(
    view: &ClusterView,
    (place, entry): (&VbucketPlace, &CopiesEntry),
    gone: Option<&str>,
    counts: &mut CopyCounts,
) -> Outcome {
    // The key ends with the node's lease at the latest.
    if view.held.contains_key(place) {
        return Outcome::Wait;
    }
    let base = &entry.record;
    let mut election = Election::new(base.clone());
    let mut best = None;
    for member in base.all() {
        let is_gone = gone.is_some() && view.roster.name(member.node) == gone;
        if is_gone || !view.is_live(member.node) {
            continue;
        }
        let local = view.local_copy(place, member);
        let Some(local) = local.filter(|local| local.promised >= election.epoch()) else {
            return Outcome::Wait;
        };
        election.promised(member, local.report);
        best = best.max(Some((local.report.recorded, local.report.complete_end, member)));
    }
    match (election.decided(), best) {
        (Some(record), _) => Outcome::Promote(record),
        (None, Some((_, _, winner))) => Outcome::Lost(alone(base, winner)),
        // A node that is to be failed over may have the last copy.
        (None, None) if base.all().iter().any(|copy| view.local_copy(place, *copy).is_some()) => {
            Outcome::Wait
        }
        (None, None) => match counts.least(&[]) {
            Some(node) => Outcome::Lost(alone(base, CopyId { node, copy: base.epoch.next().0 })),
            None => Outcome::Wait,
        },
    }
}

/// The record in which one copy is left, though it may lack acknowledged writes.
fn alone(base: &CopiesRecord, winner: CopyId) -> CopiesRecord {
    CopiesRecord {
        epoch: base.epoch.next(),
        active: winner,
        members: vec![winner],
        joining: Vec::new(),
        configured: base.configured,
        handover: None,
    }
}

fn step(
    keys: &RecordKeys,
    (place, entry): (&VbucketPlace, &CopiesEntry),
    record: &CopiesRecord,
) -> RecordStep {
    RecordStep {
        comparisons: vec![
            RecordComparison::ModifiedAt(entry.key.clone(), entry.revision),
            RecordComparison::Absent(keys.held(&entry.bucket, &place.uuid, place.vbid)),
        ],
        changes: vec![RecordChange::put(entry.key.clone(), encode(record))],
    }
}
