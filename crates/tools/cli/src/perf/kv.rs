//! `oribi perf kv`: writes and reads documents as fast as requested, and verifies all reads.
//!
//! Its own cost must be small against the server's: one event loop per thread, no locks and no
//! allocation per operation. A batch of requests takes one system call, and all arrived answers
//! take one. It uses only the key-value protocol, so it works against any server that speaks it,
//! with `--memcached` against any server of the memcached binary protocol, and with `--protocol`
//! against any server of memcached's text protocol or meta commands.
//!
//! [`worker`] is the loop; [`link`] sends a batch and checks its answers; [`wire`] is a connection
//! in one of the protocols; [`mod@run`] is the order of steps.

mod alarm;
mod choices;
mod cluster;
mod flight;
mod key;
mod link;
mod operation;
mod options;
mod pace;
mod protocol;
mod request;
mod run;
mod schedule;
mod summary;
mod tally;
mod value;
mod wire;
mod worker;

pub use options::KvArgs;
pub use run::run;
