//! CPU time of another process by the names of its threads.
//!
//! A server's worker threads are what its clients wait for; flushing and compaction are not. The
//! system accounts each thread to the nanosecond, where a process is accounted in ticks. Threads of
//! one kind differ in a number at the end of their name and are summed up. A thread that ends
//! between two readings takes its time with it.

use std::collections::BTreeMap;
use std::fs::{read_dir, read_to_string};
use std::path::Path;

use anyhow::{Context, bail};

/// Nanoseconds by the name of a kind of thread.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ThreadTimes(BTreeMap<String, u64>);

impl ThreadTimes {
    /// All living threads of a process on this machine so far (Linux).
    pub fn of_process(pid: u32) -> anyhow::Result<ThreadTimes> {
        let path = format!("/proc/{pid}/task");
        let threads = read_dir(&path).with_context(|| format!("cannot read {path}"))?;
        let mut times = ThreadTimes::default();
        for thread in threads {
            let directory = thread.with_context(|| format!("cannot read {path}"))?.path();
            // A thread may end while this looks at it.
            if let Ok((name, ns)) = time_of_thread(&directory) {
                *times.0.entry(name).or_default() += ns;
            }
        }
        if times.0.is_empty() {
            bail!("{path} tells of no thread");
        }
        Ok(times)
    }

    /// The time since an earlier moment.
    pub fn since(&self, earlier: &ThreadTimes) -> ThreadTimes {
        let before = |name: &String| earlier.0.get(name).copied().unwrap_or(0);
        let since = |(name, &ns): (&String, &u64)| (name.clone(), ns.saturating_sub(before(name)));
        ThreadTimes(self.0.iter().map(since).collect())
    }

    /// Nanoseconds per operation of so many, which must not be 0.
    pub fn ns_per(&self, operations: u64) -> BTreeMap<String, f64> {
        let each = |(name, &ns): (&String, &u64)| (name.clone(), ns as f64 / operations as f64);
        self.0.iter().map(each).collect()
    }

    /// For tests of what shows times.
    #[cfg(test)]
    pub fn named<const KINDS: usize>(times: [(&str, u64); KINDS]) -> ThreadTimes {
        ThreadTimes(times.map(|(name, ns)| (name.to_owned(), ns)).into())
    }
}

fn time_of_thread(directory: &Path) -> anyhow::Result<(String, u64)> {
    let name = read_to_string(directory.join("comm"))?;
    let statistics = read_to_string(directory.join("schedstat"))?;
    let ns = statistics.split_ascii_whitespace().next().context("no time")?.parse()?;
    Ok((kind_of(&name), ns))
}

/// The name without the number at its end and what stands before that.
fn kind_of(name: &str) -> String {
    let without_number = name.trim().trim_end_matches(|letter: char| letter.is_ascii_digit());
    without_number.trim_end_matches(['-', '_', ' ']).to_owned()
}

#[cfg(test)]
mod tests {
    //! Threads of one kind are one entry, and what they do is seen.

    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn numbers_at_the_end_do_not_tell_kinds_apart() {
        let names = ["oribi-worker-0\n", "oribi-worker-12", "log-compaction", "mc-worker 3"];
        let kinds = names.map(kind_of);
        assert_eq!(kinds, ["oribi-worker", "oribi-worker", "log-compaction", "mc-worker"]);
    }

    #[test]
    fn differences_are_taken_by_name() {
        let before = ThreadTimes::named([("worker", 100), ("gone", 7)]);
        let after = ThreadTimes::named([("worker", 400), ("new", 50)]);
        let since = after.since(&before);
        assert_eq!(since, ThreadTimes::named([("worker", 300), ("new", 50)]));
        assert_eq!(since.ns_per(100)["worker"], 3.0);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_thread_that_works_is_seen_under_its_name() {
        let pid = std::process::id();
        let work = move || {
            let time_of =
                || ThreadTimes::of_process(pid).map(|times| times.0["busy"]).expect("it is alive");
            let (before, deadline) = (time_of(), Instant::now() + Duration::from_secs(10));
            // The system brings the account up to date at each of its ticks at the latest.
            while time_of() < before + 1_000_000 {
                assert!(Instant::now() < deadline, "ten seconds of work are not accounted for");
            }
        };
        let thread = std::thread::Builder::new().name("busy-7".to_owned()).spawn(work).unwrap();
        thread.join().unwrap();
        ThreadTimes::of_process(u32::MAX).expect_err("no such process");
    }
}
