//! Names that a scope or collection may have.
//!
//! Owns: the character and length rules of mutation and look-up. Look-ups are the more lenient of
//! the two: a leading `_` or `%` is a name that the system may use one day, so asking for it is
//! answered "unknown" and not "invalid".

use super::error::{LookupError, ManifestError};

/// Name of the scope and of the collection that always exist.
pub const DEFAULT_NAME: &str = "_default";

/// Longest name in characters, which are bytes here.
const NAME_BYTES_MAX: usize = 251;

/// The name to look for, with empty read as `_default`.
pub(super) fn for_lookup(name: &str) -> Result<&str, LookupError> {
    match name {
        "" => Ok(DEFAULT_NAME),
        name if is_well_formed(name) => Ok(name),
        _ => Err(LookupError::InvalidName),
    }
}

/// Checks a name that a user wants to give.
pub(super) fn check_user_name(name: &str) -> Result<(), ManifestError> {
    match is_well_formed(name) && !name.starts_with(['_', '%']) {
        true => Ok(()),
        false => Err(ManifestError::InvalidName),
    }
}

fn is_well_formed(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'%');
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(allowed)
}
