//! The command line of `oribi perf loadgen`, and the checked options.
//!
//! Flags, defaults and meanings are those of `kudu perf loadgen` of Kudu 1.18; its spelling with
//! underscores works too, and so does `--flag=false`. Two features of that tool are missing here:
//! transactions, which Kudu itself calls experimental, and flags with a single dash.

use clap::Args;
use serde_json::{Value, json};

use crate::perf::kudu::KuduArgs;
use crate::perf::report::OutputArgs;

/// Longest generated string: the largest cell that a server takes as it is configured normally.
const STRING_BYTES_MAX: u64 = 64 * 1024;
/// Largest buffer of a session.
const BUFFER_BYTES_MAX: u64 = 1 << 30;
/// Most partitions of either kind; the master refuses long before.
const PARTITIONS_MAX: i64 = 10_000;
/// Most keys to choose from: numbers stay exact as floating point, which the zipfian choice needs.
const ZIPF_KEYS_MAX: u64 = 1 << 52;

/// Write generated rows into Kudu as fast as possible.
///
/// Flags, table, data, report and clean-up are those of `kudu perf loadgen`, so that both tools can
/// be compared and used on the same table. The table that is created for the run is dropped at its
/// end, even after errors and Ctrl-C.
#[derive(Args, Clone, Debug)]
pub struct LoadgenArgs {
    #[command(flatten)]
    pub kudu: KuduArgs,
    /// Database in whose name the table is created; may be empty.
    #[arg(long, alias = "auto_database", value_name = "NAME", default_value = "default")]
    pub auto_database: String,
    /// Share of the buffer that is filled before it is sent, 0 to 1.
    #[arg(long, alias = "buffer_flush_watermark_pct", value_name = "SHARE", default_value_t = 0.5, value_parser = parse_share)]
    pub buffer_flush_watermark_pct: f64,
    /// Bytes of rows that a session holds, sent or not.
    #[arg(long, alias = "buffer_size_bytes", value_name = "BYTES", default_value_t = 4 << 20,
          value_parser = clap::value_parser!(u64).range(1..=BUFFER_BYTES_MAX))]
    pub buffer_size_bytes: u64,
    /// Accepted for compatibility, without effect: each tablet has its own buffer and one Write in
    /// flight.
    #[arg(long, alias = "buffers_num", value_name = "COUNT", default_value_t = 2)]
    pub buffers_num: u32,
    /// Bytes of failed rows that a session keeps; 0 for no limit.
    #[arg(long, alias = "error_buffer_size_bytes", value_name = "BYTES", default_value_t = 16 << 20)]
    pub error_buffer_size_bytes: u64,
    /// Send after this many rows; 0 sends by the fill of the buffer.
    #[arg(long, alias = "flush_per_n_rows", value_name = "ROWS", default_value_t = 0)]
    pub flush_per_n_rows: u64,
    /// Keep the created table and its rows.
    #[arg(long, alias = "keep_auto_table", num_args = 0..=1, require_equals = true, value_name = "BOOL",
          default_value_t = false, default_missing_value = "true")]
    pub keep_auto_table: bool,
    /// Rows of each thread; -1 for no limit.
    #[arg(long, alias = "num_rows_per_thread", value_name = "ROWS", default_value_t = 1000, allow_negative_numbers = true,
          value_parser = clap::value_parser!(i64).range(-1..))]
    pub num_rows_per_thread: i64,
    /// Delete the rows afterwards, one by one.
    #[arg(long, alias = "run_cleanup", num_args = 0..=1, require_equals = true, value_name = "BOOL",
          default_value_t = false, default_missing_value = "true")]
    pub run_cleanup: bool,
    /// Count the rows of the table afterwards, and fail if their number is wrong.
    #[arg(long, alias = "run_scan", num_args = 0..=1, require_equals = true, value_name = "BOOL",
          default_value_t = false, default_missing_value = "true")]
    pub run_scan: bool,
    /// First number of the sequence; for another run on the same table, add threads x rows x
    /// columns.
    #[arg(long, alias = "seq_start", value_name = "NUMBER", default_value_t = 0)]
    pub seq_start: u64,
    /// Failed rows of each thread to show.
    #[arg(long, alias = "show_first_n_errors", value_name = "ROWS", default_value_t = 0)]
    pub show_first_n_errors: usize,
    /// Text for all string and binary columns.
    #[arg(
        long,
        alias = "string_fixed",
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    pub string_fixed: String,
    /// Bytes of generated strings.
    #[arg(long, alias = "string_len", value_name = "BYTES", default_value_t = 32,
          value_parser = clap::value_parser!(u64).range(0..=STRING_BYTES_MAX))]
    pub string_len: u64,
    /// Existing table to write into; it is neither created nor dropped.
    #[arg(
        long,
        alias = "table_name",
        value_name = "NAME",
        default_value = "",
        hide_default_value = true
    )]
    pub table_name: String,
    /// Hash partitions of the created table.
    #[arg(long, alias = "table_num_hash_partitions", value_name = "COUNT", default_value_t = 8,
          value_parser = clap::value_parser!(i64).range(1..=PARTITIONS_MAX))]
    pub table_num_hash_partitions: i64,
    /// Range partitions of the created table, which split the keys evenly.
    #[arg(long, alias = "table_num_range_partitions", value_name = "COUNT", default_value_t = 1,
          value_parser = clap::value_parser!(i64).range(1..=PARTITIONS_MAX))]
    pub table_num_range_partitions: i64,
    /// Replicas of the created table; 0 for the default of the cluster.
    #[arg(long, alias = "table_num_replicas", value_name = "COUNT", default_value_t = 1,
          value_parser = clap::value_parser!(i32).range(0..=i64::from(i8::MAX)))]
    pub table_num_replicas: i32,
    /// Give each thread its own client, and so its own connections.
    #[arg(long, alias = "use_client_per_thread", num_args = 0..=1, require_equals = true, value_name = "BOOL",
          default_value_t = true, default_missing_value = "true")]
    pub use_client_per_thread: bool,
    /// Random values in all columns, like both of the next two.
    #[arg(long, alias = "use_random", num_args = 0..=1, require_equals = true, value_name = "BOOL",
          default_value_t = false, default_missing_value = "true")]
    pub use_random: bool,
    /// Random keys; they depend on --seq-start only, so that a second run meets the same keys.
    #[arg(long, alias = "use_random_pk", num_args = 0..=1, require_equals = true, value_name = "BOOL",
          default_value_t = false, default_missing_value = "true")]
    pub use_random_pk: bool,
    /// Random values in columns that are not in the key.
    #[arg(long, alias = "use_random_non_pk", num_args = 0..=1, require_equals = true, value_name = "BOOL",
          default_value_t = false, default_missing_value = "true")]
    pub use_random_non_pk: bool,
    /// Send UPSERT instead of INSERT.
    #[arg(long, alias = "use_upsert", num_args = 0..=1, require_equals = true, value_name = "BOOL",
          default_value_t = false, default_missing_value = "true")]
    pub use_upsert: bool,
    /// Write this many keys again and again, from --seq-start on, the first ones most often, as
    /// `oribi perf kv --distribution zipf` chooses documents.
    #[arg(long, alias = "zipf_keys", value_name = "KEYS", requires = "use_upsert",
          conflicts_with_all = ["use_random", "use_random_pk", "run_scan", "run_cleanup"],
          value_parser = clap::value_parser!(u64).range(1..=ZIPF_KEYS_MAX))]
    pub zipf_keys: Option<u64>,
    #[command(flatten)]
    pub output: OutputArgs,
}

impl LoadgenArgs {
    /// True when the table is made for this run.
    pub fn is_auto_table(&self) -> bool {
        self.table_name.is_empty()
    }

    /// Rows of all threads; `None` for without end.
    pub fn rows_total(&self) -> Option<u64> {
        let rows = u64::try_from(self.num_rows_per_thread).ok()?;
        Some(rows.saturating_mul(self.kudu.num_threads))
    }

    /// True when keys are random.
    pub fn has_random_keys(&self) -> bool {
        self.use_random || self.use_random_pk
    }

    /// True when values outside of the key are random.
    pub fn has_random_values(&self) -> bool {
        self.use_random || self.use_random_non_pk
    }
}

/// Options that a result depends on.
pub fn options(args: &LoadgenArgs) -> Value {
    json!({
        "num_threads": args.kudu.num_threads,
        "num_rows_per_thread": args.num_rows_per_thread,
        "use_client_per_thread": args.use_client_per_thread,
        "buffer_size_bytes": args.buffer_size_bytes,
        "buffer_flush_watermark_pct": args.buffer_flush_watermark_pct,
        "flush_per_n_rows": args.flush_per_n_rows,
        "string_len": args.string_len,
        "string_fixed": !args.string_fixed.is_empty(),
        "seq_start": args.seq_start,
        "random_keys": args.has_random_keys(),
        "random_values": args.has_random_values(),
        "zipf_keys": args.zipf_keys,
        "table_num_hash_partitions": args.table_num_hash_partitions,
        "table_num_range_partitions": args.table_num_range_partitions,
        "table_num_replicas": args.table_num_replicas,
    })
}

fn parse_share(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err("a number from 0 to 1 is needed".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    //! Command lines of the other tool mean the same here.

    use clap::{Command, FromArgMatches};

    use super::*;

    fn parse(arguments: &[&str]) -> Result<LoadgenArgs, String> {
        let command = LoadgenArgs::augment_args(Command::new("loadgen").no_binary_name(true));
        let matches = command.try_get_matches_from(arguments).map_err(|error| error.to_string())?;
        LoadgenArgs::from_arg_matches(&matches).map_err(|error| error.to_string())
    }

    #[test]
    fn the_defaults_are_those_of_kudu() {
        let args = parse(&["127.0.0.1:7051"]).unwrap();
        assert_eq!((args.kudu.num_threads, args.num_rows_per_thread), (2, 1000));
        assert_eq!((args.buffer_size_bytes, args.error_buffer_size_bytes), (4_194_304, 16_777_216));
        assert_eq!((args.table_num_hash_partitions, args.table_num_range_partitions), (8, 1));
        assert_eq!(
            (args.kudu.timeout_ms, args.string_len, args.table_num_replicas),
            (60_000, 32, 1)
        );
        assert!(args.use_client_per_thread && args.is_auto_table());
        assert!(!args.run_scan && !args.run_cleanup && !args.keep_auto_table && !args.use_upsert);
        assert_eq!(args.rows_total(), Some(2000));
    }

    #[test]
    fn both_spellings_of_switches_are_accepted() {
        let args = parse(&[
            "a:1,b",
            "--num_rows_per_thread=-1",
            "--run_scan",
            "--use_client_per_thread=false",
            "--use-random-pk=true",
            "--table_name=t",
        ])
        .unwrap();
        assert_eq!(args.kudu.masters, ["a:1", "b"]);
        assert_eq!(args.rows_total(), None);
        assert!(args.run_scan && !args.use_client_per_thread && !args.is_auto_table());
        assert!(args.has_random_keys() && !args.has_random_values());
    }

    #[test]
    fn mistakes_are_named_with_what_is_allowed() {
        let cases: &[(&[&str], &str)] = &[
            (&[], "MASTERS"),
            (&["m", "--num-threads", "0"], "1..=1024"),
            (&["m", "--num-rows-per-thread", "-2"], "--num-rows-per-thread"),
            (&["m", "--buffer-flush-watermark-pct", "1.5"], "0 to 1"),
            (&["m", "--table-num-hash-partitions", "0"], "1..=10000"),
            (&["m", "--zipf-keys", "9"], "--use-upsert"),
            (&["m", "--zipf-keys", "9", "--use-upsert", "--run-scan"], "--run-scan"),
        ];
        for (arguments, text) in cases {
            let error = parse(arguments).unwrap_err();
            assert!(error.contains(text), "{arguments:?}: {error}");
        }
    }
}
