//! Limits of the admin HTTP.
//!
//! Each has its derivation. Those that the server has as well are re-exported.

use std::time::Duration;

#[cfg(feature = "query")]
use oribi_protocol::limits::VALUE_BYTES_MAX;
pub use oribi_server::admin_api::limits::{ADMIN_CHANGES_PIECE_BYTES, DCP_IDLE_TIMEOUT_MS};
#[cfg(feature = "query")]
pub use oribi_server::admin_api::limits::{HOLDER_LAG_MAX_MS, MEMORY_WAIT_MS, READING_NICENESS};

/// Connections of the admin HTTP at once, both ports together. Each client library keeps a few per
/// node, most of them idle. `serve` keeps files for them in addition to the data port's.
pub const ADMIN_CONNECTIONS_MAX: usize = 512;

/// Of those, connections from one address (IPv6: one /64 network) that never authenticated. A
/// supervisor and a scraper have one or two; many clients that share one address log in with their
/// first request.
pub const ADMIN_ANONYMOUS_PER_NETWORK_MAX: usize = 64;

/// Passwords that are being checked or queued. Each takes some 15 ms, so the last waits for a
/// second.
pub const ADMIN_LOGINS_MAX: usize = 64;

/// The same from one address, so that a guessing client leaves places to others.
pub const ADMIN_LOGINS_PER_NETWORK_MAX: usize = 16;

/// Connections of all users without the role `admin`: the other half is for administrators and for
/// clients that are about to log in.
pub const ADMIN_USERS_CONNECTIONS_MAX: usize = ADMIN_CONNECTIONS_MAX / 2;

/// Connections of one user, administrators included.
pub const ADMIN_USER_CONNECTIONS_MAX: usize = 128;

/// Connections of the ports for queries at once, with and without TLS together. An idle one holds
/// at most 16 KiB.
pub const QUERY_CONNECTIONS_MAX: usize = 1_280;

/// Of those, connections of one user, and of one address that never authenticated: applications
/// that keep a thousand of them, and a tenth for others.
pub const QUERY_USER_CONNECTIONS_MAX: usize = 1_152;

/// Configuration streams of one user. A client library has one for each bucket and node, and only
/// where it cannot use the data port.
pub const ADMIN_STREAMS_PER_USER_MAX: usize = 32;

/// Memory for answers with figures of the server, separate from that of connections: some hundred
/// usual scrapes, or one of 5,000 collections.
pub const OPERATOR_BYTES: usize = 4 << 20;

/// Figures of the last minutes: six minutes of some 40 buckets. All of them fit into one answer to
/// an operator.
pub const FIGURE_HISTORY_BYTES: usize = 1 << 20;

const _: () = assert!(2 * FIGURE_HISTORY_BYTES <= OPERATOR_BYTES);

/// Time for a client to read such an answer: what Prometheus gives a scrape.
pub const OPERATOR_READING_DEADLINE: Duration = Duration::from_secs(10);

/// Bytes of a piece of a large event, whose document stays in its place.
pub const ADMIN_CHANGES_LINE_PIECE_BYTES: usize = 64 * 1024;

/// Vbuckets of one stream of changes over HTTP. The id of an event is a position in each of them,
/// some 20 to 50 bytes, and comes back in the header of a request, which may have 16 KiB.
pub const ADMIN_CHANGES_VBUCKETS_MAX: u16 = 256;

/// Room for the line of an id: positions with the largest numbers, 88 bytes each.
pub const ADMIN_CHANGES_ID_BYTES_MAX: usize = 88 * ADMIN_CHANGES_VBUCKETS_MAX as usize + 64;

/// Statements over HTTP that run at once. Each has a thread of low priority; a machine of
/// two cores serves clients while four of them run.
#[cfg(feature = "query")]
pub const STATEMENTS_MAX: usize = 4;

/// Statements that wait for one of these places: one for each connection of an application
/// with a thousand of them. Their texts are reserved in the connections' memory.
#[cfg(feature = "query")]
pub const QUERIES_WAITING_MAX: usize = 1_024;

/// Memory for all statements together: sorting, grouping, joins, and the largest document some
/// times. There are no temporary files.
#[cfg(feature = "query")]
pub const STATEMENT_HEAP_BYTES_MAX: u64 = 128 << 20;

/// Least memory for all statements: enough for those that keep no rows. Statements are refused
/// while documents leave less.
#[cfg(feature = "query")]
pub const STATEMENT_HEAP_BYTES_MIN: u64 = 4 << 20;

/// Documents that a scan copies before the statement reads the first of them: a batch that stays in
/// a core's own cache, or one larger document.
#[cfg(feature = "query")]
pub const SCAN_BATCH_BYTES: usize = 128 * 1024;

/// Reservation of a statement's scan when it begins: its batch, which may have space for twice as
/// much, and what it reads ahead of one run of a vbucket's records.
#[cfg(feature = "query")]
pub const STATEMENT_SCAN_BYTES: usize = 512 * 1024 + 2 * SCAN_BATCH_BYTES;

/// Keys of a range whose documents are read by key. Each costs a look-up, several times as much as
/// in a scan; together they are some hundred KiB.
#[cfg(feature = "query")]
pub const NARROW_RANGE_KEYS: usize = 1_000;

/// Rows from which on a piece of an answer is sent. A statement has three pieces, reserved in the
/// connections' memory, or rows that are larger.
#[cfg(feature = "query")]
pub const ROW_PIECE_BYTES: usize = 64 * 1024;

/// Longest row as JSON.
#[cfg(feature = "query")]
pub const ROW_BYTES_MAX: usize = 64 << 20;

/// Time of a statement whose client names none.
#[cfg(feature = "query")]
pub const STATEMENT_TIMEOUT: Duration = Duration::from_secs(75);

/// Longest time of a statement. A client that does not read in time loses its statement.
#[cfg(feature = "query")]
pub const STATEMENT_TIMEOUT_MAX: Duration = Duration::from_secs(600);

/// Time for the first request of an admin connection to arrive, TLS included.
pub const ADMIN_FIRST_REQUEST_DEADLINE: Duration = Duration::from_secs(10);

/// Time for the header of any later request, also the longest that a connection stays idle.
pub const ADMIN_HEADER_DEADLINE: Duration = Duration::from_secs(30);

/// Places that stay for administrators and `/healthz` when users have their maximum, and password
/// checks never stop.
const ADMIN_RESERVE: usize = ADMIN_CONNECTIONS_MAX - ADMIN_USERS_CONNECTIONS_MAX - ADMIN_LOGINS_MAX;

const _: () = assert!(ADMIN_RESERVE > ADMIN_USER_CONNECTIONS_MAX);
const _: () =
    assert!(ADMIN_FIRST_REQUEST_DEADLINE.as_millis() <= ADMIN_HEADER_DEADLINE.as_millis());
const _: () = assert!(ADMIN_CHANGES_PIECE_BYTES <= ADMIN_CHANGES_LINE_PIECE_BYTES);
const _: () = assert!(QUERY_USER_CONNECTIONS_MAX < QUERY_CONNECTIONS_MAX, "no user has all");
#[cfg(feature = "query")]
const _: () = assert!(STATEMENT_HEAP_BYTES_MIN < STATEMENT_HEAP_BYTES_MAX);
#[cfg(feature = "query")]
const _: () = assert!(SCAN_BATCH_BYTES < STATEMENT_SCAN_BYTES);
#[cfg(feature = "query")]
const _: () = assert!(ROW_PIECE_BYTES < ROW_BYTES_MAX);
#[cfg(feature = "query")]
const _: () = assert!(STATEMENT_TIMEOUT.as_millis() <= STATEMENT_TIMEOUT_MAX.as_millis());
#[cfg(feature = "query")]
const _: () = assert!(STATEMENTS_MAX <= QUERIES_WAITING_MAX);
#[cfg(feature = "query")]
const _: () =
    assert!(QUERIES_WAITING_MAX < QUERY_CONNECTIONS_MAX, "a busy answer needs a connection");
const _: () = assert!(ADMIN_LOGINS_PER_NETWORK_MAX < ADMIN_ANONYMOUS_PER_NETWORK_MAX);
const _: () = assert!(ADMIN_STREAMS_PER_USER_MAX < ADMIN_USER_CONNECTIONS_MAX);

// A row has space for the largest document in base64.
#[cfg(feature = "query")]
const _: () = assert!(ROW_BYTES_MAX > 2 * VALUE_BYTES_MAX);
