//! The decision about a request: refused, sent back, or open from where to where.
//!
//! Owns: the order of the checks, because clients can tell the reasons apart. Called when a stream
//! opens.

use oribi_storage::FailoverEntry;
use oribi_types::Seqno;
use oribi_types::policy::Storage;

use super::request::{StreamFilter, StreamOpenError, StreamRequest};
use super::rollback::{KnownHistory, rollback};
use crate::collections::BucketManifest;
use crate::core::Core;
use crate::vbucket::{HistoryEnds, VBucket};

/// A stream that may be opened.
pub(super) struct StreamOpening {
    /// The last seqno that the reader has.
    pub(super) start: Seqno,
    pub(super) end: Seqno,
    pub(super) failover_table: Vec<FailoverEntry>,
    /// Where the reader's snapshot begins and ends; `start` twice when it has all of it.
    pub(super) snapshot: (Seqno, Seqno),
    pub(super) disk_only: bool,
    /// The purge that the reader has taken into account, or one that it need not.
    pub(super) purge_seqno: Seqno,
    pub(super) ignores_purged: bool,
    /// The ownership of the vbucket that the stream belongs to, for its backfills.
    pub(super) incarnation: u64,
    /// All streams of the vbucket that were opened since they were last ended have this number.
    pub(super) generation: u64,
}

pub(super) fn open(core: &Core, request: &StreamRequest) -> Result<StreamOpening, StreamOpenError> {
    let serving = core.vbucket(request.vbid).filter(|vbucket| vbucket.is_serving());
    let vbucket = serving.ok_or(StreamOpenError::NotMyVbucket)?;
    let (incarnation, generation) = (vbucket.incarnation(), vbucket.stream_generation());
    let (start, end) = (request.start, request.end);
    let (snapshot_start, snapshot_end) = request.snapshot;
    if start > end || snapshot_start > start || start > snapshot_end {
        return Err(StreamOpenError::Range);
    }
    let manifest = core.collections().manifest();
    check_filter(&request.filter, &manifest)?;
    let failover_table = vbucket.failover_table();
    let HistoryEnds { high, readable, visible } = vbucket.history_ends();
    let request = &adjusted(request, &failover_table, readable);
    let purge_seqno = vbucket.purge_seqno();
    let known = KnownHistory {
        failover_table: &failover_table,
        high_seqno: high,
        purge_seqno,
        filtered_high_seqno: filtered_high_seqno(&request.filter, vbucket),
    };
    if let Some(to) = rollback(request, known) {
        return Err(StreamOpenError::Rollback(to));
    }
    let end = last_seqno(core, request, vbucket, visible);
    if request.start > end || request.start > high {
        return Err(StreamOpenError::Range);
    }
    if core.memory().used_bytes() > core.memory().backfill_threshold_bytes() {
        return Err(StreamOpenError::NoMemory);
    }
    if vbucket.is_loading() {
        return Err(StreamOpenError::TryLater);
    }
    if !vbucket.is_serving() || vbucket.stream_generation() != generation {
        return Err(StreamOpenError::NotMyVbucket);
    }
    assert!(request.start <= end && request.start <= high, "a stream begins in the history");
    Ok(StreamOpening {
        start: request.start,
        end,
        snapshot: match request.start == request.snapshot.1 {
            true => (request.start, request.start),
            false => request.snapshot,
        },
        disk_only: request.flags.disk_only,
        purge_seqno,
        ignores_purged: request.flags.ignore_purged,
        failover_table,
        incarnation,
        generation,
    })
}

fn check_filter(filter: &StreamFilter, manifest: &BucketManifest) -> Result<(), StreamOpenError> {
    match filter {
        StreamFilter::Default | StreamFilter::All | StreamFilter::Replica => Ok(()),
        StreamFilter::Scope(scope) => {
            let is_known = manifest.scopes().iter().any(|known| known.id == *scope);
            is_known.then_some(()).ok_or(StreamOpenError::UnknownScope)
        }
        StreamFilter::Collections(ids) => {
            let are_known = ids.iter().all(|id| manifest.contains(*id));
            are_known.then_some(()).ok_or(StreamOpenError::UnknownCollection)
        }
    }
}

/// The request from the newest seqno on that streams may read, if it asks for that.
fn adjusted(request: &StreamRequest, table: &[FailoverEntry], readable: Seqno) -> StreamRequest {
    let mut request = request.clone();
    if request.flags.from_latest {
        request.start = readable;
        request.snapshot = (readable, readable);
        if request.uuid.0 == 0 {
            request.uuid = table.first().map_or(request.uuid, |newest| newest.uuid);
        }
    }
    request
}

/// Where the stream ends. A filter's excluded changes count as sent, so the vbucket's last seqno is
/// also the last one of a filtered stream.
fn last_seqno(core: &Core, request: &StreamRequest, vbucket: &VBucket, visible: Seqno) -> Seqno {
    let flags = request.flags;
    let has_disk = core.config().storage == Storage::Persistent;
    let mut end = request.end;
    if flags.to_latest {
        end = visible;
    }
    if flags.disk_only {
        end = end.min(if has_disk { vbucket.persisted_seqno() } else { visible });
    }
    debug_assert!(flags.to_latest || end <= request.end, "a stream ends at the requested seqno");
    end
}

/// Nothing of the collections of a filter was written above this seqno.
fn filtered_high_seqno(filter: &StreamFilter, vbucket: &VBucket) -> Option<Seqno> {
    match filter {
        StreamFilter::Collections(ids) => Some(vbucket.collections_high_seqno(ids)),
        StreamFilter::All
        | StreamFilter::Replica
        | StreamFilter::Default
        | StreamFilter::Scope(_) => None,
    }
}
