//! The default memory quota of a bucket.
//!
//! Owns: how much memory this process may use, and a bucket's share of it. A server without
//! configuration should neither leave a machine idle nor push its neighbours out, so the first
//! buckets together get half of the memory. The share is computed when a bucket is created. From
//! then on it is a setting and does not follow the machine.

use std::fs;
use std::path::Path;

const MIB: u64 = 1 << 20;

/// Divisor of the memory that the buckets get.
const SHARE: u64 = 2;

/// Smallest quota chosen here: Couchbase's minimum for a bucket.
const QUOTA_MIB_MIN: u64 = 100;

/// Assumed memory where its size cannot be determined.
const MEMORY_BYTES_UNKNOWN: u64 = 2048 * MIB;

/// Quota in MiB of each of `buckets` new buckets.
pub(super) fn quota_mib(buckets: usize) -> u64 {
    share_mib(memory_of_process().unwrap_or(MEMORY_BYTES_UNKNOWN), buckets)
}

/// Memory that this process may use, if its size can be determined.
pub(crate) fn memory_of_process() -> Option<u64> {
    memory_bytes(Path::new("/"))
}

fn share_mib(memory_bytes: u64, buckets: usize) -> u64 {
    (memory_bytes / SHARE / buckets.max(1) as u64 / MIB).max(QUOTA_MIB_MIN)
}

/// The machine's memory, or the limit of the control group if that is lower. `root` is the file
/// system to read.
fn memory_bytes(root: &Path) -> Option<u64> {
    let read = |path: &str| fs::read_to_string(root.join(path)).ok();
    let machine = read("proc/meminfo").and_then(|text| total_of(&text));
    let group = read("proc/self/cgroup").and_then(|text| group_path(&text)).unwrap_or_default();
    let limits = [
        format!("sys/fs/cgroup{group}/memory.max"),
        "sys/fs/cgroup/memory.max".to_owned(),
        "sys/fs/cgroup/memory/memory.limit_in_bytes".to_owned(),
    ];
    let limits = limits.iter().filter_map(|path| read(path)?.trim().parse().ok());
    // "No limit" is the word "max", or a number beyond any machine.
    limits.chain(machine).min()
}

fn total_of(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// The path of the process in the unified hierarchy.
fn group_path(cgroup: &str) -> Option<String> {
    let path = cgroup.lines().find_map(|line| line.strip_prefix("0::"))?;
    Some(if path == "/" { String::new() } else { path.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(files: &[(&str, &str)]) -> Option<u64> {
        let scratch = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = scratch.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        memory_bytes(scratch.path())
    }

    const MEMINFO: (&str, &str) = ("proc/meminfo", "MemFree: 1 kB\nMemTotal:       16384 kB\n");

    #[test]
    fn the_tightest_limit_counts() {
        assert_eq!(machine(&[MEMINFO]), Some(16 * MIB));
        assert_eq!(machine(&[MEMINFO, ("sys/fs/cgroup/memory.max", "max\n")]), Some(16 * MIB));
        assert_eq!(machine(&[MEMINFO, ("sys/fs/cgroup/memory.max", "4096\n")]), Some(4096));
        let old = ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(machine(&[MEMINFO, old]), Some(16 * MIB));
        let group = ("proc/self/cgroup", "1:cpu:/x\n0::/a/b\n");
        let limit = ("sys/fs/cgroup/a/b/memory.max", "8192\n");
        assert_eq!(machine(&[MEMINFO, group, limit]), Some(8192));
        assert_eq!(machine(&[("proc/meminfo", "nothing of use")]), None);
    }

    #[test]
    fn buckets_share_half() {
        assert_eq!(share_mib(8192 * MIB, 1), 4096);
        assert_eq!(share_mib(8192 * MIB, 4), 1024);
        assert_eq!(share_mib(8192 * MIB, 0), 4096);
        assert_eq!(share_mib(64 * MIB, 1), QUOTA_MIB_MIN);
        assert!(quota_mib(1) >= QUOTA_MIB_MIN);
    }
}
