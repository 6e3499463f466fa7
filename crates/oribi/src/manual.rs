//! `oribi completions` and `oribi man`: shell completions and manual pages of the whole command
//! line.
//!
//! It owns the rendering; both read the same definition as the parser, so they cannot differ from
//! `--help`. Invariant: the output depends on the program alone, so packages are reproducible.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Arg, ArgMatches, Command, value_parser};
use clap_complete::Shell;
use clap_mangen::Man;

use crate::print;

const SHELL: &str = "shell";
const DIRECTORY: &str = "directory";

pub fn completions_command() -> Command {
    Command::new("completions")
        .about("Print completions for a shell")
        .after_help(
            "Examples:\n  source <(oribi completions bash)\n  \
             oribi completions fish > ~/.config/fish/completions/oribi.fish",
        )
        .arg(
            Arg::new(SHELL)
                .value_name("SHELL")
                .help("The shell")
                .required(true)
                .value_parser(value_parser!(Shell)),
        )
}

pub fn man_command() -> Command {
    Command::new("man")
        .about("Print the manual page, or write the pages of all subcommands")
        .after_help("Examples:\n  oribi man | man -l -\n  oribi man /usr/local/share/man/man1")
        .arg(
            Arg::new(DIRECTORY)
                .value_name("DIR")
                .help("Directory for oribi.1, oribi-serve.1, ...; created when missing")
                .value_parser(value_parser!(PathBuf)),
        )
}

/// Prints the completions of `program` for the chosen shell.
pub fn print_completions(matches: &ArgMatches, mut program: Command) -> anyhow::Result<()> {
    let shell = *matches.get_one::<Shell>(SHELL).expect("clap demands a shell");
    let mut script = Vec::new();
    let name = program.get_name().to_owned();
    clap_complete::generate(shell, &mut program, name, &mut script);
    print::text(script)
}

/// Prints the page of `program`, or writes all pages into the chosen directory.
pub fn write_manual(matches: &ArgMatches, program: Command) -> anyhow::Result<()> {
    match matches.get_one::<PathBuf>(DIRECTORY) {
        Some(directory) => write_pages(program, directory),
        None => {
            let mut text = Vec::new();
            page(program).render(&mut text).context("cannot render the manual page")?;
            print::text(text)
        }
    }
}

fn write_pages(program: Command, directory: &Path) -> anyhow::Result<()> {
    let mut program = program.disable_help_subcommand(true);
    // So that each subcommand knows its whole name.
    program.build();
    std::fs::create_dir_all(directory)
        .and_then(|()| write_pages_below(&program, directory))
        .and_then(|()| write_page_of_tools(directory))
        .with_context(|| format!("cannot write manual pages to {}", directory.display()))
}

fn write_pages_below(program: &Command, directory: &Path) -> std::io::Result<()> {
    page(program.clone()).generate_to(directory)?;
    let visible = program.get_subcommands().filter(|command| !command.is_hide_set());
    visible.into_iter().try_for_each(|command| write_pages_below(command, directory))
}

/// `oribi-tools` has the page of `oribi`, which executes it.
#[cfg(feature = "tools")]
fn write_page_of_tools(directory: &Path) -> std::io::Result<()> {
    let name = format!("{}.1", oribi_tools::program::NAME);
    std::fs::write(directory.join(name), ".so man1/oribi.1\n")
}

/// There is no such program.
#[cfg(not(feature = "tools"))]
fn write_page_of_tools(_: &Path) -> std::io::Result<()> {
    Ok(())
}

/// The page of one command. Its date is blank: a page changes with the version, not with a day.
fn page(program: Command) -> Man {
    Man::new(program).date(" ").source(concat!("oribi ", env!("CARGO_PKG_VERSION"))).manual("Oribi")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_visible_subcommand_has_a_page() {
        let directory = std::env::temp_dir().join(format!("oribi-man-{}", std::process::id()));
        let program = crate::command();
        let names: Vec<String> = program
            .get_subcommands()
            .filter(|command| !command.is_hide_set())
            .map(|command| command.get_name().to_owned())
            .collect();
        write_pages(program, &directory).unwrap();
        let whole = std::fs::read_to_string(directory.join("oribi.1")).unwrap();
        for name in names {
            assert!(whole.contains(&format!("oribi\\-{name}(1)")), "oribi.1 has no {name}");
            let page = std::fs::read_to_string(directory.join(format!("oribi-{name}.1"))).unwrap();
            assert!(page.contains(".SH SYNOPSIS"), "{name}: {page}");
            assert!(page.contains(&format!(".TH oribi-{name} 1 \" \" \"oribi ")), "{name}: {page}");
        }
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn completions_name_settings_of_serve() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut crate::command(), "oribi", &mut script);
            let script = String::from_utf8(script).unwrap();
            assert!(script.contains("memory-quota-mib"), "{shell}");
        }
    }
}
