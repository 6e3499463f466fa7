//! `cargo xtask soak`: long runs of tests, against release builds; simulations are optimised too,
//! but keep debug assertions and overflow checks.
//!
//! Owns: what is built and started; the runs themselves are programs of the crates that they test.
//! Everything after the name of a soak is handed on to it.

use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::UNIX_EPOCH;

use anyhow::{Context, Result, bail};

/// Help for the list of tasks.
pub(crate) const USAGE: &str = "\
  soak kill [--cycles N] [--from CYCLE] [--seed N] [--eviction value|full] [--json]
         kills a server under load again and again; every acknowledged write is accounted for
  soak memory [--seconds N] [--seed N] [--hostile N] [--stalled-readers N] [--quota-mib N]
              [--setting NAME=VALUE] [--json]
         several buckets, hostile clients, readers of every kind that read, read slowly or stall;
         what is resident stays within what is promised, and readers that read finish
  soak text [--commands N] [--seed N] [--from CASE] [--kinds text|meta|both] [--differences N]
         random text and meta commands, whose answers are those of a memcached beside it
  soak backup [--cycles N] [--seed N]
         kills either side of backups, restores and copies; the same command then completes the work
  soak simulation [--seeds N] [--from SEED]
         whole buckets over simulated disks, crashed at every kind of step
  soak copies [--seeds N] [--from SEED]
         the rules of a vbucket's copies over simulated networks, clocks and disks
  soak cluster [--seeds N] [--from SEED]
         whole clusters of real parts over simulated networks, clocks, disks and agreement
  soak agents [--seeds N] [--from SEED]
         the agents of a cluster over simulated agreement, beacons and clocks
  soak failover [--seconds N]
         three nodes under full load at the default suspicion: none is failed over
  soak histories [--rounds N] [--seed N] [--json] [--server PATH]
         five nodes in network namespaces and clients of Go: what they see is linearizable
  soak seeds [--seed N] [ARGUMENT OF CARGO TEST]...
         the tests, with another seed for everything that chooses at random";

/// Runs the soak named by the first argument.
pub(crate) fn run(root: &Path, mut arguments: impl Iterator<Item = String>) -> Result<ExitCode> {
    match arguments.next().as_deref() {
        Some("kill") => against_a_server(root, "kill_soak", arguments),
        Some("memory") => against_a_server(root, "memory_soak", arguments),
        Some("text") => against_a_server(root, "text_differential", arguments),
        Some("backup") => backup(root, arguments),
        Some("simulation") => simulation(root, "oribi-engine", arguments),
        Some("copies") => simulation(root, "oribi-replication", arguments),
        Some("cluster") => simulation(root, "oribi-server", arguments),
        Some("agents") => simulation(root, "oribi-cluster", arguments),
        Some("failover") => failover(root, arguments),
        Some("histories") => histories(root, arguments),
        Some("seeds") => seeds(root, arguments),
        Some(other) => bail!("unknown soak {other:?}\n\n{USAGE}"),
        None => bail!("which soak?\n\n{USAGE}"),
    }
}

/// Runs a program of the test kit with the server's binary.
fn against_a_server(
    root: &Path,
    program: &str,
    arguments: impl Iterator<Item = String>,
) -> Result<ExitCode> {
    let build = ["build", "--release", "-p", "oribi", "-p", "oribi-testkit", "--bins"];
    if !cargo(root).args(build).status().context("cannot run cargo")?.success() {
        bail!("the release build failed");
    }
    let binaries = target(root).join("release");
    let mut soak = Command::new(binaries.join(program));
    soak.arg("--server").arg(binaries.join("oribi")).args(arguments);
    finish(&mut soak)
}

/// Runs the program of `tests/histories`, after the tests of its checkers.
fn histories(root: &Path, arguments: impl Iterator<Item = String>) -> Result<ExitCode> {
    let arguments: Vec<String> = arguments.collect();
    if !arguments.iter().any(|argument| argument.starts_with("--server")) {
        let build = ["build", "--release", "-p", "oribi"];
        if !cargo(root).args(build).status().context("cannot run cargo")?.success() {
            bail!("the release build failed");
        }
    }
    let (target, module) = (target(root), root.join("tests/histories"));
    let (program, kept) = (target.join("histories/histories"), target.join("histories"));
    let go = |words: &[&str]| {
        let mut command = Command::new("go");
        command.args(words).current_dir(&module);
        command
    };
    let output = program.to_str().context("the path is no text")?;
    for words in [&["test", "./..."][..], &["build", "-mod=readonly", "-o", output, "."]] {
        if !go(words).status().context("cannot run go")?.success() {
            bail!("go {} failed", words[0]);
        }
    }
    let server = target.join("release/oribi");
    let mut soak = Command::new(&program);
    soak.arg("--server").arg(server).arg("--directory").arg(kept).args(arguments);
    finish(&mut soak)
}

/// Runs the simulation of a crate, which prints the seed that fails.
fn simulation(
    root: &Path,
    package: &str,
    arguments: impl Iterator<Item = String>,
) -> Result<ExitCode> {
    let mut test = cargo(root);
    let name = ["--lib", "simulation::", "--", "--nocapture"];
    test.args(["test", "--profile", "soak", "-p", package]).args(name);
    let variables = [("--seeds", "ORIBI_SIMULATION_SEEDS"), ("--from", "ORIBI_SIMULATION_FROM")];
    with_numbers(&mut test, &variables, arguments)
}

/// Directory of what cargo builds.
fn target(root: &Path) -> std::path::PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(directory) => root.join(directory),
        None => root.join("target"),
    }
}

fn backup(root: &Path, arguments: impl Iterator<Item = String>) -> Result<ExitCode> {
    let mut test = cargo(root);
    let name = ["--test", "tools", "backup::kills::", "--", "--nocapture"];
    test.args(["test", "--release", "-p", "oribi"]).args(name);
    let variables = [("--cycles", "ORIBI_BACKUP_CYCLES"), ("--seed", "ORIBI_TEST_SEED")];
    with_numbers(&mut test, &variables, arguments)
}

fn failover(root: &Path, arguments: impl Iterator<Item = String>) -> Result<ExitCode> {
    let mut test = cargo(root);
    let name = ["--test", "server", "failover::no_failover_under_full_load", "--", "--nocapture"];
    test.args(["test", "--release", "-p", "oribi"]).args(name);
    with_numbers(&mut test, &[("--seconds", "ORIBI_FAILOVER_SECONDS")], arguments)
}

/// Variables that change the seeds of tests. What `cargo test` runs without them is fixed.
const SEEDS: [&str; 3] = ["ORIBI_TEST_SEED", "ORIBI_SIMULATION_FROM", "PROPTEST_RNG_SEED"];

/// Runs `cargo test` with one seed for everything: the one given, or one of the clock.
fn seeds(root: &Path, arguments: impl Iterator<Item = String>) -> Result<ExitCode> {
    let mut arguments: Vec<String> = arguments.collect();
    let seed = match arguments.first().map(String::as_str) {
        Some("--seed") => {
            let seed = arguments.get(1).context("--seed wants a number")?.parse()?;
            arguments.drain(..2);
            seed
        }
        _ => UNIX_EPOCH.elapsed()?.subsec_nanos(),
    };
    if arguments.is_empty() {
        arguments.push("--workspace".to_owned());
    }
    let repeat = format!("cargo xtask soak seeds --seed {seed} {}", arguments.join(" "));
    println!("seed {seed}; to repeat it: {repeat}");
    let mut test = cargo(root);
    test.arg("test").args(&arguments).envs(SEEDS.map(|name| (name, seed.to_string())));
    let code = finish(&mut test)?;
    if code != ExitCode::SUCCESS {
        eprintln!("seed {seed} failed; to repeat it: {repeat}");
    }
    Ok(code)
}

/// Runs a test whose length and seed are in environment variables.
fn with_numbers(
    test: &mut Command,
    variables: &[(&str, &str)],
    mut arguments: impl Iterator<Item = String>,
) -> Result<ExitCode> {
    while let Some(word) = arguments.next() {
        let Some((_, variable)) = variables.iter().find(|(name, _)| *name == word) else {
            bail!("{word} is not known\n\n{USAGE}");
        };
        test.env(variable, arguments.next().with_context(|| format!("{word} wants a number"))?);
    }
    finish(test)
}

fn cargo(root: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root);
    command
}

fn finish(command: &mut Command) -> Result<ExitCode> {
    let status = command.status().with_context(|| format!("cannot run {command:?}"))?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
