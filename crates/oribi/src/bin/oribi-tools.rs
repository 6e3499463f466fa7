//! The `oribi-tools` program, which `oribi` executes for its tools; all its code is in the crate
//! `oribi-tools`.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    oribi_tools::program::main()
}
