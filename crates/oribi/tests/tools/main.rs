//! Tests of the tools through their real binary, most of them against a running server.
//!
//! One test program for all of them, because linking is what costs. A module covers one command.

mod backup;
mod doc;
mod manage;
mod perf;
mod programs;
mod query;
mod stats;
mod watch;
