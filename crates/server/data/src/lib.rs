//! The server: sockets, connections, dispatch, buckets, the cluster configuration and counters.
//!
//! Owns: everything between a client's bytes and the engine. [`server`] puts the parts together.
//! Code map, from the top; arrows go down:
//! - `runtime`: listener, workers, the driver of one connection, blocking threads;
//! - `dispatch`: request in, outcome out: rules, handlers, statuses, statistics;
//! - `dcp`: the DCP producer and its in-process reader;
//! - `connection`: features, rights, memory and output of one connection, the mailbox, TLS;
//! - [`buckets`]: the registry of buckets, their place on disk, range scans, offline reading;
//! - `diagnostics`: counters and logs.
//!
//! [`cluster_config`] is the document that clients bootstrap from; `oribi-auth` identifies users,
//! `oribi-config` resolves settings, and `oribi-admin` stands on [`admin_api`].
//!
//! Invariants: keys and values are the only wire bytes that the engine sees; no byte from a socket
//! makes this crate panic; workers share nothing per operation.

#![forbid(unsafe_code)]

pub mod admin_api;
pub mod bucket_settings;
pub mod buckets;
pub mod cluster_config;
#[doc(hidden)]
pub mod harness;
pub mod replication;
pub mod server;
pub mod server_context;

mod connection;
mod dcp;
mod diagnostics;
mod dispatch;
mod init;
mod limits;
mod runtime;
mod shared_users;
#[cfg(test)]
mod simulation;

pub use init::{Administrator, InitError};
pub use runtime::progress::Progress;
pub use server::{Addresses, Server, StartError};
