//! `oribi config`: the configuration that `oribi serve` would use with the same flags.
//!
//! It owns only the choice of the output format; `oribi-config` resolves and prints.

use clap::{Arg, ArgAction, ArgMatches, Command};
use oribi_config::{ResolvedSettings, arguments, misspelt_variables, resolve, to_json, to_toml};

use crate::print;

pub fn command() -> Command {
    Command::new("config")
        .about("Print the effective configuration and where each value comes from")
        .after_help(
            "Examples:\n  oribi config\n  oribi config --config /etc/oribi/oribi.toml --json",
        )
        .args(arguments())
        .arg(
            Arg::new("json")
                .long("json")
                .action(ArgAction::SetTrue)
                .help("Print JSON instead of TOML"),
        )
}

pub fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    let resolved = resolve_here(matches)?;
    for (name, nearest) in misspelt_here() {
        eprintln!("oribi: nothing reads the environment variable {name}; {nearest} resembles it");
    }
    print::text(match matches.get_flag("json") {
        true => format!("{:#}\n", to_json(&resolved)),
        false => to_toml(&resolved),
    })
}

/// Resolves the settings with the environment of this process.
pub fn resolve_here(matches: &ArgMatches) -> anyhow::Result<ResolvedSettings> {
    Ok(resolve(matches, |name| std::env::var_os(name))?)
}

/// The variables of this process that nothing reads and that resemble one that is read.
pub fn misspelt_here() -> Vec<(String, String)> {
    misspelt_variables(std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()))
}
