//! The client against scripted servers, one test program because linking is what costs.

mod bad_server;
mod cluster;
mod dcp;
mod documents;
mod reconnect;
mod scripted_server;
#[path = "../support/mod.rs"]
mod support;
