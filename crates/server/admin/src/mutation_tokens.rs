//! Mutation tokens that a statement has to see (`at_plus`).
//!
//! Owns: the form of `scan_vectors`, and the check against the vbuckets of this node. A scan sees
//! every acknowledged write at once, and a scan by index waits for the index ([`wanted`]). A token
//! that is not reached names a write that was lost, and its statement is refused, also while it
//! waits. Vbuckets of
//! other nodes are not checked, because a statement that reads them is refused anyway.

use oribi_query::{Consistency, QueryError, Result};
use oribi_types::{Seqno, VbUuid, Vbid};
use serde_json::Value;

use oribi_engine::VBucket;
use oribi_server::buckets::{BucketHandle, Buckets};

/// Codes of a value that does not parse, and of a state that a scan cannot reach.
const BAD_VALUE: u32 = 1040;
const NOT_REACHED: u32 = 12015;

/// A seqno of a vbucket, and the history that gave it out.
type VectorEntry = (Vbid, Seqno, VbUuid);

/// Checks that this node has the writes that `consistency` names.
pub(crate) fn check(consistency: &Consistency, buckets: &Buckets) -> Result<()> {
    let Consistency::AtPlus(text) = consistency else { return Ok(()) };
    for (bucket, vector) in parsed(text)?.as_object().ok_or_else(malformed)? {
        let tokens = tokens_of(vector)?;
        // A statement that reads a bucket that does not exist fails by itself.
        if let Some(handle) = buckets.get(bucket) {
            check_reached(&handle, &tokens)?;
        }
    }
    Ok(())
}

/// The seqnos that a vector names in a bucket. A history may have ended since the statement began,
/// so they are checked again: a wait for a write that is lost would not end.
pub(crate) fn wanted(vectors: &str, handle: &BucketHandle) -> Result<Vec<(Vbid, Seqno)>> {
    let vectors = parsed(vectors)?;
    let Some(vector) = vectors.get(handle.name()) else { return Ok(Vec::new()) };
    let tokens = tokens_of(vector)?;
    check_reached(handle, &tokens)?;
    Ok(tokens.into_iter().map(|(vbid, seqno, _)| (vbid, seqno)).collect())
}

fn check_reached(handle: &BucketHandle, tokens: &[VectorEntry]) -> Result<()> {
    for (vbid, seqno, uuid) in tokens {
        let vbucket = handle.bucket().vbucket(*vbid);
        if !vbucket.is_some_and(|vbucket| reaches(vbucket, *seqno, *uuid)) {
            let msg = format!(
                "The bucket {} has no write with seqno {} in vbucket {} of history {}: a crash, a \
                 rollback or a restored backup lost it",
                handle.name(),
                seqno.0,
                vbid.0,
                uuid.0
            );
            return Err(QueryError::datastore(NOT_REACHED, msg));
        }
    }
    Ok(())
}

fn parsed(vectors: &str) -> Result<Value> {
    serde_json::from_str(vectors).map_err(|_| malformed())
}

fn tokens_of(vector: &Value) -> Result<Vec<VectorEntry>> {
    let tokens = vector.as_object().ok_or_else(malformed)?.iter().map(|(vbid, token)| {
        let (seqno, uuid) = token_of(token)?;
        Some((Vbid(vbid.parse().ok()?), seqno, uuid))
    });
    tokens.collect::<Option<Vec<VectorEntry>>>().ok_or_else(malformed)
}

fn malformed() -> Box<QueryError> {
    let msg = "scan_vectors does not parse: write {\"bucket\":{\"vbucket\":[seqno,\"uuid\"]}}";
    QueryError::datastore(BAD_VALUE, msg)
}

fn token_of(token: &Value) -> Option<(Seqno, VbUuid)> {
    let [seqno, uuid] = &token.as_array()?[..] else { return None };
    let uuid = uuid.as_str().map_or_else(|| uuid.as_u64(), |uuid| uuid.parse().ok())?;
    Some((Seqno(seqno.as_u64()?), VbUuid(uuid)))
}

/// True when the vbucket's present state has this write or a later one of the same key.
fn reaches(vbucket: &VBucket, seqno: Seqno, uuid: VbUuid) -> bool {
    let stats = vbucket.stats();
    if !vbucket.is_serving() {
        return true;
    }
    let histories = vbucket.failover_table();
    let Some(at) = histories.iter().position(|history| history.uuid == uuid) else {
        return false;
    };
    // A history ends where the next one begins.
    let end = match at.checked_sub(1) {
        Some(next) => histories[next].seqno,
        None => stats.high_seqno,
    };
    seqno <= end
}
