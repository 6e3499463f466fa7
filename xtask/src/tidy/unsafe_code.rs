//! Rule: the keyword `unsafe` stands only in files that are listed here.
//!
//! The list is the whole of the code that a reviewer has to read with pointers in mind, and the
//! whole of what the sanitizer runs have to cover. Adding a line is a decision, not a formality:
//! the entry says what the file needs it for.

use super::code_mask::code_only;
use super::finding::Finding;
use super::markers::contains_word;
use super::source_tree::SourceFile;

/// Files and directories (with a closing slash) in which the keyword may stand, and what for.
const ALLOWED: &[(&str, &str)] = &[
    ("crates/oribi-engine/benches/block_cost/", "blocks of the arena and of the system, timed"),
    ("crates/oribi-engine/src/block_arena.rs", "memory of items and tables"),
    ("crates/oribi-engine/src/block_arena/", "memory of items and tables"),
    ("crates/oribi-engine/src/item.rs", "the reference-counted item block"),
    ("crates/oribi-engine/src/item/", "the reference-counted item block"),
    ("crates/oribi-engine/src/grace_period.rs", "memory that waits for readers"),
    ("crates/oribi-engine/src/grace_period/", "memory that waits for readers"),
    ("crates/oribi-engine/src/hash_table.rs", "the hash table"),
    ("crates/oribi-engine/src/hash_table/", "the hash table"),
    ("crates/oribi-engine/src/vbucket_lock.rs", "how threads wait for a lock"),
    ("crates/oribi-engine/src/models/", "cells that the model checker watches, in tests only"),
    ("crates/oribi-storage/src/log_store/index/memory.rs", "memory of large tables of the index"),
    ("crates/oribi-storage/src/prefetch.rs", "the prefetch instruction"),
    ("crates/oribi-storage/tests/index_memory.rs", "a counting allocator, in tests only"),
    ("crates/oribi-storage/tests/scan_memory.rs", "a counting allocator, in tests only"),
    ("crates/oribi-storage-kudu/tests/scan_memory.rs", "a counting allocator, in tests only"),
    ("crates/oribi-sql/src/heap.rs", "malloc_trim(3)"),
    ("crates/oribi-sql/src/virtual_table.rs", "marker traits of virtual tables"),
    ("crates/oribi/src/system_allocator.rs", "mallopt(3)"),
    ("crates/oribi-supervisor/src/short_slice.rs", "sched_setattr(2)"),
    ("crates/oribi-subdoc/src/byte_masks.rs", "vector instructions"),
    ("crates/oribi-subdoc/src/byte_masks/", "vector instructions"),
    ("crates/oribi-client/tests/allocations.rs", "a counting allocator, in tests only"),
    ("crates/oribi-protocol/tests/allocations.rs", "a counting allocator, in tests only"),
    ("crates/oribi-server/tests/allocations.rs", "a counting allocator, in tests only"),
    ("crates/oribi-kudu/benches/batch_drop/heap_rows.rs", "the prefetch instruction, in a bench"),
    ("crates/oribi-testkit/src/kudu_cluster/launcher.rs", "prctl(2) between fork and exec"),
    ("crates/oribi-testkit/src/signal.rs", "kill(2)"),
];

pub(super) fn check(file: &SourceFile, findings: &mut Vec<Finding>) {
    if is_allowed(&file.path) || !file.text.contains("unsafe") {
        return;
    }
    for (index, line) in code_only(&file.text).lines().enumerate() {
        if contains_word(line, "unsafe") {
            findings.push(Finding::new(
                &file.path,
                index + 1,
                "`unsafe` in a file that is not listed in xtask/src/tidy/unsafe_code.rs",
            ));
        }
    }
}

fn is_allowed(path: &str) -> bool {
    ALLOWED.iter().any(|(allowed, _)| {
        if allowed.ends_with('/') { path.starts_with(allowed) } else { path == *allowed }
    })
}
