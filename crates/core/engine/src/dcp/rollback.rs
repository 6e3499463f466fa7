//! Whether a reader may continue from where it says it is, or must go back first.
//!
//! Owns: the rule, as a pure function of the request and of what the vbucket knows. A history is
//! named by its uuid; a reader may continue if everything it has belongs to histories that this
//! vbucket continues. It must forget what it has of a history that ended before. A reader from 0
//! has nothing to forget. Called when a stream opens, and again when its backfill begins, because
//! tombstones may have been purged in between.

use oribi_storage::FailoverEntry;
use oribi_types::Seqno;

use super::request::StreamRequest;

#[derive(Clone, Copy, Debug)]
pub(super) struct KnownHistory<'a> {
    pub(super) failover_table: &'a [FailoverEntry],
    pub(super) high_seqno: Seqno,
    /// Tombstones up to here may be gone.
    pub(super) purge_seqno: Seqno,
    /// For a filter on collections: nothing of them was written above it.
    pub(super) filtered_high_seqno: Option<Seqno>,
}

/// The seqno to which the reader must roll back; `None` when it may continue.
pub(super) fn rollback(request: &StreamRequest, known: KnownHistory<'_>) -> Option<Seqno> {
    let start = request.start;
    if start == Seqno(0) && (!request.flags.strict_uuid || request.uuid.0 == 0) {
        return None;
    }
    if misses_tombstones(request, known) {
        return Some(Seqno(0));
    }
    let entry = known.failover_table.iter().position(|entry| entry.uuid == request.uuid);
    let Some(entry) = entry else { return Some(Seqno(0)) };
    // The history of the request ended where the next newer one began.
    let upper = match entry.checked_sub(1) {
        Some(newer) => known.failover_table[newer].seqno,
        None => known.high_seqno,
    };
    let (mut snapshot_start, mut snapshot_end) = request.snapshot;
    debug_assert!(snapshot_start <= start && start <= snapshot_end, "the request was checked");
    if start == snapshot_start {
        // The reader has nothing of the snapshot.
        snapshot_end = start;
    }
    if snapshot_end <= upper {
        return None;
    }
    if start == snapshot_end {
        // It has all of it.
        snapshot_start = start;
    }
    debug_assert!(upper.min(snapshot_start) <= start, "a reader goes back, not forward");
    Some(upper.min(snapshot_start))
}

/// True when a tombstone after the start may be gone that this reader needs.
pub(super) fn misses_tombstones(request: &StreamRequest, known: KnownHistory<'_>) -> bool {
    let start = request.start;
    let purged = match request.flags.ignore_purged {
        true => Seqno(0),
        false => known.purge_seqno,
    };
    let is_settled = known.filtered_high_seqno.is_some_and(|high| high <= purged && start >= high);
    start != Seqno(0)
        && start < purged
        && request.client_purge_seqno.unwrap_or_default() != purged
        && !is_settled
}

#[cfg(test)]
mod tests;
