//! Figures of the process, under the names that every Prometheus client uses.
//!
//! Owns: the reading of `/proc/self`. A figure that cannot be read is left out. They are in a
//! separate registry, because their names have no prefix.

use std::fmt;
use std::fs;

use oribi_types::Timestamp;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use super::encoding::{encode_counter_f64, encode_gauge};
use oribi_server::admin_api::cpu_times::CpuTimes;

/// See the module text.
#[derive(Debug)]
pub(super) struct ProcessCollector {
    pub(super) started: Timestamp,
}

impl Collector for ProcessCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let started = f64::from(self.started.unix_s());
        let help = "Start of the server, in seconds since 1970";
        encode_gauge(&mut encoder, "process_start_time_seconds", help, started)?;
        if let Some(times) = CpuTimes::of_process() {
            let seconds = times.user_s + times.system_s;
            let help = "User and system time of all threads";
            encode_counter_f64(&mut encoder, "process_cpu_seconds", help, seconds)?;
        }
        let status = read("status").unwrap_or_default();
        let sizes = [
            ("process_resident_memory_bytes", "Bytes of resident memory", "VmRSS:"),
            ("process_virtual_memory_bytes", "Bytes of mapped memory", "VmSize:"),
        ];
        for (name, help, line) in sizes {
            if let Some(bytes) = kib_of(&status, line).map(|kib| kib * 1024) {
                encode_gauge(&mut encoder, name, help, bytes)?;
            }
        }
        if let Ok(files) = fs::read_dir("/proc/self/fd") {
            let open = files.count() as u64;
            encode_gauge(&mut encoder, "process_open_fds", "Open file descriptors", open)?;
        }
        if let Some(most) = read("limits").and_then(|text| files_max(&text)) {
            let help = "File descriptors that the process may open";
            encode_gauge(&mut encoder, "process_max_fds", help, most)?;
        }
        Ok(())
    }
}

fn read(file: &str) -> Option<String> {
    fs::read_to_string(format!("/proc/self/{file}")).ok()
}

fn kib_of(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

/// The soft limit; `None` when there is none.
fn files_max(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{files_max, kib_of};

    #[test]
    fn the_kernels_files_are_read() {
        assert_eq!(kib_of("VmSize:\t  20 kB\nVmRSS:\t   12 kB\n", "VmRSS:"), Some(12));
        let limits = "Max open files            1024                 4096                 files\n";
        assert_eq!(files_max(limits), Some(1024));
        assert_eq!(files_max("Max open files   unlimited  unlimited  files"), None);
        assert_eq!(kib_of("", "VmRSS:"), None);
    }
}
