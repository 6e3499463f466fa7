//! Why vbuckets are served by no node, and which copies cannot be used.
//!
//! Owns: the reasons in words, each with the number of its vbuckets.

use std::collections::BTreeMap;

use oribi_types::Vbid;
use serde::Serialize;

use crate::agent::ClusterView;
use crate::copy_agent::{CopyCounts, loses_writes};
use crate::leading::BucketOutline;
use crate::records::{CopiesEntry, VbucketPlace};

/// A reason, and the vbuckets that it concerns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CopyTrouble {
    pub reason: String,
    pub vbuckets: usize,
    /// The first of them.
    pub first: u16,
}

pub(super) fn troubles(view: &ClusterView, outline: &BucketOutline) -> Vec<CopyTrouble> {
    let mut found: BTreeMap<String, CopyTrouble> = BTreeMap::new();
    let mut note = |reason: String, vbid: Vbid| {
        let new = CopyTrouble { reason: reason.clone(), vbuckets: 0, first: vbid.0 };
        found.entry(reason).or_insert(new).vbuckets += 1;
    };
    let mut counts = CopyCounts::of(view, None);
    for vbid in (0..outline.vbuckets).map(Vbid) {
        let place = VbucketPlace { uuid: outline.uuid.clone(), vbid };
        let Some(entry) = view.copies.get(&place) else { continue };
        // Also one that the record has left out: nothing takes its place on that node.
        for number in view.live_numbers().filter(|number| view.is_unreadable(&place, *number)) {
            let name = view.roster.name(number).unwrap_or("?");
            note(format!("the copy on node {name} cannot be loaded: its log says why"), vbid);
        }
        if !view.held.contains_key(&place) {
            note(reason(view, (&place, entry), &mut counts), vbid);
        }
    }
    found.into_values().collect()
}

/// Why a vbucket is served by no node.
fn reason(
    view: &ClusterView,
    (place, entry): (&VbucketPlace, &CopiesEntry),
    counts: &mut CopyCounts,
) -> String {
    let active = entry.record.active.node;
    let name = view.roster.name(active).unwrap_or("?");
    let is_gone = !view.is_live(active);
    if loses_writes(view, (place, entry), is_gone.then_some(name), counts) {
        return format!(
            "acknowledged writes may be lost without node {name} or another member: start those \
             that are gone, or allow the loss by `oribi cluster failover {name} --allow-data-loss`"
        );
    }
    if is_gone {
        return format!("node {name} is gone");
    }
    if view.is_unreadable(place, active) {
        return format!("node {name} cannot load its copy");
    }
    if view.recovers(place, entry) {
        return format!("node {name} ended in disorder, and other copies promise");
    }
    if view.is_handed_over(place, entry) {
        return format!("node {name} hands over");
    }
    format!("node {name} begins to serve")
}
