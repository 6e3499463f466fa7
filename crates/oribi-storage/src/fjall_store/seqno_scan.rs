//! Records in order of seqno without an index: collect, sort, read again.
//!
//! Owns: the memory that this takes, one compact list of keys instead of an allocation for each.
//! Invariant: both readings see the same snapshot, so every key of the first is in the second.

use std::ops::ControlFlow;

use fjall::Readable;
use oribi_types::{Seqno, Vbid};

use super::failure::{guarded, store_error};
use super::{FjallStore, layout, next_entry};
use crate::{RecordVisitor, StoreError};

/// Seqnos with their keys, the keys end to end in one buffer.
#[derive(Default)]
struct KeysBySeqno {
    entries: Vec<(Seqno, usize, usize)>,
    bytes: Vec<u8>,
}

impl KeysBySeqno {
    fn push(&mut self, seqno: Seqno, key: &[u8]) {
        self.entries.push((seqno, self.bytes.len(), key.len()));
        self.bytes.extend_from_slice(key);
    }

    fn into_sorted(mut self) -> KeysBySeqno {
        self.entries.sort_unstable();
        self
    }

    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.entries.iter().map(|(_, at, length)| &self.bytes[*at..*at + *length])
    }
}

impl FjallStore {
    pub(super) fn scan_sorted_by_seqno(
        &self,
        vbid: Vbid,
        from: Seqno,
        to: Seqno,
        visit: &mut RecordVisitor<'_>,
    ) -> Result<(), StoreError> {
        let snapshot = self.database.snapshot();
        let mut keys = KeysBySeqno::default();
        let mut entries = snapshot.prefix(&self.keyspace, layout::vbucket_prefix(vbid));
        while let Some((key, value)) = next_entry(&mut entries)? {
            let record = layout::decode_record(&key, &value)?;
            if from <= record.seqno && record.seqno <= to {
                keys.push(record.seqno, &key);
            }
        }
        for key in keys.into_sorted().iter() {
            let value = guarded("get", || snapshot.get(&self.keyspace, key).map_err(store_error))?;
            let Some(value) = value else {
                return Err(StoreError::Corrupt("a key vanished from a snapshot".into()));
            };
            if let ControlFlow::Break(()) = visit(layout::decode_record(key, &value)?) {
                break;
            }
        }
        Ok(())
    }
}
