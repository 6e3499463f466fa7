//! The numbers that bound the RPC layer, each with where it comes from.
//!
//! Called by the codec, the negotiation, the connection and the messenger.

use std::time::Duration;

/// Largest frame in either direction, with its length prefix: the servers' and the C++ client's default
/// (`rpc_max_message_size`). A server closes the connection on a larger one.
pub(crate) const MESSAGE_BYTES_MAX: usize = 50 * 1024 * 1024;

/// Largest frame before a server is authenticated. The largest honest one carries a certificate chain,
/// a few KiB.
pub(crate) const NEGOTIATION_MESSAGE_BYTES_MAX: usize = 256 * 1024;

/// Most sidecars of one reply, as in Kudu.
pub(crate) const SIDECARS_MAX: usize = 10_000;

/// Size of a block into which small replies are read one after another: as much as the loopback
/// interface hands over at once.
pub(crate) const READ_BLOCK_BYTES: usize = 64 * 1024;

/// A block with less room than this is not read into any further unless the frame at its end fits.
pub(crate) const READ_ROOM_BYTES_MIN: usize = READ_BLOCK_BYTES / 4;

/// Bytes that wait on one connection for the socket; callers wait beyond. Enough to keep a 10 Gbit/s
/// link busy for more than 10 ms, which is longer than the task of the connection is ever away.
pub(crate) const QUEUED_BYTES_MAX: usize = 16 * 1024 * 1024;

/// What a call counts for in the queue besides its body: its header and its entries in the maps.
pub(crate) const CALL_OVERHEAD_BYTES: usize = 512;

/// Calls that wait for an answer on one connection. A tablet server has 20 service threads and a queue of
/// 50; it answers SERVER_TOO_BUSY beyond, which costs both sides more than waiting here.
pub(crate) const CALLS_IN_FLIGHT_MAX: usize = 60;

/// How long negotiation may take: the servers' `rpc_negotiation_timeout_ms`.
pub(crate) const NEGOTIATION_TIMEOUT: Duration = Duration::from_secs(3);

/// How long an idle connection stays open: the servers' `rpc_default_keepalive_time_ms`.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(65);

/// TCP keep-alive as in the C++ client: after a minute of silence, every 3 s, 10 times.
pub(crate) const TCP_KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
/// See [`TCP_KEEPALIVE_IDLE`].
pub(crate) const TCP_KEEPALIVE_INTERVAL: Duration = Duration::from_secs(3);
/// See [`TCP_KEEPALIVE_IDLE`].
pub(crate) const TCP_KEEPALIVE_PROBES: u32 = 10;

/// How long sent bytes may stay unacknowledged. The system tries again after 0.2 s and then each time after twice as
/// long, for a quarter of an hour: when a network is back after half a minute, a connection that was in the middle of
/// something would say nothing for up to a minute more. A new one is there at once.
#[cfg(target_os = "linux")]
pub(crate) const TCP_UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(10);

const _: () = assert!(NEGOTIATION_MESSAGE_BYTES_MAX <= MESSAGE_BYTES_MAX);
const _: () = assert!(READ_ROOM_BYTES_MIN < READ_BLOCK_BYTES);
// Permits of the queue are counted in a u32.
const _: () = assert!(QUEUED_BYTES_MAX <= u32::MAX as usize);
