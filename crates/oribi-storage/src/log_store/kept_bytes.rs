//! How much scans by key keep in memory: whole records, of all scans of a log together.
//!
//! Owns: the count. Invariant: the scans of a log never keep more than [`KEPT_BYTES_MAX`], and one
//! that ends gives back what it kept. Caller: [`super::key_scan`].

use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of whole records that all scans of a log keep together.
pub(super) const KEPT_BYTES_MAX: usize = 32 << 20;

/// Bytes by which a scan extends its share of them.
pub(super) const KEPT_STEP_BYTES: usize = 256 << 10;

/// Bytes of whole records that the scans of a log keep now.
#[derive(Default)]
pub(super) struct KeptBytes(pub(super) AtomicUsize);

/// What one scan may keep of them.
pub(super) struct Share<'l> {
    all: &'l KeptBytes,
    bytes: usize,
}

impl<'l> Share<'l> {
    /// Nothing yet.
    pub(super) fn of(all: &'l KeptBytes) -> Share<'l> {
        Share { all, bytes: 0 }
    }

    /// Extends the share to this many bytes; false when the scans keep too much already.
    pub(super) fn reaches(&mut self, bytes: usize) -> bool {
        if bytes <= self.bytes {
            return true;
        }
        let more = (bytes - self.bytes).next_multiple_of(KEPT_STEP_BYTES);
        let extended = |kept: usize| kept.checked_add(more).filter(|kept| *kept <= KEPT_BYTES_MAX);
        let is_extended =
            self.all.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, extended).is_ok();
        self.bytes += if is_extended { more } else { 0 };
        is_extended
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        self.all.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
