//! What a failure inside fjall means at the seam.
//!
//! Owns: the one mapping from fjall's errors, and from its panics, to [`StoreError`]. fjall panics on
//! some directories that it did not write itself; bytes from disk must not end the process, so the
//! calls that read them run under [`guarded`].

use std::panic::{AssertUnwindSafe, catch_unwind};

use fjall::{Error, LsmError};

use crate::StoreError;
pub(super) use crate::directory::io_error;

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
