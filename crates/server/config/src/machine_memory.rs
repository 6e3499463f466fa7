//! The default memory quota of a bucket.
//!
//! Owns: a bucket's share of the memory that this process may use. A server without
//! configuration should neither leave a machine idle nor push its neighbours out, so the first
//! buckets together get half of the memory. The share is computed when a bucket is created. From
//! then on it is a setting and does not follow the machine.

use oribi_system::memory::memory_of_process;

const MIB: u64 = 1 << 20;

/// Divisor of the memory that the buckets get.
const SHARE: u64 = 2;

/// Smallest quota chosen here: Couchbase's minimum for a bucket.
const QUOTA_MIB_MIN: u64 = 100;

/// Assumed memory where its size cannot be determined.
const MEMORY_BYTES_UNKNOWN: u64 = 2048 * MIB;
const _: () = assert!(MEMORY_BYTES_UNKNOWN / SHARE / MIB >= QUOTA_MIB_MIN, "the least is enough");

/// Quota in MiB of each of `buckets` new buckets.
pub(super) fn quota_mib(buckets: usize) -> u64 {
    share_mib(memory_of_process().unwrap_or(MEMORY_BYTES_UNKNOWN), buckets)
}

fn share_mib(memory_bytes: u64, buckets: usize) -> u64 {
    (memory_bytes / SHARE / buckets.max(1) as u64 / MIB).max(QUOTA_MIB_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_share_half() {
        assert_eq!(share_mib(8192 * MIB, 1), 4096);
        assert_eq!(share_mib(8192 * MIB, 4), 1024);
        assert_eq!(share_mib(8192 * MIB, 0), 4096);
        assert_eq!(share_mib(64 * MIB, 1), QUOTA_MIB_MIN);
        assert!(quota_mib(1) >= QUOTA_MIB_MIN);
    }
}
