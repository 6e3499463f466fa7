//! One version of a document as bytes.
//!
//! Layout, all numbers big-endian:
//!
//! | offset | | |
//! |---|---|---|
//! | 0 | u32 | bytes of the record after this field |
//! | 4 | u8 | kind: 1 mutation, 2 deletion, 3 expiration |
//! | 5 | u8 | datatype as in the protocol: 1 JSON, 2 Snappy, 4 attributes |
//! | 6 | u16 | vbucket |
//! | 8 | u64 | seqno |
//! | 16 | u64 | CAS |
//! | 24 | u64 | revision |
//! | 32 | u32 | flags |
//! | 36 | u32 | expiry; of a deletion, when it happened; UNIX seconds, 0 for none |
//! | 40 | u32 | collection id |
//! | 44 | u16 | bytes of the key |
//! | 46 | | key, then attributes and value exactly as they were stored |

use oribi_protocol::limits::KEY_BYTES_MAX;
use oribi_types::{Cas, CollectionId, Datatype, RevSeqno, Seqno, Vbid};

use crate::limits::RECORD_BYTES_MAX;

#[cfg(test)]
mod tests;

/// Bytes of a record before its key.
pub const HEAD_BYTES: usize = 46;

/// All bits of datatypes.
const DATATYPES: u8 = Datatype::JSON.0 | Datatype::SNAPPY.0 | Datatype::XATTR.0;

/// Bytes of the length in front.
const LENGTH_BYTES: usize = 4;

/// Kind of the document's change.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum RecordKind {
    Mutation = 1,
    Deletion = 2,
    /// Its time was over.
    Expiration = 3,
}

/// One version of a document.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ArchiveRecord<'a> {
    pub kind: RecordKind,
    pub vbid: Vbid,
    /// Its place in the vbucket's history.
    pub seqno: Seqno,
    /// CAS of the version.
    pub cas: Cas,
    /// How often the document was changed.
    pub rev: RevSeqno,
    /// Flags that the writer set.
    pub flags: u32,
    /// Expiry as UNIX seconds, 0 for none; of a removed document, when that happened.
    pub expiry: u32,
    /// The collection's id in the bucket that was backed up.
    pub collection: CollectionId,
    /// Type of the value.
    pub datatype: Datatype,
    pub key: &'a [u8],
    /// Attributes and value as they were stored.
    pub value: &'a [u8],
}

/// Bytes that are no record; the text says why.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct NoRecord(&'static str);

const CUT_OFF: NoRecord = NoRecord("a record is cut off");

impl<'a> ArchiveRecord<'a> {
    /// Bytes that [`ArchiveRecord::encode`] appends.
    pub fn encoded_bytes(&self) -> usize {
        HEAD_BYTES + self.key.len() + self.value.len()
    }

    /// Appends the record.
    ///
    /// # Errors
    /// When the key or the whole record is longer than any server's; nothing is appended then.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), NoRecord> {
        let key_bytes = u16::try_from(self.key.len()).map_err(|_| NoRecord("the key is long"))?;
        let bytes = self.encoded_bytes();
        if bytes > RECORD_BYTES_MAX {
            return Err(NoRecord("the document is too long"));
        }
        let behind = u32::try_from(bytes - LENGTH_BYTES).map_err(|_| NoRecord("too long"))?;
        out.reserve(bytes);
        out.extend_from_slice(&behind.to_be_bytes());
        out.push(self.kind as u8);
        out.push(self.datatype.0);
        out.extend_from_slice(&self.vbid.0.to_be_bytes());
        out.extend_from_slice(&self.seqno.0.to_be_bytes());
        out.extend_from_slice(&self.cas.0.to_be_bytes());
        out.extend_from_slice(&self.rev.0.to_be_bytes());
        out.extend_from_slice(&self.flags.to_be_bytes());
        out.extend_from_slice(&self.expiry.to_be_bytes());
        out.extend_from_slice(&self.collection.0.to_be_bytes());
        out.extend_from_slice(&key_bytes.to_be_bytes());
        out.extend_from_slice(self.key);
        out.extend_from_slice(self.value);
        Ok(())
    }

    /// Checks the fields that a server never sends otherwise, of a bucket with so many vbuckets.
    ///
    /// # Errors
    /// When no server has such a version.
    pub(crate) fn check(&self, vbuckets: u16) -> Result<(), NoRecord> {
        let wrong = |reason| Err(NoRecord(reason));
        match self {
            _ if self.vbid.0 >= vbuckets => wrong("the bucket has no such vbucket"),
            _ if matches!(self.seqno.0, 0 | u64::MAX) => wrong("no version has such a seqno"),
            // Stands for a new version in requests, and for a locked one in answers.
            _ if matches!(self.cas.0, 0 | u64::MAX) => wrong("no version has such a CAS"),
            _ if self.rev.0 == 0 => wrong("revisions begin at 1"),
            _ if self.key.is_empty() => wrong("the key is empty"),
            _ if self.key.len() > KEY_BYTES_MAX => wrong("the key is long"),
            _ if self.datatype.0 & !DATATYPES != 0 => wrong("the datatype is unknown"),
            _ => Ok(()),
        }
    }

    /// The vbucket of the record in front of `bytes`, and how long the record is. Nothing else of
    /// it is looked at.
    ///
    /// # Errors
    /// When there is none.
    pub fn peek(bytes: &[u8]) -> Result<(Vbid, usize), NoRecord> {
        let head: &[u8; HEAD_BYTES] = bytes.first_chunk().ok_or(CUT_OFF)?;
        let length = LENGTH_BYTES + number(head, 0, LENGTH_BYTES) as usize;
        match (HEAD_BYTES..=bytes.len()).contains(&length) {
            true => Ok((Vbid(number(head, 6, 2) as u16), length)),
            false => Err(CUT_OFF),
        }
    }

    /// Takes the record in front of `bytes` off.
    ///
    /// # Errors
    /// When there is none.
    pub fn decode(bytes: &mut &'a [u8]) -> Result<ArchiveRecord<'a>, NoRecord> {
        let head: &[u8; HEAD_BYTES] = bytes.first_chunk().ok_or(CUT_OFF)?;
        let behind = number(head, 0, LENGTH_BYTES) as usize;
        let (record, rest) = bytes.split_at_checked(LENGTH_BYTES + behind).ok_or(CUT_OFF)?;
        let key_and_value = record.get(HEAD_BYTES..).ok_or(CUT_OFF)?;
        let key_bytes = number(head, 44, 2) as usize;
        let (key, value) = key_and_value.split_at_checked(key_bytes).ok_or(CUT_OFF)?;
        let kind = match head[4] {
            1 => RecordKind::Mutation,
            2 => RecordKind::Deletion,
            3 => RecordKind::Expiration,
            _ => return Err(NoRecord("a record of an unknown kind")),
        };
        *bytes = rest;
        Ok(ArchiveRecord {
            kind,
            vbid: Vbid(number(head, 6, 2) as u16),
            seqno: Seqno(number(head, 8, 8)),
            cas: Cas(number(head, 16, 8)),
            rev: RevSeqno(number(head, 24, 8)),
            flags: number(head, 32, 4) as u32,
            expiry: number(head, 36, 4) as u32,
            collection: CollectionId(number(head, 40, 4) as u32),
            datatype: Datatype(head[5]),
            key,
            value,
        })
    }
}

fn number(head: &[u8; HEAD_BYTES], at: usize, bytes: usize) -> u64 {
    head[at..at + bytes].iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}
