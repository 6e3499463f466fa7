//! The tools, `oribi doc` and others: the program `oribi-tools`, which `oribi` executes.
//!
//! It owns how a tool is recognized and executed. The rule: `oribi-tools` is in the directory of
//! `oribi`, after symbolic links. Invariants: the tool replaces this process (`execve`), so process
//! ID, standard streams, signals and exit status are the tool's; it gets the same arguments, the
//! name included, and refuses to run for another version of `oribi`. A build without the feature
//! `tools` has none, and says so.

#[cfg(not(feature = "tools"))]
pub mod users;

use std::ffi::OsStr;
use std::process::ExitCode;

use anyhow::bail;
#[cfg(feature = "tools")]
pub use oribi_tools::{commands, users};

/// Names of the tools, in the order in which the help lists them.
const NAMES: [&str; 14] = [
    "doc",
    "bucket",
    "scope",
    "collection",
    "cluster",
    "node",
    "backup",
    "copy",
    "stats",
    "perf",
    "ping",
    "top",
    "watch",
    "query",
];

/// The tool that the first argument names.
pub fn named(first_argument: Option<&OsStr>) -> Option<&'static str> {
    NAMES.into_iter().find(|name| first_argument.is_some_and(|argument| argument == *name))
}

/// No help lists the tools of a build without them.
#[cfg(not(feature = "tools"))]
pub fn commands() -> [clap::Command; 0] {
    []
}

/// Executes the tool `name` with the arguments of this process. Returns only if that fails.
#[cfg(feature = "tools")]
pub fn run(name: &str) -> anyhow::Result<ExitCode> {
    use std::env;
    use std::io::ErrorKind;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    use anyhow::Context;
    use oribi_tools::program;

    let this =
        env::current_exe().context("cannot tell where this program is; is /proc mounted?")?;
    let tools = this.with_file_name(program::NAME);
    let mut arguments = env::args_os();
    let error = Command::new(&tools)
        .arg0(arguments.next().unwrap_or_else(|| "oribi".into()))
        .args(arguments)
        .env(program::VERSION_VARIABLE, env!("CARGO_PKG_VERSION"))
        .exec();
    let place = tools.display();
    if error.kind() == ErrorKind::NotFound {
        bail!(
            "`oribi {name}` needs the program {place}, which is missing; packages have it, and \
             `cargo build --release -p oribi` builds it"
        );
    }
    bail!("`oribi {name}` cannot execute {place}: {error}");
}

/// Says that the tool `name` is not here.
#[cfg(not(feature = "tools"))]
pub fn run(name: &str) -> anyhow::Result<ExitCode> {
    bail!(
        "this build runs servers only and has no `oribi {name}`; `cargo build --release -p oribi` \
         builds it with all tools"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_is_recognized_by_its_whole_name() {
        assert_eq!(named(Some(OsStr::new("doc"))), Some("doc"));
        for other in ["serve", "do", "docs", "--help", ""] {
            assert_eq!(named(Some(OsStr::new(other))), None, "{other}");
        }
        assert_eq!(named(None), None);
    }

    #[cfg(feature = "tools")]
    #[test]
    fn the_names_are_those_of_the_tools() {
        assert_eq!(commands().map(|command| command.get_name().to_owned()), NAMES);
        for command in commands() {
            assert_eq!(command.get_all_aliases().count(), 0, "{}", command.get_name());
        }
    }
}
