//! What a connection knows of the requests that wait behind the present one.
//!
//! A read delivers many pipelined requests. While they are served in order, the keys of later ones are
//! announced to the engine, which starts loading what it will need, in two steps at two distances: a
//! key's place in the hash table first, its item some requests later. The hash that was computed for this is kept for the
//! operation itself; the header is decoded again then, which takes no more than keeping it.
//!
//! This is a hint: whatever is malformed or not about a document is passed over here and judged when it
//! is served. Invariants: entries stand for complete frames in the order in which they will be served,
//! starting with the next one; nothing behind a request that is not about a document is announced
//! before that is served, because it may change what keys mean; nothing is allocated, changed or reordered. It lives as
//! long as one turn, so that an idle connection holds none.

use oribi_engine::{HEADER_BYTES, KeyAhead};
use oribi_protocol::frame::Frame;
use oribi_protocol::opcode::Opcode;
use oribi_types::{DocKey, Vbid};

use crate::connection::state::ConnectionState;
use crate::limits::{PREFETCH_BYTES_MAX, PREFETCH_KEYS_MAX};

/// Bytes of an item in front of its key: its header, and the client's flags, which most have.
const ITEM_HEAD_BYTES: usize = HEADER_BYTES + 4;

/// Bytes of the answer to a GET besides key and value: header and flags.
const ANSWER_HEAD_BYTES: usize = oribi_protocol::limits::HEADER_BYTES + 4;

#[derive(Clone, Copy, Default)]
struct Entry {
    /// `None` for what is not about a document.
    key: Option<KeyAhead>,
    frame_bytes: u32,
    key_bytes: u16,
    /// A request without extras and value reads; one that stores has both.
    reads_value: bool,
}

impl Entry {
    /// Bytes of the item that tell what a write has to know of the version before it: header and key.
    fn head_bytes(&self) -> usize {
        ITEM_HEAD_BYTES + usize::from(self.key_bytes)
    }
}

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
    /// Nothing complete stands behind the last announced request, or that request has to be served before
    /// it is known what the keys behind it mean.
    is_exhausted: bool,
    /// Bytes of the values that were read lately.
    value_bytes: usize,
}

impl Lookahead {
    /// Looks `distance` requests ahead, at most [`PREFETCH_KEYS_MAX`]. `value_bytes` is what the last turn's
    /// [`Lookahead::value_bytes`] was.
    pub(super) fn new(distance: usize, value_bytes: u16) -> Lookahead {
        Lookahead {
            distance: distance.min(PREFETCH_KEYS_MAX),
            ring: [Entry::default(); PREFETCH_KEYS_MAX],
            served: 0,
            located: 0,
            announced: 0,
            ahead_bytes: 0,
            is_exhausted: false,
            value_bytes: usize::from(value_bytes),
        }
    }

    /// About as many bytes as the values have that were read lately.
    pub(super) fn value_bytes(&self) -> u16 {
        self.value_bytes as u16
    }

    /// Announces what has come into reach. `received` begins with the request that is served next.
    #[inline]
    pub(super) fn advance(&mut self, state: &ConnectionState, received: &[u8]) {
        let Some(bucket) = state.bucket.as_ref().filter(|_| self.distance > 0) else { return };
        let bucket = bucket.bucket();
        while !self.is_exhausted && self.announced - self.served < self.distance {
            let rest = received.get(self.ahead_bytes..).unwrap_or_default();
            let Some(frame) = Frame::whole(rest) else {
                self.is_exhausted = true;
                break;
            };
            let frame_bytes = frame.header.frame_bytes();
            let document = document_of(state, &frame);
            let key = document.and_then(|(vbid, key)| bucket.announce(vbid, key));
            self.ring[self.announced % PREFETCH_KEYS_MAX] = Entry {
                key,
                frame_bytes: frame_bytes as u32,
                key_bytes: frame.header.key_bytes,
                reads_value: u32::from(frame.header.key_bytes) == frame.header.body_bytes,
            };
            self.is_exhausted = key.is_none();
            self.announced += 1;
            self.ahead_bytes += frame_bytes;
        }
        let near = self.announced.min(self.served + self.distance.div_ceil(2));
        while self.located < near {
            let entry = &self.ring[self.located % PREFETCH_KEYS_MAX];
            if let Some(key) = &entry.key {
                let value_bytes = if entry.reads_value { self.value_bytes } else { 0 };
                bucket.locate(key, entry.head_bytes() + value_bytes);
            }
            self.located += 1;
        }
    }

    /// The announced key of the request that is served next, if it was looked at.
    #[inline]
    pub(super) fn key(&self) -> Option<KeyAhead> {
        self.next().and_then(|entry| entry.key)
    }

    /// The next request was served and answered with `answer_bytes`.
    #[inline]
    pub(super) fn served(&mut self, answer_bytes: usize) {
        let Some(&Entry { key, frame_bytes, reads_value, .. }) = self.next() else { return };
        if key.is_none() {
            self.is_exhausted = false;
        } else if reads_value {
            // Longer values count at once, shorter ones slowly.
            let value_bytes = answer_bytes.saturating_sub(ANSWER_HEAD_BYTES);
            let shrunk = self.value_bytes - self.value_bytes / 8;
            self.value_bytes = value_bytes.max(shrunk).min(PREFETCH_BYTES_MAX);
        }
        self.ahead_bytes -= frame_bytes as usize;
        self.served += 1;
        self.located = self.located.max(self.served);
    }

    #[inline]
    fn next(&self) -> Option<&Entry> {
        (self.served < self.announced).then(|| &self.ring[self.served % PREFETCH_KEYS_MAX])
    }
}

/// Vbucket and key of a request about one document.
pub(super) fn document_of<'a>(
    state: &ConnectionState,
    frame: &Frame<'a>,
) -> Option<(Vbid, DocKey<'a>)> {
    if !is_about_document(frame.header.opcode) {
        return None;
    }
    state.document(&frame.header, frame.key)
}

/// True for the common requests that read or write one document.
fn is_about_document(opcode: u8) -> bool {
    // All of memcached's requests that have a key, but STAT, whose key is none of a document.
    opcode <= Opcode::Gatq as u8 && opcode != Opcode::Stat as u8
}

#[cfg(test)]
mod tests;
