//! Rule: a test that a document names exists.
//!
//! Documents name tests as `` `path/file.rs::test` ``, or `` `path/steps.py::STEP` `` where a suite
//! is no Rust. A row of COMPAT.md or an invariant of ARCHITECTURE.md stays true only as long as its
//! test is there.

use super::finding::Finding;
use super::source_tree::{SourceFile, SourceTree};

pub(super) fn check(file: &SourceFile, tree: &SourceTree, findings: &mut Vec<Finding>) {
    for (index, line) in file.text.lines().enumerate() {
        // The spans of code in a line are between its odd and even backticks.
        for span in line.split('`').skip(1).step_by(2) {
            let Some((path, test)) = named_test(span) else { continue };
            let message = match tree.text(path) {
                None => format!("`{span}` names no source file"),
                Some(text) if !defines(path, text, test) => format!("`{span}` names no test"),
                Some(_) => continue,
            };
            findings.push(Finding::new(&file.path, index + 1, message));
        }
    }
}

/// Path and name, when a span of code names a test. A path of Rust has no file suffix and is none.
fn named_test(span: &str) -> Option<(&str, &str)> {
    let (path, test) = span.split_once("::")?;
    let is_file = path.contains('/') && path.rsplit('/').next()?.contains('.');
    (is_file && !test.is_empty()).then_some((path, test))
}

fn defines(path: &str, text: &str, test: &str) -> bool {
    if !path.ends_with(".rs") {
        return text.contains(test);
    }
    text.match_indices("fn ").any(|(at, keyword)| {
        let rest = &text[at + keyword.len()..];
        rest.strip_prefix(test).is_some_and(|rest| rest.starts_with(['(', '<']))
    })
}
