//! Services of the operating system that the programs use.
//!
//! Owns: the wall clock, random bytes, the process's memory limit, trimming of its heap, small
//! files that survive a crash, and the data directory with its format and lock. Callers: the
//! server's crates and the tools. The log store has its own directory and files; threads belong to
//! `oribi-supervisor`.

// `heap` makes a system call. No other module may use `unsafe`.
#![deny(unsafe_code)]

pub mod clock;
pub mod data_dir;
pub mod data_file;
#[allow(unsafe_code, reason = "a system call")]
pub mod heap;
pub mod memory;
pub mod random;
