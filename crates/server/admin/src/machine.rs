//! Memory, processor time and disk of the machine, for monitors.
//!
//! Owns: the reading of `/proc/meminfo`, `/proc/stat` and the file system. A figure that cannot be
//! read is `None` and is left out of answers. It blocks for a system call each. Caller:
//! `monitoring`.

use std::fs;
use std::path::Path;

/// Bytes of memory and swap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct MachineMemory {
    /// Memory of the machine.
    pub(super) total: u64,
    /// Of this, available to programs: free memory, and caches that the kernel can reclaim.
    pub(super) available: u64,
    pub(super) swap_total: u64,
    /// Of this, in use.
    pub(super) swap_used: u64,
}

/// Bytes of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Disk {
    pub(super) total: u64,
    /// Rights of this process to write.
    pub(super) free: u64,
    pub(super) used: u64,
}

/// Processor time of the machine since it booted, in ticks of all processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProcessorTime {
    pub(super) total: u64,
    /// Of this, without work.
    pub(super) idle: u64,
}

pub(super) fn memory() -> Option<MachineMemory> {
    parse_memory(&fs::read_to_string("/proc/meminfo").ok()?)
}

pub(super) fn processor_time() -> Option<ProcessorTime> {
    parse_processor_time(&fs::read_to_string("/proc/stat").ok()?)
}

/// The file system of a directory.
pub(super) fn disk(directory: &Path) -> Option<Disk> {
    let found = rustix::fs::statvfs(directory).ok()?;
    let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
    let disk = Disk {
        total: bytes(found.f_blocks),
        free: bytes(found.f_bavail),
        used: bytes(found.f_blocks.saturating_sub(found.f_bfree)),
    };
    debug_assert!(disk.used <= disk.total, "used bytes are a part of all");
    Some(disk)
}

fn parse_memory(text: &str) -> Option<MachineMemory> {
    let bytes = |name: &str| -> Option<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
    };
    let swap_total = bytes("SwapTotal").unwrap_or(0);
    let memory = MachineMemory {
        total: bytes("MemTotal")?,
        available: bytes("MemAvailable")?,
        swap_total,
        swap_used: swap_total.saturating_sub(bytes("SwapFree").unwrap_or(0)),
    };
    debug_assert!(memory.swap_used <= memory.swap_total, "used bytes are a part of all");
    Some(memory)
}

/// The line `cpu`: user, nice, system, idle, iowait and more. Time of guests is in user.
fn parse_processor_time(text: &str) -> Option<ProcessorTime> {
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Option<Vec<u64>> =
        line.split_whitespace().take(8).map(|tick| tick.parse().ok()).collect();
    let ticks = ticks?;
    let idle = ticks.get(3)?.saturating_add(*ticks.get(4)?);
    let total = ticks.iter().fold(0, |sum: u64, tick| sum.saturating_add(*tick));
    debug_assert!(idle <= total, "idle time is a part of all time");
    Some(ProcessorTime { total, idle })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_files_are_read() {
        let text = "MemTotal:  16 kB\nMemFree: 1 kB\nMemAvailable:   8 kB\nSwapTotal: 4 kB\n\
                    SwapFree: 3 kB\n";
        let expected = MachineMemory {
            total: 16 << 10,
            available: 8 << 10,
            swap_total: 4 << 10,
            swap_used: 1 << 10,
        };
        assert_eq!(parse_memory(text), Some(expected));
        assert_eq!(parse_memory("MemTotal: 16 kB\n"), None);
        let stat = "cpu  10 1 5 80 3 0 1 0 7 0\ncpu0 1 2 3 4 5 6 7 8 9 10\n";
        let expected = ProcessorTime { total: 100, idle: 83 };
        assert_eq!(parse_processor_time(stat), Some(expected));
        for text in ["", "cpu 1 2 3\n", "cpu a b c d e\n"] {
            assert_eq!(parse_processor_time(text), None, "{text}");
        }
    }

    #[test]
    fn the_disk_of_a_directory_is_read() {
        let disk = disk(Path::new("/")).unwrap();
        assert!(disk.total >= disk.used && disk.total >= disk.free, "{disk:?}");
        assert_eq!(super::disk(Path::new("/no/such/directory")), None);
    }
}
