//! The command line of `oribi perf kv`, and the checked options.
//!
//! Names follow the load generator that is common in this field where the meaning is the same. The
//! command refuses a value out of range with the option's name and the range, before it connects.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use oribi_protocol::limits::{COLLECTION_KEY_BYTES_MAX, KEY_BYTES_MAX, VALUE_BYTES_MAX};
use serde::Serialize;

use super::flight::BATCH_OPERATIONS_MAX;
use super::key::{KEY_DIGITS_MAX, digits_of};
use super::protocol::Protocol;
use super::value::KvValueForm;
use crate::duration;
use crate::perf::key_choice::{
    Popularity, ZIPF_EXPONENT_DEFAULT, ZIPF_EXPONENT_MAX, ZIPF_EXPONENT_MIN,
};
use crate::perf::report::OutputArgs;
use crate::perf::workers::THREADS_MAX;
use crate::target::{DurabilityArgument, Target};

/// Most documents: numbers stay exact as floating point, which the zipfian choice needs.
const ITEMS_MAX: u64 = 1 << 53;
/// Most operations per second: one per nanosecond, the unit of the schedule.
const RATE_MAX: u64 = 1_000_000_000;
/// Longest run: a year.
const DURATION_S_MAX: f64 = 365.0 * 86_400.0;
/// Most keys of one `get`: those of any client's multi-get.
const KEYS_PER_GET_MAX: i64 = 10_000;
/// Most collections: their position is kept with each operation in 16 bits.
const COLLECTIONS_MAX: usize = 10_000;

/// Write and read documents, and verify every value that is read.
///
/// First every document is written (unless --no-population), then documents are read and written
/// until --num-cycles, --duration or Ctrl-C ends the load. A connection sends a batch of requests
/// at once (pipelined), and the next batch after all answers. Latency is the time from sending the
/// batch to receiving the answer: with --batch-size 1 it is a plain round trip.
///
/// Every value is verified by length, document and checksum. The exit status is 1 if a document was
/// missing or wrong, or an operation was refused.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "With --open-loop, operations are due at evenly spaced times, --rate-limit per second, \
    whether or not earlier ones were answered. Latency counts from when an operation was due, so it includes \
    the time that a stalled server makes later operations wait. --batch-size is then the most that is sent \
    at once."
)]
pub struct KvArgs {
    #[command(flatten)]
    pub target: Target,
    /// Number of documents.
    #[arg(short = 'I', long, value_name = "COUNT", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=ITEMS_MAX))]
    pub items: u64,
    /// Operations that a connection has in flight.
    #[arg(short = 'B', long, value_name = "COUNT", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=BATCH_OPERATIONS_MAX as i64))]
    pub batch_size: u32,
    /// Threads.
    #[arg(short = 't', long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=THREADS_MAX))]
    pub num_threads: u64,
    /// Connections of each thread to each node.
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=THREADS_MAX))]
    pub connections_per_thread: u64,
    /// Bytes of the smallest value; sizes are distributed uniformly.
    #[arg(short = 'm', long, value_name = "BYTES", default_value_t = 50, value_parser = clap::value_parser!(u64).range(0..=VALUE_BYTES_MAX as u64))]
    pub min_size: u64,
    /// Bytes of the largest value.
    #[arg(short = 'M', long, value_name = "BYTES", default_value_t = 5120, value_parser = clap::value_parser!(u64).range(0..=VALUE_BYTES_MAX as u64))]
    pub max_size: u64,
    /// Share of writes, in percent.
    #[arg(short = 'r', long, value_name = "PERCENT", default_value_t = 33, value_parser = clap::value_parser!(u8).range(0..=100))]
    pub set_pct: u8,
    /// Write every document once and exit.
    #[arg(long, conflicts_with = "no_population")]
    pub populate_only: bool,
    /// Do not write the documents first; missing ones are reported as misses.
    #[arg(short = 'n', long)]
    pub no_population: bool,
    /// Most operations per second, of all threads together; holds while populating, too.
    #[arg(long, value_name = "RATE", value_parser = clap::value_parser!(u64).range(1..=RATE_MAX))]
    pub rate_limit: Option<u64>,
    /// Send operations at fixed times, and count latency from then.
    #[arg(long, requires = "rate_limit")]
    pub open_loop: bool,
    /// Write JSON objects.
    #[arg(short = 'J', long)]
    pub json_documents: bool,
    /// Write random bytes, which do not compress, instead of words.
    #[arg(short = 'R', long)]
    pub random_body: bool,
    /// Compress values with Snappy, and ask for compressed ones.
    #[arg(long)]
    pub compress: bool,
    /// Collection, as scope.collection; may be given several times.
    #[arg(long)]
    pub collection: Vec<String>,
    /// Access documents in order; each connection has its own share.
    #[arg(long, conflicts_with_all = ["distribution", "zipf_exponent"])]
    pub sequential: bool,
    /// Batches of each connection; -1 for no limit.
    #[arg(short = 'c', long, value_name = "BATCHES", default_value_t = -1, allow_negative_numbers = true, value_parser = parse_cycles)]
    pub num_cycles: i64,
    /// Length of the load, such as 30 (seconds), 30s or 5m.
    #[arg(long, value_name = "TIME", value_parser = parse_length)]
    pub duration: Option<f64>,
    /// Prefix of keys; the number of the document follows.
    #[arg(short = 'p', long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub key_prefix: String,
    /// Digits of the number in a key.
    #[arg(long, value_name = "COUNT", default_value_t = KEY_DIGITS_MAX as u8, value_parser = clap::value_parser!(u8).range(1..=KEY_DIGITS_MAX as i64))]
    pub key_digits: u8,
    /// Seed of all random choices; runs with the same seed make the same ones.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub random_seed: u64,
    /// How documents are chosen.
    #[arg(long, value_enum, default_value_t = Distribution::Uniform)]
    pub distribution: Distribution,
    /// Exponent of the zipfian distribution, 0.01 to 10.
    #[arg(long, value_name = "NUMBER", value_parser = parse_exponent)]
    pub zipf_exponent: Option<f64>,
    /// Expiry of documents: seconds up to 30 days, beyond that UNIX time. 0 for never.
    #[arg(short = 'e', long, value_name = "SECONDS", default_value_t = 0)]
    pub expiry: u32,
    /// Durability of a write.
    #[arg(short = 'd', long, value_enum, default_value_t = DurabilityArgument::None)]
    pub durability: DurabilityArgument,
    /// Most retries of an operation that the server refuses for the moment.
    #[arg(long, value_name = "COUNT", default_value_t = 100)]
    pub retries: u16,
    /// Do not fail for missing documents, for instance because they expire.
    #[arg(long)]
    pub allow_misses: bool,
    /// Use the plain memcached binary protocol: no login, no bucket, vbucket 0.
    #[arg(long, conflicts_with_all = ["collection", "durability", "compress"])]
    pub memcached: bool,
    /// Protocol of the load: binary, or memcached's text protocol or meta commands. These two need
    /// no bucket and no cluster map, and log in only with --user.
    #[arg(long, value_enum, default_value_t = Protocol::Binary, conflicts_with = "memcached")]
    pub protocol: Protocol,
    /// With --protocol text, most keys of one get: consecutive reads of a batch are one command.
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=KEYS_PER_GET_MAX))]
    pub keys_per_get: u32,
    /// Process ID of a server on this machine, to report its CPU time as well (Linux).
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pub server_pid: Option<u32>,
    /// Only write the operations that the load would do with --no-population to this file: 8 bytes
    /// each, little-endian, twice the number of the document, plus one for a write.
    #[arg(long, value_name = "FILE")]
    pub choices: Option<PathBuf>,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// See [`Popularity`].
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Distribution {
    /// All documents alike.
    Uniform,
    /// The first documents more often than the last.
    Zipf,
}

impl KvArgs {
    /// Checks what no single option shows; the error names the options and what they allow.
    pub fn check(&self) -> Result<(), String> {
        let KvArgs { min_size, max_size, .. } = self;
        if min_size > max_size {
            return Err(format!(
                "--min-size is {min_size} and --max-size {max_size}: --min-size has to be at most \
                 --max-size, which may be 0 to {VALUE_BYTES_MAX}"
            ));
        }
        if self.json_documents && *min_size == 0 {
            return Err("--min-size has to be at least 1 for --json-documents".to_owned());
        }
        if self.zipf_exponent.is_some() && self.distribution != Distribution::Zipf {
            return Err("--zipf-exponent needs --distribution zipf".to_owned());
        }
        self.check_protocol()?;
        self.check_keys()
    }

    /// Refuses what the text protocols do not have.
    fn check_protocol(&self) -> Result<(), String> {
        if self.keys_per_get > 1 && self.protocol != Protocol::Text {
            return Err("--keys-per-get needs --protocol text".to_owned());
        }
        if self.protocol == Protocol::Binary {
            return Ok(());
        }
        let absent = [
            ("--collection", !self.collection.is_empty()),
            ("--durability", self.durability != DurabilityArgument::None),
            ("--compress", self.compress),
            ("TLS", self.target.with_tls()),
        ];
        if let Some((option, _)) = absent.iter().find(|(_, is_given)| *is_given) {
            return Err(format!("{option} needs --protocol binary"));
        }
        // Both end a key in the text protocols.
        if self.key_prefix.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
            return Err(
                "--key-prefix of --protocol text or meta may have no spaces and no control \
                        characters"
                    .to_owned(),
            );
        }
        Ok(())
    }

    fn check_keys(&self) -> Result<(), String> {
        let key_bytes_max = match self.collection.is_empty() {
            true => KEY_BYTES_MAX,
            false => COLLECTION_KEY_BYTES_MAX,
        };
        let digits = usize::from(self.key_digits);
        if digits < digits_of(self.items) {
            let needed = digits_of(self.items);
            return Err(format!("--key-digits has to be at least {needed} for so many --items"));
        }
        let (bytes, bytes_max) = (self.key_prefix.len(), key_bytes_max - digits);
        if bytes > bytes_max {
            return Err(format!("--key-prefix may have 0 to {bytes_max} bytes, this has {bytes}"));
        }
        let collections = self.collection.len();
        if collections > COLLECTIONS_MAX {
            return Err(format!("--collection may be given {COLLECTIONS_MAX} times at most"));
        }
        for (position, path) in self.collection.iter().enumerate() {
            if self.collection[..position].contains(path) {
                return Err(format!("--collection {path} is given twice"));
            }
        }
        Ok(())
    }

    /// How documents are chosen.
    pub fn popularity(&self) -> Popularity {
        match self.distribution {
            _ if self.sequential => Popularity::Sequential,
            Distribution::Uniform => Popularity::Uniform,
            Distribution::Zipf => {
                Popularity::Zipf(self.zipf_exponent.unwrap_or(ZIPF_EXPONENT_DEFAULT))
            }
        }
    }

    pub fn form(&self) -> KvValueForm {
        if self.json_documents { KvValueForm::Json } else { KvValueForm::Binary }
    }

    /// Paths of the collections; the default one if none is given.
    pub fn collections(&self) -> Vec<String> {
        match self.collection.is_empty() {
            true => vec!["_default._default".to_owned()],
            false => self.collection.clone(),
        }
    }

    /// Connections to each node.
    pub fn workers(&self) -> usize {
        // Both factors are at most 1024.
        (self.num_threads * self.connections_per_thread) as usize
    }

    /// Operations of each worker after the population; `None` for without end.
    pub fn operations_per_worker(&self) -> Option<u64> {
        let cycles = u64::try_from(self.num_cycles).ok()?;
        Some(cycles.saturating_mul(u64::from(self.batch_size)))
    }

    /// Length of the load.
    pub fn length(&self) -> Option<Duration> {
        self.duration.map(Duration::from_secs_f64)
    }
}

fn parse_cycles(text: &str) -> Result<i64, String> {
    match text.parse() {
        Ok(cycles @ (-1 | 1..)) => Ok(cycles),
        _ => Err("a number from 1 on is needed, or -1 for without end".to_owned()),
    }
}

fn parse_length(text: &str) -> Result<f64, String> {
    match duration::parse(text).map(|length| length.as_secs_f64()) {
        Some(seconds) if (0.001..=DURATION_S_MAX).contains(&seconds) => Ok(seconds),
        _ => Err(format!("a time from 1ms to {DURATION_S_MAX}s is needed, such as 30, 30s or 5m")),
    }
}

fn parse_exponent(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(exponent) if (ZIPF_EXPONENT_MIN..=ZIPF_EXPONENT_MAX).contains(&exponent) => Ok(exponent),
        _ => Err(format!("a number from {ZIPF_EXPONENT_MIN} to {ZIPF_EXPONENT_MAX} is needed")),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    //! What is refused names the option and the range, and what is accepted means what it says.

    use clap::{Args, Command, FromArgMatches};

    use super::*;

    /// The options of a command line.
    pub(crate) fn parse(arguments: &[&str]) -> Result<KvArgs, String> {
        let command = KvArgs::augment_args(Command::new("kv").no_binary_name(true));
        let matches = command.try_get_matches_from(arguments).map_err(|error| error.to_string())?;
        let args = KvArgs::from_arg_matches(&matches).map_err(|error| error.to_string())?;
        args.check().map(|()| args)
    }

    #[test]
    fn the_defaults_are_accepted() {
        let args = parse(&[]).unwrap();
        assert_eq!((args.items, args.batch_size, args.set_pct), (1000, 100, 33));
        assert_eq!((args.operations_per_worker(), args.length()), (None, None));
        assert_eq!(args.popularity(), Popularity::Uniform);
        assert_eq!(args.collections(), ["_default._default"]);
    }

    #[test]
    fn short_names_are_those_that_people_know() {
        let args = parse(&[
            "-I", "5000", "-B", "10", "-t", "2", "-m", "10", "-M", "20", "-r", "20", "-c", "7",
            "-J", "-R", "-n", "-p", "x:",
        ])
        .unwrap();
        assert_eq!((args.items, args.operations_per_worker()), (5000, Some(70)));
        assert_eq!((args.workers(), args.form()), (2, KvValueForm::Json));
        assert!(args.random_body && args.no_population);
        assert_eq!(args.key_prefix, "x:");
    }

    #[test]
    fn mistakes_are_named_with_what_is_allowed() {
        let long = "k".repeat(231);
        let cases: &[(&[&str], &[&str])] = &[
            (&["-m", "9", "-M", "8"], &["--min-size", "--max-size", "0 to 20971520"]),
            (&["-M", "20971521"], &["--max-size", "0..=20971520"]),
            (&["-r", "101"], &["--set-pct", "0..=100"]),
            (&["-I", "0"], &["--items", "1..="]),
            (&["-B", "65537"], &["--batch-size", "1..=65536"]),
            (
                &["--zipf-exponent", "11", "--distribution", "zipf"],
                &["--zipf-exponent", "0.01 to 10"],
            ),
            (
                &["--zipf-exponent", "nan", "--distribution", "zipf"],
                &["--zipf-exponent", "0.01 to 10"],
            ),
            (&["--zipf-exponent", "1.5"], &["--zipf-exponent needs --distribution zipf"]),
            (&["-c", "0"], &["--num-cycles", "from 1 on", "-1"]),
            (&["--duration", "0"], &["--duration", "from 1ms to"]),
            (&["--duration", "5 s"], &["--duration", "such as 30, 30s or 5m"]),
            (&["--open-loop"], &["--rate-limit"]),
            (&["--rate-limit", "0"], &["--rate-limit", "1..="]),
            (&["--populate-only", "--no-population"], &["--populate-only", "--no-population"]),
            (&["--memcached", "--compress"], &["--memcached", "--compress"]),
            (&["--memcached", "--protocol", "text"], &["--memcached", "--protocol"]),
            (&["--protocol", "http"], &["--protocol", "binary, text, meta"]),
            (&["--keys-per-get", "2"], &["--keys-per-get needs --protocol text"]),
            (&["--keys-per-get", "2", "--protocol", "meta"], &["--keys-per-get needs"]),
            (&["--keys-per-get", "0", "--protocol", "text"], &["--keys-per-get", "1..=10000"]),
            (&["--protocol", "text", "--collection", "a.b"], &["--collection needs --protocol"]),
            (&["--protocol", "meta", "-d", "persist"], &["--durability needs --protocol binary"]),
            (&["--protocol", "text", "--compress"], &["--compress needs --protocol binary"]),
            (&["--protocol", "text", "--host", "couchbases://a"], &["TLS needs --protocol binary"]),
            (&["--protocol", "meta", "-p", "a b"], &["--key-prefix", "no spaces"]),
            (&["--sequential", "--distribution", "zipf"], &["--sequential", "--distribution"]),
            (&["--key-prefix", &long], &["--key-prefix", "0 to 230", "231"]),
            (&["--collection", "a.b", "--collection", "a.b"], &["a.b is given twice"]),
            (&["--key-digits", "21"], &["--key-digits", "1..=20"]),
            (&["-I", "1001", "--key-digits", "3"], &["--key-digits", "at least 4", "--items"]),
            (&["-J", "-m", "0"], &["--min-size", "--json-documents"]),
            (&["--itmes", "5"], &["--items"]),
        ];
        for (arguments, texts) in cases {
            let error = parse(arguments).expect_err("refused");
            for text in *texts {
                assert!(error.contains(text), "{arguments:?}: {error}");
            }
        }
    }

    #[test]
    fn distributions_are_as_asked_for() {
        let zipf = parse(&["--distribution", "zipf"]).unwrap();
        assert_eq!(zipf.popularity(), Popularity::Zipf(0.99));
        let zipf = parse(&["--distribution", "zipf", "--zipf-exponent", "1"]).unwrap();
        assert_eq!(zipf.popularity(), Popularity::Zipf(1.0));
        assert_eq!(parse(&["--sequential"]).unwrap().popularity(), Popularity::Sequential);
        assert_eq!(parse(&["-c", "-1"]).unwrap().operations_per_worker(), None);
    }
}
