//! Ways to read: one row, many rows by key, all rows in parallel, some columns of some rows.
//! `cargo run -p oribi-kudu --example read_rows -- MASTERS`

use oribi_kudu::{
    ClientBuilder, ColumnSchema, DataType, HashPartition, Layout, Predicate, ReadMode,
    ReplicaSelection, Schema, Session, SessionOptions, Table, TableCreator, TokenOptions, Value,
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let masters = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:7051".to_owned());
    run(&masters).await
}

/// Scans and look-ups of the rows of a table.
pub async fn run(masters: &str) -> Result<(), Box<dyn std::error::Error>> {
    let client = ClientBuilder::from_addresses(masters)?.build().await?;
    let schema = Schema::builder()
        .column(ColumnSchema::builder("id", DataType::Int64).key())
        .column(ColumnSchema::builder("square", DataType::Int64).nullable(false))
        .build()?;
    let creator = TableCreator::new("read_rows", schema)
        .hash_partition(HashPartition::new(["id"], 4))
        .num_replicas(1);
    let table = client.create_table(creator).await?;
    let mut session = Session::new(&table, SessionOptions::default());
    for id in 0..10_000 {
        let mut row = session.insert();
        row.set_i64(0, id)?.set_i64(1, id * id)?;
        row.apply().await?;
    }
    session.flush().await?;
    by_key(&table).await?;
    scans(&table).await?;
    client.delete_table("read_rows").await?;
    Ok(())
}

async fn by_key(table: &Table) -> Result<(), Box<dyn std::error::Error>> {
    let lookup = table.point_lookup().columns(["square"]).build()?;
    // One round trip.
    let found = lookup.get(&[Value::Int64(12)]).await?.ok_or("there is such a row")?;
    println!("12 squared is {}", found.get::<i64>(0)?);
    // Many at a time, over one connection per server; the answers come in the order of the keys.
    let mut sum = 0;
    let mut rows = lookup.get_many((0..1000).map(|id| [Value::Int64(id)]), 64);
    while let Some(row) = rows.next().await {
        sum += row?.map_or(Ok(0), |row| row.get::<i64>(0))?;
    }
    println!("the first thousand squares sum up to {sum}");
    Ok(())
}

async fn scans(table: &Table) -> Result<(), Box<dyn std::error::Error>> {
    // Includes every write that this client has seen acknowledged, whatever replica answers.
    let count = table.scan().read_mode(ReadMode::YourWrites).count().await?;
    println!("{count} rows");
    // Predicates are evaluated by the servers.
    let mut scanner = table
        .scan()
        .columns(["id"])
        .filter(Predicate::range("square", 100i64, 200i64))
        .replica_selection(ReplicaSelection::Leader)
        .build()?;
    while let Some(batch) = scanner.next_batch().await? {
        for row in batch.rows() {
            println!("{} has a square of three digits that begins with 1", row.get::<i64>(0)?);
        }
    }
    #[cfg(feature = "arrow")]
    record_batches(table).await?;
    // Parts of a scan, here each in a task; serialised, they can go to other machines.
    let scan = table.scan().read_mode(ReadMode::YourWrites);
    let client = table.client();
    let mut tasks = Vec::new();
    for token in scan.into_tokens(TokenOptions::default()).await? {
        let client = client.clone();
        tasks.push(tokio::spawn(async move { token.into_scanner(&client).await?.count().await }));
    }
    for task in tasks {
        println!("{} rows in one part", task.await??);
    }
    Ok(())
}

/// Arrow's record batches, for DataFusion, Polars and others.
#[cfg(feature = "arrow")]
async fn record_batches(table: &Table) -> Result<(), Box<dyn std::error::Error>> {
    let scan = table.scan().layout(Layout::Columnar).read_mode(ReadMode::YourWrites);
    let mut scanner = scan.build()?;
    let mut bytes = 0;
    while let Some(batch) = scanner.next_batch().await? {
        bytes += batch.to_record_batch()?.get_array_memory_size();
    }
    println!("all squares take {bytes} bytes in record batches");
    Ok(())
}
