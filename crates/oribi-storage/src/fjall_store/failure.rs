//! What a failure inside fjall means at the seam.
//!
//! Owns: the one mapping from fjall's errors, and from its panics, to [`StoreError`]. fjall panics on
//! some directories that it did not write itself; bytes from disk must not end the process, so the
//! calls that read them run under [`guarded`].

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use fjall::{Error, LsmError};

use crate::StoreError;

/// The seam's error for an error of fjall.
pub(super) fn store_error(error: Error) -> StoreError {
    match error {
        Error::Io(error) | Error::Storage(LsmError::Io(error)) => io_error(&error),
        Error::Poisoned => StoreError::Poisoned("fjall refuses work after a failure".into()),
        Error::Locked => StoreError::Foreign("another process has the store open".into()),
        Error::InvalidVersion(version) => {
            StoreError::Foreign(format!("fjall format {version:?} is not readable"))
        }
        error => StoreError::Corrupt(format!("{error:?}")),
    }
}

/// A file that ends early or has impossible content is damage; the rest is the system's refusal.
pub(super) fn io_error(error: &io::Error) -> StoreError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData => {
            StoreError::Corrupt(error.to_string())
        }
        _ => StoreError::Io(error.to_string()),
    }
}

/// Runs `work` and turns a panic on damaged files into `Corrupt`. Everything that `work` touches is
/// behind fjall's own locks, or is given up by the caller after an error.
pub(super) fn guarded<T>(
    what: &str,
    work: impl FnOnce() -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
        Err(StoreError::Corrupt(format!("{what}: fjall gave up: {text}")))
    })
}
