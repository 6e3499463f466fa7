//! Mutation tokens that a statement has to see (`at_plus`).
//!
//! Owns: the form of `scan_vectors`, and the check against the vbuckets of this node. A scan sees
//! every acknowledged write at once, and a scan by index waits for the index ([`wanted`]). A token
//! that is not reached names a write that a crash lost, and its statement is refused. Vbuckets of
//! other nodes are not checked, because a statement that reads them is refused anyway.

use oribi_query::{Consistency, QueryError, Result};
use oribi_types::{Seqno, VbUuid, Vbid};
use serde_json::Value;

use oribi_engine::VBucket;
use oribi_server::buckets::Buckets;

/// Codes of a value that does not parse, and of a state that a scan cannot reach.
const BAD_VALUE: u32 = 1040;
const NOT_REACHED: u32 = 12015;

/// Checks that this node has the writes that `consistency` names.
pub(crate) fn check(consistency: &Consistency, buckets: &Buckets) -> Result<()> {
    let Consistency::AtPlus(text) = consistency else { return Ok(()) };
    let vectors: Value = serde_json::from_str(text).map_err(|_| malformed())?;
    for (bucket, vector) in vectors.as_object().ok_or_else(malformed)? {
        // A statement that reads a bucket that does not exist fails by itself.
        let handle = buckets.get(bucket);
        for (vbid, token) in vector.as_object().ok_or_else(malformed)? {
            let vbid = Vbid(vbid.parse().map_err(|_| malformed())?);
            let (seqno, uuid) = token_of(token).ok_or_else(malformed)?;
            let vbucket = handle.as_ref().and_then(|handle| handle.bucket().vbucket(vbid));
            if vbucket.is_some_and(|vbucket| !reaches(vbucket, seqno, uuid)) {
                let msg = format!(
                    "The bucket {bucket} has no write with seqno {} in vbucket {} of history {}: a \
                     crash or a restored backup lost it",
                    seqno.0, vbid.0, uuid.0
                );
                return Err(QueryError::datastore(NOT_REACHED, msg));
            }
        }
    }
    Ok(())
}

/// The seqnos of a bucket's vbuckets that a vector names. Its tokens were checked.
pub(crate) fn wanted(vectors: &str, bucket: &str) -> Vec<(Vbid, Seqno)> {
    let vectors: Value = serde_json::from_str(vectors).unwrap_or_default();
    let Some(vector) = vectors.get(bucket).and_then(Value::as_object) else { return Vec::new() };
    let tokens = vector.iter().filter_map(|(vbid, token)| {
        let (seqno, _) = token_of(token)?;
        Some((Vbid(vbid.parse().ok()?), seqno))
    });
    tokens.collect()
}

fn malformed() -> Box<QueryError> {
    let msg = "scan_vectors does not parse: write {\"bucket\":{\"vbucket\":[seqno,\"uuid\"]}}";
    QueryError::datastore(BAD_VALUE, msg)
}

/// A token: a seqno, and the history that gave it out.
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
