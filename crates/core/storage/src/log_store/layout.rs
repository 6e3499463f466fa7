//! Segments, frames and records as they are on disk. The tables of `docs/storage-format.md` say the
//! same, and a test compares the two.
//!
//! Owns: offsets, magics, checksums and the kinds of records. Invariants: numbers are
//! little-endian; every record begins at a multiple of [`UNIT_BYTES`]; whatever bytes come in,
//! decoding returns a record or its fault and never panics. It does no I/O.

use oribi_types::{Cas, CollectionId, Datatype, DocKey, RevSeqno, Seqno, Vbid};
use xxhash_rust::xxh3::{Xxh3, xxh3_64, xxh3_64_with_seed};

use crate::Record;
use crate::state_layout::{VBUCKETS_MAX, put, take};

/// Magic of a segment file.
pub(super) const SEGMENT_MAGIC: [u8; 8] = *b"ORIBILOG";
/// Version of the format.
pub(super) const SEGMENT_VERSION: u32 = 1;
/// Offset of the version, u32.
pub(super) const SEGMENT_VERSION_AT: usize = 8;
/// Offset of the segment's number, u32.
pub(super) const SEGMENT_ID_AT: usize = 12;
/// Offset of the store's seed, u64: random, the same in all segments of a store.
pub(super) const SEGMENT_SEED_AT: usize = 16;
/// Offset of the checksum of the bytes before it, u64.
pub(super) const SEGMENT_CHECKSUM_AT: usize = 24;
/// Length of the header, and offset of the first frame.
pub(super) const SEGMENT_HEADER_BYTES: usize = 32;

/// Magic of a frame.
pub(super) const FRAME_MAGIC: [u8; 4] = *b"FRM1";
/// Offset of the number of the frame's segment, u32.
pub(super) const FRAME_SEGMENT_AT: usize = 4;
/// Offset of the frame's number, u64: one more than that of the frame written before it.
pub(super) const FRAME_NUMBER_AT: usize = 8;
/// Offset of the number up to which frames were synced when this one was begun, u64.
pub(super) const FRAME_SYNCED_AT: usize = 16;
/// Offset of the bytes between header and trailer, u64.
pub(super) const FRAME_PAYLOAD_BYTES_AT: usize = 24;
/// Offset of the number of records, u32; four bytes that are zero follow.
pub(super) const FRAME_RECORDS_AT: usize = 32;
/// Offset of the checksum of the bytes before it, u64. It depends on the store and the place, so
/// that bytes which a client stores can never pass for a frame.
pub(super) const FRAME_CHECKSUM_AT: usize = 40;
/// Length of the header, and offset of the first record.
pub(super) const FRAME_HEADER_BYTES: usize = 48;
/// Length of the trailer: one checksum over the header's and all records' checksums, u64.
pub(super) const FRAME_TRAILER_BYTES: usize = 8;

/// Offset of the length of the value, u32.
pub(super) const RECORD_VALUE_BYTES_AT: usize = 0;
/// Offset of the length of the key, u16.
pub(super) const RECORD_KEY_BYTES_AT: usize = 4;
/// Offset of the vbucket, u16.
pub(super) const RECORD_VBID_AT: usize = 6;
/// Offset of the kind, see [`Kind`].
pub(super) const RECORD_KIND_AT: usize = 8;
/// Offset of the datatype.
pub(super) const RECORD_DATATYPE_AT: usize = 9;
/// Offset of bits that say more about the kind, see [`RECORD_EXPIRED`].
pub(super) const RECORD_BITS_AT: usize = 10;
/// Expiry made the tombstone. Set for tombstones only, purged ones included.
pub(super) const RECORD_EXPIRED: u8 = 1;
/// Offset of a byte that is zero.
pub(super) const RECORD_RESERVED_AT: usize = 11;
/// Offset of the collection, u32.
pub(super) const RECORD_COLLECTION_AT: usize = 12;
/// Offset of the flags, u32.
pub(super) const RECORD_FLAGS_AT: usize = 16;
/// Offset of the expiry, u32.
pub(super) const RECORD_EXPIRY_AT: usize = 20;
/// Offset of the CAS, u64.
pub(super) const RECORD_CAS_AT: usize = 24;
/// Offset of the seqno, u64.
pub(super) const RECORD_SEQNO_AT: usize = 32;
/// Offset of the revision, u64.
pub(super) const RECORD_REV_SEQNO_AT: usize = 40;
/// Offset of the number of the segment to which the record was first written, u32.
pub(super) const RECORD_ORIGIN_AT: usize = 48;
/// Offset of the checksum of header, key and value, u32.
pub(super) const RECORD_CHECKSUM_AT: usize = 52;
/// Length of the header, and offset of the key; the value follows, then zeros up to a unit.
pub(super) const RECORD_HEADER_BYTES: usize = 56;

/// Length of a segment's entry in the list of segments: number u32, length u64. The length of the
/// segment that has the list is not known yet and 0.
pub(super) const LISTED_SEGMENT_BYTES: usize = 12;

/// Unit of places in a segment.
pub(super) const UNIT_BYTES: u64 = 8;
/// Largest segment that a place in the index can point into.
pub(super) const SEGMENT_BYTES_MAX: u64 = UNIT_BYTES << 30;

const _: () = assert!(SEGMENT_CHECKSUM_AT + 8 == SEGMENT_HEADER_BYTES);
const _: () = assert!(FRAME_CHECKSUM_AT + 8 == FRAME_HEADER_BYTES);
const _: () = assert!(RECORD_CHECKSUM_AT + 4 == RECORD_HEADER_BYTES);
const _: () = assert!((SEGMENT_HEADER_BYTES as u64).is_multiple_of(UNIT_BYTES));
const _: () = assert!((FRAME_HEADER_BYTES as u64).is_multiple_of(UNIT_BYTES));
const _: () = assert!((FRAME_TRAILER_BYTES as u64).is_multiple_of(UNIT_BYTES));
const _: () = assert!((RECORD_HEADER_BYTES as u64).is_multiple_of(UNIT_BYTES));
const _: () = assert!(SEGMENT_BYTES_MAX / UNIT_BYTES <= 1 << u32::BITS);
const _: () = assert!(SEGMENT_MAGIC.len() == SEGMENT_VERSION_AT);
const _: () = assert!(FRAME_MAGIC.len() == FRAME_SEGMENT_AT);
const _: () = assert!(RECORD_RESERVED_AT + 1 == RECORD_COLLECTION_AT);

/// Kind of a record. Stored as its discriminant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum Kind {
    Document = 1,
    /// The tombstone of one.
    Tombstone = 2,
    /// A purged tombstone, kept because older versions are still on disk.
    PurgedTombstone = 3,
    /// A vbucket's state, in the value.
    State = 4,
    /// A local document: the key is its name.
    Local = 5,
    /// Everything of the vbucket before a place is gone. The place is a segment number in the
    /// field of the seqno and an offset in that of the CAS.
    DropVbucket = 6,
    /// Everything of the collection in the vbucket before a place is gone.
    PurgeCollection = 7,
    /// Tombstones of the vbucket before a place whose deletion is before the expiry are purged.
    PurgeTombstones = 8,
    /// The segment whose number is in the field of the seqno is gone.
    RemoveSegment = 9,
    /// All segments, number and length each, in the value. First record of a segment.
    Segments = 10,
}

impl Kind {
    fn of(byte: u8) -> Option<Kind> {
        let kinds = [
            Kind::Document,
            Kind::Tombstone,
            Kind::PurgedTombstone,
            Kind::State,
            Kind::Local,
            Kind::DropVbucket,
            Kind::PurgeCollection,
            Kind::PurgeTombstones,
            Kind::RemoveSegment,
            Kind::Segments,
        ];
        kinds.into_iter().find(|kind| *kind as u8 == byte)
    }

    /// True for what the index points at: versions of documents.
    pub(super) fn is_version(self) -> bool {
        matches!(self, Kind::Document | Kind::Tombstone | Kind::PurgedTombstone)
    }
}

/// A record with what the log adds to it. Records that are no versions use only some fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct StoredRecord<'a> {
    pub(super) kind: Kind,
    pub(super) vbid: Vbid,
    pub(super) origin: u32,
    pub(super) record: Record<'a>,
}

impl<'a> StoredRecord<'a> {
    /// A version of a document that is written to segment `origin` for the first time.
    pub(super) fn version(vbid: Vbid, origin: u32, record: Record<'a>) -> StoredRecord<'a> {
        debug_assert!(record.deleted || !record.expired, "expiry makes tombstones only");
        let kind = if record.deleted { Kind::Tombstone } else { Kind::Document };
        StoredRecord { kind, vbid, origin, record }
    }

    /// A record that is no version; fields without a parameter are zero.
    pub(super) fn control(
        kind: Kind,
        vbid: Vbid,
        key: &'a [u8],
        value: &'a [u8],
    ) -> StoredRecord<'a> {
        debug_assert!(!kind.is_version(), "a version has its own record");
        let record = Record {
            key: DocKey { collection: CollectionId::DEFAULT, key },
            value,
            cas: Cas(0),
            seqno: Seqno(0),
            rev_seqno: RevSeqno(0),
            flags: 0,
            expiry: 0,
            datatype: Datatype::RAW,
            deleted: false,
            expired: false,
        };
        StoredRecord { kind, vbid, origin: 0, record }
    }

    /// Bytes on disk, padding included.
    pub(super) fn stored_bytes(&self) -> u64 {
        padded(self.record.key.key.len() as u64 + self.record.value.len() as u64)
    }

    /// Appends header and key to `out`; the value and its padding are the caller's. Returns the
    /// record's checksum.
    pub(super) fn push_head(&self, out: &mut Vec<u8>) -> u32 {
        let record = &self.record;
        assert!(u16::try_from(record.key.key.len()).is_ok(), "the length of a key was checked");
        assert!(u32::try_from(record.value.len()).is_ok(), "the length of a value was checked");
        let mut head = [0; RECORD_HEADER_BYTES];
        put(&mut head, RECORD_VALUE_BYTES_AT, (record.value.len() as u32).to_le_bytes());
        put(&mut head, RECORD_KEY_BYTES_AT, (record.key.key.len() as u16).to_le_bytes());
        put(&mut head, RECORD_VBID_AT, self.vbid.0.to_le_bytes());
        head[RECORD_KIND_AT] = self.kind as u8;
        head[RECORD_DATATYPE_AT] = record.datatype.0;
        head[RECORD_BITS_AT] = if record.expired { RECORD_EXPIRED } else { 0 };
        put(&mut head, RECORD_COLLECTION_AT, record.key.collection.0.to_le_bytes());
        put(&mut head, RECORD_FLAGS_AT, record.flags.to_le_bytes());
        put(&mut head, RECORD_EXPIRY_AT, record.expiry.to_le_bytes());
        put(&mut head, RECORD_CAS_AT, record.cas.0.to_le_bytes());
        put(&mut head, RECORD_SEQNO_AT, record.seqno.0.to_le_bytes());
        put(&mut head, RECORD_REV_SEQNO_AT, record.rev_seqno.0.to_le_bytes());
        put(&mut head, RECORD_ORIGIN_AT, self.origin.to_le_bytes());
        let head_at = out.len();
        out.extend_from_slice(&head);
        out.extend_from_slice(record.key.key);
        let checksum = record_checksum(&out[head_at..], record.value);
        let checksum_at = head_at + RECORD_CHECKSUM_AT;
        out[checksum_at..checksum_at + 4].copy_from_slice(&checksum.to_le_bytes());
        checksum
    }
}

/// Length of a record whose key and value have `body_bytes` together.
fn padded(body_bytes: u64) -> u64 {
    (RECORD_HEADER_BYTES as u64 + body_bytes).next_multiple_of(UNIT_BYTES)
}

/// Checksum of a record: `head` is header and key with a checksum field of zero.
fn record_checksum(head: &[u8], value: &[u8]) -> u32 {
    joined(xxh3_64(head), xxh3_64(value))
}

fn joined(of_head: u64, of_value: u64) -> u32 {
    (of_head.rotate_left(17) ^ of_value) as u32
}

/// Length of a stored record, by its header.
pub(super) fn stored_bytes_of(head: &[u8; RECORD_HEADER_BYTES]) -> u64 {
    let value_bytes = u64::from(u32::from_le_bytes(take(head, RECORD_VALUE_BYTES_AT)));
    padded(u64::from(u16::from_le_bytes(take(head, RECORD_KEY_BYTES_AT))) + value_bytes)
}

/// Reads the record that `bytes` are, padding included, and its checksum.
pub(super) fn decode_record(bytes: &[u8]) -> Result<(StoredRecord<'_>, u32), &'static str> {
    let (stored, checksum) = decode_unchecked(bytes)?;
    let head_bytes = RECORD_HEADER_BYTES + stored.record.key.key.len();
    let is_right = checksum == checksum_as_read(&bytes[..head_bytes], stored.record.value)
        && bytes[head_bytes + stored.record.value.len()..].iter().all(|padding| *padding == 0);
    match is_right {
        true => Ok((stored, checksum)),
        false => Err("a record with a wrong checksum"),
    }
}

/// As [`decode_record`], with every check but that of the checksum.
pub(super) fn decode_unchecked(bytes: &[u8]) -> Result<(StoredRecord<'_>, u32), &'static str> {
    let Some((head, body)) = bytes.split_first_chunk::<RECORD_HEADER_BYTES>() else {
        return Err("a record that is cut off");
    };
    let value_bytes = u32::from_le_bytes(take(head, RECORD_VALUE_BYTES_AT)) as usize;
    let key_bytes = usize::from(u16::from_le_bytes(take(head, RECORD_KEY_BYTES_AT)));
    let (Some(key), Some(value)) =
        (body.get(..key_bytes), body.get(key_bytes..key_bytes + value_bytes))
    else {
        return Err("a record that is longer than its frame");
    };
    decode_parts(head, key, value)
}

/// The record of this header, key and value, unchecked, and its checksum.
pub(super) fn decode_parts<'a>(
    head: &[u8; RECORD_HEADER_BYTES],
    key: &'a [u8],
    value: &'a [u8],
) -> Result<(StoredRecord<'a>, u32), &'static str> {
    let checksum = u32::from_le_bytes(take(head, RECORD_CHECKSUM_AT));
    let vbid = Vbid(u16::from_le_bytes(take(head, RECORD_VBID_AT)));
    let unknown = Err("a record that this version does not write");
    let Some(kind) = Kind::of(head[RECORD_KIND_AT]) else { return unknown };
    let deleted = matches!(kind, Kind::Tombstone | Kind::PurgedTombstone);
    let expired = head[RECORD_BITS_AT] == RECORD_EXPIRED;
    let is_known = if expired { deleted } else { head[RECORD_BITS_AT] == 0 };
    if !is_known || head[RECORD_RESERVED_AT] != 0 || vbid.0 >= VBUCKETS_MAX {
        return unknown;
    }
    let collection = CollectionId(u32::from_le_bytes(take(head, RECORD_COLLECTION_AT)));
    let record = Record {
        key: DocKey { collection, key },
        value,
        cas: Cas(u64::from_le_bytes(take(head, RECORD_CAS_AT))),
        seqno: Seqno(u64::from_le_bytes(take(head, RECORD_SEQNO_AT))),
        rev_seqno: RevSeqno(u64::from_le_bytes(take(head, RECORD_REV_SEQNO_AT))),
        flags: u32::from_le_bytes(take(head, RECORD_FLAGS_AT)),
        expiry: u32::from_le_bytes(take(head, RECORD_EXPIRY_AT)),
        datatype: Datatype(head[RECORD_DATATYPE_AT]),
        deleted,
        expired,
    };
    let origin = u32::from_le_bytes(take(head, RECORD_ORIGIN_AT));
    Ok((StoredRecord { kind, vbid, origin, record }, checksum))
}

/// Checksum of header and key as they are on disk, and a value.
fn checksum_as_read(head: &[u8], value: &[u8]) -> u32 {
    let mut copy = [0; RECORD_HEADER_BYTES + 256];
    if head.len() > copy.len() {
        // A key longer than any that a client can send: rare enough for an allocation.
        let mut copy = head.to_vec();
        put(&mut copy, RECORD_CHECKSUM_AT, [0; 4]);
        return record_checksum(&copy, value);
    }
    let copy = &mut copy[..head.len()];
    copy.copy_from_slice(head);
    put(copy, RECORD_CHECKSUM_AT, [0; 4]);
    record_checksum(copy, value)
}

/// The check of a record whose value comes in pieces.
pub(super) struct PiecewiseCheck {
    checksum: u32,
    of_head: u64,
    of_value: Xxh3,
    value_bytes: u64,
}

impl PiecewiseCheck {
    /// Begins with header and key as they are on disk.
    pub(super) fn begin(head: &[u8; RECORD_HEADER_BYTES], key: &[u8]) -> PiecewiseCheck {
        let mut copy = [head.as_slice(), key].concat();
        put(&mut copy, RECORD_CHECKSUM_AT, [0; 4]);
        PiecewiseCheck {
            checksum: u32::from_le_bytes(take(head, RECORD_CHECKSUM_AT)),
            of_head: xxh3_64(&copy),
            of_value: Xxh3::new(),
            value_bytes: u64::from(u32::from_le_bytes(take(head, RECORD_VALUE_BYTES_AT))),
        }
    }

    /// Bytes of the value that have yet to come.
    pub(super) fn left(&self) -> u64 {
        self.value_bytes
    }

    /// Adds a piece of the value, of at most as many bytes as are left.
    pub(super) fn add(&mut self, piece: &[u8]) {
        debug_assert!(
            piece.len() as u64 <= self.value_bytes,
            "a piece is part of the remaining value"
        );
        self.of_value.update(piece);
        self.value_bytes -= piece.len() as u64;
    }

    /// Whether the record is as it was written.
    pub(super) fn is_right(&self) -> bool {
        self.checksum == joined(self.of_head, self.of_value.digest())
    }
}

/// The header of a segment.
pub(super) fn encode_segment_header(id: u32, seed: u64) -> [u8; SEGMENT_HEADER_BYTES] {
    assert!(id > 0, "segments are numbered from 1");
    let mut header = [0; SEGMENT_HEADER_BYTES];
    put(&mut header, 0, SEGMENT_MAGIC);
    put(&mut header, SEGMENT_VERSION_AT, SEGMENT_VERSION.to_le_bytes());
    put(&mut header, SEGMENT_ID_AT, id.to_le_bytes());
    put(&mut header, SEGMENT_SEED_AT, seed.to_le_bytes());
    let checksum = xxh3_64(&header[..SEGMENT_CHECKSUM_AT]);
    put(&mut header, SEGMENT_CHECKSUM_AT, checksum.to_le_bytes());
    header
}

/// Reads the header of segment `id` and returns the store's seed.
pub(super) fn decode_segment_header(
    header: &[u8; SEGMENT_HEADER_BYTES],
    id: u32,
) -> Result<u64, &'static str> {
    if header[..SEGMENT_MAGIC.len()] != SEGMENT_MAGIC {
        return Err("no segment header");
    }
    let checksum = u64::from_le_bytes(take(header, SEGMENT_CHECKSUM_AT));
    if checksum != xxh3_64(&header[..SEGMENT_CHECKSUM_AT]) {
        return Err("a segment header with a wrong checksum");
    }
    if u32::from_le_bytes(take(header, SEGMENT_VERSION_AT)) != SEGMENT_VERSION {
        return Err("a segment of a version that this one does not read");
    }
    match u32::from_le_bytes(take(header, SEGMENT_ID_AT)) == id {
        true => Ok(u64::from_le_bytes(take(header, SEGMENT_SEED_AT))),
        false => Err("the header of another segment"),
    }
}

/// The header of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FrameHeader {
    pub(super) segment: u32,
    pub(super) number: u64,
    pub(super) synced: u64,
    pub(super) payload_bytes: u64,
    pub(super) records: u32,
}

impl FrameHeader {
    /// The header as it stands at offset `at` of its segment in a store with this seed.
    pub(super) fn encode(&self, seed: u64, at: u64) -> [u8; FRAME_HEADER_BYTES] {
        let mut header = [0; FRAME_HEADER_BYTES];
        put(&mut header, 0, FRAME_MAGIC);
        put(&mut header, FRAME_SEGMENT_AT, self.segment.to_le_bytes());
        put(&mut header, FRAME_NUMBER_AT, self.number.to_le_bytes());
        put(&mut header, FRAME_SYNCED_AT, self.synced.to_le_bytes());
        put(&mut header, FRAME_PAYLOAD_BYTES_AT, self.payload_bytes.to_le_bytes());
        put(&mut header, FRAME_RECORDS_AT, self.records.to_le_bytes());
        let checksum = xxh3_64_with_seed(&header[..FRAME_CHECKSUM_AT], seed.wrapping_add(at));
        put(&mut header, FRAME_CHECKSUM_AT, checksum.to_le_bytes());
        header
    }

    /// Reads what stands at offset `at`; `None` when it is no frame header.
    pub(super) fn decode(bytes: &[u8], seed: u64, at: u64) -> Option<FrameHeader> {
        let header = bytes.first_chunk::<FRAME_HEADER_BYTES>()?;
        if header[..FRAME_MAGIC.len()] != FRAME_MAGIC {
            return None;
        }
        let found = FrameHeader {
            segment: u32::from_le_bytes(take(header, FRAME_SEGMENT_AT)),
            number: u64::from_le_bytes(take(header, FRAME_NUMBER_AT)),
            synced: u64::from_le_bytes(take(header, FRAME_SYNCED_AT)),
            payload_bytes: u64::from_le_bytes(take(header, FRAME_PAYLOAD_BYTES_AT)),
            records: u32::from_le_bytes(take(header, FRAME_RECORDS_AT)),
        };
        (found.encode(seed, at) == *header).then_some(found)
    }
}

/// The running checksum after a frame's trailer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FrameChecksum(u64);

impl FrameChecksum {
    /// Begins with a frame's header.
    pub(super) fn begin(header: &[u8; FRAME_HEADER_BYTES]) -> FrameChecksum {
        FrameChecksum(u64::from_le_bytes(take(header, FRAME_CHECKSUM_AT)))
    }

    /// Adds the checksum of the next record: one multiplication, so that a lost, repeated or
    /// exchanged record shows.
    pub(super) fn add(&mut self, record_checksum: u32) {
        let mixed = self.0.rotate_left(23) ^ u64::from(record_checksum);
        self.0 = mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    pub(super) fn trailer(self) -> [u8; FRAME_TRAILER_BYTES] {
        self.0.to_le_bytes()
    }
}
