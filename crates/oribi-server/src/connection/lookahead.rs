//! What a connection knows of the requests that wait behind the present one.
//!
//! A read delivers many pipelined requests. Before they are served in order, the keys of the next ones
//! are announced to the engine, which starts loading what it will need. This is a hint:
//! whatever is malformed or not about a document is passed over here and judged when it is served.
//! Nothing is allocated, and no request is changed or reordered.

use oribi_protocol::frame::{self, Decoded, Frame};
use oribi_protocol::opcode::Opcode;
use oribi_types::{DocKey, Vbid};

use crate::connection::state::ConnectionState;
use crate::limits::PREFETCH_KEYS_MAX;

/// Looks at the requests in `received` and announces up to `keys_max` keys. Returns how many of the
/// requests need no look again, at least one.
pub(super) fn announce(state: &ConnectionState, received: &[u8], keys_max: usize) -> usize {
    let Some(bucket) = state.bucket.as_ref().filter(|_| keys_max > 0) else {
        return PREFETCH_KEYS_MAX;
    };
    let mut keys = [const { None }; PREFETCH_KEYS_MAX];
    let (mut found, mut seen) = (0, 0);
    let mut rest = received;
    while seen < keys_max.min(PREFETCH_KEYS_MAX) {
        let Ok(Decoded::Complete { frame, consumed }) = frame::decode(rest) else { break };
        rest = &rest[consumed..];
        seen += 1;
        let document = document_of(state, bucket.vbuckets(), &frame);
        let key = document.and_then(|(vbid, key)| bucket.bucket().key_ahead(vbid, key));
        if key.is_some() {
            keys[found] = key;
            found += 1;
        }
    }
    // Nothing can be interleaved with a single look-up.
    if found > 1 {
        bucket.bucket().prefetch(keys.iter().flatten());
    }
    seen.max(1)
}

/// Vbucket and key of a request about one document.
fn document_of<'a>(
    state: &ConnectionState,
    vbuckets: u16,
    frame: &Frame<'a>,
) -> Option<(Vbid, DocKey<'a>)> {
    if !is_about_document(frame.header.opcode) {
        return None;
    }
    let key = state.doc_key(frame.key)?;
    Some((state.vbid(frame.header.vbucket_or_status, key, vbuckets), key))
}

/// True for the common requests that read or write one document.
fn is_about_document(opcode: u8) -> bool {
    // All of memcached's requests that have a key, but STAT, whose key is none of a document.
    opcode <= Opcode::Gatq as u8 && opcode != Opcode::Stat as u8
}

#[cfg(test)]
mod tests;
