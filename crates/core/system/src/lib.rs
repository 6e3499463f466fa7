//! What the programs ask of their operating system.
//!
//! Owns: the wall clock, random bytes, the memory limit of the process, small files that survive a
//! crash, and the data directory with its format and lock. Callers: the server's crates and the
//! tools. The log store has its own directory and files; threads belong to `oribi-supervisor`.

#![forbid(unsafe_code)]

pub mod clock;
pub mod data_dir;
pub mod data_file;
pub mod memory;
pub mod random;
