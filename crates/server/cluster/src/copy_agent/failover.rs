//! Failover on an operator's request: another copy of each vbucket of a node is promoted.
//!
//! Owns: the leader's next step for a request. The copies that are left promise the next epoch and
//! report what they hold (`role`); the promises decide by the rules of `oribi_replication`. All
//! that live are waited for, for a while, because the best one may be any of them; then enough
//! promises decide without the others. A copy that its node has lost is an answer, unless so many
//! are lost that an acknowledged write may be. Nothing is promoted before it is known what becomes
//! of every vbucket of the node, so a refused request has changed no record. Called by the leading
//! node at each tick.

use std::collections::{BTreeMap, BTreeSet};

use oribi_replication::copies::{CopiesRecord, CopyId};
use oribi_replication::election::Election;

use super::repair::CopyCounts;
use crate::agent::ClusterView;
use crate::agreement::{RecordChange, RecordComparison};
use crate::copies::record::{FailoverRequest, RecordStep, encode, has_other_copies, is_founding};
use crate::copies::waits::LeaderWaits;
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
    /// This member may have the newest writes, and others are no choice: its node is to be failed
    /// over and lives, or it does not promise.
    Needed(CopyId),
}

pub(crate) fn next_step(
    keys: &RecordKeys,
    view: &ClusterView,
    request: &FailoverRequest,
    waits: &mut LeaderWaits,
) -> FailoverStep {
    let is_of_node = |entry: &CopiesEntry| {
        let is_due = !request.is_automatic || has_other_copies(&entry.record);
        is_due && view.roster.name(entry.record.active.node) == Some(&request.node)
    };
    let mut counts = CopyCounts::of(view, Some(&request.node));
    let (mut steps, mut losing, mut lost) = (Vec::new(), Vec::new(), Vec::new());
    let (mut is_waiting, mut is_affected, mut needed) = (false, false, None);
    for (place, entry) in view.copies.iter().filter(|(_, entry)| is_of_node(entry)) {
        is_affected = true;
        match outcome(view, (place, entry), Some(&request.node), (&mut counts, waits)) {
            Outcome::Wait => is_waiting = true,
            Outcome::Needed(copy) => {
                needed.get_or_insert_with(|| needed_copy(view, (place, entry), request, copy));
            }
            Outcome::Promote(record) => steps.push(step(keys, (place, entry), &record)),
            Outcome::Lost(record) => {
                lost.push(format!("{} of bucket {}", place.vbid, entry.bucket));
                losing.push(step(keys, (place, entry), &record));
            }
        }
    }
    match (is_affected, is_waiting) {
        (false, _) => FailoverStep::Done,
        (true, false) if needed.is_none() && (lost.is_empty() || request.allow_data_loss) => {
            steps.extend(losing);
            FailoverStep::Promote(steps)
        }
        // The vbuckets of the others continue.
        (true, _) if request.is_automatic && !steps.is_empty() => FailoverStep::Promote(steps),
        (true, true) => FailoverStep::Wait,
        (true, false) if let Some(reason) = needed => FailoverStep::Refuse(reason),
        (true, false) => FailoverStep::Refuse(format!(
            "{} vbuckets of node {} have no other complete copy on a node that answers, the first \
             is {}; start those nodes, or allow the loss of data",
            lost.len(),
            request.node,
            lost[0],
        )),
    }
}

/// Why a node is not failed over without this copy, and what to do.
fn needed_copy(
    view: &ClusterView,
    (place, entry): (&VbucketPlace, &CopiesEntry),
    request: &FailoverRequest,
    copy: CopyId,
) -> String {
    let name = view.roster.name(copy.node).unwrap_or("?");
    let vbucket = format!("{} of bucket {}", place.vbid, entry.bucket);
    match name == request.node {
        true => format!(
            "node {name} lives and has the only copy of {vbucket}: wait until another node has a \
             copy of everything (`oribi cluster status` shows none missing), or stop node {name}"
        ),
        false => format!(
            "node {name} lives, and its copy of {vbucket} does not promise the next epoch: its log \
             says why; mend or stop node {name}"
        ),
    }
}

/// The promotions of vbuckets whose active copy recovers, as far as promises decide.
pub(crate) fn recoveries(
    keys: &RecordKeys,
    view: &ClusterView,
    waits: &mut LeaderWaits,
) -> Vec<RecordStep> {
    let mut counts = CopyCounts::of(view, None);
    let recovering = view.copies.iter().filter(|(place, entry)| view.recovers(place, entry));
    let (mut steps, mut lost) = (Vec::new(), BTreeSet::new());
    for (place, entry) in recovering {
        match outcome(view, (place, entry), None, (&mut counts, waits)) {
            Outcome::Promote(record) => steps.push(step(keys, (place, entry), &record)),
            Outcome::Lost(_) => drop(lost.insert(place.clone())),
            Outcome::Wait | Outcome::Needed(_) => {}
        }
    }
    let first = lost.first().and_then(|place| Some((place, view.copies.get(place)?)));
    let text = first.map(|(place, entry)| {
        let node = view.roster.name(entry.record.active.node).unwrap_or("?");
        (node.to_owned(), format!("{} of bucket {}", place.vbid, entry.bucket))
    });
    let vbuckets = lost.len();
    if let Some((node, first)) = text.filter(|_| waits.note_losses(lost)) {
        tracing::error!(
            vbuckets,
            node,
            first,
            "too few copies are left to know what was acknowledged: the vbuckets wait until other \
             nodes return, or for `oribi cluster failover NODE --allow-data-loss`"
        );
    }
    steps
}

/// The records in which copies take over from those of nodes that leave, or from which the role
/// moves: a copy with everything up to the last seqno of the active one begins without promises.
pub(crate) fn hand_overs(keys: &RecordKeys, view: &ClusterView) -> Vec<RecordStep> {
    let mut loads = BTreeMap::new();
    for entry in view.copies.values() {
        *loads.entry(entry.record.active.node).or_insert(0_usize) += 1;
    }
    let given = view.copies.iter().filter(|(place, entry)| view.is_handed_over(place, entry));
    let steps = given.filter_map(|(place, entry)| {
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
        let named = view.moves_role_to(place, entry).filter(|_| !view.is_on_leaving(entry));
        let heirs = heirs.filter(|copy| named.is_none_or(|node| copy.node == node));
        let heir =
            heirs.filter(has_all).min_by_key(|copy| loads.get(&copy.node).copied().unwrap_or(0))?;
        *loads.entry(heir.node).or_insert(0) += 1;
        let mut step = step(keys, (place, entry), &record.handed_over(heir, last));
        // The active copy may have taken its key again and written more; it reports before that.
        step.comparisons.push(view.unchanged_report(place, record.active.node)?);
        Some(step)
    });
    steps.collect()
}

/// True when too few copies of a vbucket are left to know what was acknowledged.
pub(crate) fn loses_writes(
    view: &ClusterView,
    (place, entry): (&VbucketPlace, &CopiesEntry),
    gone: Option<&str>,
    counts: &mut CopyCounts,
) -> bool {
    let is_decided = gone.is_some() || view.recovers(place, entry);
    let mut waits = LeaderWaits::default();
    // Copies that have not promised yet may still answer.
    let promised = |copy: &CopyId| {
        let local = view.local_copy(place, *copy);
        local.is_none_or(|local| local.promised > entry.record.epoch)
    };
    let live = entry.record.members.iter().filter(|copy| view.is_live(copy.node));
    is_decided
        && live.into_iter().all(promised)
        && matches!(outcome(view, (place, entry), gone, (counts, &mut waits)), Outcome::Lost(_))
}

fn outcome(
    view: &ClusterView,
    (place, entry): (&VbucketPlace, &CopiesEntry),
    gone: Option<&str>,
    (counts, waits): (&mut CopyCounts, &mut LeaderWaits),
) -> Outcome {
    let base = &entry.record;
    // The key ends with the node's lease at the latest. Who begins is decided without promises.
    if view.held.contains_key(place) || is_founding(base) {
        return Outcome::Wait;
    }
    let mut election = Election::new(base.clone());
    let (mut best, mut silent) = (None, None);
    for member in base.members.iter().copied() {
        let is_gone = gone.is_some() && view.roster.name(member.node) == gone;
        if is_gone || !view.is_live(member.node) {
            continue;
        }
        match view.local_copy(place, member) {
            None if view.report_on(place, member.node).is_some() => election.lost(member),
            Some(local) if local.promised >= election.epoch() => {
                election.promised(member, local.report);
                best = best.max(Some((local.report.recorded, local.report.complete_end, member)));
            }
            _ => silent = Some(member),
        }
    }
    if silent.is_some() && !waits.is_over(place, base) {
        return Outcome::Wait;
    }
    if let Some(record) = election.decided() {
        assert!(record.members.contains(&record.active), "a member is promoted");
        return Outcome::Promote(record);
    }
    let has_copy = |copy: &CopyId| view.local_copy(place, *copy).is_some();
    match (best, silent.or_else(|| base.members.iter().copied().find(has_copy))) {
        (Some((_, _, winner)), _) => Outcome::Lost(alone(base, winner)),
        (None, Some(needed)) => Outcome::Needed(needed),
        (None, None) => match left_copy(view, place, gone) {
            Some(copy) => Outcome::Lost(alone(base, copy)),
            None => match counts.least(&[], |node| (!view.is_unreadable(place, node)).then_some(0))
            {
                Some(node) => {
                    Outcome::Lost(alone(base, CopyId { node, copy: base.epoch.next().0 }))
                }
                None => Outcome::Wait,
            },
        },
    }
}

/// The newest copy that a node has and that is no member any more.
fn left_copy(view: &ClusterView, place: &VbucketPlace, gone: Option<&str>) -> Option<CopyId> {
    let staying = view.staying().filter(|(_, name)| Some(*name) != gone);
    let left = staying.filter_map(|(node, _)| {
        let local = view.report_on(place, node)?.of(place.vbid);
        let local = local.filter(|local| !local.is_unreadable)?;
        Some((local.report.recorded, CopyId { node, copy: local.copy }))
    });
    left.max().map(|(_, copy)| copy)
}

/// The record in which one copy is left, though it may lack acknowledged writes.
fn alone(base: &CopiesRecord, winner: CopyId) -> CopiesRecord {
    CopiesRecord {
        epoch: base.epoch.next(),
        active: winner,
        members: vec![winner],
        joining: Vec::new(),
        configured: base.configured,
        joining_configured: None,
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
