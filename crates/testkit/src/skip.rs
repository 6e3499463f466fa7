//! Tests that are skipped for lack of a tool, and their summary.
//!
//! Owns the rule: such a test prints `SKIPPED` and passes, or fails if its `ORIBI_..._REQUIRED`
//! variable is set, as in CI. Each skip is also a line in a file next to the test binaries, one
//! file for each run of `cargo test`, whose process id names the run. The last binary of the
//! workspace, `xtask/tests/skipped.rs`, prints the file's summary and removes it.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::PathBuf;

/// Names the run for a test that another process than cargo starts.
pub(crate) const RUN: &str = "ORIBI_TEST_RUN";

/// Reports that the current test is skipped, because it needs `tool`; `how` says how to get it.
///
/// # Panics
/// When the variable `required` is set.
pub fn skip(required: &str, tool: &str, how: &str) {
    let is_required = env::var_os(required).is_some_and(|value| !value.is_empty());
    assert!(!is_required, "{required} is set, but there is no {tool}: {how}");
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    // Not eprintln!: the test runner hides the text of a test that passes.
    let _ = writeln!(io::stderr(), "SKIPPED: {test} needs {tool}: {how}");
    // The summary is a convenience; the line above is the report.
    if let Ok(mut file) =
        record().and_then(|path| File::options().append(true).create(true).open(path))
    {
        let _ = file.write_all(format!("{tool}: {how}\t{test}\n").as_bytes());
    }
}

/// The summary of this run's skipped tests, one line for each tool; `None` if none was skipped.
/// Removes the record.
pub fn take_summary() -> Option<String> {
    let path = record().ok()?;
    let lines = fs::read_to_string(&path).ok()?;
    let _ = fs::remove_file(path);
    Some(summary(&lines))
}

/// The run that this test belongs to.
pub(crate) fn run() -> String {
    env::var(RUN).unwrap_or_else(|_| std::os::unix::process::parent_id().to_string())
}

fn record() -> io::Result<PathBuf> {
    let binary = env::current_exe()?;
    // target/debug, above deps/.
    let directory = binary.ancestors().nth(2).ok_or(io::ErrorKind::NotFound)?;
    Ok(directory.join(format!("skipped-tests-{}", run())))
}

fn summary(lines: &str) -> String {
    let mut tests: BTreeMap<&str, usize> = BTreeMap::new();
    // A test may ask for its tool several times.
    for line in lines.lines().collect::<BTreeSet<_>>() {
        *tests.entry(line.split_once('\t').map_or(line, |(needs, _)| needs)).or_default() += 1;
    }
    let mut text = format!("SKIPPED {} tests. They need:\n", tests.values().sum::<usize>());
    for (needs, count) in tests {
        let _ = writeln!(text, "{count:5}  {needs}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::summary;

    #[test]
    fn summary_counts_tests_by_tool() {
        let lines = "Kudu: fetch it\tone\nKudu: fetch it\tone\netcd: install it\ttwo\nKudu: fetch it\tthree\n";
        let expected =
            "SKIPPED 3 tests. They need:\n    2  Kudu: fetch it\n    1  etcd: install it\n";
        assert_eq!(summary(lines), expected);
    }
}
