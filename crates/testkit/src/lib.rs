//! Building blocks for tests of the whole server: a process to start and kill, connections that
//! send exact bytes, and an oracle that knows which writes a crash may lose.
//!
//! Owns no assertion about Oribi's behaviour itself; those are in the tests. Everything here is
//! blocking and single-purpose, because a test should read as a list of steps. Waiting is always
//! polling with a deadline ([`poll_until`]); a deadline that passes is a failed test, never a slow
//! one. This crate is for development only and no shipped crate may depend on it.

pub mod ack_log;
mod counting_allocator;
mod development_server;
mod etcd;
mod failing_proxy;
pub mod http;
pub mod kill_cycles;
mod kudu_cluster;
mod memcached_server;
pub mod memory_soak;
mod network;
mod object_server;
mod poll;
mod process;
mod random;
pub mod raw_connection;
mod reserved_port;
mod seed;
mod signal;
mod skip;
mod stop_on_drop;
pub mod stream_connection;
pub mod stream_copy;
pub mod stream_log;
mod tcp_proxy;
pub mod text_differential;

pub use ack_log::AckLog;
pub use counting_allocator::CountingAllocator;
pub use development_server::DevelopmentServer;
pub use etcd::EtcdServer;
pub use failing_proxy::{FailingProxy, ProxyFault};
pub use kudu_cluster::{
    KuduCluster, KuduOptions, KuduServer, SharedKuduCluster, ToolOutput, kudu_is_available,
};
pub use memcached_server::MemcachedServer;
pub use network::{Host, Network, inside_own_network};
pub use object_server::{ObjectServer, ObjectServerKind};
pub use poll::{PATIENCE, poll_until};
pub use process::{ServerOptions, ServerProcess};
pub use random::Random;
pub use raw_connection::{Mutation, RawConnection, Request, Response};
pub use reserved_port::ReservedPort;
pub use seed::seed;
pub use skip::{skip, take_summary as take_skipped_summary};
pub use stop_on_drop::StopOnDrop;
pub use stream_connection::StreamConnection;
pub use stream_copy::StreamCopy;
pub use stream_log::StreamLog;
pub use tcp_proxy::TcpProxy;
