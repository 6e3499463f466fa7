//! Limits of settings, each with its derivation. The connections' own limits are in the server.

/// Most logs of a store: the store's own limit, which the server compares.
pub const LOGS_MAX: usize = 64;

/// Smallest setting of the send queue. While that much output is pending and the socket takes no
/// more, the connection's requests wait. So a client that never reads costs at most that, plus one
/// response.
pub const SEND_QUEUE_BYTES_MIN: usize = 256 * 1024;
const _: () = assert!(SEND_QUEUE_BYTES_MIN.is_multiple_of(1024), "the setting is in KiB");

/// Most keys that a connection announces ahead. More would evict each other from the L1 cache, and
/// twice the number of loads that any processor has in flight is enough.
pub const PREFETCH_KEYS_MAX: usize = 32;
const _: () = assert!(PREFETCH_KEYS_MAX.is_power_of_two(), "the ring of a look ahead");
