//! A record that outlives the page or answer it came in.

use oribi_types::{Cas, CollectionId, Datatype, DocKey, RevSeqno, Seqno};

use crate::Record;

/// All of a [`Record`].
#[derive(Clone, Debug)]
pub struct OwnedRecord {
    collection: CollectionId,
    bytes: Box<[u8]>,
    key_bytes: usize,
    cas: Cas,
    seqno: Seqno,
    rev_seqno: RevSeqno,
    flags: u32,
    expiry: u32,
    datatype: Datatype,
    deleted: bool,
    expired: bool,
}

impl OwnedRecord {
    pub fn of(record: &Record<'_>) -> OwnedRecord {
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
            expired: record.expired,
        }
    }

    pub fn seqno(&self) -> Seqno {
        self.seqno
    }

    /// The record, borrowed from here.
    pub fn borrow(&self) -> Record<'_> {
        debug_assert!(self.key_bytes <= self.bytes.len(), "the key is a part of the bytes");
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
            expired: self.expired,
        }
    }
}
