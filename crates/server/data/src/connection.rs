//! The parts of one client connection that do not depend on requests: user, negotiation, waits,
//! memory, output.
//!
//! Owns: the values that a connection negotiates, what it waits for, the registry of connections,
//! their memory budget, the waker of a worker, and TLS. Invariant: nothing here calls a handler or
//! a worker. The dispatcher changes these values, DCP reads them, and a worker drives the
//! connection.

pub(crate) mod close_reason;
pub(crate) mod continued_scan;
pub(crate) mod deferred;
pub(crate) mod features;
pub(crate) mod fetches;
pub mod file_limit;
pub(crate) mod held_answer;
pub(crate) mod latency_clock;
pub mod memory;
pub(crate) mod negotiation;
pub(crate) mod parked;
pub(crate) mod pending;
pub(crate) mod registry;
pub(crate) mod request_id;
pub mod rights;
pub(crate) mod selection;
pub(crate) mod send_buffer;
pub(crate) mod stat_cursor;
pub mod tls;
pub(crate) mod user;
pub(crate) mod waker;
