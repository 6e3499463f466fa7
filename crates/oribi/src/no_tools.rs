//! Replaces the tools in a build without them: no help lists them, and each says how to get it.

use std::process::ExitCode;

use anyhow::bail;
use clap::{Arg, ArgMatches, Command};

/// Names of the tools.
const NAMES: [&str; 13] = [
    "doc",
    "bucket",
    "scope",
    "collection",
    "node",
    "backup",
    "copy",
    "stats",
    "perf",
    "ping",
    "top",
    "watch",
    "sql",
];

/// Subcommands that take any arguments, so that every use of a tool reaches [`run`].
pub fn commands() -> [Command; 13] {
    let anything =
        Arg::new("anything").num_args(0..).trailing_var_arg(true).allow_hyphen_values(true);
    NAMES.map(|name| Command::new(name).hide(true).disable_help_flag(true).arg(anything.clone()))
}

/// Says that the tool `name` is not here.
pub fn run(name: &str, _: &ArgMatches) -> anyhow::Result<ExitCode> {
    bail!(
        "this build runs servers only and has no `oribi {name}`; `cargo build --release -p oribi` \
         builds it with all tools"
    )
}

/// Users of a running server, which a build without tools does not reach.
#[cfg(not(feature = "tools"))]
pub mod users {
    use anyhow::bail;
    use clap::{ArgMatches, Command};
    use oribi_server::auth::Role;

    /// The users are those of the data directory.
    pub const ARE_REACHABLE: bool = false;

    /// A user as it is listed.
    pub struct User {
        pub name: String,
        pub roles: Vec<String>,
        pub bucket: Option<String>,
        pub collection: Option<String>,
    }

    /// What changes; `None` stays.
    pub struct Change {
        pub password: Option<Vec<u8>>,
        pub roles: Option<Vec<Role>>,
        pub bucket: Option<String>,
        pub collection: Option<String>,
    }

    /// There is none.
    pub enum UserServer {}

    pub fn with_arguments(command: Command) -> Command {
        command
    }

    pub fn names_server(_: &ArgMatches) -> bool {
        false
    }

    impl UserServer {
        pub fn of(_: &ArgMatches) -> anyhow::Result<UserServer> {
            bail!("this build reaches no servers: use --data-dir")
        }

        pub fn list(&self) -> anyhow::Result<Vec<User>> {
            match *self {}
        }

        pub fn change(&self, _: &str, _: Change, _: bool) -> anyhow::Result<()> {
            match *self {}
        }

        pub fn remove(&self, _: &str) -> anyhow::Result<()> {
            match *self {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_use_of_a_tool_is_answered() {
        let command = Command::new("oribi").subcommands(commands());
        for arguments in [&["doc"][..], &["perf", "kv", "-I", "5"], &["top", "--help"]] {
            let arguments = [&["oribi"], arguments].concat();
            let matches = command.clone().try_get_matches_from(&arguments).unwrap();
            let (name, matches) = matches.subcommand().unwrap();
            let error = run(name, matches).unwrap_err().to_string();
            assert!(error.contains(&format!("`oribi {}`", arguments[1])), "{error}");
        }
    }

    #[cfg(feature = "tools")]
    #[test]
    fn the_names_are_those_of_the_tools() {
        assert_eq!(oribi_tools::commands().map(|command| command.get_name().to_owned()), NAMES);
    }
}
