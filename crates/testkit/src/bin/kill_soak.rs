//! Kills a server thousands of times and reports the result: `cargo xtask soak kill` builds and
//! runs this.
//!
//! Cycles run in epochs of some hundred on one directory. Each epoch has its own seed, which
//! follows from the first one, so a soak can resume after an interruption (`--from`), and a failing
//! epoch can be repeated alone. A failing epoch's directory is kept. The progress bar goes to
//! standard error, the result to standard output, as JSON on request.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use oribi_testkit::ServerOptions;
use oribi_testkit::kill_cycles::{KillCycles, KillOptions, KillReport};

/// Cycles on one directory.
const EPOCH_CYCLES: u64 = 250;

const USAGE: &str = "usage: kill_soak --server FILE [--cycles N] [--from CYCLE] [--seed N]
                 [--eviction value|full] [--setting NAME=VALUE]... [--json]";

struct Arguments {
    server: PathBuf,
    cycles: u64,
    from: u64,
    seed: u64,
    settings: Vec<(String, String)>,
    evicts: bool,
    json: bool,
}

fn main() -> Result<()> {
    let arguments = parse(std::env::args().skip(1))?;
    let begun = Instant::now();
    let style =
        ProgressStyle::with_template("{bar:30} {pos}/{len} cycles, {per_sec}, {eta} left, {msg}")?;
    let bar = ProgressBar::new(arguments.cycles).with_style(style);
    bar.set_position(arguments.from);
    bar.reset_eta();
    let mut sum = KillReport::default();
    let mut cycle = arguments.from;
    while cycle < arguments.cycles {
        let (epoch, end) = (cycle / EPOCH_CYCLES, arguments.cycles);
        let end = end.min((epoch + 1) * EPOCH_CYCLES);
        let directory = tempfile::tempdir().context("cannot make a directory")?;
        let done = run_epoch(&arguments, epoch, end - cycle, directory.path(), &bar);
        let report = match done {
            Ok(report) => report,
            Err(error) => {
                let kept = directory.keep();
                bar.abandon();
                bail!(
                    "epoch {epoch} (repeat it with --seed {} --from {}), directory {}:\n{error:#}",
                    arguments.seed,
                    epoch * EPOCH_CYCLES,
                    kept.display()
                );
            }
        };
        add(&mut sum, &report);
        cycle = end;
        bar.set_message(format!("{} acknowledged", sum.tally.acknowledged));
    }
    bar.finish();
    print(&arguments, &sum, begun.elapsed().as_secs_f64());
    Ok(())
}

/// Runs some cycles on a new directory.
fn run_epoch(
    arguments: &Arguments,
    epoch: u64,
    cycles: u64,
    directory: &std::path::Path,
    bar: &ProgressBar,
) -> Result<KillReport> {
    let mut server = ServerOptions::new(&arguments.server, directory.join("data"));
    for (name, value) in &arguments.settings {
        server = server.setting(name, value);
    }
    let options = KillOptions::new(server, arguments.seed.wrapping_add(epoch));
    let options = match arguments.evicts {
        true => options.larger_than_memory(),
        false => options,
    };
    let mut lives = KillCycles::start(options)?;
    for _ in 0..cycles {
        lives.cycle()?;
        bar.inc(1);
        if bar.is_hidden() && bar.position().is_multiple_of(50) {
            eprintln!("{} of {} cycles", bar.position(), arguments.cycles);
        }
    }
    lives.finish()
}

fn add(sum: &mut KillReport, report: &KillReport) {
    sum.cycles += report.cycles;
    sum.kills += report.kills;
    sum.killed_starts += report.killed_starts;
    sum.killed_loading += report.killed_loading;
    let (streams, heard) = (&mut sum.streams, &report.streams);
    streams.changes += heard.changes;
    streams.snapshots += heard.snapshots;
    streams.rollbacks += heard.rollbacks;
    streams.compared += heard.compared;
    let (sum, tally) = (&mut sum.tally, &report.tally);
    sum.acknowledged += tally.acknowledged;
    sum.persisted += tally.persisted;
    sum.in_doubt += tally.in_doubt;
    sum.lost += tally.lost;
    sum.read += tally.read;
}

fn print(arguments: &Arguments, sum: &KillReport, seconds: f64) {
    let settings: Vec<String> =
        arguments.settings.iter().map(|(name, value)| format!("{name}={value}")).collect();
    if arguments.json {
        let tally = &sum.tally;
        let result = serde_json::json!({
            "seed": arguments.seed, "settings": settings, "cycles": sum.cycles,
            "kills": sum.kills, "killed_starts": sum.killed_starts,
            "killed_loading": sum.killed_loading, "acknowledged": tally.acknowledged,
            "acknowledged_persisted": tally.persisted, "in_doubt": tally.in_doubt,
            "lost_unpersisted": tally.lost, "documents_read": tally.read,
            "changes_heard": sum.streams.changes, "streams_rolled_back": sum.streams.rollbacks,
            "violations": 0, "seconds": seconds,
        });
        println!("{result}");
        return;
    }
    println!("settings {settings:?}, seed {}: no violation in {sum:#?}", arguments.seed);
    println!("{:.2} s a cycle", seconds / sum.cycles.max(1) as f64);
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Arguments> {
    let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let mut arguments = Arguments {
        server: PathBuf::new(),
        cycles: 300,
        from: 0,
        seed: clock.map_or(1, |time| time.as_secs()),
        settings: Vec::new(),
        evicts: false,
        json: false,
    };
    while let Some(word) = words.next() {
        let mut value = || words.next().with_context(|| format!("{word} wants a value\n{USAGE}"));
        match word.as_str() {
            "--server" => arguments.server = PathBuf::from(value()?),
            "--cycles" => arguments.cycles = value()?.parse().context("--cycles")?,
            "--from" => arguments.from = value()?.parse().context("--from")?,
            "--seed" => arguments.seed = value()?.parse().context("--seed")?,
            "--storage" => arguments.settings.push(("storage".to_owned(), value()?)),
            "--eviction" => {
                arguments.evicts = true;
                arguments.settings.push(("eviction".to_owned(), value()?));
            }
            "--setting" => {
                let text = value()?;
                let (name, value) = text.split_once('=').context("--setting wants NAME=VALUE")?;
                arguments.settings.push((name.to_owned(), value.to_owned()));
            }
            "--json" => arguments.json = true,
            _ => bail!("{word} is not known\n{USAGE}"),
        }
    }
    if arguments.server.as_os_str().is_empty() {
        bail!("{USAGE}");
    }
    if arguments.evicts {
        arguments.settings.push(("memory-quota-mib".to_owned(), "8".to_owned()));
    }
    Ok(arguments)
}
