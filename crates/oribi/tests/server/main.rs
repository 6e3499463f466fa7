//! Tests of the whole server through its real binary: processes, sockets, directories.
//!
//! One test program for all of them, because linking is what costs. A module covers one promise of
//! the server; [`fixture`] starts what they need. Tests run in parallel, each with a server, a data
//! directory and its own ports, and wait by polling only.

// A helper that fails fails its test, which is all that `unwrap` does.
#![allow(clippy::unwrap_used)]

mod administration;
mod authentication;
mod bad_input;
mod buckets;
mod cache;
mod ci_kit;
mod client;
mod collections;
mod configuration;
mod connection_memory;
mod copies;
mod crash;
mod dcp_memory;
mod disk_full;
mod documents;
mod durability;
mod durable_copies;
mod event_memory;
mod failover;
mod fixture;
mod flush_replays;
mod lifecycle;
mod memcached_place;
mod memory_bound;
mod memory_pressure;
mod model;
mod observability;
mod proxy_protocol;
mod query_indexes;
mod rebalance;
mod resize;
mod salvage;
mod service_manager;
mod shared_settings;
mod shared_users;
mod slow_clients;
mod statement_memory;
mod stream_memory;
mod stream_replays;
mod supervision;
mod text_differential;
mod tls;
mod user;
