//! Every limit of the engine, each with where it comes from.

/// Slots per chunk of the checkpoint queue: 2 KiB, so that 1024 idle vbuckets with one item each
/// hold 2 MiB of slots, while a million queued items are still only 4096 pointers to splice.
pub const CHUNK_SLOTS: usize = 256;

/// Items of one checkpoint before it closes. A flush batch is at least one whole checkpoint, so this
/// bounds the time under the queue lock to copy references out: about 0.1 ms.
pub const CHECKPOINT_ITEMS_MAX: u64 = 8192;

/// Bytes of one checkpoint before it closes, for the same reason with large documents.
pub const CHECKPOINT_BYTES_MAX: usize = 8 << 20;

/// Items taken from one vbucket into one commit, as a soft limit at checkpoint boundaries.
pub const FLUSH_ITEMS_PER_VBUCKET: usize = 8192;

/// Bytes gathered over all vbuckets before a commit is made: bounds memory pinned by one flush.
pub const FLUSH_BYTES_MAX: usize = 32 << 20;

/// Per cent of the quota beyond which the item pager evicts, and at which it stops, unless set.
pub const HIGH_WATERMARK_PERCENT: u8 = 85;
/// As above.
pub const LOW_WATERMARK_PERCENT: u8 = 75;

/// Entries kept of a failover table; the number that Couchbase clients and streams expect.
pub const FAILOVER_ENTRIES_MAX: usize = 25;

/// Greatest number of vbuckets: the range of ids that clients and cluster maps use.
pub const VBUCKETS_MAX: u16 = 1024;

/// Greatest value of 20 MiB, the limit of Couchbase's protocol clients.
pub const VALUE_BYTES_MAX: usize = 20 << 20;

/// Longest relative expiry; anything above is an absolute UNIX time (the protocol's 30-day rule).
pub const RELATIVE_EXPIRY_MAX_S: u32 = 30 * 24 * 60 * 60;

const _: () = assert!(CHUNK_SLOTS.is_power_of_two());
const _: () = assert!(CHECKPOINT_BYTES_MAX <= FLUSH_BYTES_MAX);
