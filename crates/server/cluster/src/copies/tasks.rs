//! What an agent keeps between two looks at the records of copies.
//!
//! Owns: the background work on copies, and which vbuckets it may still begin to serve. Invariant:
//! the key of a vbucket is released only after its permit was withdrawn, so work that began before
//! that serves nothing after it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use oribi_replication::copies::{CopiesEpoch, CopiesRecord, CopyId};
use oribi_types::Vbid;
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use super::heirs::HeirWaits;
use super::progress::CopyProgress;
pub(crate) use super::waits::LeaderWaits;
use crate::records::{CopiesEntry, VbucketPlace};

/// Pause before a failover that found too few copies, or a suspicion that others do not share, is
/// tried again.
const RETRY_NS: u64 = 10_000_000_000;

/// A report as this node wrote it last.
pub(crate) struct WrittenReport {
    pub(crate) session: u64,
    pub(crate) value: Vec<u8>,
    /// In which the agreement has it.
    pub(crate) revision: i64,
}

/// See the module text.
#[derive(Default)]
pub(crate) struct CopyTasks {
    /// By uuid of the bucket.
    pub(crate) running: HashMap<String, JoinHandle<()>>,
    /// By uuid of the bucket.
    permits: HashMap<String, Arc<ServePermits>>,
    /// The last reports that were written in a session, by uuid.
    pub(crate) reported: HashMap<String, WrittenReport>,
    /// Highest revision of agreement.
    pub(crate) revision_seen: i64,
    /// Agreement has lost changes.
    pub(crate) is_stopped: bool,
    /// The request to fail over that this leader saw last, and when it saw it first.
    pub(crate) failover_seen: Option<(i64, u64)>,
    pub(crate) absences: Absences,
    pub(crate) suspicions: Suspicions,
    /// Failovers that were done while this node led.
    pub(crate) failovers: u64,
    pub(crate) waits: LeaderWaits,
    pub(crate) heirs: HeirWaits,
    /// By uuid of the bucket.
    pub(crate) progress: HashMap<String, CopyProgress>,
    /// Active copies that others may leave alone: their disks are to have everything first.
    pub(crate) lone: BTreeSet<VbucketPlace>,
    /// When this node began to leave.
    pub(crate) leaving_since_ns: Option<u64>,
    /// Wakes the agent for copies that catch up.
    pub(crate) next_look: Option<JoinHandle<()>>,
}

/// Nodes with active copies that are gone, as this leader saw them.
#[derive(Default)]
pub(crate) struct Absences {
    /// Nodes that this process has seen alive. Who was away itself cannot know whether its copies
    /// have what the node acknowledged until then.
    known: BTreeSet<String>,
    /// Nodes that are gone and were never seen, each logged once.
    unknown: BTreeSet<String>,
    /// Nodes that are gone and have the only copies that vbuckets are to have, each logged once.
    only_copies: BTreeSet<String>,
    /// Names, and when each was missed first.
    since_ns: BTreeMap<String, u64>,
    /// Nodes whose failover found too few copies, the nodes that lived then, and when that was.
    given_up: BTreeMap<String, (BTreeSet<String>, u64)>,
}

impl Absences {
    /// Takes note of the nodes that live now; also while another node leads.
    pub(crate) fn see<'n>(&mut self, live: impl Iterator<Item = &'n String>) {
        for name in live {
            if !self.known.contains(name) {
                self.known.insert(name.clone());
            }
            self.unknown.remove(name);
        }
    }

    /// Takes note of the nodes that are gone now. One that was never seen alive is left to its
    /// return, or to an operator.
    pub(crate) fn note(&mut self, gone: &BTreeSet<&str>, now_ns: u64) {
        self.since_ns.retain(|name, _| gone.contains(name.as_str()));
        self.given_up.retain(|name, _| gone.contains(name.as_str()));
        for name in gone {
            if self.known.contains(*name) {
                self.since_ns.entry((*name).to_owned()).or_insert(now_ns);
            } else if self.unknown.insert((*name).to_owned()) {
                tracing::warn!(
                    node = name,
                    "a node with active copies was gone before this node came: its vbuckets wait \
                     for its return, or for `oribi cluster failover`"
                );
            }
        }
    }

    /// Takes note of the nodes that are gone now with vbuckets that have no replicas.
    pub(crate) fn note_only_copies(&mut self, gone: &BTreeSet<&str>) {
        self.only_copies.retain(|name| gone.contains(name.as_str()));
        for name in gone {
            if self.only_copies.insert((*name).to_owned()) {
                tracing::warn!(
                    node = name,
                    "a node is gone with vbuckets of buckets without replicas: they wait for its \
                     return"
                );
            }
        }
        assert!(self.only_copies.len() == gone.len(), "those that are gone are noted");
    }

    /// The node that is gone for the longest time, and at least for `after_ns`. One whose failover
    /// found too few copies is due again when other nodes live, or a while later: a disk may have
    /// room again.
    pub(crate) fn due(
        &self,
        now_ns: u64,
        after_ns: u64,
        live: &BTreeSet<String>,
    ) -> Option<String> {
        let waits = |name: &String| {
            let given_up = self.given_up.get(name);
            given_up.is_some_and(|(lived, at_ns)| {
                lived == live && now_ns.saturating_sub(*at_ns) < RETRY_NS
            })
        };
        let due = self.since_ns.iter().filter(|(name, since_ns)| {
            now_ns.saturating_sub(**since_ns) >= after_ns && !waits(name)
        });
        due.min_by_key(|(_, since_ns)| **since_ns).map(|(name, _)| name.clone())
    }

    /// The failover of a node found too few copies.
    pub(crate) fn give_up(&mut self, node: &str, live: BTreeSet<String>, now_ns: u64) {
        self.given_up.insert(node.to_owned(), (live, now_ns));
    }
}

/// The promises that this node made because it did not hear the active copy's node.
#[derive(Default)]
pub(crate) struct Suspicions(BTreeMap<VbucketPlace, Suspicion>);

struct Suspicion {
    active: CopyId,
    promised: CopiesEpoch,
    since_ns: u64,
}

impl Suspicions {
    /// Whether to promise the successor of this record: not while an earlier promise against the
    /// same copy is answered by a record in which it stays active, because others hear its node.
    pub(crate) fn allow(
        &mut self,
        place: &VbucketPlace,
        record: &CopiesRecord,
        now_ns: u64,
    ) -> bool {
        let new =
            Suspicion { active: record.active, promised: record.epoch.next(), since_ns: now_ns };
        assert!(new.promised > record.epoch, "a promise is of a later epoch");
        let known = self.0.get(place).filter(|known| known.active == record.active);
        match known {
            Some(known) if known.promised == new.promised => true,
            Some(known) if now_ns.saturating_sub(known.since_ns) < RETRY_NS => false,
            _ => {
                self.0.insert(place.clone(), new);
                true
            }
        }
    }

    /// Since when a promise of this epoch is meant.
    pub(crate) fn since_ns(&self, place: &VbucketPlace, promised: CopiesEpoch) -> Option<u64> {
        self.0.get(place).filter(|known| known.promised == promised).map(|known| known.since_ns)
    }

    /// Forgets vbuckets that have no record any more.
    pub(crate) fn keep_only(&mut self, records: &BTreeMap<VbucketPlace, CopiesEntry>) {
        self.0.retain(|place, _| records.contains_key(place));
    }
}

impl CopyTasks {
    /// Forgets what it knows of buckets that are none of these any more.
    pub(crate) fn keep_only(&mut self, uuids: &BTreeSet<&str>) {
        self.progress.retain(|uuid, _| uuids.contains(uuid.as_str()));
        self.reported.retain(|uuid, _| uuids.contains(uuid.as_str()));
        self.lone.retain(|place| uuids.contains(place.uuid.as_str()));
        // Work under way has the permits of its bucket, and they can be withdrawn until it ends.
        let running = &self.running;
        let is_kept = |uuid: &String| uuids.contains(uuid.as_str()) || running.contains_key(uuid);
        self.permits.retain(|uuid, _| is_kept(uuid));
        assert!(self.progress.len() <= uuids.len(), "one for each bucket");
    }

    pub(crate) fn permits(&mut self, uuid: &str) -> Arc<ServePermits> {
        Arc::clone(self.permits.entry(uuid.to_owned()).or_default())
    }
}

/// The vbuckets that background work may begin to serve, each in one epoch.
#[derive(Default)]
pub(crate) struct ServePermits(Mutex<BTreeMap<Vbid, CopiesEpoch>>);

impl ServePermits {
    pub(crate) fn grant(&self, vbid: Vbid, epoch: CopiesEpoch) {
        self.0.lock().insert(vbid, epoch);
    }

    /// Work under way begins to serve the vbucket no more when this returns; it may have begun.
    pub(crate) fn withdraw(&self, vbid: Vbid) {
        self.0.lock().remove(&vbid);
    }

    /// Begins to serve by `start`, if that is still permitted. The permit is not withdrawn before
    /// `start` has returned, so it must not block.
    pub(crate) fn start(&self, vbid: Vbid, epoch: CopiesEpoch, start: impl FnOnce()) {
        let permits = self.0.lock();
        if permits.get(&vbid) == Some(&epoch) {
            start();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_that_are_gone_are_forgotten() {
        let mut tasks = CopyTasks::default();
        for uuid in ["a", "b"] {
            tasks.progress.insert(uuid.to_owned(), CopyProgress::default());
            let report = WrittenReport { session: 1, value: Vec::new(), revision: 1 };
            tasks.reported.insert(uuid.to_owned(), report);
            tasks.permits(uuid);
        }
        tasks.keep_only(&BTreeSet::from(["b", "c"]));
        assert_eq!(tasks.progress.keys().collect::<Vec<_>>(), ["b"]);
        assert_eq!(tasks.reported.keys().collect::<Vec<_>>(), ["b"]);
        assert_eq!(tasks.permits.keys().collect::<Vec<_>>(), ["b"]);
    }

    #[tokio::test]
    async fn permits_of_work_under_way_can_be_withdrawn() {
        let mut tasks = CopyTasks::default();
        let (uuid, vbid, epoch) = ("a", Vbid(3), CopiesEpoch(2));
        let of_work = tasks.permits(uuid);
        of_work.grant(vbid, epoch);
        tasks.running.insert(uuid.to_owned(), tokio::spawn(async {}));
        tasks.keep_only(&BTreeSet::new());
        tasks.permits(uuid).withdraw(vbid);
        of_work.start(vbid, epoch, || panic!("it was withdrawn"));
    }
}
