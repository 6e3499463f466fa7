//! A record that outlives the answer it came in, for scans that have to sort.

use oribi_storage::Record;
use oribi_types::{Cas, CollectionId, Datatype, DocKey, RevSeqno, Seqno};

/// All of a [`Record`].
#[derive(Debug)]
pub(crate) struct OwnedRecord {
    collection: CollectionId,
    /// Key, then value.
    bytes: Box<[u8]>,
    key_bytes: usize,
    cas: Cas,
    seqno: Seqno,
    rev_seqno: RevSeqno,
    flags: u32,
    expiry: u32,
    datatype: Datatype,
    deleted: bool,
}

impl OwnedRecord {
    pub(crate) fn of(record: &Record<'_>) -> OwnedRecord {
        OwnedRecord {
            collection: record.key.collection,
            bytes: [record.key.key, record.value].concat().into(),
            key_bytes: record.key.key.len(),
            cas: record.cas,
            seqno: record.seqno,
            rev_seqno: record.rev_seqno,
            flags: record.flags,
            expiry: record.expiry,
            datatype: record.datatype,
            deleted: record.deleted,
        }
    }

    pub(crate) fn seqno(&self) -> Seqno {
        self.seqno
    }

    pub(crate) fn borrow(&self) -> Record<'_> {
        let (key, value) = self.bytes.split_at(self.key_bytes);
        Record {
            key: DocKey { collection: self.collection, key },
            value,
            cas: self.cas,
            seqno: self.seqno,
            rev_seqno: self.rev_seqno,
            flags: self.flags,
            expiry: self.expiry,
            datatype: self.datatype,
            deleted: self.deleted,
        }
    }
}
