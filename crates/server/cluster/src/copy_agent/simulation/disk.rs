//! The copies of one node, as its disk has them: each is a log of writes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use oribi_replication::copies::{CopiesEpoch, CopiesRecord, CopyId};
use oribi_replication::election::PromiseReport;
use oribi_types::{Seqno, Vbid};
use parking_lot::Mutex;

use crate::copies::{CopyFailure, CopyWaker, FollowingCopy, LocalCopy, VbucketCopies};
use crate::topology::TopologyNode;

pub(super) const VBUCKETS: u16 = 4;

pub(super) fn vbids() -> impl Iterator<Item = Vbid> {
    (0..VBUCKETS).map(Vbid)
}

#[derive(Debug, Clone, Default)]
struct SimCopy {
    copy: u64,
    promised: CopiesEpoch,
    recorded: CopiesEpoch,
    log: Vec<u64>,
    /// Writes at the beginning of the log that the disk has, too.
    synced: usize,
    /// The node has ended in disorder since the copy recorded an epoch.
    is_doubtful: bool,
    /// The documents are there and cannot be loaded.
    is_unreadable: bool,
    /// Serves other copies alone.
    hands_over: bool,
    /// Not on the disk: the epoch that it serves, and the node that it follows.
    serves: Option<CopiesEpoch>,
    follows: Option<(CopiesEpoch, String)>,
}

pub(super) struct SimDisk {
    id: String,
    copies: Mutex<BTreeMap<Vbid, SimCopy>>,
    /// Held while the disk is slow: active copies do not begin.
    pub(super) slow: Mutex<()>,
    /// Active copies that were told to begin.
    pub(super) begun: AtomicUsize,
    /// Copies of other nodes that follow, and how many writes each has.
    followed_by: Mutex<BTreeMap<(Vbid, String), u64>>,
    /// The disk takes nothing more.
    pub(super) is_full: AtomicBool,
}

impl SimDisk {
    pub(super) fn new(id: &str) -> Arc<SimDisk> {
        Arc::new(SimDisk {
            id: id.to_owned(),
            copies: Mutex::default(),
            slow: Mutex::default(),
            begun: AtomicUsize::new(0),
            followed_by: Mutex::default(),
            is_full: AtomicBool::new(false),
        })
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// The process of the node ends: what is in memory alone is gone.
    pub(super) fn stop(&self, is_clean: bool) {
        self.followed_by.lock().clear();
        for copy in self.copies.lock().values_mut() {
            (copy.serves, copy.follows, copy.hands_over) = (None, None, false);
            copy.is_doubtful |= !is_clean;
            match is_clean {
                true => copy.synced = copy.log.len(),
                false => copy.log.truncate(copy.synced),
            }
        }
    }

    /// Everything that the copies have is on the disk.
    pub(super) fn sync(&self) {
        self.copies.lock().values_mut().for_each(|copy| copy.synced = copy.log.len());
    }

    /// Another node's copy has so many writes, or its link has ended.
    pub(super) fn note_following(&self, vbid: Vbid, node: &str, writes: Option<usize>) {
        let (key, mut all) = ((vbid, node.to_owned()), self.followed_by.lock());
        match writes {
            Some(writes) => drop(all.insert(key, writes as u64)),
            None => drop(all.remove(&key)),
        }
    }

    /// The directory of the bucket was removed.
    pub(super) fn wipe(&self) {
        self.copies.lock().clear();
    }

    /// The documents of all copies cannot be loaded any more, or can again.
    pub(super) fn set_unreadable(&self, is_unreadable: bool) {
        self.copies.lock().values_mut().for_each(|copy| copy.is_unreadable = is_unreadable);
    }

    /// The log of whatever copy there is.
    pub(super) fn log(&self, vbid: Vbid) -> Option<Vec<u64>> {
        self.copies.lock().get(&vbid).map(|copy| copy.log.clone())
    }

    pub(super) fn append(&self, vbid: Vbid, write: u64) {
        self.copies.lock().get_mut(&vbid).unwrap().log.push(write);
    }

    /// The log, while the copy serves this epoch.
    pub(super) fn served(&self, vbid: Vbid, epoch: CopiesEpoch) -> Option<Vec<u64>> {
        let copies = self.copies.lock();
        let feeds = |copy: &&SimCopy| {
            copy.serves == Some(epoch) || (copy.hands_over && copy.recorded == epoch)
        };
        copies.get(&vbid).filter(feeds).map(|copy| copy.log.clone())
    }

    /// The log of a copy that has recorded this epoch.
    pub(super) fn recorded_log(&self, vbid: Vbid, epoch: CopiesEpoch) -> Option<Vec<u64>> {
        let copies = self.copies.lock();
        copies.get(&vbid).filter(|copy| copy.recorded == epoch).map(|copy| copy.log.clone())
    }

    /// The vbuckets that follow another node, in an epoch.
    pub(super) fn following(&self) -> Vec<(Vbid, CopiesEpoch, String)> {
        let copies = self.copies.lock();
        let following = copies.iter().filter_map(|(vbid, copy)| {
            let (epoch, source) = copy.follows.clone()?;
            Some((*vbid, epoch, source))
        });
        following.collect()
    }

    /// A whole snapshot of the active copy. False when the copy accepts nothing of this epoch.
    pub(super) fn receive(&self, vbid: Vbid, epoch: CopiesEpoch, log: Vec<u64>) -> bool {
        let mut copies = self.copies.lock();
        let copy = copies.get_mut(&vbid).filter(|copy| copy.promised == epoch);
        let accepts = copy.is_some();
        if let Some(copy) = copy {
            let is_same = |(at, write): &(usize, &u64)| copy.log.get(*at) == Some(*write);
            let common = log.iter().enumerate().take_while(is_same).count();
            copy.synced = copy.synced.min(common);
            (copy.log, copy.recorded, copy.is_doubtful) = (log, epoch, false);
        }
        accepts
    }

    /// All that survives the process.
    pub(super) fn describe(&self) -> String {
        let copies = self.copies.lock();
        let lines = copies.iter().map(|(vbid, copy)| {
            format!("{vbid} {} {:?} {:?} {:?}", copy.copy, copy.promised, copy.recorded, copy.log)
        });
        lines.collect::<Vec<String>>().join("; ")
    }

    fn change(
        &self,
        vbid: Vbid,
        epoch: CopiesEpoch,
        change: impl FnOnce(&mut SimCopy),
    ) -> Result<(), CopyFailure> {
        let mut copies = self.copies.lock();
        let copy = copies.get_mut(&vbid).ok_or("there is no copy")?;
        if copy.promised > epoch {
            return Err(format!("{:?} is promised", copy.promised).into());
        }
        change(copy);
        copy.promised = epoch;
        copy.hands_over = false;
        Ok(())
    }
}

impl VbucketCopies for SimDisk {
    fn local(&self) -> Vec<LocalCopy> {
        let copies = self.copies.lock();
        let local = copies.iter().map(|(vbid, copy)| LocalCopy {
            vbid: *vbid,
            copy: copy.copy,
            promised: copy.promised,
            report: PromiseReport {
                recorded: copy.recorded,
                complete_end: Seqno(copy.log.len() as u64),
                is_intact: !copy.is_doubtful && !copy.is_unreadable,
            },
            hands_over: copy.hands_over,
            is_unreadable: copy.is_unreadable,
        });
        local.collect()
    }

    fn following(&self) -> Vec<FollowingCopy> {
        let all = self.followed_by.lock();
        let following = all.iter().map(|((vbid, node), writes)| FollowingCopy {
            vbid: *vbid,
            node: node.clone(),
            complete_end: Seqno(*writes),
        });
        following.collect()
    }

    /// The least that one of them has: the disk does not know which node has which number.
    fn acknowledged(&self, vbid: Vbid, _copy: CopyId) -> Option<Seqno> {
        let all = self.followed_by.lock();
        let of_vbucket = all.iter().filter(|((followed, _), _)| *followed == vbid);
        of_vbucket.map(|(_, writes)| Seqno(*writes)).min()
    }

    fn create(&self, copies: &[(Vbid, u64)]) -> Result<(), CopyFailure> {
        for (vbid, copy) in copies {
            let mut all = self.copies.lock();
            let found = all.entry(*vbid).or_default();
            if found.copy != *copy {
                assert!(!found.is_unreadable, "{vbid} is created over documents");
                *found = SimCopy { copy: *copy, ..SimCopy::default() };
            }
        }
        Ok(())
    }

    fn found(&self, vbid: Vbid, epoch: CopiesEpoch) -> Result<(), CopyFailure> {
        self.change(vbid, epoch, |copy| {
            assert!(copy.log.is_empty(), "{vbid} begins empty");
            copy.recorded = epoch;
        })
    }

    fn promise(&self, vbid: Vbid, epoch: CopiesEpoch) -> Result<(), CopyFailure> {
        if self.is_full.load(Ordering::SeqCst) {
            return Err("the disk is full".into());
        }
        self.change(vbid, epoch, |copy| {
            (copy.serves, copy.follows) = (None, None);
            copy.synced = copy.log.len();
        })
    }

    fn begin(&self, vbid: Vbid, record: &CopiesRecord) -> Result<(), CopyFailure> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        drop(self.slow.lock());
        self.change(vbid, record.epoch, |copy| {
            let holds_handover = record.handover.is_none_or(|last| last.0 == copy.log.len() as u64);
            assert!(
                copy.recorded == record.epoch || holds_handover,
                "{vbid} was handed over whole"
            );
            let is_elected = copy.promised == record.epoch || copy.recorded == CopiesEpoch(0);
            assert!(!copy.is_doubtful || is_elected, "{vbid} begins without an election");
            // What an epoch begins after is on the disk before the epoch is.
            copy.synced = copy.log.len();
            (copy.recorded, copy.is_doubtful) = (record.epoch, false);
            (copy.serves, copy.follows) = (None, None);
        })
    }

    fn demand_storage(&self, vbid: Vbid, _when_stored: Option<CopyWaker>) -> bool {
        let mut copies = self.copies.lock();
        let copy = copies.get_mut(&vbid).expect("an active copy");
        if !self.is_full.load(Ordering::SeqCst) {
            copy.synced = copy.log.len();
        }
        copy.synced == copy.log.len()
    }

    fn waive_storage(&self, _vbid: Vbid) {}

    fn start_serving(&self, vbid: Vbid, epoch: CopiesEpoch) {
        if let Some(copy) = self.copies.lock().get_mut(&vbid)
            && copy.recorded == epoch
        {
            copy.serves = Some(epoch);
        }
    }

    fn replicate(
        &self,
        vbid: Vbid,
        record: &CopiesRecord,
        (_, source): (CopyId, &TopologyNode),
    ) -> Result<(), CopyFailure> {
        let source = source.name.clone();
        self.change(vbid, record.epoch, |copy| {
            copy.serves = None;
            copy.follows = Some((record.epoch, source));
        })
    }

    fn serves(&self, vbid: Vbid) -> Option<CopiesEpoch> {
        self.copies.lock().get(&vbid)?.serves
    }

    fn can_hand_over(&self, vbid: Vbid) -> bool {
        let copies = self.copies.lock();
        copies.get(&vbid).is_some_and(|copy| copy.serves.is_some() || copy.hands_over)
    }

    fn hand_over(&self, vbid: Vbid, when_final: CopyWaker) {
        if let Some(copy) = self.copies.lock().get_mut(&vbid) {
            copy.hands_over = copy.serves.take().is_some();
        }
        when_final();
    }

    fn stop_serving(&self, vbid: Vbid) {
        if let Some(copy) = self.copies.lock().get_mut(&vbid) {
            copy.serves = None;
        }
    }

    fn remove(&self, vbid: Vbid) -> Result<(), CopyFailure> {
        let removed = self.copies.lock().remove(&vbid);
        assert!(removed.is_none_or(|copy| !copy.is_unreadable), "{vbid} has documents");
        Ok(())
    }
}
