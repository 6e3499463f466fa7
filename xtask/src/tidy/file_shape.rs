//! Rule: a Rust file opens with a `//!` header and is not longer than one noun needs.
//!
//! The header says what the file owns and what it deliberately leaves to others; a reader who
//! opens one file in the middle of the tree needs exactly that. Length is a proxy: past the limit
//! there is nearly always a second noun inside.

use super::finding::Finding;
use super::source_tree::SourceFile;

/// Longest allowed source file, in lines.
pub(super) const LINES_MAX: usize = 600;
/// Longest allowed file of tests, in lines: many short cases stay readable in one file.
pub(super) const TEST_LINES_MAX: usize = 800;

pub(super) fn check(file: &SourceFile, findings: &mut Vec<Finding>) {
    if !file.text.starts_with("//!") {
        findings.push(Finding::new(
            &file.path,
            1,
            "does not open with a `//!` header (what it owns, invariants, callers, what it leaves out)",
        ));
    }
    let lines = file.text.lines().count();
    let lines_max = if is_test_file(file) { TEST_LINES_MAX } else { LINES_MAX };
    if lines > lines_max {
        findings.push(Finding::new(
            &file.path,
            lines_max + 1,
            format!("has {lines} lines, more than {lines_max}: is there a second noun inside?"),
        ));
    }
}

fn is_test_file(file: &SourceFile) -> bool {
    file.name() == "tests.rs" || file.path.contains("/tests/")
}
