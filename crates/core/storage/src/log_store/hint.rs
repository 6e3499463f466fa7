//! The index file of a sealed segment: the facts that opening needs, without the documents.
//!
//! Owns: its layout, how it is collected while the segment is written, and how it is read back. It
//! lists the versions, and after them the seqnos of each vbucket ([`super::spans`]), so that a
//! scan by seqno need not read the segment twice after a restart.
//! Invariant: nothing depends on it for correctness. It is written without a sync, and one that is
//! missing, cut off, of another segment or has a wrong checksum is as good as none: the segment
//! itself is read instead.

use oribi_types::{CollectionId, Seqno, Vbid};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::index::{Fingerprint, Size};
use super::layout::{Kind, StoredRecord, UNIT_BYTES};
use super::spans::{Span, Spans};
use crate::state_layout::{put, take};

/// Magic of an index file.
pub(super) const HINT_MAGIC: [u8; 8] = *b"ORIBIIDX";
/// Version of the format of index files.
pub(super) const HINT_VERSION: u32 = 3;
/// The version before it, whose files have no spans.
pub(super) const HINT_VERSION_WITHOUT_SPANS: u32 = 2;
/// Offset of the version, u32.
pub(super) const HINT_VERSION_AT: usize = 8;
/// Offset of the number of the segment, u32.
pub(super) const HINT_SEGMENT_AT: usize = 12;
/// Offset of the length of the segment, u64.
pub(super) const HINT_SEGMENT_BYTES_AT: usize = 16;
/// Offset of the checksum of everything but itself, with the store's seed, u64.
pub(super) const HINT_CHECKSUM_AT: usize = 24;
/// Length of the header, and offset of the first entry.
pub(super) const HINT_HEADER_BYTES: usize = 32;

/// Offset of the fingerprint in an entry, 16 bytes.
pub(super) const HINT_FINGERPRINT_AT: usize = 0;
/// Offset of the record's place in units of eight bytes, u32.
pub(super) const HINT_UNIT_AT: usize = 16;
/// Offset of the expiry, u32.
pub(super) const HINT_EXPIRY_AT: usize = 20;
/// Offset of the collection, u32.
pub(super) const HINT_COLLECTION_AT: usize = 24;
/// Offset of the vbucket, u16.
pub(super) const HINT_VBID_AT: usize = 28;
/// Offset of the kind.
pub(super) const HINT_KIND_AT: usize = 30;
/// Offset of the class of the record's length, see [`Size`].
pub(super) const HINT_SIZE_AT: usize = 31;
/// Length of an entry, of a version or a span.
pub(super) const HINT_ENTRY_BYTES: usize = 32;

/// Kind of an entry that is a span. Its vbucket is where that of a version is.
pub(super) const HINT_SPAN_KIND: u8 = 255;
/// Offset of the lowest seqno in a span, u64.
pub(super) const HINT_LOWEST_AT: usize = 0;
/// Offset of the highest seqno, u64.
pub(super) const HINT_HIGHEST_AT: usize = 8;
/// Offset of a byte that is 1 where the records ascend, else 0; eleven bytes that are zero follow.
pub(super) const HINT_ASCENDING_AT: usize = 16;
const _: () = assert!(HINT_CHECKSUM_AT + 8 == HINT_HEADER_BYTES);
const _: () = assert!(HINT_SIZE_AT + 1 == HINT_ENTRY_BYTES);
const _: () = assert!(HINT_ASCENDING_AT < HINT_VBID_AT);
const _: () = assert!(HINT_SPAN_KIND > Kind::Segments as u8);

/// One version of a document in a segment, as opening sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct HintVersion {
    pub(super) vbid: Vbid,
    pub(super) collection: CollectionId,
    pub(super) fingerprint: Fingerprint,
    pub(super) kind: Kind,
    pub(super) expiry: u32,
    pub(super) size: Size,
    pub(super) offset: u64,
}

impl HintVersion {
    /// Facts about a record at `offset` that opening needs.
    pub(super) fn of(
        stored: &StoredRecord<'_>,
        fingerprint: Fingerprint,
        offset: u64,
    ) -> HintVersion {
        HintVersion {
            vbid: stored.vbid,
            collection: stored.record.key.collection,
            fingerprint,
            kind: stored.kind,
            expiry: stored.record.expiry,
            size: Size::of(stored.stored_bytes()),
            offset,
        }
    }
}

/// An index file that is being collected.
pub(super) struct Hint {
    /// Room for the header, and the entries.
    content: Vec<u8>,
}

impl Default for Hint {
    fn default() -> Hint {
        Hint { content: vec![0; HINT_HEADER_BYTES] }
    }
}

impl Hint {
    /// Takes over the memory of one that was written.
    pub(super) fn in_place_of(mut written: Hint) -> Hint {
        written.content.truncate(HINT_HEADER_BYTES);
        written
    }

    pub(super) fn push(&mut self, version: &HintVersion) {
        debug_assert!(version.offset.is_multiple_of(UNIT_BYTES), "a record begins at a unit");
        debug_assert!(version.offset > 0, "no record stands at offset zero");
        let mut entry = [0; HINT_ENTRY_BYTES];
        put(&mut entry, HINT_FINGERPRINT_AT, version.fingerprint.number().to_le_bytes());
        put(&mut entry, HINT_UNIT_AT, ((version.offset / UNIT_BYTES) as u32).to_le_bytes());
        put(&mut entry, HINT_EXPIRY_AT, version.expiry.to_le_bytes());
        put(&mut entry, HINT_COLLECTION_AT, version.collection.0.to_le_bytes());
        put(&mut entry, HINT_VBID_AT, version.vbid.0.to_le_bytes());
        entry[HINT_KIND_AT] = version.kind as u8;
        entry[HINT_SIZE_AT] = version.size.number();
        self.content.extend_from_slice(&entry);
    }

    fn push_span(&mut self, vbid: Vbid, span: Span) {
        debug_assert!(span.lowest <= span.highest, "a span has a seqno");
        let mut entry = [0; HINT_ENTRY_BYTES];
        put(&mut entry, HINT_LOWEST_AT, span.lowest.0.to_le_bytes());
        put(&mut entry, HINT_HIGHEST_AT, span.highest.0.to_le_bytes());
        entry[HINT_ASCENDING_AT] = u8::from(span.is_ascending);
        put(&mut entry, HINT_VBID_AT, vbid.0.to_le_bytes());
        entry[HINT_KIND_AT] = HINT_SPAN_KIND;
        self.content.extend_from_slice(&entry);
    }

    /// Forgets what stands from `end` on in the segment. Entries are in the order of their offsets.
    pub(super) fn cut_off(&mut self, end: u64) {
        let unit = |entry: &[u8]| u64::from(u32::from_le_bytes(take(entry, HINT_UNIT_AT)));
        let mut entries = self.content[HINT_HEADER_BYTES..].rchunks_exact(HINT_ENTRY_BYTES);
        let is_cut = |entry: &&[u8]| unit(entry) * UNIT_BYTES >= end;
        let cut = entries.by_ref().take_while(is_cut).count();
        self.content.truncate(self.content.len() - cut * HINT_ENTRY_BYTES);
        debug_assert!(self.content.len() >= HINT_HEADER_BYTES, "the header stays");
    }

    /// The whole file, for a segment of this number and length, with these seqnos. Nothing can be
    /// pushed or cut off afterwards.
    pub(super) fn content(&mut self, segment: u32, bytes: u64, seed: u64, spans: &Spans) -> &[u8] {
        let version = match spans.is_complete() {
            true => HINT_VERSION,
            false => HINT_VERSION_WITHOUT_SPANS,
        };
        if version == HINT_VERSION {
            spans.iter().for_each(|(vbid, span)| self.push_span(vbid, span));
        }
        let mut header = [0; HINT_HEADER_BYTES];
        put(&mut header, 0, HINT_MAGIC);
        put(&mut header, HINT_VERSION_AT, version.to_le_bytes());
        put(&mut header, HINT_SEGMENT_AT, segment.to_le_bytes());
        put(&mut header, HINT_SEGMENT_BYTES_AT, bytes.to_le_bytes());
        let checksum = checksum(&header, &self.content[HINT_HEADER_BYTES..], seed);
        debug_assert!(
            (self.content.len() - HINT_HEADER_BYTES).is_multiple_of(HINT_ENTRY_BYTES),
            "an index file has whole entries"
        );
        put(&mut header, HINT_CHECKSUM_AT, checksum.to_le_bytes());
        self.content[..HINT_HEADER_BYTES].copy_from_slice(&header);
        &self.content
    }
}

/// Entries of an index file.
pub(super) struct HintListing<V> {
    pub(super) versions: V,
    /// Incomplete where the file has none.
    pub(super) spans: Spans,
}

fn checksum(header: &[u8; HINT_HEADER_BYTES], entries: &[u8], seed: u64) -> u64 {
    let of_header = xxh3_64_with_seed(&header[..HINT_CHECKSUM_AT], seed);
    xxh3_64_with_seed(entries, of_header)
}

/// Entries of an index file, or `None` when it is not a whole one of this segment.
pub(super) fn read(
    content: &[u8],
    segment: u32,
    bytes: u64,
    seed: u64,
) -> Option<HintListing<impl Iterator<Item = HintVersion>>> {
    let (header, entries) = content.split_first_chunk::<HINT_HEADER_BYTES>()?;
    let stored_checksum = u64::from_le_bytes(take(header, HINT_CHECKSUM_AT));
    let file_version = u32::from_le_bytes(take(header, HINT_VERSION_AT));
    let is_right = header[..HINT_MAGIC.len()] == HINT_MAGIC
        && [HINT_VERSION, HINT_VERSION_WITHOUT_SPANS].contains(&file_version)
        && u32::from_le_bytes(take(header, HINT_SEGMENT_AT)) == segment
        && u64::from_le_bytes(take(header, HINT_SEGMENT_BYTES_AT)) == bytes
        && entries.len().is_multiple_of(HINT_ENTRY_BYTES)
        && stored_checksum == checksum(header, entries, seed);
    if !is_right {
        return None;
    }
    // The checksum was right, so the remaining checks are against bugs of the writer.
    let is_span = |entry: &&[u8]| entry[HINT_KIND_AT] == HINT_SPAN_KIND;
    let spans = entries.rchunks_exact(HINT_ENTRY_BYTES).take_while(is_span);
    let (versions, spans) = entries.split_at(entries.len() - spans.count() * HINT_ENTRY_BYTES);
    let spans = match file_version {
        HINT_VERSION => Some(spans_of(spans)?),
        _ => spans.is_empty().then(Spans::default),
    };
    let chunks = versions.chunks_exact(HINT_ENTRY_BYTES);
    let is_sound = chunks.clone().all(|entry| version(entry).is_some_and(|v| v.offset < bytes));
    let versions = is_sound.then(|| chunks.filter_map(version))?;
    Some(HintListing { versions, spans: spans? })
}

fn spans_of(entries: &[u8]) -> Option<Spans> {
    let mut spans = Spans::complete();
    for entry in entries.chunks_exact(HINT_ENTRY_BYTES) {
        let lowest = Seqno(u64::from_le_bytes(take(entry, HINT_LOWEST_AT)));
        let highest = Seqno(u64::from_le_bytes(take(entry, HINT_HIGHEST_AT)));
        let is_ascending = entry[HINT_ASCENDING_AT] == 1;
        if highest < lowest || entry[HINT_ASCENDING_AT] > 1 {
            return None;
        }
        let vbid = Vbid(u16::from_le_bytes(take(entry, HINT_VBID_AT)));
        spans.wrote(vbid, Span { lowest, highest, is_ascending });
    }
    Some(spans)
}

fn version(entry: &[u8]) -> Option<HintVersion> {
    let kinds = [Kind::Document, Kind::Tombstone, Kind::PurgedTombstone];
    let offset = u64::from(u32::from_le_bytes(take(entry, HINT_UNIT_AT))) * UNIT_BYTES;
    if offset == 0 {
        return None;
    }
    Some(HintVersion {
        vbid: Vbid(u16::from_le_bytes(take(entry, HINT_VBID_AT))),
        collection: CollectionId(u32::from_le_bytes(take(entry, HINT_COLLECTION_AT))),
        fingerprint: Fingerprint::from_number(u128::from_le_bytes(take(
            entry,
            HINT_FINGERPRINT_AT,
        )))?,
        kind: kinds.into_iter().find(|kind| *kind as u8 == entry[HINT_KIND_AT])?,
        expiry: u32::from_le_bytes(take(entry, HINT_EXPIRY_AT)),
        size: Size::from_number(entry[HINT_SIZE_AT])?,
        offset,
    })
}
