//! How much scans by key keep in memory: places, keys and records, of all logs of the process.
//!
//! Owns: the count, and the share of each scan. Invariants: a scan always has [`FLOOR_BYTES`] and
//! gets on with them; what all scans have beyond that is at most [`SHARED_BYTES_MAX`]; a scan that
//! ends gives its share back. Caller: [`super::key_scan`].

use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that each scan has, whatever others keep: places of 4096 records, and 512 keys. With those
/// of 64 scans and what scans share, it is 16 MiB.
pub(super) const FLOOR_BYTES: usize = 64 << 10;

/// Bytes that all scans of the process keep together beyond that.
pub(super) const SHARED_BYTES_MAX: usize = 12 << 20;

/// Of these, bytes that keys and places may have and whole records may not, which can be read
/// again.
const NOT_FOR_RECORDS: usize = SHARED_BYTES_MAX / 4;

/// Bytes by which a share grows.
const STEP_BYTES: usize = 64 << 10;
const _: () = assert!(NOT_FOR_RECORDS < SHARED_BYTES_MAX);
const _: () = assert!(SHARED_BYTES_MAX.is_multiple_of(STEP_BYTES));

/// Bytes that scans keep now beyond their floors.
pub(super) struct ScanMemory(AtomicUsize);

/// That of the process.
pub(super) static OF_PROCESS: ScanMemory = ScanMemory::new();

impl ScanMemory {
    /// No scan keeps anything.
    pub(super) const fn new() -> ScanMemory {
        ScanMemory(AtomicUsize::new(0))
    }

    /// Bytes that are kept now.
    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// As if another scan kept so many bytes.
    #[cfg(test)]
    pub(super) fn set_kept(&self, bytes: usize) {
        self.0.store(bytes, Ordering::Relaxed);
    }
}

/// Memory kept in a share.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ShareKind {
    /// Keys and places, without which a scan has to pass over the vbucket once more.
    Keys,
    /// Whole records, which a scan can read again.
    Records,
}

/// Bytes that one scan may keep.
pub(super) struct Share {
    memory: &'static ScanMemory,
    bytes: usize,
    /// The most that was kept.
    #[cfg(test)]
    pub(super) peak: usize,
}

impl Share {
    pub(super) fn of(memory: &'static ScanMemory) -> Share {
        Share {
            memory,
            bytes: 0,
            #[cfg(test)]
            peak: 0,
        }
    }

    /// Extends the share to this many bytes; false when the scans keep too much already.
    pub(super) fn reaches(&mut self, bytes: usize, kept: ShareKind) -> bool {
        let beyond = bytes.saturating_sub(FLOOR_BYTES);
        if beyond <= self.bytes {
            return self.note(bytes);
        }
        let more = (beyond - self.bytes).next_multiple_of(STEP_BYTES);
        let most = match kept {
            ShareKind::Keys => SHARED_BYTES_MAX,
            ShareKind::Records => SHARED_BYTES_MAX - NOT_FOR_RECORDS,
        };
        let extended = |kept: usize| kept.checked_add(more).filter(|kept| *kept <= most);
        let before = &self.memory.0;
        if before.fetch_update(Ordering::Relaxed, Ordering::Relaxed, extended).is_err() {
            return false;
        }
        self.bytes += more;
        debug_assert!(self.bytes >= beyond, "a share that was extended is long enough");
        debug_assert!(self.bytes <= SHARED_BYTES_MAX, "a share is one of all");
        self.note(bytes)
    }

    #[cfg(test)]
    fn note(&mut self, bytes: usize) -> bool {
        self.peak = self.peak.max(bytes);
        true
    }

    #[cfg(not(test))]
    fn note(&self, _: usize) -> bool {
        true
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let before = self.memory.0.fetch_sub(self.bytes, Ordering::Relaxed);
        debug_assert!(before >= self.bytes, "a share that ends was counted");
    }
}
