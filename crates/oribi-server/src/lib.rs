//! The server: sockets, connections, dispatch, authentication, admin HTTP, configuration, metrics.
//!
//! Owns: everything between a client's bytes and the engine. Code map: [`server`] puts the parts
//! together; `listener` accepts, `worker` polls, `connection` is one client as a state machine without
//! I/O, `dispatch` maps opcodes to engine calls and `status` maps outcomes to wire statuses; [`buckets`]
//! is the registry of tenants; [`cluster_config`] and `error_map` are the documents that clients
//! bootstrap from; [`auth`] says who somebody is, [`admin`] answers HTTP, [`config`] resolves settings,
//! [`data_dir`] locks the directory. Invariants: the engine sees no wire byte but keys and values; no
//! byte from a socket makes anything here panic; nothing is shared between workers per operation.

#![forbid(unsafe_code)]

pub mod admin;
pub mod auth;
pub mod buckets;
pub mod cluster;
pub mod cluster_config;
pub mod config;
pub mod counters;
pub mod data_dir;
#[doc(hidden)]
pub mod harness;
pub mod metrics;
pub mod offline;
pub mod server;
pub mod server_context;
pub mod tls;

mod audit;
mod blocking_thread;
mod connection;
mod connection_registry;
mod dispatch;
mod environment;
mod error_map;
mod limits;
mod listener;
mod mailbox;
mod range_scans;
mod refusal_log;
mod slow_operation_log;
mod status;
mod worker;

pub use server::{Addresses, Server, StartError};
