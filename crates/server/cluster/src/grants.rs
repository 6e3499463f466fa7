//! Grants between nodes: while enough nodes grant, no copy of theirs is promoted in place of this
//! node's active copies, so those may serve (R5, R7).
//!
//! Owns: what other nodes granted this one, what this node granted others, and which served
//! vbuckets need which grants. A node sends beacons; an answer to one is a grant. Invariants:
//! 1. The holder counts a grant from the moment at which it sent the beacon, the giver from its
//!    receipt, and for longer: clocks run at rates of 0.9 to 1.1.
//! 2. A node that starts assumes that it gave grants, and gives none before the reports of its last
//!    process are gone.
//! 3. A promise that another node's active copy could be replaced by is reported only while this
//!    node gives that node no grant, and none is given until the record has reached the promise.
//! 4. A grant counts for a vbucket only if the run of grants that it continues began before the
//!    agreement was read that named this node's copy as the active one. So a grant that follows a
//!    promise counts for nothing that the promise may take away.
//!
//! Callers: the thread of beacons, which waits only for the short sections here; the agent;
//! and the lease, whose deadline follows the grants.

use std::collections::{BTreeMap, BTreeSet};

use oribi_replication::copies::CopiesEpoch;
use oribi_system::random::random_bytes;
use parking_lot::Mutex;

use crate::records::VbucketPlace;

const NS_PER_MS: u64 = 1_000_000;
/// Shortest and longest suspicion that the settings allow.
const SUSPICION_MS_MIN: u64 = 500;
const SUSPICION_MS_MAX: u64 = 600_000;
/// Beacons that may be lost before a node is suspected.
const BEACONS: u64 = 5;
/// Beacons that their thread may be late before it distrusts what it has not heard.
const LATE_BEACONS: u64 = 2;
/// Longest pause between two beacons.
const BEACON_MS_MAX: u64 = 200;
/// Fastest clock of a giver against the slowest of a holder, as a fraction.
const RATE_FAST: u64 = 11;
const RATE_SLOW: u64 = 9;

/// The times that follow from the suspicion.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GrantPeriods {
    /// Pause between two beacons to the same node.
    pub(crate) beacon_ns: u64,
    /// How long a node gives a grant; then it suspects the other one.
    pub(crate) given_ns: u64,
    /// After so long without a grant the active copy continues without the node, if it may. Enough
    /// is left for the agreement before the last grant ends.
    pub(crate) silent_ns: u64,
    /// A vbucket is taken out of service so long before its grants end.
    pub(crate) margin_ns: u64,
}

impl GrantPeriods {
    pub(crate) const fn of(suspicion_ms: u64) -> GrantPeriods {
        let given_ns = suspicion_ms * NS_PER_MS;
        let beacon_ms = suspicion_ms / BEACONS;
        let beacon_ms = if beacon_ms > BEACON_MS_MAX { BEACON_MS_MAX } else { beacon_ms };
        let held_ns = held_ns(given_ns);
        GrantPeriods {
            beacon_ns: beacon_ms * NS_PER_MS,
            given_ns,
            silent_ns: held_ns / 20 * 11,
            margin_ns: held_ns / 10,
        }
    }
}

/// How long the holder of a grant uses it that is given for `given_ns`.
const fn held_ns(given_ns: u64) -> u64 {
    given_ns / RATE_FAST * RATE_SLOW
}

const fn is_safe(suspicion_ms: u64) -> bool {
    let periods = GrantPeriods::of(suspicion_ms);
    let held_ns = held_ns(periods.given_ns);
    // The holder at rate 0.9 ends before the giver at rate 1.1, and there is time for two beacons
    // before a node is silent, and for the agreement after that.
    held_ns * RATE_FAST <= periods.given_ns * RATE_SLOW
        && periods.silent_ns > 2 * periods.beacon_ns
        && periods.silent_ns + periods.margin_ns < held_ns
}
const _: () = assert!(is_safe(SUSPICION_MS_MIN) && is_safe(2000) && is_safe(SUSPICION_MS_MAX));

/// Grants that another node gave one after the other, none later than the end of the last.
#[derive(Debug, Clone, Copy)]
struct GrantRun {
    since_ns: u64,
    until_ns: u64,
}

/// What this node and another one have granted each other, and heard of each other.
#[derive(Debug, Clone, Copy, Default)]
struct PeerGrants {
    held: Option<GrantRun>,
    given_until_ns: u64,
    /// The process of its last beacon, and when that was sent by the process's clock.
    last_beacon: Option<(u64, u64)>,
    /// When its last beacon came.
    heard_ns: Option<u64>,
    /// When the last beacon was sent that it granted.
    granted_ns: Option<u64>,
    is_withheld: bool,
    is_suspected: bool,
    is_silent: bool,
}

/// The grants that an active copy needs to serve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServingCondition {
    pub(crate) epoch: CopiesEpoch,
    /// Names of nodes, and how many of them have to grant; each set counts.
    pub(crate) sets: Vec<(Vec<String>, usize)>,
    /// Before the agreement was asked for the record and the key.
    pub(crate) read_ns: u64,
}

impl ServingCondition {
    pub(crate) fn is_needed(&self) -> bool {
        self.sets.iter().any(|(_, needed)| *needed > 0)
    }
}

#[derive(Default)]
struct GrantState {
    started_ns: u64,
    peers: BTreeMap<String, PeerGrants>,
    /// The end of grants that the last process of this node may have given.
    assumed_until_ns: u64,
    /// The reports of earlier sessions of this node are gone.
    may_give: bool,
    served: BTreeMap<VbucketPlace, ServingCondition>,
}

/// What a beacon and its answer have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BeaconId {
    /// The process that sent the beacon.
    pub(crate) process: u64,
    /// When it did, by its clock.
    pub(crate) sent_ns: u64,
}

/// How another node stands to this one, where that has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PeerChange {
    /// It is not heard any more.
    Suspected,
    /// It is heard again.
    Heard,
    /// Its grants to this node are about to end.
    Silent,
    /// It grants this node's beacons again.
    Grants,
}

/// See the module text.
pub(crate) struct Grants {
    /// Number of this process.
    process: u64,
    periods: GrantPeriods,
    state: Mutex<GrantState>,
}

impl Grants {
    pub(crate) fn at_start(suspicion_ms: u64, now_ns: u64) -> Grants {
        let suspicion_ms = suspicion_ms.clamp(SUSPICION_MS_MIN, SUSPICION_MS_MAX);
        let periods = GrantPeriods::of(suspicion_ms);
        let assumed_until_ns = now_ns.saturating_add(periods.given_ns);
        let state = GrantState { started_ns: now_ns, assumed_until_ns, ..GrantState::default() };
        let state = Mutex::new(state);
        Grants { process: u64::from_be_bytes(random_bytes::<8>()), periods, state }
    }

    pub(crate) fn process(&self) -> u64 {
        self.process
    }

    pub(crate) fn periods(&self) -> GrantPeriods {
        self.periods
    }

    // What the beacons bring.

    /// A beacon of `node` came. How long the answer grants, in ns; `None` when it grants nothing.
    /// A copy of an earlier beacon says nothing.
    pub(crate) fn hear(&self, node: &str, beacon: BeaconId, now_ns: u64) -> Option<u64> {
        let mut state = self.state.lock();
        let may_give = state.may_give;
        let peer = state.peer(node);
        let is_later = |last: (u64, u64)| last.0 != beacon.process || last.1 < beacon.sent_ns;
        if !peer.last_beacon.is_none_or(is_later) {
            return None;
        }
        peer.last_beacon = Some((beacon.process, beacon.sent_ns));
        peer.heard_ns = Some(now_ns);
        if !may_give || peer.is_withheld {
            return None;
        }
        peer.given_until_ns = peer.given_until_ns.max(now_ns.saturating_add(self.periods.given_ns));
        Some(self.periods.given_ns)
    }

    /// `node` granted a beacon for `given_ns` of its clock. True when a run of grants began, or one
    /// that was about to end continues: vbuckets may be admitted again.
    pub(crate) fn receive(
        &self,
        node: &str,
        (beacon, given_ns): (BeaconId, u64),
        now_ns: u64,
    ) -> bool {
        let BeaconId { process, sent_ns } = beacon;
        let until_ns = sent_ns.saturating_add(held_ns(given_ns));
        if process != self.process || sent_ns > now_ns || until_ns <= now_ns {
            return false;
        }
        let mut state = self.state.lock();
        let peer = state.peer(node);
        peer.granted_ns = peer.granted_ns.max(Some(sent_ns));
        match &mut peer.held {
            Some(run) if now_ns < run.until_ns => {
                let was_ending = run.until_ns <= now_ns.saturating_add(self.periods.margin_ns);
                run.until_ns = run.until_ns.max(until_ns);
                was_ending
            }
            held => {
                *held = Some(GrantRun { since_ns: now_ns, until_ns });
                true
            }
        }
    }

    /// The thread of beacons looks so late. True when that was too late to say anything new of
    /// others: those that are not suspected, or not silent, begin anew.
    pub(crate) fn note_lateness(&self, late_ns: u64, now_ns: u64) -> bool {
        let is_late = late_ns > self.periods.beacon_ns * LATE_BEACONS;
        if is_late {
            self.begin_anew(now_ns);
        }
        is_late
    }

    fn begin_anew(&self, now_ns: u64) {
        for peer in self.state.lock().peers.values_mut() {
            if !peer.is_suspected {
                peer.heard_ns = peer.heard_ns.map(|ns| ns.max(now_ns));
            }
            if !peer.is_silent {
                peer.granted_ns = peer.granted_ns.map(|ns| ns.max(now_ns));
            }
        }
    }

    /// Looks which nodes are suspected or silent now; returns those of which that has changed. The
    /// caller has taken in every beacon that came.
    pub(crate) fn look(&self, now_ns: u64) -> Vec<(String, PeerChange)> {
        let GrantPeriods { given_ns, silent_ns, .. } = self.periods;
        let mut changes = Vec::new();
        for (name, peer) in &mut self.state.lock().peers {
            let is_past = |limit_ns| move |ns| now_ns.saturating_sub(ns) >= limit_ns;
            let is_suspected = peer.heard_ns.is_some_and(is_past(given_ns));
            let is_silent = peer.granted_ns.is_some_and(is_past(silent_ns));
            let mut note = |is_new, change| {
                if is_new {
                    changes.push((name.clone(), change));
                }
            };
            note(is_suspected && !peer.is_suspected, PeerChange::Suspected);
            note(!is_suspected && peer.is_suspected, PeerChange::Heard);
            note(is_silent && !peer.is_silent, PeerChange::Silent);
            note(!is_silent && peer.is_silent, PeerChange::Grants);
            (peer.is_suspected, peer.is_silent) = (is_suspected, is_silent);
        }
        changes
    }

    // What the agent asks and decides.

    /// Nodes that were heard, and are not any more.
    pub(crate) fn suspected(&self) -> BTreeSet<String> {
        self.state.lock().named(|peer| peer.is_suspected)
    }

    /// Those of `nodes` whose grants are about to end, or that have not granted anything since this
    /// process started `patience_ns` ago.
    pub(crate) fn silent<'n>(
        &self,
        nodes: impl Iterator<Item = &'n str>,
        (now_ns, patience_ns): (u64, u64),
    ) -> BTreeSet<String> {
        let state = self.state.lock();
        let is_late = now_ns.saturating_sub(state.started_ns) >= patience_ns;
        let is_silent = |node: &&str| {
            let peer = state.peers.get(*node);
            let granted = peer.filter(|peer| peer.granted_ns.is_some());
            granted.map_or(is_late, |peer| peer.is_silent)
        };
        nodes.filter(is_silent).map(str::to_owned).collect()
    }

    /// Reports of earlier sessions of this node are gone.
    pub(crate) fn begin_giving(&self) {
        self.state.lock().may_give = true;
    }

    /// Gives these nodes no more grants; returns those that got some until now.
    pub(crate) fn withhold(&self, nodes: &BTreeSet<String>) -> Vec<String> {
        let mut state = self.state.lock();
        let is_new = |node: &&String| !std::mem::replace(&mut state.peer(node).is_withheld, true);
        nodes.iter().filter(is_new).cloned().collect()
    }

    /// Gives all nodes grants again but these; returns those that got none until now.
    pub(crate) fn withhold_only(&self, nodes: &BTreeSet<String>) -> Vec<String> {
        let mut given = Vec::new();
        for (name, peer) in &mut self.state.lock().peers {
            assert!(peer.is_withheld || !nodes.contains(name), "a promise ends grants first");
            if peer.is_withheld && !nodes.contains(name) {
                peer.is_withheld = false;
                given.push(name.clone());
            }
        }
        given
    }

    /// True while a node may hold a grant of this one, or get one.
    pub(crate) fn may_be_held_by(&self, node: &str, now_ns: u64) -> bool {
        let state = self.state.lock();
        let is_given = |peer: &PeerGrants| !peer.is_withheld || now_ns < peer.given_until_ns;
        now_ns < state.assumed_until_ns || state.peers.get(node).is_none_or(is_given)
    }

    // What serves.

    /// Lets a vbucket serve while its grants run; returns when they end. `None` when they do not
    /// run now.
    pub(crate) fn admit(
        &self,
        place: &VbucketPlace,
        condition: &ServingCondition,
        now_ns: u64,
    ) -> Option<u64> {
        let mut state = self.state.lock();
        if !condition.is_needed() {
            state.served.remove(place);
            return Some(u64::MAX);
        }
        if !self.is_granted(&state, condition, now_ns) {
            return None;
        }
        state.served.insert(place.clone(), condition.clone());
        let end_ns = state.end_of(condition);
        assert!(end_ns > now_ns, "grants that run end later");
        Some(end_ns)
    }

    /// True when a vbucket would be admitted now.
    pub(crate) fn would_admit(&self, condition: &ServingCondition, now_ns: u64) -> bool {
        !condition.is_needed() || self.is_granted(&self.state.lock(), condition, now_ns)
    }

    fn is_granted(&self, state: &GrantState, condition: &ServingCondition, now_ns: u64) -> bool {
        now_ns.saturating_add(self.periods.margin_ns) < state.end_of(condition)
    }

    /// True while a vbucket that was admitted has not been taken out of service.
    pub(crate) fn admits(&self, place: &VbucketPlace, condition: &ServingCondition) -> bool {
        let state = self.state.lock();
        let known = state.served.get(place);
        !condition.is_needed() || known.is_some_and(|known| known.epoch == condition.epoch)
    }

    /// The agreement, asked after `read_ns`, names this node's copy as the active one of `epoch`.
    pub(crate) fn confirm(&self, place: &VbucketPlace, epoch: CopiesEpoch, read_ns: u64) {
        if let Some(condition) = self.state.lock().served.get_mut(place)
            && condition.epoch == epoch
        {
            condition.read_ns = condition.read_ns.max(read_ns);
        }
    }

    /// Vbuckets to take out of service now; they need to be admitted again.
    pub(crate) fn end_those_due(&self, now_ns: u64) -> Vec<VbucketPlace> {
        let mut state = self.state.lock();
        let limit_ns = now_ns.saturating_add(self.periods.margin_ns);
        let ends = state.served.iter().map(|(place, it)| (state.end_of(it), place));
        let due = ends.filter(|(end_ns, _)| *end_ns <= limit_ns);
        let due: Vec<VbucketPlace> = due.map(|(_, place)| place.clone()).collect();
        due.iter().for_each(|place| drop(state.served.remove(place)));
        due
    }

    /// Nothing is served any more.
    pub(crate) fn end_all(&self) {
        self.state.lock().served.clear();
    }

    /// The first moment at which a served vbucket lacks grants.
    pub(crate) fn end_ns(&self) -> u64 {
        let state = self.state.lock();
        state.served.values().map(|it| state.end_of(it)).min().unwrap_or(u64::MAX)
    }
}

impl GrantState {
    fn peer(&mut self, node: &str) -> &mut PeerGrants {
        if !self.peers.contains_key(node) {
            self.peers.insert(node.to_owned(), PeerGrants::default());
        }
        self.peers.get_mut(node).expect("it was inserted")
    }

    fn named(&self, is_meant: impl Fn(&PeerGrants) -> bool) -> BTreeSet<String> {
        let meant = self.peers.iter().filter(|(_, peer)| is_meant(peer));
        meant.map(|(name, _)| name.clone()).collect()
    }

    /// When the grants for a vbucket end; 0 when too few run.
    fn end_of(&self, condition: &ServingCondition) -> u64 {
        let end_of_set = |(nodes, needed): &(Vec<String>, usize)| {
            assert!(*needed <= nodes.len(), "a quorum is a part of its set");
            let counts = |run: &GrantRun| run.since_ns < condition.read_ns;
            let run_of = |node: &String| self.peers.get(node)?.held.filter(counts);
            let mut ends: Vec<u64> =
                nodes.iter().filter_map(run_of).map(|run| run.until_ns).collect();
            ends.sort_unstable_by(|one, other| other.cmp(one));
            match needed {
                0 => u64::MAX,
                needed => ends.get(needed - 1).copied().unwrap_or(0),
            }
        };
        condition.sets.iter().map(end_of_set).min().unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use oribi_types::Vbid;

    use super::*;

    const MS: u64 = NS_PER_MS;

    fn grants() -> Grants {
        let grants = Grants::at_start(500, 0);
        grants.begin_giving();
        grants
    }

    fn receive(grants: &Grants, node: &str, (sent_ns, given_ns): (u64, u64), now_ns: u64) -> bool {
        let process = grants.process();
        grants.receive(node, (BeaconId { process, sent_ns }, given_ns), now_ns)
    }

    fn hear(grants: &Grants, node: &str, now_ns: u64) -> Option<u64> {
        grants.hear(node, BeaconId { process: 7, sent_ns: now_ns + 5 }, now_ns)
    }

    fn place() -> VbucketPlace {
        VbucketPlace { uuid: "u".to_owned(), vbid: Vbid(1) }
    }

    fn needs(sets: &[(&[&str], usize)], read_ns: u64) -> ServingCondition {
        let named = |nodes: &[&str]| nodes.iter().map(|node| (*node).to_owned()).collect();
        let sets = sets.iter().map(|(nodes, needed)| (named(nodes), *needed)).collect();
        ServingCondition { epoch: CopiesEpoch(3), sets, read_ns }
    }

    #[test]
    fn a_grant_counts_from_sending_for_its_holder() {
        let (a, b) = (grants(), grants());
        let given_ns = hear(&b, "a", 90 * MS).unwrap();
        assert!(receive(&a, "b", (10 * MS, given_ns), 200 * MS));
        let condition = needs(&[(&["b"], 1)], 201 * MS);
        let held_ns = 10 * MS + held_ns(given_ns);
        assert_eq!(a.admit(&place(), &condition, 202 * MS), Some(held_ns));
        assert_eq!(a.end_ns(), held_ns);
        let opposed = BTreeSet::from(["a".to_owned()]);
        assert_eq!((b.withhold(&opposed), b.withhold(&opposed)), (vec!["a".to_owned()], vec![]));
        assert!(b.may_be_held_by("a", 590 * MS - 1) && !b.may_be_held_by("a", 590 * MS));
        assert!(held_ns < 590 * MS / 11 * 9);
        assert_eq!(hear(&b, "a", 600 * MS), None, "it is withheld");
        assert_eq!(b.withhold_only(&BTreeSet::new()), ["a"]);
        assert!(hear(&b, "a", 601 * MS).is_some());
    }

    #[test]
    fn a_repeated_beacon_is_not_heard() {
        let grants = grants();
        let beacon = |process, sent_ns| BeaconId { process, sent_ns };
        assert!(grants.hear("a", beacon(1, 10), 100 * MS).is_some());
        assert!(grants.hear("a", beacon(1, 10), 200 * MS).is_none());
        assert!(grants.hear("a", beacon(1, 9), 300 * MS).is_none());
        assert_eq!(grants.look(600 * MS), [("a".to_owned(), PeerChange::Suspected)]);
        assert!(grants.hear("a", beacon(2, 5), 601 * MS).is_some(), "another process");
        assert_eq!(grants.look(602 * MS), [("a".to_owned(), PeerChange::Heard)]);
    }

    #[test]
    fn a_run_that_began_after_the_read_does_not_count() {
        let grants = grants();
        assert!(receive(&grants, "b", (0, 500 * MS), MS));
        assert!(!receive(&grants, "b", (100 * MS, 500 * MS), 101 * MS), "the run continues");
        let condition = needs(&[(&["b"], 1)], 50 * MS);
        assert!(grants.admit(&place(), &condition, 110 * MS).is_some());
        let end_ns = 100 * MS + held_ns(500 * MS);
        assert_eq!(grants.end_ns(), end_ns);
        // An interruption, and another run.
        assert!(receive(&grants, "b", (end_ns, 500 * MS), end_ns + MS));
        assert_eq!(grants.end_ns(), 0);
        grants.confirm(&place(), CopiesEpoch(3), end_ns + MS);
        assert_eq!(grants.end_ns(), 0, "the read began before the grant came");
        grants.confirm(&place(), CopiesEpoch(3), end_ns + 2 * MS);
        assert!(grants.end_ns() > end_ns);
    }

    #[test]
    fn grants_of_an_earlier_process_do_not_count() {
        let grants = grants();
        let process = grants.process() ^ 1;
        let beacon = BeaconId { process, sent_ns: 0 };
        assert!(!grants.receive("b", (beacon, 500 * MS), MS));
    }

    #[test]
    fn every_set_needs_its_grants() {
        let grants = grants();
        receive(&grants, "b", (0, 500 * MS), MS);
        receive(&grants, "c", (50 * MS, 500 * MS), 51 * MS);
        let (one, two) = (held_ns(500 * MS), 50 * MS + held_ns(500 * MS));
        let end = |sets: &[(&[&str], usize)]| grants.state.lock().end_of(&needs(sets, 60 * MS));
        assert_eq!(end(&[(&["b", "c"], 1)]), two);
        assert_eq!(end(&[(&["b", "c"], 2)]), one);
        assert_eq!(end(&[(&["b"], 1), (&["c"], 1)]), one);
        assert_eq!(end(&[(&["b"], 1), (&["d"], 1)]), 0);
        assert_eq!(end(&[(&[], 0)]), u64::MAX);
    }

    #[test]
    fn a_vbucket_ends_before_its_grants_do() {
        let grants = grants();
        receive(&grants, "b", (0, 500 * MS), MS);
        assert!(grants.admit(&place(), &needs(&[(&["b"], 1)], 2 * MS), 3 * MS).is_some());
        let end_ns = grants.end_ns();
        let margin_ns = grants.periods().margin_ns;
        assert!(grants.end_those_due(end_ns - margin_ns - 1).is_empty());
        assert_eq!(grants.end_those_due(end_ns - margin_ns), [place()]);
        assert_eq!(grants.end_ns(), u64::MAX);
    }

    #[test]
    fn nodes_are_silent_then_suspected() {
        let grants = grants();
        hear(&grants, "b", 0);
        receive(&grants, "b", (0, 500 * MS), 1);
        let silent = |now_ns| grants.silent(["b", "c"].into_iter(), (now_ns, 5000 * MS));
        assert_eq!(silent(5000 * MS), ["c".to_owned()].into());
        let GrantPeriods { silent_ns, given_ns, .. } = grants.periods();
        let changes = |now_ns| -> Vec<PeerChange> {
            grants.look(now_ns).into_iter().map(|(_, change)| change).collect()
        };
        assert_eq!(changes(silent_ns - 1), []);
        assert_eq!(
            (changes(silent_ns), changes(silent_ns + 1)),
            (vec![PeerChange::Silent], vec![])
        );
        assert!(grants.suspected().is_empty() && silent(silent_ns).contains("b"));
        assert_eq!(changes(given_ns), [PeerChange::Suspected]);
        assert!(grants.suspected().contains("b"));
        assert!(grants.note_lateness(given_ns, given_ns + 1));
        assert_eq!(changes(given_ns + 2), [], "a suspicion stays until the node is heard");
        hear(&grants, "b", given_ns + 3);
        receive(&grants, "b", (given_ns + 3, 500 * MS), given_ns + 4);
        assert_eq!(changes(given_ns + 4), [PeerChange::Heard, PeerChange::Grants]);
        assert!(grants.suspected().is_empty());
        let late_ns = 2 * given_ns + 3;
        assert!(!grants.note_lateness(grants.periods().beacon_ns, late_ns));
        assert!(grants.note_lateness(given_ns, late_ns));
        assert_eq!(changes(late_ns), [], "none is suspected after a delay here");
    }

    #[test]
    fn a_node_that_starts_has_given_grants() {
        let grants = Grants::at_start(500, 1000 * MS);
        assert!(hear(&grants, "a", 1001 * MS).is_none(), "reports of its last process may remain");
        grants.withhold(&["a".to_owned()].into());
        assert!(grants.may_be_held_by("a", 1499 * MS) && !grants.may_be_held_by("a", 1500 * MS));
    }
}
