//! Limits of this crate, each with its derivation.

/// Bytes of a path. The protocol's limit.
pub const PATH_BYTES_MAX: usize = 1024;

/// Components of a path, and nesting depth of any value that an operation meets. The protocol's
/// limit.
pub const DEPTH_MAX: usize = 32;

/// Nesting depth of any value in a text that counts as JSON. Deeper text is opaque data. The
/// checker needs one bit per level.
pub const JSON_DEPTH_MAX: usize = 1024;

/// Bytes of the key of an extended attribute. The protocol's limit.
pub const XATTR_KEY_BYTES_MAX: usize = 16;

/// Bytes of all extended attributes of a document. The protocol's limit: 1 MiB besides the value.
pub const XATTR_BYTES_MAX: usize = 1 << 20;

const _: () = assert!(JSON_DEPTH_MAX.is_multiple_of(64) && JSON_DEPTH_MAX >= DEPTH_MAX);
