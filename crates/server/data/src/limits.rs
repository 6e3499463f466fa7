//! Limits of the server's connections, each with its derivation. Limits of the protocol itself are
//! in `oribi_protocol::limits`.

use std::time::Duration;

use oribi_config::limits::SEND_QUEUE_BYTES_MIN;
use oribi_protocol::limits::{FRAME_BYTES_MAX, READ_BLOCK_BYTES, VALUE_BYTES_MAX};

/// Minimum space offered to a read; below it a partial frame moves to the front of its block.
pub const READ_ROOM_BYTES_MIN: usize = 4 * 1024;

/// Free blocks that a worker keeps; more simultaneously busy connections than this are rare, and an
/// idle connection holds none.
pub const POOLED_BLOCKS_MAX: usize = 32;

/// Output is sent when this much is pending, even while more requests are waiting.
pub const OUTPUT_FLUSH_BYTES: usize = 128 * 1024;

/// Frames of one connection that are served before the next connection gets its turn: about 100 µs
/// of work, so that a client with deep pipelines delays its neighbours by no more than that.
pub const FRAMES_PER_TURN: usize = 256;

/// Output of a STAT before the next connection gets its turn: about 1000 entries and 100 µs of
/// work, as for frames. With [`OUTPUT_FLUSH_BYTES`], at which a STAT waits, and one entry's
/// overshoot it stays below the size up to which an output block is reused (256 KiB).
pub const STAT_SLICE_BYTES: usize = 64 * 1024;

/// Most bytes of a value that are loaded ahead. A longer value is read in order, which the
/// processor's own prefetcher follows.
pub const PREFETCH_BYTES_MAX: usize = 2048;

/// Values from this size on are received straight into their item. Below it, one copy of the value
/// is cheaper than the extra system calls of receiving it separately.
pub const RECEIVE_IN_PLACE_BYTES_MIN: usize = 32 * 1024;

/// Bytes received after a value that is received in place: enough for the head of another store
/// request with the longest key, and for a few small requests.
pub const HEAD_ROOM_BYTES: usize = 2048;

/// Messages of change streams that a connection sends before the next connection gets its turn:
/// some 100 µs of work, as for frames. A look at 64 streams fits, with a marker and an empty step
/// for each, so it goes out in one send.
pub const CHANGES_PER_TURN: usize = 512;

/// Messages that a live stream sends in a turn at most, however many requests its worker has served
/// in between: about half a millisecond of work.
pub const CHANGES_PER_TURN_MAX: usize = 2048;

/// Documents that a stream sends in a row, and steps of one stream before the connection's next one
/// gets its turn. Consumers work on several vbuckets at once; many messages in a row keep what one
/// stream has looked at in the processor's cache until it is sent. A part of a backfill has about
/// as many documents of half a kibibyte.
pub const CHANGES_PER_STREAM_TURN: usize = 128;

/// Pauses of a busy producer between two looks at its streams. The shortest is some hundred writes
/// of one worker under full load. The longest is what light load may take for 99 of 100 changes,
/// and finds 30 changes a look in each of 64 vbuckets at 400,000 a second.
pub const CHANGES_PAUSE_NS_MIN: u64 = 1_000_000;
pub const CHANGES_PAUSE_NS_MAX: u64 = 5_000_000;

/// Bytes that a worker receives after which a busy producer looks again. With all that serving
/// them touches, they fit the processor's own cache, and they are enough for one send.
pub const CHANGES_LOOK_BYTES: usize = 128 * 1024;

/// The same for each stream of the producer: three to four changes of half a kibibyte, from the
/// cache, pay for a look at a stream.
pub const CHANGES_LOOK_BYTES_PER_STREAM: usize = 2 * 1024;

/// Changes in a snapshot from which polling a stream pays: the poll is then a tenth of the work.
pub const CHANGES_PER_SNAPSHOT_MIN: usize = 32;

/// Bytes of a look from which on a longer pause pays no more: half of the usual window, and about
/// what a processor's cache keeps of them.
pub const CHANGES_PAUSE_BYTES_MAX: usize = 2 << 20;

/// Changes after a look with which a producer is not busy: 32 in the shortest pause are 3 % of a
/// worker's time.
pub const CHANGES_WITHOUT_PAUSE_MAX: usize = 32;

/// Unsent bytes from which on nothing is taken from a stream. With one more document this is what
/// a consumer that does not read can hold. A look of a busy producer fits: each send wakes the
/// consumer, which costs as much as sending 30 changes. The block is reused up to 256 KiB.
pub const CHANGES_PENDING_BYTES_MAX: usize = 160 * 1024;

/// Default interval of DCP noops.
pub const DCP_NOOP_INTERVAL_DEFAULT_MS: u64 = 20_000;

/// A consumer with noops enabled that sends nothing for this long counts as dead.
pub const DCP_IDLE_TIMEOUT_MS: u64 = 360_000;

/// Turns for which the answers to large store requests may wait for those of the requests after
/// them. [`DEFERRED_BYTES_MAX`] is the limit in bytes.
pub const DEFERRED_SENDS_MAX: u8 = 8;
pub const DEFERRED_BYTES_MAX: usize = 4096;

/// Bytes of a large value that are received, or sent, before the next connection gets its turn:
/// some 50 µs of copying in the kernel.
pub const TRANSFER_SLICE_BYTES: usize = 256 * 1024;

/// The same when no connection with small requests waits. Connections that all move large values
/// gain nothing from shorter turns, and a value of 1 MiB costs 5 to 10 % more of the worker's time
/// in four slices than in one.
pub const LONE_TRANSFER_SLICE_BYTES: usize = 1024 * 1024;

/// A rest of a large value that is shorter than this part of a slice moves with the slice before
/// it. Values often have a power of two as their size, and a header in addition. Without this rule
/// the rest of such a value would be a separate slice.
pub const TRANSFER_REST_PART: usize = 8;

/// How long after a worker's last small request its slices stay small.
pub const SMALL_REQUESTS_REMEMBERED_MS: u64 = 100;

/// Writes of one connection that may wait for the store at once. The limit fits the 12 bits that a
/// park token has for it, and bounds the memory of a client that never waits for its
/// acknowledgements.
pub const PARKED_MAX: usize = 4096;

/// Connections of one worker: the range of a park token's bits for them.
pub const WORKER_CONNECTIONS_MAX: usize = 1 << 20;

/// Requests of one connection that may be parked, overtaken by later ones, while the store is read
/// for them. Enough for fetchers to form batches; a further request waits at the head of the
/// input.
pub const PARKED_REQUESTS_MAX: usize = 128;

/// Total bytes of these requests. Reads take some 50 bytes each. A write with a long value does not
/// fit, and waits at the head of the input, which holds it anyway.
pub const PARKED_REQUEST_BYTES_MAX: usize = 64 * 1024;

/// Documents that are fetched ahead while a request at the head of the input waits for its own:
/// batches of eight and more for the fetchers. It bounds the values that enter memory before they
/// are requested.
pub const FETCH_AHEAD_MAX: usize = 64;

/// Requests after it that are examined for that: those of one turn.
pub const FETCH_AHEAD_FRAMES_MAX: usize = FRAMES_PER_TURN;

/// Maximum number of fetches that one request waits for. One is the rule. More are needed when the
/// fetched document is evicted, or changes, before the request is served again.
pub const FETCH_ATTEMPTS_MAX: u8 = 64;

/// Longest wait of a request for its fetches, from the start of the wait: a store that takes longer
/// to read one document counts as unresponsive.
pub const FETCH_TIMEOUT_MS: u64 = 10_000;

/// Timeout of a durable write that specifies none.
pub const DURABILITY_TIMEOUT_DEFAULT_MS: u64 = 10_000;

/// Shortest timeout of a durable write; smaller ones are raised to it, because the deadline scan
/// has a resolution of a second.
pub const DURABILITY_TIMEOUT_MIN_MS: u64 = 1_500;

/// Interval of deadline scans. All deadlines are counted in tens of seconds.
pub const DEADLINE_SCAN_MS: u64 = 1_000;

/// A large frame that is being received, or an answer that is being sent, gets one more second for
/// each of these many bytes that have moved (64 KiB/s). Announced bytes do not count.
pub const FRAME_DEADLINE_BYTES_PER_SECOND: usize = 64 * 1024;

/// Jobs waiting for the blocking thread (flush_all, STAT, OBSERVE); a further job is refused. Only
/// authenticated users can request one.
pub const BLOCKING_QUEUE_MAX: usize = 1024;

/// Passwords waiting to be checked; a further one is refused. Each takes some 15 ms, so the last of
/// them waits for a second, which is well below the authentication deadline.
pub const LOGIN_QUEUE_MAX: usize = 64;

/// Lists of keys waiting to be built; a further one is refused.
pub const LISTING_QUEUE_MAX: usize = 64;

/// Longest time that a listing may take from the first key that the store returns.
pub const LISTING_TIME_MAX: Duration = Duration::from_secs(2);

/// How much later than workers a thread of a scan or statement runs where both want to: of a core
/// for which both compete it gets a tenth.
pub const READING_NICENESS: i32 = 10;

/// Concurrent range scans of a bucket: each costs a thread and what its store holds for it.
pub const RANGE_SCANS_MAX: usize = 32;

/// Lifetime of a range scan from its creation, used or abandoned.
pub const RANGE_SCAN_LIFETIME: Duration = Duration::from_secs(180);

/// Size at which a page of a range scan is sent; one document may exceed it.
pub const RANGE_SCAN_PAGE_BYTES: usize = 96 * 1024;

/// Memory that connections may hold together in small pieces: parts of requests, and answers that
/// wait for their client. With the usual 64 KiB for each it is enough for 128 clients that stopped
/// in the middle of something. With more such clients, workers shrink the blocks of connections
/// that hold less than they have space for.
pub const SMALL_CONNECTION_BYTES: usize = 8 << 20;

/// Unreserved memory from which on smaller answers are reserved, too, so that it seldom reaches
/// [`SMALL_CONNECTION_BYTES`].
pub const TIGHT_CONNECTION_BYTES: usize = SMALL_CONNECTION_BYTES / 2;

/// The part of the connections' memory that is reserved for large requests and answers, whatever
/// the quotas are: room for one of the largest, with attributes.
pub const RESERVABLE_BYTES_BASE: usize = 24 << 20;

/// Memory that connections may hold together. The process may use 10 % and 64 MiB in addition to
/// the quotas. Connections get half of the 64 MiB and a third of the 10 %; the rest is for code,
/// threads, and free memory of the block arena.
pub const CONNECTION_BYTES_BASE: usize = SMALL_CONNECTION_BYTES + RESERVABLE_BYTES_BASE;

/// The part of all quotas that connections may hold in addition: a 32nd.
pub const CONNECTION_QUOTA_PART: u64 = 32;

/// Requests above this size are reserved as a whole before more than their head is received.
/// Smaller ones fit the read block anyway.
pub const UNRESERVED_REQUEST_BYTES_MAX: usize = READ_BLOCK_BYTES;

/// Documents from this size on are reserved before an answer holds them. The send queue bounds what
/// smaller ones add to the output.
pub const RESERVED_ANSWER_BYTES_MIN: usize = 256 * 1024;

/// The same while unreserved memory exceeds [`TIGHT_CONNECTION_BYTES`]: clients then wait for
/// memory instead of being disconnected for it.
pub const RESERVED_ANSWER_BYTES_MIN_TIGHT: usize = 16 * 1024;

/// How long a connection waits for a reservation before its request is answered "temporary
/// failure": about as long as clients wait for an answer.
pub const MEMORY_WAIT_MS: u64 = 5_000;

/// Answers and scans up to this size need not wait for large documents in the queue for memory.
pub const AHEAD_OF_QUEUE_BYTES_MAX: usize = 1 << 20;

/// How long a write of a memcached client waits for memory in its bucket before it is refused: less
/// than such clients wait for an answer, and longer than a commit takes on a slow disk.
pub const ROOM_WAIT_MS: u64 = 5_000;

/// How long a stream request waits for its vbucket to be loaded before it is answered "temporary
/// failure". Couchbase's Java client takes that answer as final, so it comes late: by then most
/// consumers have reconnected, because their answers to keep-alive messages wait for the request.
pub const LOADING_WAIT_MS: u64 = 120_000;

/// Pause between two tries of such a write or request. In that time the item pager frees megabytes.
pub const ROOM_RETRY_MS: u64 = 2;

/// Allowed lag behind [`HOLDER_BYTES_PER_SECOND`] for a connection that has reserved memory while
/// others wait for it. With the resolution of the deadline scan, three seconds at most.
pub const HOLDER_LAG_MAX_MS: u64 = 2_000;

/// Bytes per second that such a connection has to move, the least for which a deadline is moved on
/// at all. A client that reads, however slowly, is not one that has stopped.
pub const HOLDER_BYTES_PER_SECOND: usize = FRAME_DEADLINE_BYTES_PER_SECOND;

/// Connections that hold less than this are not closed for their memory.
pub const HELD_BYTES_WORTH_CLOSING: usize = 4 * 1024;

/// Longest HELLO agent text that is kept for the log.
pub const AGENT_BYTES_MAX: usize = 64;

/// Bytes of events from which on a piece of a stream of changes is sent. A stream holds one piece,
/// reserved in the connections' memory, or one event that is larger. All streams that users may
/// have together hold at most 14 MiB of small events.
pub const ADMIN_CHANGES_PIECE_BYTES: usize = 32 * 1024;

const _: () = assert!(OUTPUT_FLUSH_BYTES < SEND_QUEUE_BYTES_MIN);
const _: () = assert!(TRANSFER_SLICE_BYTES < LONE_TRANSFER_SLICE_BYTES);
const _: () = assert!(CHANGES_PER_TURN < CHANGES_PER_TURN_MAX);
const _: () = assert!(CHANGES_PAUSE_NS_MIN < CHANGES_PAUSE_NS_MAX);
// Changes never keep requests from being served.
// A consumer that does not read is still heard.
const _: () = assert!(CHANGES_PENDING_BYTES_MAX < SEND_QUEUE_BYTES_MIN);
const _: () = assert!(CHANGES_LOOK_BYTES < CHANGES_PENDING_BYTES_MAX);
const _: () = assert!(OUTPUT_FLUSH_BYTES + STAT_SLICE_BYTES + 32 * 1024 <= 256 * 1024);
const _: () = assert!(PARKED_MAX == 1 << 12);
const _: () = assert!(FRAME_BYTES_MAX > READ_BLOCK_BYTES);
// A document of the largest size, with its attributes (1 MiB) and the head of its request.
const _: () = assert!(RESERVABLE_BYTES_BASE >= VALUE_BYTES_MAX + (1 << 20) + READ_BLOCK_BYTES);
const _: () = assert!(CONNECTION_BYTES_BASE <= 32 << 20 && CONNECTION_QUOTA_PART >= 30);
const _: () = assert!(RESERVED_ANSWER_BYTES_MIN <= SEND_QUEUE_BYTES_MIN);
const _: () = assert!(RESERVED_ANSWER_BYTES_MIN_TIGHT < RESERVED_ANSWER_BYTES_MIN);
const _: () = assert!(TIGHT_CONNECTION_BYTES < SMALL_CONNECTION_BYTES);
const _: () = assert!(DURABILITY_TIMEOUT_MIN_MS <= DURABILITY_TIMEOUT_DEFAULT_MS);
const _: () = assert!(DCP_NOOP_INTERVAL_DEFAULT_MS < DCP_IDLE_TIMEOUT_MS);
const _: () = assert!(CHANGES_PER_STREAM_TURN <= CHANGES_PER_TURN);
const _: () = assert!(CHANGES_LOOK_BYTES_PER_STREAM <= CHANGES_LOOK_BYTES);
const _: () = assert!(PREFETCH_BYTES_MAX <= u16::MAX as usize);
const _: () = assert!(HEAD_ROOM_BYTES <= READ_ROOM_BYTES_MIN);
const _: () = assert!(PARKED_REQUEST_BYTES_MAX <= SMALL_CONNECTION_BYTES);
const _: () = assert!(RANGE_SCAN_PAGE_BYTES <= SEND_QUEUE_BYTES_MIN);
const _: () = assert!(AHEAD_OF_QUEUE_BYTES_MAX <= RESERVABLE_BYTES_BASE);
const _: () = assert!(ROOM_RETRY_MS < ROOM_WAIT_MS && ROOM_WAIT_MS < LOADING_WAIT_MS);
const _: () = assert!(DEADLINE_SCAN_MS <= DURABILITY_TIMEOUT_MIN_MS);
const _: () = assert!(DEADLINE_SCAN_MS <= HOLDER_LAG_MAX_MS);
const _: () = assert!(HOLDER_LAG_MAX_MS < MEMORY_WAIT_MS, "a waiter outlasts a slow holder");
const _: () = assert!(DEADLINE_SCAN_MS < FETCH_TIMEOUT_MS, "a late fetch is seen in time");
const _: () = assert!(READ_ROOM_BYTES_MIN <= READ_BLOCK_BYTES, "a block has room for a read");
const _: () = assert!(DEFERRED_BYTES_MAX <= OUTPUT_FLUSH_BYTES);
const _: () = assert!(STAT_SLICE_BYTES <= OUTPUT_FLUSH_BYTES);
const _: () = assert!(HOLDER_BYTES_PER_SECOND <= u32::MAX as usize, "a time is divided by it");
const _: () = assert!(FRAME_DEADLINE_BYTES_PER_SECOND > 0);
const _: () = assert!(FETCH_AHEAD_MAX <= FETCH_AHEAD_FRAMES_MAX);
const _: () = assert!(LISTING_QUEUE_MAX <= BLOCKING_QUEUE_MAX);
const _: () = assert!(LOGIN_QUEUE_MAX <= BLOCKING_QUEUE_MAX);
const _: () = assert!(WORKER_CONNECTIONS_MAX == 1 << 20, "a token has 20 bits for a slot");
