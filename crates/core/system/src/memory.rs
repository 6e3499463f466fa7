//! How much memory this process may use: the machine's, or the limit of its control group.

use std::fs;
use std::path::Path;

/// Memory that this process may use, if its size can be determined.
pub fn memory_of_process() -> Option<u64> {
    memory_bytes(Path::new("/"))
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
        assert_eq!(machine(&[MEMINFO]), Some(16 << 20));
        assert_eq!(machine(&[MEMINFO, ("sys/fs/cgroup/memory.max", "max\n")]), Some(16 << 20));
        assert_eq!(machine(&[MEMINFO, ("sys/fs/cgroup/memory.max", "4096\n")]), Some(4096));
        let old = ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(machine(&[MEMINFO, old]), Some(16 << 20));
        let group = ("proc/self/cgroup", "1:cpu:/x\n0::/a/b\n");
        let limit = ("sys/fs/cgroup/a/b/memory.max", "8192\n");
        assert_eq!(machine(&[MEMINFO, group, limit]), Some(8192));
        assert_eq!(machine(&[("proc/meminfo", "nothing of use")]), None);
    }
}
