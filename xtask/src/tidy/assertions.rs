//! Rule: a crate asserts what it relies on.
//!
//! [`FLOORS`] has the assertions of a hundred functions of product code, `const` assertions and
//! those of debug builds among them. A floor only rises. Functions without a body, tests, harnesses
//! and stores for tests do not count.

use super::code_mask::code_only;
use super::finding::Finding;
use super::source_tree::{SourceFile, SourceTree};

/// Sources of a crate, and its assertions per hundred functions.
const FLOORS: [(&str, usize); 9] = [
    ("crates/core/engine/src/", 50),
    ("crates/core/storage/src/", 50),
    ("crates/server/admin/src/", 20),
    ("crates/server/auth/src/", 20),
    ("crates/server/cluster/src/", 20),
    ("crates/server/config/src/", 20),
    ("crates/server/data/src/", 20),
    ("crates/server/query/src/", 20),
    ("crates/server/replication/src/", 20),
];

/// Directories and files that no server runs.
const HARNESSES: [&str; 12] = [
    "/tests/",
    "/harness/",
    "/simulation/",
    "/testing/",
    "/models/",
    "/conformance/",
    "/fault_store/",
    "bucket/invariants.rs",
    "storage/src/forward.rs",
    "/memory_store.rs",
    "/shared_memory_store.rs",
    "/null_store.rs",
];

/// Modules of harnesses and tests.
const HARNESS_FILES: [&str; 9] = [
    "tests.rs",
    "harness.rs",
    "simulation.rs",
    "models.rs",
    "conformance.rs",
    "fault_store.rs",
    "testing.rs",
    "planted.rs",
    "sim_files.rs",
];

pub(super) fn check(tree: &SourceTree, findings: &mut Vec<Finding>) {
    for (sources, floor) in FLOORS {
        let root = format!("{sources}lib.rs");
        if tree.text(&root).is_none() {
            continue;
        }
        let (assertions, functions) = counted(tree, sources);
        if assertions * 100 < floor * functions {
            let message = format!(
                "{assertions} assertions in {functions} functions, less than {floor} of 100: \
                 assert what the new functions rely on"
            );
            findings.push(Finding::new(&root, 1, message));
        }
    }
}

/// Assertions and functions below `sources`.
fn counted(tree: &SourceTree, sources: &str) -> (usize, usize) {
    let is_product = |file: &&SourceFile| file.path.starts_with(sources) && !is_harness(file);
    let (mut assertions, mut functions) = (0, 0);
    for file in tree.files().iter().filter(is_product) {
        let code = code_only(&file.text);
        // The tests of a file stand at its end.
        let product = code.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let kinds = ["assert!(", "assert_eq!(", "assert_ne!("];
        assertions += kinds.map(|kind| product.matches(kind).count()).iter().sum::<usize>();
        functions += functions_in(product);
    }
    (assertions, functions)
}

fn is_harness(file: &SourceFile) -> bool {
    !file.has_extension("rs")
        || HARNESS_FILES.contains(&file.name())
        || HARNESSES.iter().any(|part| file.path.contains(part))
}

/// Functions with a body.
fn functions_in(code: &str) -> usize {
    let is_word = |character: char| character.is_alphanumeric() || character == '_';
    let has_body = |signature: &str| {
        let mut depth = 0;
        for character in signature.chars() {
            match character {
                '(' | '[' => depth += 1,
                ')' | ']' => depth -= 1,
                '{' if depth == 0 => return true,
                ';' if depth == 0 => return false,
                _ => {}
            }
        }
        false
    };
    let starts = code.match_indices("fn ").filter(|(at, _)| !code[..*at].ends_with(is_word));
    let named = starts.filter(|(at, _)| code[at + 3..].starts_with(is_word));
    named.filter(|(at, _)| has_body(&code[at + 3..])).count()
}
