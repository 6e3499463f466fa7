//! Whether the records of a segment are ones that a server sends, and those of its footer.

use std::collections::BTreeMap;

use super::{ArchiveSegment, Range};
use crate::RecordKind;
use crate::error::ArchiveError;

/// Sums over the records of a segment.
#[derive(PartialEq, Eq, Default)]
struct Sums {
    mutations: u64,
    removals: u64,
    plain_bytes: u64,
}

impl ArchiveSegment<'_> {
    /// Checks every record, of a bucket with so many vbuckets, and the footer's index of them.
    ///
    /// # Errors
    /// When a block, a record or the index is damaged.
    pub(crate) fn check_records(&self, vbuckets: u16) -> Result<(), ArchiveError> {
        let mut sums = Sums::default();
        let mut ranges: BTreeMap<u16, Range> = BTreeMap::new();
        self.for_each(|record| {
            let (vbucket, seqno) = (record.vbid.0, record.seqno.0);
            record.check(vbuckets).map_err(|error| {
                self.damaged(format!("seqno {seqno} of vbucket {vbucket}: {error}"))
            })?;
            let empty = Range { vbucket, first: seqno, last: 0, records: 0 };
            let range = ranges.entry(vbucket).or_insert(empty);
            if seqno <= range.last {
                let last = range.last;
                let reason = format!("seqno {seqno} of vbucket {vbucket} comes after {last}");
                return Err(self.damaged(reason));
            }
            (range.last, range.records) = (seqno, range.records + 1);
            sums.plain_bytes += record.encoded_bytes() as u64;
            match record.kind {
                RecordKind::Mutation => sums.mutations += 1,
                RecordKind::Deletion | RecordKind::Expiration => sums.removals += 1,
            }
            Ok(())
        })?;
        let footer = self.footer();
        for range in &footer.vbuckets {
            if ranges.remove(&range.vbucket) != Some(*range) {
                let reason = format!("its index is wrong about vbucket {}", range.vbucket);
                return Err(self.damaged(reason));
            }
        }
        if let Some(vbucket) = ranges.keys().next() {
            return Err(self.damaged(format!("its index lacks vbucket {vbucket}")));
        }
        let (mutations, removals) = (footer.mutations, footer.removals);
        match sums == (Sums { mutations, removals, plain_bytes: footer.plain_bytes }) {
            true => Ok(()),
            false => Err(self.damaged("its footer counts other records".to_owned())),
        }
    }
}
