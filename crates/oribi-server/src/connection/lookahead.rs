//! What a connection knows of the requests that wait behind the present one.
//!
//! A read delivers many pipelined requests. While they are served in order, the keys of later ones are
//! announced to the engine, which starts loading what it will need, in two steps at two distances: a
//! key's place in the hash table first, its item some requests later. The hash that this takes is kept
//! for the operation itself.
//!
//! This is a hint: whatever is malformed or not about a document is passed over here and judged when it
//! is served. Invariants: entries stand for complete frames in the order in which they will be served,
//! starting with the next one; after a request that is not about a document everything is forgotten,
//! because it may have changed what keys mean; nothing is allocated, changed or reordered. It lives as
//! long as one turn, so that an idle connection holds none.

use oribi_engine::{KeyAhead, LINE_BYTES};
use oribi_protocol::frame::{self, Decoded, Frame};
use oribi_protocol::opcode::Opcode;
use oribi_types::{DocKey, Vbid};

use crate::connection::state::ConnectionState;
use crate::limits::{PREFETCH_KEYS_MAX, PREFETCH_LINES_MAX};

/// Cache lines that tell what a write has to know of the version before it: header and key.
const HEAD_LINES: usize = 2;

#[derive(Clone, Copy)]
struct Entry {
    key: Option<KeyAhead>,
    frame_bytes: usize,
    reads_value: bool,
}

const NO_ENTRY: Entry = Entry { key: None, frame_bytes: 0, reads_value: false };

/// See the module text.
pub(super) struct Lookahead {
    /// Requests to look ahead; 0 for none.
    distance: usize,
    ring: [Entry; PREFETCH_KEYS_MAX],
    /// Requests served, located and announced so far; the first never exceeds the others.
    served: usize,
    located: usize,
    announced: usize,
    /// Bytes of the announced requests that are not served yet.
    ahead_bytes: usize,
    /// Nothing complete stands behind the last announced request.
    is_exhausted: bool,
    /// Cache lines of the documents that were read lately.
    lines: usize,
}

impl Lookahead {
    /// Looks `distance` requests ahead, at most [`PREFETCH_KEYS_MAX`].
    pub(super) fn new(distance: usize) -> Lookahead {
        Lookahead {
            distance: distance.min(PREFETCH_KEYS_MAX),
            ring: [NO_ENTRY; PREFETCH_KEYS_MAX],
            served: 0,
            located: 0,
            announced: 0,
            ahead_bytes: 0,
            is_exhausted: false,
            lines: HEAD_LINES,
        }
    }

    /// Announces what has come into reach. `received` begins with the request that is served next.
    #[inline]
    pub(super) fn advance(&mut self, state: &ConnectionState, received: &[u8]) {
        let Some(bucket) = state.bucket.as_ref().filter(|_| self.distance > 0) else { return };
        let (vbuckets, bucket) = (bucket.vbuckets(), bucket.bucket());
        while !self.is_exhausted && self.announced - self.served < self.distance {
            let rest = received.get(self.ahead_bytes..).unwrap_or_default();
            let Ok(Decoded::Complete { frame, consumed }) = frame::decode(rest) else {
                self.is_exhausted = true;
                break;
            };
            let document = document_of(state, vbuckets, &frame);
            self.ring[self.announced % PREFETCH_KEYS_MAX] = Entry {
                key: document.and_then(|(vbid, key)| bucket.announce(vbid, key)),
                frame_bytes: consumed,
                reads_value: frame.value.is_empty(),
            };
            self.announced += 1;
            self.ahead_bytes += consumed;
        }
        let near = self.announced.min(self.served + self.distance.div_ceil(2));
        while self.located < near {
            let entry = &self.ring[self.located % PREFETCH_KEYS_MAX];
            if let Some(key) = &entry.key {
                bucket.locate(key, if entry.reads_value { self.lines } else { HEAD_LINES });
            }
            self.located += 1;
        }
    }

    /// The announced key of the request that is served next.
    #[inline]
    pub(super) fn key(&self) -> Option<KeyAhead> {
        if self.served == self.announced {
            return None;
        }
        self.ring[self.served % PREFETCH_KEYS_MAX].key
    }

    /// The next request was served and answered with `answer_bytes`.
    #[inline]
    pub(super) fn served(&mut self, frame_bytes: usize, answer_bytes: usize) {
        if self.served == self.announced {
            return;
        }
        let entry = &self.ring[self.served % PREFETCH_KEYS_MAX];
        if entry.key.is_none() || entry.frame_bytes != frame_bytes {
            *self = Lookahead::new(self.distance);
            return;
        }
        if entry.reads_value {
            // An answer is about as long as its item. Longer ones count at once, shorter ones slowly.
            let lines = answer_bytes.div_ceil(LINE_BYTES) + 1;
            let shrunk = self.lines - self.lines / 8;
            self.lines = lines.max(shrunk).clamp(HEAD_LINES, PREFETCH_LINES_MAX);
        }
        self.served += 1;
        self.located = self.located.max(self.served);
        self.ahead_bytes -= frame_bytes;
    }
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
