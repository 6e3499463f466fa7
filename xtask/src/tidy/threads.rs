//! Rule: the server starts threads through its supervisor only.
//!
//! A thread that is started otherwise has no policy for a panic, and its waiters never return.
//! Tests, benches and programs that are clients have nothing to supervise.

use super::code_mask::code_only;
use super::finding::Finding;
use super::source_tree::SourceFile;

/// Functions that start a thread, in two halves, so that this file does not find itself.
const STARTS: [&str; 2] = [concat!("thread::", "spawn("), concat!("thread::", "Builder")];

/// Directories that are linked into the server and watched.
const WATCHED: [&str; 11] = [
    "crates/core/types/src/",
    "crates/core/system/src/",
    "crates/core/storage/src/",
    "crates/kudu/storage/src/",
    "crates/core/engine/src/",
    "crates/core/tls/src/",
    "crates/server/auth/src/",
    "crates/server/config/src/",
    "crates/server/data/src/",
    "crates/server/admin/src/",
    "crates/oribi/src/",
];

pub(super) fn check(file: &SourceFile, findings: &mut Vec<Finding>) {
    if !is_watched(&file.path) {
        return;
    }
    let code = code_only(&file.text);
    // The tests of a file stand at its end.
    let shipped = code.find("#[cfg(test)]\nmod tests {").map_or(code.as_str(), |at| &code[..at]);
    for (index, line) in shipped.lines().enumerate() {
        if STARTS.iter().any(|start| line.contains(start)) {
            let message = "starts a thread that nobody watches; use `oribi_supervisor::spawn`";
            findings.push(Finding::new(&file.path, index + 1, message));
        }
    }
}

fn is_watched(path: &str) -> bool {
    let is_test = path.contains("/tests/") || path.ends_with("/tests.rs");
    // Threads of the model checker.
    let is_model = path.starts_with("crates/core/engine/src/models");
    let is_server = WATCHED.iter().any(|directory| path.starts_with(directory));
    is_server && !is_test && !is_model
}
