//! Rule: docs/invariants.md says what the annotations at the tests say, and each annotation stands
//! above a test.

use super::finding::Finding;
use super::invariants;
use super::source_tree::SourceTree;

pub(super) fn check(tree: &SourceTree, findings: &mut Vec<Finding>) {
    for file in tree.files().iter().filter(|file| file.has_extension("rs")) {
        for line in invariants::without_test(file) {
            let message = "no test follows this annotation".to_owned();
            findings.push(Finding::new(&file.path, line, message));
        }
    }
    let Some(page) = tree.text(invariants::PAGE) else { return };
    if page != invariants::rendered(tree) {
        let message = "stale: run `cargo xtask invariants`".to_owned();
        findings.push(Finding::new(invariants::PAGE, 1, message));
    }
}
