//! The common part of the workloads on Kudu: the cluster's address, and numbers in the format of
//! Kudu's own tool.

use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use oribi_kudu::{Client, ClientBuilder};
use tokio::runtime::{Builder, Runtime};

use super::report::LatencySummary;
use super::workers::THREADS_MAX;

/// Longest time limit: a day, in milliseconds.
const TIMEOUT_MS_MAX: u64 = 86_400_000;

/// Digits of a number in a report: the default of the other tool's output stream.
const SIGNIFICANT_DIGITS: i32 = 6;

/// Where the cluster is, and how much is done at once.
#[derive(Args, Clone, Debug)]
pub struct KuduArgs {
    /// Masters, each HOST or HOST:PORT, separated by commas.
    #[arg(value_delimiter = ',', required = true)]
    pub masters: Vec<String>,
    /// Threads.
    #[arg(long, alias = "num_threads", value_name = "COUNT", default_value_t = 2,
          value_parser = clap::value_parser!(u64).range(1..=THREADS_MAX))]
    pub num_threads: u64,
    /// Time limit for setting up a connection, in milliseconds.
    #[arg(long, alias = "negotiation_timeout_ms", value_name = "MS", default_value_t = 3000,
          value_parser = clap::value_parser!(u64).range(1..=TIMEOUT_MS_MAX))]
    pub negotiation_timeout_ms: u64,
    /// Time limit for a request with all its retries, in milliseconds.
    #[arg(long, alias = "timeout_ms", value_name = "MS", default_value_t = 60_000,
          value_parser = clap::value_parser!(u64).range(1..=TIMEOUT_MS_MAX))]
    pub timeout_ms: u64,
}

impl KuduArgs {
    /// Time limit of one request.
    pub fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms)
    }

    /// Connects to the cluster.
    pub async fn connect(&self) -> Result<Client> {
        let client = ClientBuilder::from_addresses(&self.masters.join(","))?
            .rpc_timeout(self.timeout())
            .admin_timeout(self.timeout())
            .negotiation_timeout(Duration::from_millis(self.negotiation_timeout_ms))
            .build()
            .await;
        client.context("cannot reach the cluster")
    }

    /// Connects, on an event loop that this thread has to itself.
    pub fn connect_here(&self) -> Result<(Runtime, Client)> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.context("starting the event loop")?;
        let client = runtime.block_on(self.connect())?;
        Ok((runtime, client))
    }
}

/// How many requests there were, and how late their answers were.
pub fn percentiles_text(latency_ms: &LatencySummary) -> String {
    let figures = ["p50", "p95", "p99", "p99_9"]
        .map(|name| format!("{} {}", name.replace('_', "."), number(latency_ms.percentiles[name])));
    format!("{}, ms: {}, max {}", latency_ms.count, figures.join(", "), number(latency_ms.max))
}

/// A number with six significant digits and no trailing zeros; in powers of ten when it is very
/// small or has more digits before the point.
pub fn number(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return value.to_string();
    }
    // Rounding may carry into another digit, so the exponent is that of the rounded number.
    let scientific = format!("{value:.*e}", (SIGNIFICANT_DIGITS - 1) as usize);
    let (mantissa, exponent) = scientific.split_once('e').expect("the format has an exponent");
    let exponent = exponent.parse::<i32>().expect("the format's exponent is a number");
    if !(-4..SIGNIFICANT_DIGITS).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", without_zeros(mantissa), exponent.abs());
    }
    let decimals = (SIGNIFICANT_DIGITS - 1 - exponent) as usize;
    without_zeros(&format!("{value:.decimals$}")).to_owned()
}

fn without_zeros(digits: &str) -> &str {
    match digits.contains('.') {
        true => digits.trim_end_matches('0').trim_end_matches('.'),
        false => digits,
    }
}

#[cfg(test)]
mod tests {
    //! Numbers are the other tool's, digit for digit.

    use super::*;

    #[test]
    fn numbers_look_like_those_of_an_output_stream() {
        let cases = [
            (23.143, "23.143"),
            (0.011_571_5, "0.0115715"),
            (1126.7, "1126.7"),
            (999_999.4, "999999"),
            (999_999.6, "1e+06"),
            (12_345_678.0, "1.23457e+07"),
            (0.000_012_345_678, "1.23457e-05"),
            (0.000_1, "0.0001"),
            (100.0, "100"),
            (0.0, "0"),
            (2.0, "2"),
        ];
        for (value, text) in cases {
            assert_eq!(number(value), text, "{value:?}");
        }
    }
}
