//! Limits of this crate, each with where it comes from.

/// Bytes of a path. The protocol's limit.
pub const PATH_BYTES_MAX: usize = 1024;

/// Components of a path, and containers around any value that an operation meets. The protocol's limit.
pub const DEPTH_MAX: usize = 32;

/// Containers around any value of a text that counts as JSON at all. Deeper text is opaque data. The
/// checker needs one bit for each.
pub const JSON_DEPTH_MAX: usize = 1024;

/// Bytes of the key of an extended attribute. The protocol's limit.
pub const XATTR_KEY_BYTES_MAX: usize = 16;

/// Bytes of all extended attributes of a document. The protocol's limit: 1 MiB besides the value.
pub const XATTR_BYTES_MAX: usize = 1 << 20;

const _: () = assert!(JSON_DEPTH_MAX.is_multiple_of(64) && JSON_DEPTH_MAX >= DEPTH_MAX);
