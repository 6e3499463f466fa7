//! Prefetch: loads of cache lines, started early and side by side.
//!
//! A look-up in a table larger than the caches is two dependent misses, then one for each line of
//! the value. Alone they cost 300 to 500 ns. Interleaved with those of its neighbours they are
//! mostly hidden, because the processor keeps ten and more loads in flight. So a caller that knows
//! several keys ahead, as a pipelined connection does, takes each through two steps before it is
//! served: [`crate::Bucket::announce`] hashes the key and starts loading its group of the hash
//! table, and some keys later [`crate::Bucket::locate`] reads the group and starts loading the item
//! whose tag fits. The hash is kept in the [`crate::KeyAhead`], so that the operation does not
//! compute it again.
//!
//! A prefetch decides nothing: a wrong hint costs one cache line. The address of a group is read
//! without the table's lock and may be stale. Called by the server's connections, by warmup, and by
//! DCP streams, which already have their next changes. The instruction itself is in
//! `oribi-storage`, which looks ahead as well.

pub(crate) use oribi_storage::prefetch::{load_line, load_line_to_write, load_lines};
