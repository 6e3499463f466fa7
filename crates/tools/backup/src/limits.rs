//! Sizes of an archive's parts.

use oribi_protocol::limits::FRAME_BYTES_MAX;

/// Bytes of records that are compressed together. Larger blocks compress little better; smaller
/// ones cost more in their heads.
pub const BLOCK_BYTES: usize = 512 * 1024;

/// Most bytes of one record. What a document needs has come in one frame of the protocol; the
/// record's own head is shorter than that frame's.
pub const RECORD_BYTES_MAX: usize = FRAME_BYTES_MAX + 4096;

/// Most bytes of an inflated block: a full one, and one more record.
pub const BLOCK_BYTES_MAX: usize = BLOCK_BYTES + RECORD_BYTES_MAX;

/// Bytes of records after which a writer cuts a segment. A segment is in memory as a whole, and is
/// what a resumed backup may have to fetch again.
pub const SEGMENT_BYTES: u64 = 64 * 1024 * 1024;

/// Most bytes of a segment's file. A reader refuses larger ones before it takes memory.
pub const SEGMENT_BYTES_MAX: usize = 512 * 1024 * 1024;

/// Most bytes of a manifest or of a segment's footer.
pub const TEXT_BYTES_MAX: usize = 64 * 1024 * 1024;

// A segment that is cut at once when it is full, with one more document and its footer.
const _: () = assert!(
    SEGMENT_BYTES as usize + RECORD_BYTES_MAX + BLOCK_BYTES_MAX + TEXT_BYTES_MAX
        < SEGMENT_BYTES_MAX
);
// Lengths are 32 bits.
const _: () = assert!(SEGMENT_BYTES_MAX < u32::MAX as usize);
