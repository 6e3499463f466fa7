//! The server: sockets, connections, dispatch, authentication, admin HTTP, configuration, metrics.
//!
//! Owns: everything between a client's bytes and the engine. Code map: [`server`] puts the parts
//! together; `listener` accepts, `worker` polls, `connection` is one client as a state machine
//! without I/O, `dispatch` maps opcodes to engine calls and `status` maps outcomes to wire
//! statuses; [`buckets`] is the registry of tenants; [`cluster_config`] and `error_map` are the
//! documents that clients bootstrap from; [`auth`] identifies users, [`admin`] answers HTTP,
//! [`config`] resolves settings, [`data_dir`] locks the directory.
//!
//! Invariants: keys and values are the only wire bytes that the engine sees; no byte from a socket
//! makes this crate panic; workers share nothing per operation.

#![forbid(unsafe_code)]

pub mod admin;
pub mod auth;
pub mod bucket_settings;
pub mod buckets;
pub mod cluster;
pub mod cluster_config;
pub mod cluster_identity;
pub mod config;
pub mod counters;
pub mod data_dir;
pub mod file_error;
pub mod file_limit;
#[doc(hidden)]
pub mod harness;
pub mod metrics;
pub mod offline;
pub mod server;
pub mod server_context;
pub mod snapshot;
pub mod tls;

mod audit;
mod blocking_thread;
mod change_feed;
mod clock;
mod connection;
mod connection_memory;
mod connection_registry;
mod connection_state;
mod cpu_times;
mod dispatch;
mod environment;
mod error_map;
mod init;
mod job;
mod limits;
mod listener;
mod mailbox;
mod producer;
mod progress;
#[cfg(feature = "sql")]
mod query_store;
mod range_scans;
mod refusal_log;
mod request_id;
mod slow_operation_log;
#[cfg(feature = "sql")]
mod sql;
mod stat_cursor;
mod status;
mod worker;
mod write_buffer;

pub use init::{Administrator, InitError};
pub use progress::Progress;
pub use server::{Addresses, Server, StartError};
