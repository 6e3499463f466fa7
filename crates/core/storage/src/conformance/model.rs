//! The reference model of a store: plain maps, and the shortest code that could be right.

use std::collections::BTreeMap;

use oribi_types::{CollectionId, Seqno, Vbid};

use super::fixture::{OwnedFields, scan_keys, scan_seqnos, states};
use crate::{KvStore, VbucketState};

/// Contents that a correct store has after the same operations.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Model {
    pub(crate) records: BTreeMap<(Vbid, CollectionId, Vec<u8>), OwnedFields>,
    pub(crate) states: BTreeMap<Vbid, VbucketState>,
    pub(crate) locals: BTreeMap<String, Vec<u8>>,
}

impl Model {
    pub(crate) fn commit(&mut self, vbid: Vbid, kept: &[OwnedFields], state: VbucketState) {
        for kept in kept {
            self.records.insert((vbid, kept.collection, kept.key.clone()), kept.clone());
        }
        let known = self.states.get(&vbid).map_or(Seqno(0), |state| state.purge_seqno);
        let purge_seqno = state.purge_seqno.max(known);
        self.states.insert(vbid, VbucketState { purge_seqno, ..state });
    }

    pub(crate) fn purge_collection(&mut self, vbid: Vbid, collection: CollectionId) {
        self.records.retain(|key, _| (key.0, key.1) != (vbid, collection));
    }

    pub(crate) fn drop_vbucket(&mut self, vbid: Vbid, next: Option<&VbucketState>) {
        self.records.retain(|key, _| key.0 != vbid);
        self.states.remove(&vbid);
        self.states.extend(next.map(|next| (vbid, next.clone())));
    }

    pub(crate) fn compact(&mut self, vbid: Vbid, purge_before: u32) -> Option<Seqno> {
        let purged =
            |vb: Vbid, kept: &OwnedFields| vb == vbid && kept.deleted && kept.expiry < purge_before;
        let hit = self.records.iter().filter(|(key, kept)| purged(key.0, kept));
        let highest = hit.map(|(_, kept)| kept.seqno).max()?;
        self.records.retain(|key, kept| !purged(key.0, kept));
        let state = self.states.get_mut(&vbid)?;
        state.purge_seqno = state.purge_seqno.max(highest);
        Some(highest)
    }

    /// The vbucket's records in order of key.
    pub(crate) fn records_of(&self, vbid: Vbid) -> Vec<OwnedFields> {
        let of_vbucket = self.records.iter().filter(|(key, _)| key.0 == vbid);
        of_vbucket.map(|(_, kept)| kept.clone()).collect()
    }

    /// Compares everything that the store shows.
    pub(crate) fn assert_matches(&self, store: &dyn KvStore, vbids: impl Iterator<Item = Vbid>) {
        let expected: Vec<_> = self.states.iter().map(|(id, state)| (*id, state.clone())).collect();
        assert_eq!(states(store), expected, "states");
        for vbid in vbids {
            let mut expected = self.records_of(vbid);
            assert_eq!(scan_keys(store, vbid), expected, "{vbid} by key");
            expected.sort_by_key(|kept| kept.seqno);
            assert_eq!(scan_seqnos(store, vbid, 0, u64::MAX), expected, "{vbid} by seqno");
        }
        for (name, value) in &self.locals {
            let stored = store.get_local(name).expect("the store reads local documents");
            assert_eq!(stored.as_ref(), Some(value), "local document {name}");
        }
    }
}
