//! Documents that were copied out of a scan, to be looked at one after the other.
//!
//! Owns: the memory of a batch, which is used again for the next one. Sources whose scans lend
//! documents to a visitor fill it.

use std::ops::Range;

use oribi_types::{CollectionId, Datatype, Vbid};

use crate::documents::StoredDocument;

/// See the module text.
#[derive(Default)]
pub struct DocumentBatch {
    bytes: Vec<u8>,
    documents: Vec<Copied>,
    /// The number of the current one, from 1.
    at: usize,
}

struct Copied {
    vbid: Vbid,
    collection: CollectionId,
    key: Range<usize>,
    value: Range<usize>,
    cas: u64,
    seqno: u64,
    rev: Option<u64>,
    flags: u32,
    expiry: u32,
    datatype: Datatype,
}

impl DocumentBatch {
    /// Forgets all of them, and gives back what is far more room than `usual_bytes`.
    pub fn clear(&mut self, usual_bytes: usize) {
        self.documents.clear();
        self.bytes.clear();
        self.bytes.shrink_to(2 * usual_bytes);
        self.at = 0;
    }

    /// True when there is none.
    pub fn is_empty(&self) -> bool {
        self.documents.is_empty()
    }

    /// Bytes of all keys and values.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Adds one.
    pub fn push(&mut self, document: &StoredDocument<'_>, with_value: bool) {
        let begin = self.bytes.len();
        self.bytes.extend_from_slice(document.key);
        let middle = self.bytes.len();
        if with_value {
            self.bytes.extend_from_slice(document.value);
        }
        self.documents.push(Copied {
            vbid: document.vbid,
            collection: document.collection,
            key: begin..middle,
            value: middle..self.bytes.len(),
            cas: document.cas,
            seqno: document.seqno,
            rev: document.rev,
            flags: document.flags,
            expiry: document.expiry,
            datatype: document.datatype,
        });
    }

    /// Goes to the next one; false behind the last.
    pub fn advance(&mut self) -> bool {
        self.at = self.documents.len().min(self.at) + 1;
        self.at <= self.documents.len()
    }

    /// The current one.
    pub fn document(&self) -> Option<StoredDocument<'_>> {
        let copied = self.documents.get(self.at.checked_sub(1)?)?;
        Some(StoredDocument {
            vbid: copied.vbid,
            collection: copied.collection,
            key: &self.bytes[copied.key.clone()],
            cas: copied.cas,
            seqno: copied.seqno,
            rev: copied.rev,
            flags: copied.flags,
            expiry: copied.expiry,
            datatype: copied.datatype,
            value: &self.bytes[copied.value.clone()],
        })
    }
}
