//! `cargo xtask scaling`: what more cores would bring, from what one operation shares.
//!
//! Owns the run: it counts the shared cache lines of an operation ([`trace`]), measures what moving
//! a line and taking a lock cost on this machine ([`machine`]), predicts throughput for 1 to 128
//! cores ([`model`]), compares the prediction for two cores with a measurement, and writes the
//! figures and the plot of docs/benchmarks.md. What is assumed stands in that page.

mod machine;
mod model;
mod plot;
mod trace;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail, ensure};

use machine::Machine;
use model::{Prediction, Workload};

/// The options of the task.
pub const USAGE: &str = "  scaling [--rounds N] [--dry-run] [--program FILE]
         count shared cache lines per operation, predict throughput for 1 to 128 cores, and write
         docs/benchmarks.md and its plot; needs valgrind and two cores, takes some minutes;
         --program is the bench `instructions` if it is built already";

const BEGIN: &str = "<!-- figures: begin -->\n";
const END: &str = "<!-- figures: end -->";
const CORES: [usize; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
/// Documents that operations are about, as the bench `instructions` calls them, and for people.
const PATTERNS: [(&str, &str); 4] = [
    ("hot-key", "one hot key"),
    ("ten-keys", "ten hot keys"),
    ("one-vbucket", "one vbucket"),
    ("all", "all vbuckets"),
];
const SET_PCTS: [u32; 3] = [0, 5, 20];
/// Operations of a batch: what arrives with one receive.
const BATCH: u32 = 100;
/// Batches of each worker in a trace, and in a measurement.
const TRACED_BATCHES: u32 = 12;
const TIMED_BATCHES: u32 = 3_000;
const ROUNDS: usize = 7;

/// One load: its trace and its times.
struct Case {
    name: String,
    set_pct: u32,
    lines: trace::Lines,
    /// CPU per operation with a server of its own for each of two workers, and with one for both.
    apart_ns: f64,
    together: Spread,
    /// What the machine charged meanwhile.
    machine: Machine,
}

impl Case {
    /// For each of [`CORES`], when moving a line costs so much.
    fn predictions(&self, transfer_ns: f64) -> Vec<Prediction> {
        let workload = Workload::new(&self.lines, self.apart_ns, transfer_ns);
        CORES.iter().map(|cores| workload.predict(*cores)).collect()
    }
}

/// Median and extremes of ratios.
struct Spread {
    min: f64,
    median: f64,
    max: f64,
}

impl Spread {
    fn of(mut samples: Vec<f64>) -> Spread {
        samples.sort_by(f64::total_cmp);
        let at = |index: usize| samples.get(index).copied().unwrap_or(f64::NAN);
        let last = samples.len().saturating_sub(1);
        Spread { min: at(0), median: at(last / 2), max: at(last) }
    }
}

/// Runs the task.
pub fn run(root: &Path, mut arguments: impl Iterator<Item = String>) -> Result<ExitCode> {
    let (mut rounds, mut is_dry, mut program) = (ROUNDS, false, None);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--rounds" => {
                let text = arguments.next().context("--rounds needs a number")?;
                rounds = text.parse().with_context(|| format!("{text} is not a number"))?;
                ensure!(rounds > 0, "--rounds needs at least 1");
            }
            "--dry-run" => is_dry = true,
            "--program" => {
                program = Some(PathBuf::from(arguments.next().context("--program needs a file")?));
            }
            _ => bail!("unknown option {argument}\n\n{USAGE}"),
        }
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    ensure!(cores >= 2, "two cores are needed to measure what moves between them");
    let program = program.map_or_else(|| build(root), Ok)?;
    let mut cases = Vec::new();
    for (pattern, words) in PATTERNS {
        for set_pct in SET_PCTS {
            eprintln!("{words}, {set_pct} % sets");
            cases.push(case_of(&program, (pattern, words), set_pct, rounds)?);
        }
    }
    let of_machine = |figure: fn(&Machine) -> f64| {
        Spread::of(cases.iter().map(|c| figure(&c.machine)).collect())
    };
    let transfer = of_machine(|machine| machine.transfer_ns);
    let locks =
        [of_machine(|machine| machine.lock_ns), of_machine(|machine| machine.contended_lock_ns)];
    let predicted: Vec<_> = cases.iter().map(|case| case.predictions(transfer.median)).collect();
    println!("{}", figures(&transfer, &locks, &cases, &predicted));
    let text = prediction_table(&cases, &predicted);
    println!("Throughput over that of one core, predicted:\n\n{text}");
    if !is_dry {
        let page = root.join("docs/benchmarks.md");
        let before = std::fs::read_to_string(&page).context("docs/benchmarks.md")?;
        std::fs::write(&page, replaced(&before, &text)?)?;
        let series: Vec<(String, &[Prediction])> = std::iter::zip(&cases, &predicted)
            .filter(|(case, _)| case.set_pct != 5)
            .map(|(case, curve)| (format!("{}, {} % sets", case.name, case.set_pct), &curve[..]))
            .collect();
        plot::draw(&root.join("docs/plots/scaling.svg"), &series)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Builds the bench as it is released.
fn build(root: &Path) -> Result<PathBuf> {
    let output = Command::new("cargo")
        .args(["build", "--release", "--locked", "-p", "oribi-server", "--bench", "instructions"])
        .arg("--message-format=json")
        .current_dir(root)
        .stderr(Stdio::inherit())
        .output()
        .context("cargo")?;
    ensure!(output.status.success(), "the bench does not build");
    let is_bench = |message: &serde_json::Value| {
        message["reason"] == "compiler-artifact" && message["target"]["name"] == "instructions"
    };
    let messages = String::from_utf8_lossy(&output.stdout);
    let messages = messages.lines().filter_map(|line| serde_json::from_str(line).ok());
    let built = messages
        .filter(is_bench)
        .find_map(|message: serde_json::Value| message["executable"].as_str().map(PathBuf::from));
    built.context("cargo names no executable")
}

fn case_of(
    program: &Path,
    (pattern, words): (&str, &str),
    set_pct: u32,
    rounds: usize,
) -> Result<Case> {
    let arguments = |batches: u32| {
        ["--pair", pattern, "--set-pct", &set_pct.to_string(), "--batch", &BATCH.to_string()]
            .map(str::to_owned)
            .into_iter()
            .chain(["--batches".to_owned(), batches.to_string()])
            .collect::<Vec<_>>()
    };
    let lines = trace::trace(program, &arguments(TRACED_BATCHES), BATCH)?;
    let (mut apart, mut ratios) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let mut ns = [0.0; 2];
        // In turn, so that a slow moment of the machine slows both.
        for at in [round % 2, 1 - round % 2] {
            let mut command = Command::new(program);
            command.args(arguments(TIMED_BATCHES));
            if at == 0 {
                command.arg("--apart");
            }
            ns[at] = printed(&mut command, "ns ")?;
        }
        apart.push(ns[0]);
        ratios.push(ns[1] / ns[0]);
    }
    let (apart_ns, together) = (Spread::of(apart).median, Spread::of(ratios));
    let machine = machine::measure();
    Ok(Case { name: words.to_owned(), set_pct, lines, apart_ns, together, machine })
}

/// The number behind `head` in what a program prints.
fn printed(command: &mut Command, head: &str) -> Result<f64> {
    let output = command.output().context("the bench")?;
    ensure!(output.status.success(), "the bench: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout);
    let number = text.lines().find_map(|line| line.strip_prefix(head));
    Ok(number.with_context(|| format!("no {head} in {text:?}"))?.parse()?)
}

/// What the prediction follows from: costs of this machine and shared lines of each load.
fn figures(
    transfer: &Spread,
    [lock, contended]: &[Spread; 2],
    cases: &[Case],
    predicted: &[Vec<Prediction>],
) -> String {
    let mut text = format!(
        "Moving a cache line from one core to the other takes {:.0} ns here ({:.0} to {:.0} in {} \
         moments).\nA lock that no other core wants takes {:.0} ns, one that another core wants \
         all the time {:.0} ns.\n\n",
        transfer.median,
        transfer.min,
        transfer.max,
        cases.len(),
        lock.median,
        contended.median
    );
    text += "| operations | CPU alone | lines written that others touch | lines read that others write | \
             lock held | 2 workers, predicted | 2 workers, measured |\n\
             |---|---|---|---|---|---|---|\n";
    // What is not there is measured as a little less than nothing at times.
    let at_least_0 = |measured: f64| measured.max(0.0) + 0.0;
    for (case, predictions) in std::iter::zip(cases, predicted) {
        let two = predictions.iter().find(|one| one.cores == 2);
        text += &format!(
            "| {}, {} % sets | {:.0} ns | {:.2} | {:.2} | {:.0} ns | {:.2} | {:.2} ({:.2} to {:.2}) |\n",
            case.name,
            case.set_pct,
            case.apart_ns,
            at_least_0(case.lines.written()),
            at_least_0(case.lines.read()),
            at_least_0(case.lines.held_share() * case.apart_ns),
            two.map_or(f64::NAN, |one| one.busy_ns / case.apart_ns),
            case.together.median,
            case.together.min,
            case.together.max,
        );
    }
    text
}

/// The generated part of the page.
fn prediction_table(cases: &[Case], predicted: &[Vec<Prediction>]) -> String {
    let mut text = "| operations |".to_owned();
    text += &CORES.map(|cores| format!(" {cores} |")).concat();
    text += "\n|---|";
    text += &CORES.map(|_| "---|").concat();
    for (case, predictions) in
        std::iter::zip(cases, predicted).filter(|(case, _)| case.set_pct != 5)
    {
        let alone = predictions.first().map_or(f64::NAN, |one| one.per_second);
        text += &format!("\n| {}, {} % sets |", case.name, case.set_pct);
        for one in predictions {
            text += &format!(" {:.1} |", one.per_second / alone);
        }
    }
    text
}

fn replaced(page: &str, figures: &str) -> Result<String> {
    let (head, rest) = page.split_once(BEGIN).context("docs/benchmarks.md has lost its markers")?;
    let (_, tail) = rest.split_once(END).context("docs/benchmarks.md has lost its markers")?;
    Ok(format!("{head}{BEGIN}\n{figures}\n\n{END}{tail}"))
}
