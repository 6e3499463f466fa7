//! Scans by seqno: the range, and the snapshot that they show.

use oribi_types::{CollectionId, Seqno};

use crate::{LoadValues, RecordVisitor, ReserveMemory, StoreError, VbucketState};

/// The records that a [`SeqnoScan`] visits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SeqnoRange {
    pub from: Seqno,
    pub to: Seqno,
    /// The only collection that the caller needs. Records of others may come, too.
    pub collection: Option<CollectionId>,
    /// Without values the scan reserves memory only for those that it reads all the same.
    pub values: LoadValues,
}

impl SeqnoRange {
    pub const ALL: SeqnoRange = SeqnoRange::seqnos(Seqno(1), Seqno(u64::MAX));

    /// The records with `from <= seqno <= to`.
    pub const fn seqnos(from: Seqno, to: Seqno) -> SeqnoRange {
        SeqnoRange { from, to, collection: None, values: LoadValues::Read }
    }

    /// The records of one collection.
    pub const fn collection(collection: CollectionId) -> SeqnoRange {
        SeqnoRange { collection: Some(collection), ..SeqnoRange::ALL }
    }
}

/// The vbucket when a [`SeqnoScan`] began, whatever the range of the scan.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SnapshotSeqnos {
    /// Highest seqno; 0 for a vbucket that was never committed.
    pub high_seqno: Seqno,
    /// Tombstones up to this seqno may have been purged.
    pub purge_seqno: Seqno,
}

impl SnapshotSeqnos {
    /// Of a vbucket that has this state, or none.
    pub fn of(state: Option<&VbucketState>) -> SnapshotSeqnos {
        let (high_seqno, purge_seqno) =
            state.map(|state| (state.high_seqno, state.purge_seqno)).unwrap_or_default();
        SnapshotSeqnos { high_seqno, purge_seqno }
    }
}

/// Whether a [`SeqnoScan`] has more to show.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScanProgress {
    /// The visitor paused it.
    Paused,
    /// Every record was visited.
    Ended,
}

/// The records of a vbucket in a [`SeqnoRange`], tombstones included, in ascending seqno.
///
/// All are shown as they were when the scan began, whatever is committed, removed or compacted
/// since. The scan takes no lock between two calls and holds none while `visit` runs. It may
/// outlive the store, and keeps the space of the records that it has yet to show.
pub trait SeqnoScan: Send {
    /// The vbucket when the scan began.
    fn snapshot(&self) -> SnapshotSeqnos;

    /// Visits the next records until `visit` breaks or none is left. The record at which it breaks
    /// counts as visited. The scan reserves memory before it reads a large record, or before it
    /// shows it where the store reads several at a time. An error ends the scan; a new scan from
    /// after the last record shows another snapshot.
    fn resume(
        &mut self,
        reserve: &mut ReserveMemory<'_>,
        visit: &mut RecordVisitor<'_>,
    ) -> Result<ScanProgress, StoreError>;
}
