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
    ("crates/core/engine/src/block_arena.rs", "memory of items and tables"),
    ("crates/core/engine/src/block_arena/", "memory of items and tables"),
    ("crates/core/engine/src/item.rs", "the reference-counted item block"),
    ("crates/core/engine/src/item/new_item.rs", "filling a block that only its maker sees"),
    ("crates/core/engine/src/item/", "the reference-counted item block"),
    ("crates/core/engine/src/grace_period.rs", "memory that waits for readers"),
    ("crates/core/engine/src/grace_period/", "memory that waits for readers"),
    ("crates/core/engine/src/hash_table.rs", "the hash table"),
    ("crates/core/engine/src/hash_table/", "the hash table"),
    ("crates/core/engine/src/vbucket_lock.rs", "how threads wait for a lock"),
    ("crates/core/engine/src/models/", "cells that the model checker watches, in tests only"),
    ("crates/core/storage/src/log_store/index/memory.rs", "memory of large tables of the index"),
    ("crates/core/storage/src/prefetch.rs", "the prefetch instruction"),
    ("crates/core/storage/tests/index_memory.rs", "a counting allocator, in tests only"),
    ("crates/core/storage/tests/scan_memory.rs", "a counting allocator, in tests only"),
    ("crates/kudu/storage/tests/scan_memory.rs", "a counting allocator, in tests only"),
    ("crates/core/system/src/heap.rs", "malloc_trim(3)"),
    ("crates/oribi/src/system_allocator.rs", "mallopt(3)"),
    ("crates/core/supervisor/src/short_slice.rs", "sched_setattr(2)"),
    ("crates/core/subdoc/src/byte_masks.rs", "vector instructions"),
    ("crates/core/subdoc/src/byte_masks/", "vector instructions"),
    ("crates/tools/client/tests/allocations.rs", "a counting allocator, in tests only"),
    ("crates/core/protocol/tests/allocations.rs", "a counting allocator, in tests only"),
    ("crates/server/data/tests/allocations.rs", "a counting allocator, in tests only"),
    ("crates/testkit/src/counting_allocator.rs", "an allocator for tests"),
    ("crates/testkit/src/kudu_cluster/launcher.rs", "prctl(2) between fork and exec"),
    ("crates/testkit/src/signal.rs", "kill(2)"),
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
