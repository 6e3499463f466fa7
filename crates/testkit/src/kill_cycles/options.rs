//! Options of a run of kill cycles.

use crate::ServerOptions;

/// Options of a run of kill cycles.
#[derive(Clone, Debug)]
pub struct KillOptions {
    /// The server, on a directory that belongs to the test.
    pub server: ServerOptions,
    /// Seed of every choice.
    pub seed: u64,
    /// Threads that write, each on its own connection.
    pub writers: u64,
    /// Documents of each writer.
    pub documents_per_writer: u64,
    /// Longest value that is written in one piece, in bytes.
    pub value_bytes_max: u64,
    /// Most acknowledgements before the server is killed.
    pub acknowledgements_max: u64,
    /// One in this many cycles ends with an orderly stop instead; 0 for none.
    pub clean_stop_one_in: u64,
    /// Whether several servers can share the store, so that every start begins new histories.
    pub store_is_shared: bool,
}

impl KillOptions {
    /// Four writers with two hundred documents each, and an orderly stop in sixteen cycles.
    pub fn new(server: ServerOptions, seed: u64) -> KillOptions {
        KillOptions {
            server,
            seed,
            writers: 4,
            documents_per_writer: 200,
            value_bytes_max: 2000,
            acknowledgements_max: 1500,
            clean_stop_one_in: 16,
            store_is_shared: false,
        }
    }

    /// So many documents that a bucket of 8 MiB has to evict most of them.
    pub fn larger_than_memory(self) -> KillOptions {
        KillOptions { documents_per_writer: 4000, value_bytes_max: 4000, ..self }
    }
}
