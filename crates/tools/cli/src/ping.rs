//! `oribi ping`: checks that the server is there, what it is, and how long a round trip takes.
//!
//! It owns the command line and the report. It times connecting and the handshake (features,
//! authentication, bucket) separately, because they fail and take time for different reasons. Then
//! it sends NOOPs one by one, each after the previous answer. A histogram keeps the times, so the
//! number of round trips is not limited. Ctrl-C ends it with the report so far.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use bytes::Bytes;
use clap::Args;
use hdrhistogram::Histogram;
use oribi_client::{ClusterMap, Connection};
use oribi_protocol::feature::Feature;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::RequestParts;
use serde_json::{Value, json};
use tokio::time::MissedTickBehavior;

use crate::print;
use crate::target::{INTERRUPTED, Target, parse_interval};

/// Precision of the recorded times: three significant digits.
const DIGITS: u8 = 3;

/// Longest time that is distinguished from longer ones; no answer is waited for that long.
const NANOSECONDS_MAX: u64 = 24 * 3600 * 1_000_000_000;

/// Time connecting to a server and round trips.
#[derive(Args, Debug)]
pub struct PingArgs {
    /// Number of round trips; 0 continues until Ctrl-C.
    #[arg(long, default_value_t = 5)]
    count: u64,
    /// Time between the starts of two round trips; 0 for no pause.
    #[arg(long, default_value = "200ms", value_parser = parse_pause)]
    interval: Duration,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

fn parse_pause(text: &str) -> Result<Duration, String> {
    match text {
        "0" => Ok(Duration::ZERO),
        _ => parse_interval(text),
    }
}

/// Runs the subcommand to its end.
pub fn run(args: PingArgs) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("starting the runtime")?;
    runtime.block_on(async {
        let interrupted = tokio::signal::ctrl_c();
        tokio::pin!(interrupted);
        let (mut connection, server) = tokio::select! {
            found = find(&args.target) => found?,
            _ = &mut interrupted => return Ok(ExitCode::from(INTERRUPTED)),
        };
        if !args.json {
            print::bytes(server.describe().as_bytes())?;
        }
        let mut trips = Trips::new();
        let outcome = tokio::select! {
            outcome = trips.run(&mut connection, &args) => outcome.map(|()| ExitCode::SUCCESS),
            _ = &mut interrupted => Ok(ExitCode::from(INTERRUPTED)),
        };
        print::line(&match args.json {
            true => format!("{:#}", server.json(&trips)),
            false => format!("\n{}", trips.describe()),
        })?;
        outcome
    })
}

/// Kind of the server.
#[derive(Debug)]
struct Server {
    peer: String,
    user: String,
    connect: Duration,
    handshake: Duration,
    version: String,
    features: Vec<Feature>,
    /// The bucket and its cluster map, unless none was asked for.
    bucket: Option<(String, ClusterMap)>,
}

/// Connects and fetches the server's identity.
async fn find(target: &Target) -> anyhow::Result<(Connection, Server)> {
    let options = target.options()?;
    let started = Instant::now();
    let mut connection =
        Connection::connect(&options).await.map_err(|error| target.explain(error))?;
    let connect = started.elapsed();
    connection.handshake(&options).await.map_err(|error| target.explain(error))?;
    let handshake = started.elapsed() - connect;
    let version = connection.call(&RequestParts::new(Opcode::Version), &Bytes::new()).await?;
    version.outcome().context("asking for the version")?;
    let bucket = match options.bucket {
        Some(name) => {
            let config = connection.cluster_config().await.context("fetching the cluster map")?;
            Some((name, config))
        }
        None => None,
    };
    let granted = Feature::all().iter().copied().filter(|feature| connection.has(*feature));
    let server = Server {
        peer: connection.peer().to_string(),
        user: options.user,
        connect,
        handshake,
        version: crate::stats::clean(&version.value()),
        features: granted.collect(),
        bucket,
    };
    Ok((connection, server))
}

impl Server {
    fn features(&self) -> Vec<String> {
        self.features.iter().map(|feature| format!("{feature:?}")).collect()
    }

    fn describe(&self) -> String {
        let Server { peer, user, connect, handshake, version, bucket, .. } = self;
        let mut text = format!(
            "server       {peer}, version {version}\n\
             connected    in {}\n\
             handshake    in {}, as {user}\n\
             features     {}\n",
            milliseconds(nanoseconds(*connect) as f64),
            milliseconds(nanoseconds(*handshake) as f64),
            self.features().join(", "),
        );
        match bucket {
            Some((name, config)) => text.push_str(&format!(
                "bucket       {name}\n\
                 cluster map  revision {} of epoch {}, {} vbuckets, nodes: {}\n",
                config.version.revision,
                config.version.epoch,
                config.vbucket_count(),
                nodes(config).join(", ")
            )),
            None => text.push_str("bucket       none\n"),
        }
        text.push('\n');
        text
    }

    fn json(&self, trips: &Trips) -> Value {
        let microseconds = |duration: &Duration| duration.as_nanos() as f64 / 1000.0;
        json!({
            "peer": self.peer,
            "version": self.version,
            "connect_us": microseconds(&self.connect),
            "handshake_us": microseconds(&self.handshake),
            "features": self.features(),
            "bucket": self.bucket.as_ref().map(|(name, _)| name),
            "cluster_map": self.bucket.as_ref().map(|(_, config)| json!({
                "epoch": config.version.epoch,
                "revision": config.version.revision,
                "vbuckets": config.vbucket_count(),
                "nodes": nodes(config),
            })),
            "sent": trips.sent,
            "answered": trips.times.len(),
            "round_trip_us": trips.figures().map(|figures| {
                let named = figures.iter().map(|(name, time)| ((*name).to_owned(), (time / 1000.0).into()));
                Value::Object(named.collect())
            }),
        })
    }
}

fn nodes(config: &ClusterMap) -> Vec<String> {
    config
        .nodes
        .iter()
        .map(|node| crate::stats::clean(format!("{}:{}", node.host, node.port).as_bytes()))
        .collect()
}

/// The round trips so far.
struct Trips {
    sent: u64,
    /// Nanoseconds of each that was answered.
    times: Histogram<u64>,
}

impl Trips {
    fn new() -> Trips {
        let times = Histogram::new_with_bounds(1, NANOSECONDS_MAX, DIGITS);
        Trips { sent: 0, times: times.expect("the bounds and the digits are valid") }
    }

    async fn run(&mut self, connection: &mut Connection, args: &PingArgs) -> anyhow::Result<()> {
        let mut ticks = (!args.interval.is_zero()).then(|| tokio::time::interval(args.interval));
        if let Some(ticks) = &mut ticks {
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        }
        while args.count == 0 || self.sent < args.count {
            if let Some(ticks) = &mut ticks {
                ticks.tick().await;
            }
            self.sent += 1;
            let opaque = self.sent as u32;
            let noop = RequestParts { opaque, ..RequestParts::new(Opcode::Noop) };
            let started = Instant::now();
            let response = connection.call(&noop, &Bytes::new()).await?;
            let elapsed = nanoseconds(started.elapsed());
            response.outcome()?;
            self.times.saturating_record(elapsed);
            if !args.json {
                print::line(&format!(
                    "round trip {}: {}",
                    self.sent,
                    milliseconds(elapsed as f64)
                ))?;
            }
        }
        Ok(())
    }

    /// Nanoseconds; `None` before the first answer.
    fn figures(&self) -> Option<[(&'static str, f64); 5]> {
        let times = &self.times;
        (!times.is_empty()).then(|| {
            [
                ("min", times.min() as f64),
                ("avg", times.mean()),
                ("p50", times.value_at_quantile(0.5) as f64),
                ("p99", times.value_at_quantile(0.99) as f64),
                ("max", times.max() as f64),
            ]
        })
    }

    fn describe(&self) -> String {
        let counts = format!("{} sent, {} answered", self.sent, self.times.len());
        match self.figures() {
            Some(figures) => {
                let text = figures.map(|(name, time)| format!("{name} {}", milliseconds(time)));
                format!("{counts}: {}", text.join(", "))
            }
            None => counts,
        }
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn milliseconds(nanoseconds: f64) -> String {
    format!("{:.3} ms", nanoseconds / 1e6)
}

#[cfg(test)]
mod tests {
    //! The report's text.

    use super::*;

    #[test]
    fn the_report_has_the_usual_figures() {
        let mut trips = Trips::new();
        assert_eq!(trips.describe(), "0 sent, 0 answered");
        for microseconds in 1..=100 {
            trips.times.saturating_record(microseconds * 1000);
            trips.sent += 1;
        }
        trips.sent += 1;
        let text = "101 sent, 100 answered: min 0.001 ms, avg 0.051 ms, p50 0.050 ms, \
                    p99 0.099 ms, max 0.100 ms";
        assert_eq!(trips.describe(), text);
    }

    #[test]
    fn no_pause_is_a_choice() {
        assert_eq!(parse_pause("0"), Ok(Duration::ZERO));
        assert_eq!(parse_pause("1s"), Ok(Duration::from_secs(1)));
        assert!(parse_pause("1ms").is_err());
    }
}
