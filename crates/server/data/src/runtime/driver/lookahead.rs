//! Prefetches the documents of requests further back in the pipeline.
//!
//! One read delivers many pipelined requests. While they are served in order, the connection
//! announces the keys of later ones to the engine. The engine loads what it will need in two steps
//! at two distances: first a key's place in the hash table, and its item some requests later. The
//! hash is kept for the operation itself. The header is decoded again then, which costs no more
//! than keeping it.
//!
//! The prefetch is a hint: it skips malformed requests and those not about a document, which are
//! judged when they are served.
//!
//! Invariants:
//! - entries stand for complete frames in the order in which they will be served, starting with the
//!   next one;
//! - keys after a request that is not about a document are announced only after that request is
//!   served, because it may change what keys mean;
//! - nothing is allocated, changed or reordered.
//!
//! The lookahead lives as long as one turn, so an idle connection holds none.

use oribi_config::limits::PREFETCH_KEYS_MAX;
use oribi_engine::{Bucket, HEADER_BYTES, KeyAhead, ReadSection};
use oribi_protocol::frame::Frame;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::text::{Command, DECODED_KEY_BYTES_MAX, DecodedCommand, Decoder};
use oribi_types::{CollectionId, DocKey, Vbid};

use crate::dispatch;
use crate::dispatch::connection_state::ConnectionState;
use crate::limits::PREFETCH_BYTES_MAX;

/// Bytes of an item before its key: its header and the client's flags, which most items have.
const ITEM_HEAD_BYTES: usize = HEADER_BYTES + 4;

/// Bytes of the answer to a GET besides key and value: header and flags.
const ANSWER_HEAD_BYTES: usize = oribi_protocol::limits::HEADER_BYTES + 4;

#[derive(Clone, Copy, Default)]
struct Entry {
    /// `None` for a request that is not about a document.
    key: Option<KeyAhead>,
    /// The document's key among the bytes of the turn, and its collection. Keys of the text
    /// protocol are decoded elsewhere and have none.
    key_at: Option<u32>,
    key_bytes: u16,
    collection: CollectionId,
    frame_bytes: u32,
    /// The request reads: it has neither extras nor value. A request that stores has both.
    reads_value: bool,
}

impl Entry {
    /// Bytes of the item that a write needs of the previous version: header and key.
    fn head_bytes(&self) -> usize {
        ITEM_HEAD_BYTES + usize::from(self.key_bytes)
    }

    /// The document's key in the bytes received after the first `served_bytes` of the turn.
    fn document<'a>(&self, received: &'a [u8], served_bytes: usize) -> Option<DocKey<'a>> {
        let at = (self.key_at? as usize).checked_sub(served_bytes)?;
        let key = received.get(at..at + usize::from(self.key_bytes))?;
        Some(DocKey { collection: self.collection, key })
    }
}

/// The state of the prefetch during one turn.
pub(super) struct Lookahead<'s> {
    /// Open during the turn, so that documents are read without their locks.
    section: &'s ReadSection,
    /// Requests to look ahead; 0 for none.
    distance: usize,
    ring: [Entry; PREFETCH_KEYS_MAX],
    /// Requests served, located and announced so far. The first count never exceeds the others.
    served: usize,
    located: usize,
    announced: usize,
    /// Bytes of the requests that were served, and of the announced ones that are not yet.
    served_bytes: usize,
    ahead_bytes: usize,
    /// The last announced request has no complete request after it, or it must be served before
    /// the meaning of later keys is known.
    is_exhausted: bool,
    /// Approximate size of recently read values, in bytes.
    value_bytes: usize,
    /// Decodes the command after the announced ones of a client of the text protocol.
    decoder: Decoder,
}

impl<'s> Lookahead<'s> {
    /// Looks `distance` requests ahead, at most [`PREFETCH_KEYS_MAX`]. `value_bytes` is the last
    /// turn's [`Lookahead::value_bytes`].
    pub(super) fn new(
        section: &'s ReadSection,
        distance: usize,
        value_bytes: u16,
    ) -> Lookahead<'s> {
        Lookahead {
            section,
            distance: distance.min(PREFETCH_KEYS_MAX),
            ring: [Entry::default(); PREFETCH_KEYS_MAX],
            served: 0,
            located: 0,
            announced: 0,
            served_bytes: 0,
            ahead_bytes: 0,
            is_exhausted: false,
            value_bytes: usize::from(value_bytes),
            decoder: Decoder::default(),
        }
    }

    /// The read section of the turn.
    #[inline]
    pub(super) fn section(&self) -> &'s ReadSection {
        self.section
    }

    /// Approximate size of recently read values, in bytes.
    pub(super) fn value_bytes(&self) -> u16 {
        self.value_bytes as u16
    }

    /// Announces the requests that have come within reach. `received` begins with the request that
    /// is served next.
    #[inline]
    pub(super) fn advance(&mut self, state: &ConnectionState, received: &[u8]) {
        let Some(bucket) = state.bucket().filter(|_| self.distance > 0) else { return };
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
            let document = document.map(|(_, key)| key);
            let in_frame = |key: DocKey<'_>| key.key.as_ptr().addr() - rest.as_ptr().addr();
            let key_at = document.map(|key| self.served_bytes + self.ahead_bytes + in_frame(key));
            self.ring[self.announced % PREFETCH_KEYS_MAX] = Entry {
                key,
                key_at: key_at.and_then(|at| u32::try_from(at).ok()),
                key_bytes: document.map_or(0, |key| key.key.len() as u16),
                collection: document.map_or(CollectionId::DEFAULT, |key| key.collection),
                frame_bytes: frame_bytes as u32,
                reads_value: u32::from(frame.header.key_bytes) == frame.header.body_bytes,
            };
            self.is_exhausted = key.is_none();
            self.announced += 1;
            self.ahead_bytes += frame_bytes;
        }
        debug_assert!(
            self.announced - self.served <= PREFETCH_KEYS_MAX,
            "the ring keeps each frame"
        );
        self.locate_near(bucket, received);
    }

    /// Starts loading the items of the requests that are near.
    #[inline(always)]
    fn locate_near(&mut self, bucket: &Bucket, received: &[u8]) {
        debug_assert!(self.located >= self.served, "frames are located before they are served");
        let near = self.announced.min(self.served + self.distance.div_ceil(2));
        while self.located < near {
            let entry = &self.ring[self.located % PREFETCH_KEYS_MAX];
            if let Some(key) = &entry.key {
                let head_bytes = entry.head_bytes();
                match entry.reads_value {
                    true => bucket.locate(self.section, key, head_bytes + self.value_bytes),
                    false => {
                        let document = entry.document(received, self.served_bytes);
                        bucket.locate_to_write(self.section, key, document, head_bytes);
                    }
                }
            }
            self.located += 1;
        }
    }

    /// As [`Lookahead::advance`], for a client of the text protocol, whose next command `decoder`
    /// decodes.
    #[inline]
    pub(super) fn advance_text(
        &mut self,
        state: &ConnectionState,
        received: &[u8],
        decoder: Decoder,
    ) {
        let Some(bucket) = state.bucket().filter(|_| self.distance > 0) else { return };
        let bucket = bucket.bucket();
        if self.announced == self.served {
            self.decoder = decoder;
        }
        while !self.is_exhausted && self.announced - self.served < self.distance {
            let rest = received.get(self.ahead_bytes..).unwrap_or_default();
            let DecodedCommand::Complete { command, consumed } = self.decoder.decode(rest) else {
                self.is_exhausted = true;
                break;
            };
            let mut room = [0; DECODED_KEY_BYTES_MAX];
            let meant = dispatch::text::translate(&command, &mut room);
            let key = meant.and_then(|meant| {
                let (vbid, key) = state.document(&meant.frame().header, meant.key)?;
                Some((bucket.announce(vbid, key)?, key.key.len()))
            });
            self.ring[self.announced % PREFETCH_KEYS_MAX] = Entry {
                key: key.map(|(key, _)| key),
                frame_bytes: consumed as u32,
                key_bytes: key.map_or(0, |(_, bytes)| bytes as u16),
                reads_value: matches!(command, Command::Get { .. } | Command::MetaGet(_)),
                ..Entry::default()
            };
            self.is_exhausted = key.is_none();
            self.announced += 1;
            self.ahead_bytes += consumed;
        }
        self.locate_near(bucket, received);
    }

    /// Drops the announced keys, because other requests will be served next.
    pub(super) fn restart(&mut self) {
        (self.served, self.located, self.announced) = (0, 0, 0);
        (self.served_bytes, self.ahead_bytes, self.is_exhausted) = (0, 0, false);
    }

    /// The announced key of the request that is served next, if the lookahead has reached it.
    #[inline]
    pub(super) fn key(&self) -> Option<KeyAhead> {
        self.next().and_then(|entry| entry.key)
    }

    /// Records that the next request was served and answered with `answer_bytes`.
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
        debug_assert!(self.ahead_bytes >= frame_bytes as usize, "the served frame was announced");
        self.ahead_bytes -= frame_bytes as usize;
        self.served_bytes += frame_bytes as usize;
        self.served += 1;
        self.located = self.located.max(self.served);
        debug_assert!(self.served <= self.announced, "a served frame was announced");
    }

    #[inline]
    fn next(&self) -> Option<&Entry> {
        (self.served < self.announced).then(|| &self.ring[self.served % PREFETCH_KEYS_MAX])
    }
}

/// Vbucket and key of a request about one document.
// Out of line it costs 40 instructions a request; the compiler chooses by the size of the crate.
#[inline(always)]
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
    // All of memcached's requests that have a key, except STAT, whose key names no document.
    opcode <= Opcode::Gatq as u8 && opcode != Opcode::Stat as u8
}

#[cfg(test)]
mod tests;
