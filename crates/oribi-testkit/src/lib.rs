//! What tests of the whole server are made of: a process to start and kill, connections to talk to it
//! with exact bytes, and an oracle that knows what it may have forgotten.
//!
//! Owns no assertion about Oribi's behaviour itself; those stand in the tests. Everything here is
//! blocking and single-purpose, because a test should read as a list of steps. Waiting is always
//! polling with a deadline ([`poll_until`]); a deadline that passes is a failed test, never a slow one.
//! This crate is for development only and no shipped crate may depend on it.

#![warn(missing_docs)]

pub mod ack_log;
mod development_server;
mod etcd;
pub mod http;
pub mod kill_cycles;
mod kudu_cluster;
mod network;
mod poll;
mod process;
mod random;
pub mod raw_connection;
mod signal;
mod tcp_proxy;

pub use ack_log::AckLog;
pub use development_server::DevelopmentServer;
pub use etcd::EtcdServer;
pub use kudu_cluster::{
    KuduCluster, KuduOptions, KuduServer, SharedKuduCluster, ToolOutput, kudu_is_available,
};
pub use network::{Host, Network, inside_own_network};
pub use poll::{PATIENCE, poll_until};
pub use process::{ServerOptions, ServerProcess};
pub use random::Random;
pub use raw_connection::{Mutation, RawConnection, Request, Response};
pub use tcp_proxy::TcpProxy;
