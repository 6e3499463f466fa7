//! The limits of the RPC layer, each with its derivation.
//!
//! Called by the codec, the negotiation, the connection and the messenger.

use std::time::Duration;

/// Largest frame in either direction, with its length prefix: the servers' and the C++ client's
/// default (`rpc_max_message_size`). A server closes the connection on a larger one.
pub(crate) const MESSAGE_BYTES_MAX: usize = 50 * 1024 * 1024;

/// Largest frame before the server is authenticated. The largest valid one has a certificate chain,
/// a few KiB.
pub(crate) const NEGOTIATION_MESSAGE_BYTES_MAX: usize = 256 * 1024;

/// Most sidecars of one reply, as in Kudu.
pub(crate) const SIDECARS_MAX: usize = 10_000;

/// Size of a block for reading consecutive small replies: as much as the loopback interface
/// delivers at once.
pub(crate) const READ_BLOCK_BYTES: usize = 64 * 1024;

/// Reading into a block stops below this much space, unless the frame at its end fits.
pub(crate) const READ_ROOM_BYTES_MIN: usize = READ_BLOCK_BYTES / 4;

/// Most bytes that wait for the socket on one connection; further callers wait. Enough to keep a 10
/// Gbit/s link busy for more than 10 ms, which is longer than the connection's task is ever away.
pub(crate) const QUEUED_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The cost of a call in the queue besides its body: its header and its entries in the maps.
pub(crate) const CALL_OVERHEAD_BYTES: usize = 512;

/// Most calls in flight on one connection. A tablet server has 20 service threads and a queue of
/// 50. Beyond that it answers SERVER_TOO_BUSY, which costs both sides more than waiting here.
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

/// How long sent bytes may stay unacknowledged. The system retries after 0.2 s and doubles the
/// delay each time, for a quarter of an hour. If a network recovers after half a minute, a busy
/// connection would stay silent for up to another minute. A new connection works at once.
#[cfg(target_os = "linux")]
pub(crate) const TCP_UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(10);

const _: () = assert!(NEGOTIATION_MESSAGE_BYTES_MAX <= MESSAGE_BYTES_MAX);
const _: () = assert!(READ_ROOM_BYTES_MIN < READ_BLOCK_BYTES);
// Permits of the queue are counted in a u32.
const _: () = assert!(QUEUED_BYTES_MAX <= u32::MAX as usize);
