//! The table of the load: an existing one, or one created for the run and dropped with it.
//!
//! Invariant: a table that was created here, or may have been, is dropped however the run ends,
//! unless the user keeps it. [`LoadTable::finish`] drops it, or the drop of the value on an earlier
//! failure. An existing table is never dropped or altered.

use anyhow::{Context, Result};
use oribi_kudu::{
    Client, ColumnSchema, DataType, Error, HashPartition, Schema, TableCreator, Value,
};
use tokio::runtime::Runtime;

use super::generator::span_per_thread;
use super::options::LoadgenArgs;

/// Name of the key column of a created table.
const KEY: &str = "key";

/// See the module text.
pub struct LoadTable<'a> {
    runtime: &'a Runtime,
    client: Client,
    name: String,
    is_to_be_dropped: bool,
}

impl<'a> LoadTable<'a> {
    /// Names the table, and creates it if none was named.
    pub fn prepare(
        runtime: &'a Runtime,
        client: &Client,
        args: &LoadgenArgs,
    ) -> Result<LoadTable<'a>> {
        let client = client.clone();
        if !args.is_auto_table() {
            let name = args.table_name.clone();
            return Ok(LoadTable { runtime, client, name, is_to_be_dropped: false });
        }
        let name = auto_name(&args.auto_database)?;
        // From here on: a creation that fails may have made the table nevertheless.
        let table = LoadTable { runtime, client, name, is_to_be_dropped: !args.keep_auto_table };
        runtime
            .block_on(create(&table.client, &table.name, args))
            .with_context(|| format!("cannot create the table {}", table.name))?;
        Ok(table)
    }

    /// Name of the table.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// True when [`LoadTable::finish`] will drop it.
    pub fn is_to_be_dropped(&self) -> bool {
        self.is_to_be_dropped
    }

    /// Drops the table if it was made for the run.
    pub fn finish(mut self) -> Result<()> {
        self.drop_table()
    }

    fn drop_table(&mut self) -> Result<()> {
        if !std::mem::replace(&mut self.is_to_be_dropped, false) {
            return Ok(());
        }
        match self.runtime.block_on(self.client.delete_table(&self.name)) {
            Ok(()) | Err(Error::TableNotFound { .. }) => Ok(()),
            Err(error) => Err(error)
                .with_context(|| format!("the auto-created table {} is left behind", self.name)),
        }
    }
}

impl Drop for LoadTable<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.drop_table() {
            eprintln!("oribi: {error:#}");
        }
    }
}

fn auto_name(database: &str) -> Result<String> {
    let mut id = [0; 16];
    getrandom::fill(&mut id).context("no random numbers for the name of a table")?;
    let id = u128::from_be_bytes(id);
    Ok(match database {
        "" => format!("loadgen_auto_{id:032x}"),
        _ => format!("{database}.loadgen_auto_{id:032x}"),
    })
}

async fn create(client: &Client, name: &str, args: &LoadgenArgs) -> Result<()> {
    let schema = Schema::builder()
        .column(ColumnSchema::builder(KEY, DataType::Int64).key())
        .column(ColumnSchema::builder("int_val", DataType::Int32).nullable(true))
        .column(ColumnSchema::builder("string_val", DataType::String).nullable(true))
        .build()?;
    let mut creator = TableCreator::new(name, schema).range_columns([KEY]);
    for split in splits(args) {
        creator = creator.split(&[(KEY, Value::Int64(split))])?;
    }
    if let Ok(buckets @ 2..) = u32::try_from(args.table_num_hash_partitions) {
        creator = creator.hash_partition(HashPartition::new([KEY], buckets));
    }
    if let Ok(replicas @ 1..) = u32::try_from(args.table_num_replicas) {
        creator = creator.num_replicas(replicas);
    }
    client.create_table(creator).await?;
    Ok(())
}

/// Keys at which ranges begin, so that a sequential load fills all of them evenly; the outermost
/// have no end.
fn splits(args: &LoadgenArgs) -> Vec<i64> {
    let threads = args.kudu.num_threads.cast_signed();
    // Threads are few enough that their spans together are no more than there are keys.
    let span =
        span_per_thread(args.num_rows_per_thread, args.kudu.num_threads, 1).saturating_mul(threads);
    let per_range = span / args.table_num_range_partitions;
    let first = args.seq_start.cast_signed();
    (1..args.table_num_range_partitions)
        .map(|range| first.wrapping_add(range * per_range))
        .collect()
}

#[cfg(test)]
mod tests {
    //! Names and ranges of created tables.

    use clap::{Args, Command, FromArgMatches};

    use super::*;

    fn args(arguments: &[&str]) -> LoadgenArgs {
        let command = LoadgenArgs::augment_args(Command::new("loadgen").no_binary_name(true));
        LoadgenArgs::from_arg_matches(&command.get_matches_from(arguments)).unwrap()
    }

    #[test]
    fn names_are_the_other_tools_and_never_the_same() {
        let name = auto_name("default").unwrap();
        let digits = name.strip_prefix("default.loadgen_auto_").unwrap();
        assert_eq!(digits.len(), 32);
        assert!(
            digits.bytes().all(|digit| digit.is_ascii_hexdigit() && !digit.is_ascii_uppercase())
        );
        assert!(auto_name("").unwrap().starts_with("loadgen_auto_"));
        assert_ne!(auto_name("default").unwrap(), name);
    }

    #[test]
    fn ranges_split_the_keys_evenly() {
        assert!(splits(&args(&["m"])).is_empty());
        let arguments = ["m", "--table-num-range-partitions=4", "--seq-start=100"];
        assert_eq!(splits(&args(&arguments)), [600, 1100, 1600]);
        let arguments = ["m", "--table-num-range-partitions=2", "--num-rows-per-thread=-1"];
        assert_eq!(splits(&args(&arguments)), [i64::MAX / 2]);
    }
}
