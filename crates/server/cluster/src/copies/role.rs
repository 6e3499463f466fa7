//! What a node does about the record of one vbucket.
//!
//! Owns: that decision, as a pure function. Each action is safe to repeat, and the next look at the
//! records continues from what was done. Invariants: a copy serves only while its node holds the
//! vbucket's key and the record names it; a member's copy begins empty only in the epoch that
//! founds it; a key is released only after the copy stopped serving; a copy is removed only when a
//! record that is complete without it was read; one that could not be loaded stays as it is.

use oribi_replication::copies::{CopiesEpoch, CopiesRecord};

use super::LocalCopy;
use super::record::is_founding;

/// The session that holds the key of a vbucket, as this node sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyHolder {
    /// The present session of this node.
    This,
    /// The node of the active copy.
    Active,
    /// Another node, or an earlier session.
    Other,
    Nobody,
}

/// What the node knows of one vbucket.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RoleInput<'a> {
    pub(crate) record: Option<&'a CopiesRecord>,
    /// Number of this node, once it has one.
    pub(crate) node: Option<u16>,
    pub(crate) local: Option<&'a LocalCopy>,
    /// Epoch in which this node serves clients.
    pub(crate) serves: Option<CopiesEpoch>,
    pub(crate) holder: KeyHolder,
    /// The node of the active copy is to be failed over.
    pub(crate) fails_over: bool,
    /// The active copy is not known to hold everything that it acknowledged: its node ended in
    /// disorder. All copies promise, the active among them, and the best one is promoted.
    pub(crate) recovers: bool,
    /// This node takes part and stays.
    pub(crate) may_serve: bool,
    /// This node leaves in order, or the vbucket's active role moves to another.
    pub(crate) hands_over: bool,
}

/// One action; several are done in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RoleAction {
    StopServing,
    HandOver,
    ReleaseKey,
    TakeKey,
    Remove,
    Create(u64),
    /// The copy is empty, and so is the vbucket.
    Found,
    Promise(CopiesEpoch),
    Serve,
    Replicate,
    /// The disk knows a later epoch than agreement.
    ReportLoss,
}

/// The actions of a node for one vbucket.
pub(crate) fn actions(input: &RoleInput<'_>) -> Vec<RoleAction> {
    let stop = || {
        let stop = input.serves.map(|_| RoleAction::StopServing);
        let release = (input.holder == KeyHolder::This).then_some(RoleAction::ReleaseKey);
        stop.into_iter().chain(release)
    };
    let (Some(record), Some(node)) = (input.record, input.node) else {
        return stop().collect();
    };
    if input.local.is_some_and(|local| local.is_unreadable) {
        // Its documents stay where they are: they may be the newest.
        return stop().collect();
    }
    if input.local.is_some_and(|local| is_ahead(local, record)) {
        return stop().chain([RoleAction::ReportLoss]).collect();
    }
    let Some(own) = record.all().into_iter().find(|copy| copy.node == node) else {
        // The leader takes a former copy in again where one is missing.
        let is_complete = !record.is_joint() && record.members.len() >= record.configured;
        let remove = input.local.filter(|_| is_complete).map(|_| RoleAction::Remove);
        return stop().chain(remove).collect();
    };
    if input.local.is_none_or(|local| local.copy != own.copy) {
        // A member's copy that is missing is lost: it has no vote, and joins again as another one.
        let begins = is_founding(record) || !record.members.contains(&own);
        return stop().chain(begins.then_some(RoleAction::Create(own.copy))).collect();
    }
    if is_founding(record) {
        let is_due = input.local.is_some_and(|local| local.report.recorded < record.epoch);
        return stop().chain(is_due.then_some(RoleAction::Found)).collect();
    }
    debug_assert!(input.local.is_some_and(|local| local.copy == own.copy), "the record's copy");
    let promised = input.local.map_or(record.epoch, |local| local.promised);
    if input.fails_over || input.recovers {
        let next = record.epoch.next();
        let is_asked = (own != record.active || input.recovers) && promised < next;
        return stop().chain(is_asked.then_some(RoleAction::Promise(next))).collect();
    }
    if promised > record.epoch {
        // The leader begins another epoch.
        return stop().collect();
    }
    if own == record.active && input.hands_over {
        let hand_over = input.serves.map(|_| RoleAction::HandOver);
        let release = (input.holder == KeyHolder::This).then_some(RoleAction::ReleaseKey);
        return hand_over.into_iter().chain(release).collect();
    }
    if own == record.active && input.may_serve {
        return match input.holder {
            KeyHolder::This if input.serves == Some(record.epoch) => Vec::new(),
            KeyHolder::This => vec![RoleAction::Serve],
            KeyHolder::Nobody => stop().chain([RoleAction::TakeKey]).collect(),
            // An earlier session of this node; its lease ends.
            KeyHolder::Active | KeyHolder::Other => stop().collect(),
        };
    }
    let follows = own != record.active && input.holder == KeyHolder::Active;
    stop().chain(follows.then_some(RoleAction::Replicate)).collect()
}

/// True when the copy knows of an epoch that agreement has forgotten.
fn is_ahead(local: &LocalCopy, record: &CopiesRecord) -> bool {
    local.report.recorded > record.epoch || local.promised > record.epoch.next()
}
