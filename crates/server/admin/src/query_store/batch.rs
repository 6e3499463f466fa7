//! Documents that were copied out of the engine, read one after the other.
//!
//! Owns: the memory of a batch, which the next batch uses again.

use std::ops::Range;

use oribi_storage::Record;
use oribi_types::Datatype;

/// A version of a document as it is stored.
#[derive(Clone, Copy, Debug)]
pub(super) struct StoredVersion<'a> {
    pub key: &'a [u8],
    pub cas: u64,
    pub flags: u32,
    /// UNIX seconds; 0 for none.
    pub expiry: u32,
    pub datatype: Datatype,
    /// Attributes, if the datatype has their bit, and the body.
    pub value: &'a [u8],
}

impl<'a> From<&Record<'a>> for StoredVersion<'a> {
    fn from(record: &Record<'a>) -> StoredVersion<'a> {
        StoredVersion {
            key: record.key.key,
            cas: record.cas.0,
            flags: record.flags,
            expiry: record.expiry,
            datatype: record.datatype,
            value: record.value,
        }
    }
}

/// See the module text.
#[derive(Default)]
pub(super) struct DocumentBatch {
    bytes: Vec<u8>,
    entries: Vec<BatchEntry>,
    /// The number of the current document, from 1.
    at: usize,
}

struct BatchEntry {
    key: Range<usize>,
    value: Range<usize>,
    cas: u64,
    flags: u32,
    expiry: u32,
    datatype: Datatype,
}

impl DocumentBatch {
    /// Removes all documents, and frees capacity beyond twice `usual_bytes`.
    pub fn clear(&mut self, usual_bytes: usize) {
        self.entries.clear();
        self.bytes.clear();
        self.bytes.shrink_to(2 * usual_bytes);
        self.at = 0;
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes of all keys and values.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Copies a document to the end of the batch.
    pub fn push(&mut self, document: &StoredVersion<'_>) {
        debug_assert_eq!(self.at, 0, "documents are added before they are read");
        let begin = self.bytes.len();
        self.bytes.extend_from_slice(document.key);
        let middle = self.bytes.len();
        self.bytes.extend_from_slice(document.value);
        self.entries.push(BatchEntry {
            key: begin..middle,
            value: middle..self.bytes.len(),
            cas: document.cas,
            flags: document.flags,
            expiry: document.expiry,
            datatype: document.datatype,
        });
    }

    /// Moves to the next document; false after the last.
    pub fn advance(&mut self) -> bool {
        self.at = self.entries.len().min(self.at) + 1;
        self.at <= self.entries.len()
    }

    /// The current document; none before the first and after the last.
    pub fn document(&self) -> Option<StoredVersion<'_>> {
        let entry = self.entries.get(self.at.checked_sub(1)?)?;
        debug_assert!(
            entry.key.end == entry.value.start && entry.value.end <= self.bytes.len(),
            "a document is inside the bytes"
        );
        Some(StoredVersion {
            key: &self.bytes[entry.key.clone()],
            cas: entry.cas,
            flags: entry.flags,
            expiry: entry.expiry,
            datatype: entry.datatype,
            value: &self.bytes[entry.value.clone()],
        })
    }
}
