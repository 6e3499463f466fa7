//! The `oribi-tools` program, which `oribi` executes for its tools; the crate `oribi-tools` is all
//! of it.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    oribi_tools::program::main()
}
