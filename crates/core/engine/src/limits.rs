//! Every limit of the engine, each with where it comes from.

/// Slots per chunk of a checkpoint: 2 KiB, so that unused slots are few, and a new chunk copies no
/// queued slot.
pub const CHUNK_SLOTS: usize = 256;

/// Bytes of one checkpoint before it closes. A flush batch is at least one whole checkpoint, so
/// this bounds the part of one vbucket in a commit: 36 MiB with one of the largest values at its
/// end. A Kudu write takes 50 MiB. The larger a checkpoint, the more versions of a document
/// coalesce.
pub const CHECKPOINT_BYTES_MAX: usize = 16 << 20;

/// Items of one checkpoint before it closes, for the same reason with small documents.
pub const CHECKPOINT_ITEMS_MAX: usize = 1 << 16;

/// Seqnos of one checkpoint before it closes. Slots of deduplicated mutations are freed by chunks,
/// and this bounds the 32 bytes that are left of each chunk: 128 KiB, which take a few microseconds
/// at most to enlarge.
pub const CHECKPOINT_SLOTS_MAX: u64 = 1 << 20;

/// Checkpoints that one read takes: bounds the time under the queue lock to some two microseconds
/// with cold caches.
pub const READ_CHECKPOINTS_MAX: usize = 16;

/// Items that a stream copies from the open checkpoint under the queue lock: some ten microseconds
/// with cold caches. If more wait, the stream's read closes the checkpoint.
pub const STREAM_READ_ITEMS_MAX: usize = 256;

/// Seqnos that such a read spans, deduplicated ones included: the slots that it looks at.
pub const STREAM_READ_SEQNOS_MAX: u64 = 4 * CHUNK_SLOTS as u64;

/// Bytes of the items' blocks. The queue may drop them, so the stream may be the last holder.
pub const STREAM_READ_BYTES_MAX: usize = 1 << 20;

/// Items taken from one vbucket into one commit, as a soft limit at checkpoint boundaries.
pub const FLUSH_ITEMS_PER_VBUCKET: usize = 8192;

/// Bytes gathered over all vbuckets before a commit is made: bounds memory pinned by one flush.
pub const FLUSH_BYTES_MAX: usize = 32 << 20;

/// Per cent of the quota above which the item pager evicts, and at which it stops, unless
/// configured.
pub const HIGH_WATERMARK_PERCENT: u8 = 85;
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
const _: () = assert!(STREAM_READ_BYTES_MAX <= CHECKPOINT_BYTES_MAX);
const _: () = assert!(STREAM_READ_ITEMS_MAX <= CHECKPOINT_ITEMS_MAX);
const _: () = assert!(STREAM_READ_SEQNOS_MAX <= CHECKPOINT_SLOTS_MAX);
const _: () = assert!(CHECKPOINT_ITEMS_MAX as u64 <= CHECKPOINT_SLOTS_MAX);
const _: () = assert!(LOW_WATERMARK_PERCENT < HIGH_WATERMARK_PERCENT);
const _: () = assert!(HIGH_WATERMARK_PERCENT <= 100);
const _: () = assert!(VBUCKETS_MAX.is_power_of_two());
const _: () = assert!(FAILOVER_ENTRIES_MAX > 0);

/// Highest seqno that another node's stream may name: a promoted copy counts on for as long again.
pub const REPLICATED_SEQNO_MAX: u64 = u64::MAX >> 1;

/// Highest revision that another node's stream may name. Clients name at most 2^48 - 1, from which
/// an active may count on.
pub const REPLICATED_REV_SEQNO_MAX: u64 = u64::MAX >> 1;
const _: () = assert!(REPLICATED_REV_SEQNO_MAX > (1 << 48));

/// Dictionaries of dense values in the process. Each has some 100 KiB, so their own memory bounds
/// them first.
pub const DENSE_DICTIONARIES_MAX: usize = 1024;

/// Longest and shortest value that is made dense. A longer one is sent from its block, and an
/// inflated one would be held by its connection outside the quota; a shorter one has nothing to
/// give.
pub const DENSE_PLAIN_BYTES_MAX: usize = (8 << 10) - 1;
pub const DENSE_PLAIN_BYTES_MIN: usize = 64;
