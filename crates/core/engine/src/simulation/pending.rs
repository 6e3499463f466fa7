//! Pending writes of a simulation: when they may become visible.
//!
//! Owns: the checks that neither a reader nor a stream has a pending version before the store does.

use oribi_storage::{KvStore, Record, unlimited};
use oribi_types::Vbid;

use super::model::{ModelKey, VbucketModel};
use super::world::World;

impl World {
    pub(super) fn is_pending(&self, key: &ModelKey) -> bool {
        self.vbuckets.borrow()[&key.vbid].pending.contains_key(key)
    }

    /// Takes in which pending writes have become visible: the store has each of them, durably.
    pub(super) fn settle_commits(&self) {
        let life = self.life();
        for (vbid, model) in self.vbuckets.borrow_mut().iter_mut() {
            let vbucket = life.bucket.vbucket(*vbid).expect("the vbucket is there");
            let is_visible = |key: &&ModelKey| !vbucket.has_pending_write(key.doc_key());
            let visible: Vec<ModelKey> = model.pending.keys().filter(is_visible).cloned().collect();
            for key in visible {
                let seqno = model.pending[&key].seqno;
                let mut stored = None;
                let read = life.store.get(*vbid, key.doc_key(), &mut unlimited, &mut |record| {
                    stored = Some(record.seqno);
                });
                let is_early = vbucket.persisted_seqno() < seqno;
                let is_purged = model.pending[&key].document.is_none() && !is_early;
                let is_stored = stored >= Some(seqno) || stored.is_none() && is_purged;
                assert!(read.is_err() || is_stored, "{key:?} before the store has it");
                self.count(|counts| counts.committed_by_reads += u64::from(is_early));
                model.commit(&key);
                model.promise(seqno);
            }
        }
    }

    /// A stream shows a pending version only when the store has it.
    pub(super) fn check_shown(&self, vbid: Vbid, record: &Record<'_>, model: &VbucketModel) {
        if model.pending.values().all(|version| version.seqno != record.seqno) {
            return;
        }
        let mut stored = None;
        let read = self.life().store.get(vbid, record.key, &mut unlimited, &mut |found| {
            stored = Some(found.seqno);
        });
        assert!(read.is_err() || stored == Some(record.seqno), "{record:?} is only pending");
    }
}
