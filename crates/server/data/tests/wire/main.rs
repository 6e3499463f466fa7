//! What clients send and get, byte for byte, over every transport; one test program because linking
//! is what costs.

mod pipelined;
mod replay_connection_corpus;
mod replay_consumer_corpus;
mod transport;
