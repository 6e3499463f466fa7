//! Requests and answers byte for byte over every transport. One test program, because linking
//! dominates the build time.

mod pipelined;
mod replay_connection_corpus;
mod replay_consumer_corpus;
mod transport;
