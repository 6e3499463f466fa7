//! Sends the same random text and meta commands to Oribi and to memcached, and shows what they
//! answer differently: `cargo xtask soak text` builds and runs this.
//!
//! Without `--server` both servers are memcached, which checks the commands themselves. Progress
//! goes to standard error, differences to standard output; exit code 1 means that there are some.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use oribi_testkit::text_differential::{Commands, TextDifferential};
use oribi_testkit::{MemcachedServer, ServerOptions, ServerProcess};

const USAGE: &str =
    "usage: text_differential [--server FILE] [--commands N] [--seed N] [--from CASE]
                         [--kinds text|meta|both] [--differences N] [--setting NAME=VALUE]...";
/// Commands between two lines of progress.
const SHOW_EVERY: u64 = 100_000;

struct Arguments {
    server: Option<PathBuf>,
    settings: Vec<(String, String)>,
    run: TextDifferential,
}

fn main() -> Result<ExitCode> {
    let mut arguments = parse(std::env::args().skip(1))?;
    let reference = MemcachedServer::start(&[])?;
    let directory = tempfile::tempdir().context("cannot make a directory")?;
    let (mut oribi, mut other) = (None, None);
    let port = match &arguments.server {
        Some(binary) => {
            // Each `flush_all` waits for the disk, once for every vbucket, in memory too: with 64
            // of them this takes far longer than everything else together.
            let mut options = ServerOptions::new(binary, directory.path().join("data"))
                .argument("--cache")
                .setting("vbuckets", 2)
                .setting("flush-enabled", true);
            for (name, value) in &arguments.settings {
                options = options.setting(name, value);
            }
            oribi.insert(ServerProcess::start(options)?).port()
        }
        None => other.insert(MemcachedServer::start(&[])?).port(),
    };
    arguments.run.ports = [port, reference.port()];
    let seed = arguments.run.seed;
    eprintln!("seed {seed}");
    let mut shown = 0;
    let report = arguments.run.run(&mut |report| {
        if report.commands >= shown + SHOW_EVERY {
            shown = report.commands;
            let differences = report.differences.len();
            eprintln!("{} commands, {} cases, {differences} differences", shown, report.cases);
        }
    })?;
    for difference in &report.differences {
        println!("{difference}\n");
    }
    let (commands, cases, count) = (report.commands, report.cases, report.differences.len());
    println!("seed {seed}: {commands} commands in {cases} cases, {count} differences");
    drop((oribi, other));
    Ok(if count == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Arguments> {
    let run = TextDifferential {
        ports: [0, 0],
        seed: 1,
        first_case: 0,
        commands: 1_000_000,
        kinds: Commands::Both,
        differences_max: 5,
    };
    let mut arguments = Arguments { server: None, settings: Vec::new(), run };
    while let Some(word) = words.next() {
        let mut value = || words.next().with_context(|| format!("{word} wants a value\n{USAGE}"));
        match word.as_str() {
            "--server" => arguments.server = Some(value()?.into()),
            "--commands" => arguments.run.commands = value()?.parse()?,
            "--seed" => arguments.run.seed = value()?.parse()?,
            "--from" => arguments.run.first_case = value()?.parse()?,
            "--differences" => arguments.run.differences_max = value()?.parse()?,
            "--setting" => {
                let text = value()?;
                let (name, value) = text.split_once('=').context("--setting wants NAME=VALUE")?;
                arguments.settings.push((name.to_owned(), value.to_owned()));
            }
            "--kinds" => {
                arguments.run.kinds = match value()?.as_str() {
                    "text" => Commands::Text,
                    "meta" => Commands::Meta,
                    "both" => Commands::Both,
                    other => bail!("{other} is none of text, meta, both"),
                }
            }
            _ => bail!("{word} is not known\n{USAGE}"),
        }
    }
    Ok(arguments)
}
