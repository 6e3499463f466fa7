//! Limits of the server's connections, each with its derivation. Limits of the protocol itself are in
//! `oribi_protocol::limits`.

use std::time::Duration;

use oribi_protocol::limits::{FRAME_BYTES_MAX, READ_BLOCK_BYTES};

/// Least room that a read is offered; below it a partial frame moves to the front of its block.
pub const READ_ROOM_BYTES_MIN: usize = 4 * 1024;

/// Free blocks that a worker keeps; more simultaneously busy connections than this are rare, and an
/// idle connection holds none.
pub const POOLED_BLOCKS_MAX: usize = 32;

/// Output is sent when this much is pending, even while more requests are waiting.
pub const OUTPUT_FLUSH_BYTES: usize = 128 * 1024;

/// Least setting of the send queue, of which requests of a connection wait while that much output is pending
/// and the socket takes no more: a client that never reads costs that, plus one response, and no more.
pub const SEND_QUEUE_BYTES_MIN: usize = 256 * 1024;

/// Frames of one connection that are served before the next connection gets its turn: about 100 µs of
/// work, so that a client with deep pipelines delays its neighbours by no more than that.
pub const FRAMES_PER_TURN: usize = 256;

/// Output of a STAT that is made before the next connection gets its turn: about 1000 entries and 100 µs
/// of work, as for frames. Together with what makes a STAT wait ([`OUTPUT_FLUSH_BYTES`]) and one entry's
/// overshoot it stays below the size up to which an output block is kept for reuse (256 KiB).
pub const STAT_SLICE_BYTES: usize = 64 * 1024;

/// Most keys that a connection announces ahead: more would push each other out of the first cache,
/// and twice what any processor loads at a time is enough.
pub const PREFETCH_KEYS_MAX: usize = 32;

/// Most bytes of a value that are loaded ahead. Longer ones are read in order, which the processor's own
/// prefetcher follows.
pub const PREFETCH_BYTES_MAX: usize = 2048;

/// Values from this size on are received straight into their item. Below it, copying the value once is
/// cheaper than the system calls that receiving it apart from its neighbours would take.
pub const RECEIVE_IN_PLACE_BYTES_MIN: usize = 32 * 1024;

/// Bytes that are received of what follows a value received in place: enough for the head of another store
/// request with the longest key, and for a few small requests.
pub const HEAD_ROOM_BYTES: usize = 2048;

/// Turns for which the answers to large store requests may wait for those of the requests behind them, and
/// the bytes of answers up to which they do.
pub const DEFERRED_SENDS_MAX: u8 = 8;
/// See [`DEFERRED_SENDS_MAX`].
pub const DEFERRED_BYTES_MAX: usize = 4096;

/// Bytes of a large value that are received, or sent, before the next connection gets its turn: some
/// 50 µs of copying in the kernel.
pub const TRANSFER_SLICE_BYTES: usize = 256 * 1024;

/// The same where nobody waits who sends small requests: connections that all move large values gain nothing
/// from taking turns, and one of 1 MiB costs 5 to 10 % more of the worker's time in four slices than in one.
pub const LONE_TRANSFER_SLICE_BYTES: usize = 1024 * 1024;

/// How long after a worker's last small request its slices stay small.
pub const SMALL_REQUESTS_REMEMBERED_MS: u64 = 100;

/// Writes of one connection that may wait for the store at once. It fits the 12 bits that a park token
/// has for it, and bounds the memory of a client that never waits for its acknowledgements.
pub const PARKED_MAX: usize = 4096;

/// Connections of one worker: the bits that a park token has for them.
pub const WORKER_CONNECTIONS_MAX: usize = 1 << 20;

/// Requests of one connection that may be parked, overtaken by later ones, while the store is read for them.
/// Enough for the fetcher to make batches of; a request beyond waits at the head of the input.
pub const PARKED_REQUESTS_MAX: usize = 128;

/// Bytes of these requests. Reads take some 50 bytes each; a write with a long value does not fit, and waits
/// at the head of the input, which holds it anyway.
pub const PARKED_REQUEST_BYTES_MAX: usize = 64 * 1024;

/// Documents that are fetched ahead while a request at the head of the input waits for its own: as many as the
/// fetcher makes a batch of, and no more values than that come into memory before they are asked for.
pub const FETCH_AHEAD_MAX: usize = 64;

/// Requests behind it that are looked at for that: a turn's worth.
pub const FETCH_AHEAD_FRAMES_MAX: usize = FRAMES_PER_TURN;

/// Fetches that one request waits for, at most. One is the rule; more are needed when what was fetched is
/// evicted, or the document changed, before the request is served again.
pub const FETCH_ATTEMPTS_MAX: u8 = 64;

/// Longest wait for a fetch: a store that takes longer to read one document does not answer any more.
pub const FETCH_TIMEOUT_MS: u64 = 30_000;

/// Timeout of a durable write that names none.
pub const DURABILITY_TIMEOUT_DEFAULT_MS: u64 = 10_000;

/// Shortest timeout of a durable write; smaller ones are raised to it, because the deadline scan has a
/// resolution of a second.
pub const DURABILITY_TIMEOUT_MIN_MS: u64 = 1_500;

/// How often deadlines are looked at. All of them are counted in tens of seconds.
pub const DEADLINE_SCAN_MS: u64 = 1_000;

/// A partial frame may take one more second for each of these many bytes it announces (64 KiB/s).
pub const FRAME_DEADLINE_BYTES_PER_SECOND: usize = 64 * 1024;

/// Jobs waiting for the blocking thread (flush_all, STAT, OBSERVE); a job beyond is refused. Only who has logged
/// in can ask for one.
pub const BLOCKING_QUEUE_MAX: usize = 1024;

/// Passwords waiting to be checked; one beyond is refused. Each takes some 15 ms, so the last of them waits for
/// a second, which is well below the time that there is to log in.
pub const LOGIN_QUEUE_MAX: usize = 64;

/// Lists of keys waiting to be made; one beyond is refused.
pub const LISTING_QUEUE_MAX: usize = 64;

/// How long one may take from the first key that the store shows.
pub const LISTING_TIME_MAX: Duration = Duration::from_secs(2);

/// Range scans of a bucket at a time: each is a thread and what its store holds for it.
pub const RANGE_SCANS_MAX: usize = 32;

/// How long a range scan may take from its creation on, be it used or abandoned.
pub const RANGE_SCAN_LIFETIME: Duration = Duration::from_secs(180);

/// Size from which on a page of a range scan is sent; it may be longer by one document.
pub const RANGE_SCAN_PAGE_BYTES: usize = 128 * 1024;

/// Longest HELLO agent text that is kept for the log.
pub const AGENT_BYTES_MAX: usize = 64;

const _: () = assert!(OUTPUT_FLUSH_BYTES < SEND_QUEUE_BYTES_MIN);
const _: () = assert!(OUTPUT_FLUSH_BYTES + STAT_SLICE_BYTES + 32 * 1024 <= 256 * 1024);
const _: () = assert!(PARKED_MAX == 1 << 12);
const _: () = assert!(FRAME_BYTES_MAX > READ_BLOCK_BYTES);
