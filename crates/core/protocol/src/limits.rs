//! Limits of the protocol, each with its derivation.
//!
//! Both sides check against these before they use a length that came off the wire.

/// Bytes of every header, request or response, plain or with framing extras.
pub const HEADER_BYTES: usize = 24;

/// Longest logical key in the default collection: memcached's historic limit.
pub const KEY_BYTES_MAX: usize = 250;

/// Longest collection prefix: a 32-bit id in groups of seven bits.
pub const COLLECTION_PREFIX_BYTES_MAX: usize = 5;

/// Longest logical key in a named collection. Clients use one figure for all collections: 251 minus
/// the five bytes of the longest prefix.
pub const COLLECTION_KEY_BYTES_MAX: usize = 246;

/// Longest key field of a data request: a default-collection key with its one-byte prefix, or a
/// named-collection key with a five-byte one.
pub const KEY_FIELD_BYTES_MAX: usize = 251;

/// Largest document value.
pub const VALUE_BYTES_MAX: usize = 20 * 1024 * 1024;

/// Largest frame that is read at all; a peer that announces more is disconnected. It is one and a
/// half times a value, so a server can still answer an oversized SET with a status.
pub const FRAME_BYTES_MAX: usize = 30 * 1024 * 1024;

/// Largest frame accepted before authentication: the handshake's messages are far smaller.
pub const UNAUTHENTICATED_FRAME_BYTES_MAX: usize = 16 * 1024;

/// Values of at least this size are sent by scatter-gather; smaller ones are cheaper to copy.
pub const GATHER_VALUE_BYTES_MIN: usize = 8 * 1024;

/// First block of a read buffer, and how far it may grow ahead of arrived bytes.
pub const READ_BLOCK_BYTES: usize = 64 * 1024;

/// Most vbuckets a bucket may have.
pub const VBUCKETS_MAX: u16 = 1024;

/// Expiry values up to this many seconds (30 days) are relative to now; larger ones are UNIX time.
pub const RELATIVE_EXPIRY_S_MAX: u32 = 30 * 24 * 60 * 60;

const _: () = assert!(KEY_FIELD_BYTES_MAX == KEY_BYTES_MAX + 1);
const _: () =
    assert!(KEY_FIELD_BYTES_MAX == COLLECTION_KEY_BYTES_MAX + COLLECTION_PREFIX_BYTES_MAX);
// The key length of a header with framing extras is one byte.
const _: () = assert!(KEY_FIELD_BYTES_MAX <= u8::MAX as usize);
// A SET of the largest value with every optional part fits into a frame.
const _: () = assert!(
    HEADER_BYTES + u8::MAX as usize * 2 + KEY_FIELD_BYTES_MAX + VALUE_BYTES_MAX < FRAME_BYTES_MAX
);
const _: () = assert!(FRAME_BYTES_MAX < u32::MAX as usize);
const _: () = assert!(UNAUTHENTICATED_FRAME_BYTES_MAX <= READ_BLOCK_BYTES);
const _: () = assert!(VBUCKETS_MAX.is_power_of_two());
