//! Loads a server that must not grow, for as long as requested: `cargo xtask soak memory` builds
//! and runs this.
//!
//! With `ORIBI_KUDU_HOME` one of the buckets is on its own Kudu cluster, whose tablet server is
//! stopped for some seconds again and again. Progress goes to standard error, the result to
//! standard output, as JSON on request.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use oribi_testkit::memory_soak::{BucketPlan, MemorySoakOptions, MemorySoakReport, run};
use oribi_testkit::{KuduCluster, KuduOptions, KuduServer, ServerOptions, kudu_is_available};

const USAGE: &str = "usage: memory_soak --server FILE [--seconds N] [--seed N] [--hostile N]
                   [--stalled-readers N] [--quota-mib N] [--setting NAME=VALUE]... [--json]";

/// Time between two outages of Kudu, and their length.
const OUTAGE_EVERY: Duration = Duration::from_secs(20);
const OUTAGE: Duration = Duration::from_secs(8);

struct Arguments {
    server: PathBuf,
    seconds: u64,
    seed: u64,
    hostile: usize,
    stalled_readers: usize,
    quota_mib: u64,
    settings: Vec<(String, String)>,
    json: bool,
}

fn main() -> Result<()> {
    let arguments = parse(std::env::args().skip(1))?;
    let directory = tempfile::tempdir().context("cannot make a directory")?;
    let mut server = ServerOptions::new(&arguments.server, directory.path().join("data"));
    for (name, value) in &arguments.settings {
        server = server.setting(name, value);
    }
    let kudu = match kudu_is_available() {
        true => Some(KuduCluster::start(KuduOptions::new(1, 1))?),
        false => None,
    };
    let quota_mib = arguments.quota_mib;
    let mut buckets = vec![
        BucketPlan::new("default", quota_mib, "log").eviction("valueOnly"),
        BucketPlan::new("beyond", quota_mib / 2, "log").filled_to(400),
        BucketPlan::new("cache", quota_mib / 2, "memory").filled_to(400),
        BucketPlan::new("memory", quota_mib * 2, "memory").eviction("noEviction"),
    ];
    if let Some(kudu) = &kudu {
        let storage = format!("kudu://{}/memory_soak?replicas=1", kudu.master_addresses());
        buckets.push(BucketPlan::new("kudu", quota_mib, &storage).filled_to(200));
    }
    let options = MemorySoakOptions {
        server,
        buckets,
        hostile: arguments.hostile,
        stalled_readers: Some(arguments.stalled_readers),
        duration: Duration::from_secs(arguments.seconds),
        seed: arguments.seed,
    };
    let mut is_paused = false;
    let mut shown = 0;
    let report = run(&options, &mut |elapsed| {
        if elapsed.as_secs() >= shown + 10 {
            shown = elapsed.as_secs();
            eprintln!("{shown} of {} s", arguments.seconds);
        }
        let Some(kudu) = &kudu else { return Ok(()) };
        let is_outage =
            elapsed.as_secs() % OUTAGE_EVERY.as_secs() >= (OUTAGE_EVERY - OUTAGE).as_secs();
        match (is_outage, is_paused) {
            (true, false) => kudu.pause(KuduServer::TabletServer(0))?,
            (false, true) => kudu.resume(KuduServer::TabletServer(0))?,
            _ => {}
        }
        is_paused = is_outage;
        Ok(())
    });
    if let (Some(kudu), true) = (&kudu, is_paused) {
        kudu.resume(KuduServer::TabletServer(0))?;
    }
    print(&arguments, kudu.is_some(), &report?);
    Ok(())
}

fn print(arguments: &Arguments, has_kudu: bool, report: &MemorySoakReport) {
    if arguments.json {
        let result = serde_json::json!({
            "seed": arguments.seed, "seconds": arguments.seconds, "hostile": arguments.hostile,
            "kudu": has_kudu, "answered": report.answered, "refused": report.refused,
            "readers_finished": report.readers_finished,
            "hostile_opened": report.hostile_opened, "hostile_ended": report.hostile_ended,
            "resident_bytes_max": report.resident_bytes_max,
            "promised_bytes": report.promised_bytes,
        });
        println!("{result}");
        return;
    }
    println!(
        "seed {}, {} s, Kudu: {has_kudu}. {} MiB resident at most, {} promised. {} requests answered, {} refused; {} \
         hostile connections, {} of them ended by the server",
        arguments.seed,
        arguments.seconds,
        report.resident_bytes_max >> 20,
        report.promised_bytes >> 20,
        report.answered,
        report.refused,
        report.hostile_opened,
        report.hostile_ended,
    );
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Arguments> {
    let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let mut arguments = Arguments {
        server: PathBuf::new(),
        seconds: 300,
        seed: clock.map_or(1, |time| time.as_secs()),
        hostile: 40,
        stalled_readers: 20,
        quota_mib: 96,
        settings: Vec::new(),
        json: false,
    };
    while let Some(word) = words.next() {
        let mut value = || words.next().with_context(|| format!("{word} wants a value\n{USAGE}"));
        match word.as_str() {
            "--server" => arguments.server = std::path::absolute(value()?).context("--server")?,
            "--seconds" => arguments.seconds = value()?.parse().context("--seconds")?,
            "--seed" => arguments.seed = value()?.parse().context("--seed")?,
            "--hostile" => arguments.hostile = value()?.parse().context("--hostile")?,
            "--stalled-readers" => {
                arguments.stalled_readers = value()?.parse().context("--stalled-readers")?;
            }
            "--quota-mib" => arguments.quota_mib = value()?.parse().context("--quota-mib")?,
            "--setting" => {
                let pair = value()?;
                let (name, value) = pair.split_once('=').context("--setting wants NAME=VALUE")?;
                arguments.settings.push((name.to_owned(), value.to_owned()));
            }
            "--json" => arguments.json = true,
            _ => bail!("{word} is not known\n{USAGE}"),
        }
    }
    if arguments.server.as_os_str().is_empty() {
        bail!("which server?\n{USAGE}");
    }
    Ok(arguments)
}
