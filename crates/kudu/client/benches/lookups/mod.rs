//! Looks up rows by key, at random, with a number of lookups in flight over one connection per
//! server.
//!
//! Everything runs on one thread, so the process's time is the client's. Keys are those that the
//! load generators write, from 0 on, and each has to be there: a miss ends the measurement. The
//! first lookups, which find out where tablets are and connect, are not counted.

use std::error::Error;
use std::time::{Duration, Instant};

use oribi_kudu::{ClientBuilder, PointLookup, Value};
use rustix::time::{ClockId, clock_gettime};

/// Lookups before the clock starts.
const WARM_UP: u64 = 200;

/// What is looked up, and where.
struct Options {
    masters: String,
    table: String,
    /// Keys are below this.
    keys: u64,
    lookups: u64,
    in_flight: usize,
}

impl Options {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Options, Box<dyn Error>> {
        let mut options = Options {
            masters: String::new(),
            table: String::new(),
            keys: 0,
            lookups: 1000,
            in_flight: 16,
        };
        while let Some(name) = arguments.next() {
            // Cargo adds it to whatever it runs as a bench.
            if name == "--bench" {
                continue;
            }
            let value = arguments.next().ok_or_else(|| format!("{name} needs a value"))?;
            match name.as_str() {
                "--masters" => options.masters = value,
                "--table" => options.table = value,
                "--keys" => options.keys = value.parse()?,
                "--lookups" => options.lookups = value.parse()?,
                "--in-flight" => options.in_flight = value.parse()?,
                _ => return Err(format!("unknown option {name}").into()),
            }
        }
        if options.table.is_empty() || options.keys == 0 {
            return Err("--masters, --table and --keys are needed".into());
        }
        Ok(options)
    }
}

/// Runs the measurement; one JSON object.
pub fn run(arguments: impl Iterator<Item = String>) -> Result<String, Box<dyn Error>> {
    let options = Options::parse(arguments)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(measure(&options))
}

async fn measure(options: &Options) -> Result<String, Box<dyn Error>> {
    let client = ClientBuilder::from_addresses(&options.masters)?.build().await?;
    let lookup = client.open_table(&options.table).await?.point_lookup().build()?;
    look_up(&lookup, options, 0..WARM_UP).await?;
    let (started, cpu_before) = (Instant::now(), process_time());
    look_up(&lookup, options, WARM_UP..WARM_UP + options.lookups).await?;
    let (seconds, cpu) = (started.elapsed().as_secs_f64(), process_time() - cpu_before);
    let cpu_us = cpu.as_secs_f64() * 1e6 / options.lookups as f64;
    Ok(format!(
        r#"{{"lookups": {}, "seconds": {seconds}, "cpu_us_per_lookup": {cpu_us}}}"#,
        options.lookups
    ))
}

async fn look_up(
    lookup: &PointLookup,
    options: &Options,
    numbers: std::ops::Range<u64>,
) -> Result<(), Box<dyn Error>> {
    let key = |number: u64| [Value::Int64((scatter(number) % options.keys).cast_signed())];
    let mut rows = lookup.get_many(numbers.map(key), options.in_flight);
    while let Some(row) = rows.next().await {
        row?.ok_or("a row is missing")?;
    }
    Ok(())
}

/// Spreads consecutive numbers over all numbers, the same in every run (the finaliser of
/// SplitMix64).
fn scatter(number: u64) -> u64 {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Processor time of the process so far.
fn process_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    // Both are never negative for this clock.
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}
