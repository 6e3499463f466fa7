//! Documents of a range with few keys.
//!
//! Owns: a pass over the keys in memory, which looks at no body, and the documents of those in the
//! range, each read by its key as it is then. A wider range is left to a scan, and so is a bucket
//! whose memory lacks keys: one that evicts whole documents or did so, one that warms up, and one
//! whose vbuckets move during the pass.
//!
//! Invariants: the pass finds every document that was written before it, or a later version; it
//! ends before the first document is read, so a statement may change what it scans.

use anyhow::Result;
use oribi_engine::{ItemRef, WalkCursor};
use oribi_query::KeyRange;
use oribi_storage::LoadValues;
use oribi_system::clock::wall_clock;
use oribi_types::{Cas, Datatype, Timestamp};

use super::batch::{DocumentBatch, StoredVersion};
use super::lookup::DocumentLookup;
use super::reader::KeyspaceReader;
use crate::limits::NARROW_RANGE_KEYS;

/// Steps of the pass between two looks whether the statement has to end: some microseconds each.
const STEPS_BETWEEN_LOOKS: usize = 64;
const _: () = assert!(STEPS_BETWEEN_LOOKS > 0, "a walk goes forward");

/// A document of the range, without its body.
struct RangeKey {
    key: Box<[u8]>,
    cas: Cas,
    flags: u32,
    expiry: u32,
    datatype: Datatype,
}

impl RangeKey {
    fn of(item: &ItemRef) -> RangeKey {
        RangeKey {
            key: item.key().key.into(),
            cas: item.cas(),
            flags: item.flags(),
            expiry: item.expiry(),
            datatype: item.datatype(),
        }
    }
}

/// See the module text.
pub(super) struct NarrowRange<'r> {
    reader: &'r KeyspaceReader,
    /// In the order of keys, the first one last.
    left: Vec<RangeKey>,
    values: LoadValues,
    lookup: Option<DocumentLookup<'r>>,
    without_body: DocumentBatch,
}

impl<'r> NarrowRange<'r> {
    /// The documents with these keys; none if they have to be scanned.
    ///
    /// # Errors
    /// When not all of the vbuckets are served here, or the statement has to end.
    pub fn find(
        reader: &'r KeyspaceReader,
        range: &KeyRange,
        values: LoadValues,
    ) -> Result<Option<NarrowRange<'r>>> {
        let bucket = reader.handle.bucket();
        let is_bounded = range.low.is_some() || range.high.is_some();
        if !is_bounded {
            return Ok(None);
        }
        reader.check_served()?;
        let changes = bucket.settled_ownership_changes();
        if changes.is_none() || !bucket.has_every_key() {
            return Ok(None);
        }
        let Some(mut left) = reader.keys_in(range, wall_clock())? else { return Ok(None) };
        // Keys that left memory during the pass are missing, and so is a vbucket that moved.
        if !bucket.has_every_key() || bucket.settled_ownership_changes() != changes {
            return Ok(None);
        }
        left.sort_unstable_by(|left, right| right.key.cmp(&left.key));
        // A table that grows shows some documents twice.
        left.dedup_by(|left, right| left.key == right.key);
        debug_assert!(
            left.is_sorted_by(|one, next| one.key > next.key),
            "keys are read from the end"
        );
        let without_body = DocumentBatch::default();
        Ok(Some(NarrowRange { reader, left, values, lookup: None, without_body }))
    }

    /// Moves to the next document; false after the last. The first call moves to the first one.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn advance(&mut self) -> Result<bool> {
        while let Some(next) = self.left.pop() {
            if self.values == LoadValues::Skip {
                self.without_body.clear(0);
                self.without_body.push(&StoredVersion {
                    key: &next.key,
                    cas: next.cas.0,
                    flags: next.flags,
                    expiry: next.expiry,
                    datatype: next.datatype,
                    value: &[],
                });
                return Ok(self.without_body.advance());
            }
            // Memory for a large document is returned first.
            self.lookup = None;
            let lookup = DocumentLookup::read(self.reader, &next.key)?;
            if lookup.document().is_some() {
                self.lookup = Some(lookup);
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The current document; none before the first and after the last.
    pub fn document(&self) -> Option<StoredVersion<'_>> {
        match self.values {
            LoadValues::Read => self.lookup.as_ref()?.document(),
            LoadValues::Skip => self.without_body.document(),
        }
    }
}

impl KeyspaceReader {
    /// The live documents in memory with keys in the range, in no order; none if there are many.
    fn keys_in(&self, range: &KeyRange, now: Timestamp) -> Result<Option<Vec<RangeKey>>> {
        let mut found = Vec::new();
        for vbucket in self.handle.bucket().vbuckets() {
            let mut cursor = WalkCursor::default();
            let mut is_complete = false;
            while !is_complete {
                self.control.check()?;
                for _ in 0..STEPS_BETWEEN_LOOKS {
                    is_complete =
                        vbucket.walk_documents(self.collection, &mut cursor, now, &mut |item| {
                            if range.contains(item.key().key) {
                                found.push(RangeKey::of(item));
                            }
                        });
                    if is_complete {
                        break;
                    }
                }
                if found.len() > NARROW_RANGE_KEYS {
                    return Ok(None);
                }
            }
        }
        Ok(Some(found))
    }
}
