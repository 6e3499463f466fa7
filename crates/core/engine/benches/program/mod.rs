//! A bench as a program: arguments in, lines out.

use std::io::Write;
use std::process::ExitCode;

type Arguments = std::iter::Skip<std::env::Args>;

pub fn run(bench: impl FnOnce(Arguments, &mut dyn Write) -> Result<(), String>) -> ExitCode {
    match bench(std::env::args().skip(1), &mut std::io::stdout()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("{reason}");
            ExitCode::FAILURE
        }
    }
}
