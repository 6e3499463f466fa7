//! What holds after each step of the world, and once it is healed.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use oribi_protocol::hash::vbucket_of;
use oribi_storage::{FailoverEntry, KvStore as _, Record};
use oribi_types::{CollectionId, CopiesEpoch, DocKey, Seqno, Vbid};

use super::ClusterWorld;
use super::node::VBUCKETS;

/// What a bucket may take above its quota: a part of it, and values that several requests and
/// streams have in hand, which the 64 MiB of a process are for.
const MEMORY_SLACK_PERCENT: u64 = 10;
const VALUES_IN_HAND: u64 = 4;

/// All that copies have in common of one record.
#[derive(Debug, Clone, PartialEq, Eq)]
struct StoredVersion {
    seqno: u64,
    cas: u64,
    rev_seqno: u64,
    deleted: bool,
    value: Vec<u8>,
}

type StoredCopy = BTreeMap<(u32, Vec<u8>), StoredVersion>;

pub(super) fn vbids() -> impl Iterator<Item = Vbid> {
    (0..VBUCKETS).map(Vbid)
}

impl ClusterWorld {
    /// One node at most serves a vbucket, epochs ascend, leases have sessions, memory is bounded.
    pub(super) fn check(&mut self) {
        self.check_leases();
        for vbid in vbids() {
            let serving: Vec<(usize, CopiesEpoch)> =
                (0..self.nodes.len()).filter_map(|at| Some((at, self.serves(at, vbid)?))).collect();
            assert!(serving.len() <= 1, "{}: {serving:?} serve {vbid}", self.describe());
            let Some((at, epoch)) = serving.first().copied() else { continue };
            let before = self.served.insert(vbid, epoch);
            assert!(before <= Some(epoch), "{}: {vbid} goes back to {epoch:?}", self.describe());
            self.note_history(at, vbid);
        }
        for node in &self.nodes {
            let Some(bucket) = node.process().and_then(|process| process.bucket()) else {
                continue;
            };
            let memory = bucket.stats().memory;
            let in_hand = VALUES_IN_HAND * self.setup.value_bytes_max;
            let bound = memory.quota_bytes / 100 * (100 + MEMORY_SLACK_PERCENT) + in_hand;
            let used = memory.used_bytes;
            assert!(used <= bound, "{}: {used} of {bound} bytes", self.describe());
        }
    }

    /// While a node takes its lease for held, the agreement has not ended its session.
    fn check_leases(&self) {
        let sessions = self.agreement.sessions();
        for (at, node) in self.nodes.iter().enumerate() {
            self.enter(at);
            let held = node.process().and_then(|process| process.agent.held_session());
            let is_known = held.is_none_or(|session| sessions.contains(&session));
            assert!(
                is_known,
                "{}: the lease of {} outlasts its session",
                self.describe(),
                node.name
            );
        }
    }

    /// A disk that takes a prepare for completed has its outcome: a newer version of the document,
    /// or an abort in place of the prepare. For a process that has just begun.
    pub(super) fn check_stored_prepares(&self, at: usize) {
        let store = self.nodes[at].process().and_then(|process| process.registry.store());
        // Trouble may come to the disk at any step.
        let Some((store, states)) =
            store.and_then(|it| Some((it.clone(), it.vbucket_states().ok()?)))
        else {
            return;
        };
        for (vbid, state) in states {
            let (mut prepares, mut versions) = (Vec::new(), BTreeMap::new());
            let visit = &mut |record: Record<'_>| {
                let DocKey { collection, key } = record.key;
                let is_completed = !record.deleted && record.seqno <= state.high_completed_seqno;
                if collection != CollectionId::PREPARES {
                    versions.insert([&collection.0.to_be_bytes()[..], key].concat(), record.seqno);
                } else if is_completed {
                    prepares.push((key.to_vec(), record.seqno));
                }
                ControlFlow::Continue(())
            };
            if store.scan_keys(vbid, visit).is_err() {
                return;
            }
            for (key, seqno) in prepares {
                let version = versions.get(&key).copied();
                // The outcome was a deletion, and is purged.
                let is_purged = version.is_none() && state.purge_seqno > seqno;
                let (name, end) = (&self.nodes[at].name, state.high_seqno);
                assert!(
                    version > Some(seqno) || is_purged,
                    "{}: {name} has no outcome of {seqno:?} of {vbid} up to {end:?}: {version:?}",
                    self.describe()
                );
            }
        }
    }

    /// No promotion leaves a member of three out: one that is gone may return.
    pub(super) fn check_promotions(&mut self) {
        let records = self.records().by_vbucket;
        for (vbid, record) in &records {
            let joining = if record.is_joint() { record.joining_majority() } else { usize::MAX };
            let is_on_one_copy = record.majority().min(joining) == 1;
            for register in &mut self.documents.registers {
                if vbucket_of(&register.key, VBUCKETS) == *vbid {
                    register.note_copies(is_on_one_copy);
                }
            }
            let Some(before) = self.copies.get(vbid) else { continue };
            if record.configured != before.configured {
                self.documents.count("other numbers of copies");
            }
            let is_next = record.epoch == before.epoch.next() && record.handover.is_none();
            if !is_next || record.active == before.active || before.is_joint() {
                continue;
            }
            let keeps_all = before.members.iter().all(|member| record.members.contains(member));
            let may_leave = before.members.len() <= 2;
            assert!(keeps_all || may_leave, "{}: {before:?}, then {record:?}", self.describe());
        }
        self.copies = records;
    }

    /// Plain writes that a new history does not have may be lost.
    fn note_history(&mut self, at: usize, vbid: Vbid) {
        let bucket = self.nodes[at].process().and_then(|process| process.bucket());
        let table = bucket.and_then(|bucket| Some(bucket.vbucket(vbid)?.failover_table()));
        let Some(table) = table.filter(|table| !table.is_empty()) else { return };
        let before = self.histories.insert(vbid, table.clone()).unwrap_or_default();
        if before.first().map(|newest| newest.uuid) == Some(table[0].uuid) {
            return;
        }
        self.documents.count("promotions");
        let end = common_end(&before, &table);
        for at in 0..self.documents.registers.len() {
            let register = &mut self.documents.registers[at];
            if vbucket_of(&register.key, VBUCKETS) == vbid && register.begin_history(end) {
                self.documents.count("lost plain writes");
            }
        }
    }

    /// What still differs, if anything does.
    pub(super) fn unconverged(&self) -> Option<String> {
        let records = self.records();
        if records.by_vbucket.len() < usize::from(VBUCKETS) {
            return Some("a vbucket has no record".to_owned());
        }
        if records.is_rebalancing() {
            return Some("a rebalance runs".to_owned());
        }
        let wanted = usize::from(records.replicas) + 1;
        let copies = wanted.min(self.nodes.len());
        for (vbid, record) in &records.by_vbucket {
            let is_whole = record.members.len() == copies && record.configured == wanted;
            if record.is_joint() || !is_whole {
                return Some(format!("{vbid} has other copies than {wanted}: {record:?}"));
            }
            let node_of = |number: u16| {
                let name = records.name(number)?;
                (0..self.nodes.len()).find(|at| self.nodes[*at].name == name)
            };
            let Some(active) = node_of(record.active.node) else { continue };
            if self.serves(active, *vbid) != Some(record.epoch) {
                return Some(format!("{vbid} is not served: {record:?}"));
            }
            let bucket = |at: usize| self.nodes[at].process().and_then(|it| it.bucket());
            let high = bucket(active).and_then(|it| Some(it.vbucket(*vbid)?.high_seqno()));
            let is_pending = |at: usize| {
                let stats = bucket(at).and_then(|it| Some(it.vbucket(*vbid)?.stats()));
                stats.is_none_or(|stats| stats.pending_writes > 0)
            };
            for member in &record.members {
                let standing = node_of(member.node).and_then(bucket);
                let standing = standing.and_then(|it| Some(it.vbucket(*vbid)?.copy_standing()));
                let is_equal = standing.is_some_and(|standing| {
                    let has_all = Some(standing.complete_end) == high;
                    has_all && standing.is_intact && standing.recorded == record.epoch
                });
                if node_of(member.node).is_some_and(is_pending) {
                    return Some(format!("{member:?} of {vbid} has open prepares"));
                }
                if !is_equal {
                    return Some(format!("{member:?} of {vbid}: {standing:?} of {high:?}"));
                }
            }
        }
        None
    }

    /// All copies of a vbucket have the same documents and tombstones.
    pub(super) fn compare_copies(&mut self) {
        for at in 0..self.nodes.len() {
            self.flush(at);
        }
        let records = self.records();
        for (vbid, record) in &records.by_vbucket {
            let copy_of = |number: u16| {
                let name = records.name(number).expect("a node of the roster");
                let at = self.nodes.iter().position(|node| node.name == name);
                (name, self.stored(at.expect("a node of the world"), *vbid))
            };
            let (active, expected) = copy_of(record.active.node);
            for member in &record.members {
                let (name, found) = copy_of(member.node);
                let differs = expected
                    .iter()
                    .find(|(key, version)| found.get(*key) != Some(*version))
                    .or_else(|| found.iter().find(|(key, _)| !expected.contains_key(*key)));
                let description = self.describe();
                assert!(
                    differs.is_none(),
                    "{description}: {vbid} of {name} differs from {active}: {differs:?}"
                );
            }
        }
    }

    fn stored(&self, at: usize, vbid: Vbid) -> StoredCopy {
        let mut all = StoredCopy::new();
        let store = self.nodes[at].process().and_then(|process| process.registry.store());
        let visit = &mut |record: Record<'_>| {
            // A store keeps the prepares that were flushed apart from their outcomes.
            if record.key.collection == CollectionId::PREPARES {
                return ControlFlow::Continue(());
            }
            let version = StoredVersion {
                seqno: record.seqno.0,
                cas: record.cas.0,
                rev_seqno: record.rev_seqno.0,
                deleted: record.deleted,
                value: record.value.to_vec(),
            };
            all.insert((record.key.collection.0, record.key.key.to_vec()), version);
            ControlFlow::Continue(())
        };
        store.expect("a healed node").scan_keys(vbid, visit).expect("a sound disk");
        all
    }
}

/// Where two histories part. An active copy that lost its memory may be followed by one that has
/// nothing of its history.
fn common_end(before: &[FailoverEntry], after: &[FailoverEntry]) -> Seqno {
    let end_of = |table: &[FailoverEntry], at: usize| match at {
        0 => Seqno(u64::MAX),
        _ => table[at - 1].seqno,
    };
    let common = before.iter().enumerate().find_map(|(at, entry)| {
        let other = after.iter().position(|other| other.uuid == entry.uuid)?;
        Some(end_of(before, at).min(end_of(after, other)))
    });
    common.unwrap_or(Seqno(0))
}
