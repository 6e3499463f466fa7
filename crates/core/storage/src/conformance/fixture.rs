//! Records, states and short queries of a store, so that each check reads like its rule.

use std::ops::ControlFlow;

use oribi_types::{
    Cas, CollectionId, CopiesEpoch, Datatype, DocKey, RevSeqno, Seqno, VbUuid, Vbid,
};

use super::Medium;
use crate::{
    FailoverEntry, KvStore, Record, SeqnoRange, VbBatch, VbucketPhase, VbucketState, unlimited,
};

/// A record that owns its bytes and compares by all fields.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct OwnedFields {
    pub(crate) collection: CollectionId,
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
    pub(crate) cas: Cas,
    pub(crate) seqno: Seqno,
    pub(crate) rev_seqno: RevSeqno,
    pub(crate) flags: u32,
    pub(crate) expiry: u32,
    pub(crate) datatype: Datatype,
    pub(crate) deleted: bool,
    pub(crate) expired: bool,
}

impl OwnedFields {
    /// A document in the default collection, its other fields derived from the seqno so that no
    /// two of them are equal by accident.
    pub(crate) fn document(seqno: u64, key: &[u8], value: &[u8]) -> OwnedFields {
        OwnedFields {
            collection: CollectionId::DEFAULT,
            key: key.to_vec(),
            value: value.to_vec(),
            cas: Cas(seqno.wrapping_add(0x1122_3344_5566_0000)),
            seqno: Seqno(seqno),
            rev_seqno: RevSeqno(seqno.wrapping_add(100)),
            flags: 0xdead_0000u32.wrapping_add(seqno as u32),
            expiry: 0,
            datatype: Datatype::JSON,
            deleted: false,
            expired: false,
        }
    }

    pub(crate) fn in_collection(self, id: u32) -> OwnedFields {
        OwnedFields { collection: CollectionId(id), ..self }
    }

    /// A tombstone of the given time of deletion.
    pub(crate) fn tombstone(seqno: u64, key: &[u8], deleted_at: u32) -> OwnedFields {
        let datatype = Datatype::RAW;
        let document = OwnedFields::document(seqno, key, b"");
        OwnedFields { expiry: deleted_at, deleted: true, datatype, ..document }
    }

    /// A tombstone that expiry made at the given time.
    pub(crate) fn expired(seqno: u64, key: &[u8], deleted_at: u32) -> OwnedFields {
        OwnedFields { expired: true, ..OwnedFields::tombstone(seqno, key, deleted_at) }
    }

    pub(crate) fn of(record: Record<'_>) -> OwnedFields {
        OwnedFields {
            collection: record.key.collection,
            key: record.key.key.to_vec(),
            value: record.value.to_vec(),
            cas: record.cas,
            seqno: record.seqno,
            rev_seqno: record.rev_seqno,
            flags: record.flags,
            expiry: record.expiry,
            datatype: record.datatype,
            deleted: record.deleted,
            expired: record.expired,
        }
    }

    pub(crate) fn record(&self) -> Record<'_> {
        Record {
            key: self.doc_key(),
            value: &self.value,
            cas: self.cas,
            seqno: self.seqno,
            rev_seqno: self.rev_seqno,
            flags: self.flags,
            expiry: self.expiry,
            datatype: self.datatype,
            deleted: self.deleted,
            expired: self.expired,
        }
    }

    pub(crate) fn doc_key(&self) -> DocKey<'_> {
        DocKey { collection: self.collection, key: &self.key }
    }
}

/// A state whose fields all differ, with the given high seqno.
pub(crate) fn state(high_seqno: u64) -> VbucketState {
    VbucketState {
        phase: VbucketPhase::Active,
        high_seqno: Seqno(high_seqno),
        max_cas: Cas(high_seqno.wrapping_add(0x99_0000)),
        max_deleted_rev_seqno: RevSeqno(high_seqno / 2),
        purge_seqno: Seqno(0),
        snapshot_start: Seqno(high_seqno / 4),
        snapshot_end: Seqno(high_seqno.wrapping_add(0x77)),
        high_prepared_seqno: Seqno(high_seqno / 5),
        high_completed_seqno: Seqno(high_seqno / 6),
        max_visible_seqno: Seqno(high_seqno / 7),
        promised_epoch: CopiesEpoch(high_seqno / 8 + 9),
        recorded_epoch: CopiesEpoch(high_seqno / 8 + 8),
        stopped_cleanly: high_seqno.is_multiple_of(2),
        is_intact: high_seqno.is_multiple_of(3),
        is_rewound: high_seqno.is_multiple_of(5),
        failover_table: vec![
            FailoverEntry {
                uuid: VbUuid(0xabcd_ef01_2345),
                seqno: Seqno(high_seqno / 3),
                epoch: CopiesEpoch(8),
            },
            FailoverEntry { uuid: VbUuid(7), seqno: Seqno(0), epoch: CopiesEpoch(2) },
        ],
    }
}

pub(crate) fn open(medium: &dyn Medium) -> Box<dyn KvStore> {
    medium.open().expect("the medium opens")
}

/// A batch that borrows the given records.
pub(crate) fn batch(vbid: Vbid, kept: &[OwnedFields], state: VbucketState) -> VbBatch<'_> {
    VbBatch { vbid, records: kept.iter().map(OwnedFields::record).collect(), state }
}

/// Commits one batch for one vbucket; its state has the last record's seqno.
pub(crate) fn commit(store: &dyn KvStore, vbid: Vbid, kept: &[OwnedFields]) {
    let high_seqno = kept.iter().map(|kept| kept.seqno.0).max().unwrap_or(0);
    store.commit(&[batch(vbid, kept, state(high_seqno))]).expect("the store accepts the batch");
}

pub(crate) fn get(store: &dyn KvStore, vbid: Vbid, key: DocKey<'_>) -> Option<OwnedFields> {
    let mut seen = Vec::new();
    let found =
        store.get(vbid, key, &mut unlimited, &mut |record| seen.push(OwnedFields::of(record)));
    let found = found.expect("the store answers a get");
    assert_eq!(seen.len(), usize::from(found), "one visit for a hit and none for a miss");
    assert!(!found || store.may_contain(vbid, key), "what is found may be contained");
    seen.pop()
}

pub(crate) fn scan_keys(store: &dyn KvStore, vbid: Vbid) -> Vec<OwnedFields> {
    let mut seen = Vec::new();
    let outcome = store.scan_keys(vbid, &mut |record| {
        seen.push(OwnedFields::of(record));
        ControlFlow::Continue(())
    });
    outcome.expect("the store scans");
    seen
}

pub(crate) fn scan_seqnos(store: &dyn KvStore, vbid: Vbid, from: u64, to: u64) -> Vec<OwnedFields> {
    let mut seen = Vec::new();
    let scan = store.begin_scan(vbid, SeqnoRange::seqnos(Seqno(from), Seqno(to)));
    let outcome = scan.expect("the scan begins").resume(&mut unlimited, &mut |record| {
        seen.push(OwnedFields::of(record));
        ControlFlow::Continue(())
    });
    outcome.expect("the store scans");
    seen
}

pub(crate) fn states(store: &dyn KvStore) -> Vec<(Vbid, VbucketState)> {
    let mut states = store.vbucket_states().expect("the store lists its states");
    states.sort_by_key(|(vbid, _)| *vbid);
    states
}
