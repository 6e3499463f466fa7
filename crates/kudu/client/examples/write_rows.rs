//! Many rows as fast as the cluster takes them, and what becomes of those that it refuses:
//! `cargo run -p oribi-kudu --example write_rows -- MASTERS`

use std::time::Duration;

use oribi_kudu::{
    ClientBuilder, ColumnSchema, DataType, FlushMode, HashPartition, Schema, Session, SessionError,
    SessionOptions, TableCreator,
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let masters = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:7051".to_owned());
    run(&masters).await
}

/// Many rows, written in the background.
pub async fn run(masters: &str) -> Result<(), Box<dyn std::error::Error>> {
    let client = ClientBuilder::from_addresses(masters)?
        .rpc_timeout(Duration::from_secs(60))
        .build()
        .await?;
    let schema = Schema::builder()
        .column(ColumnSchema::builder("id", DataType::Int64).key())
        .column(ColumnSchema::builder("text", DataType::String).nullable(true))
        .build()?;
    let creator = TableCreator::new("write_rows", schema)
        .hash_partition(HashPartition::new(["id"], 8))
        .num_replicas(1);
    let table = client.create_table(creator).await?;

    let options = SessionOptions::new().flush_mode(FlushMode::Background).buffer_bytes_max(4 << 20);
    let mut session = Session::new(&table, options);
    for id in 0..50_000 {
        let mut row = session.insert();
        // By number and not by name: columns are then not looked up for each row.
        row.set_i64(0, id)?.set_string(1, "some text")?;
        // Encodes into the buffers of the row's tablet, and waits only while they are full.
        row.apply().await?;
    }
    let mut row = session.insert();
    row.set_i64(0, 17)?.set_string(1, "once more")?;
    row.apply().await?;

    match session.flush().await {
        Err(SessionError::RowsFailed { failed_rows, .. }) => {
            println!("{failed_rows} rows failed");
            for failed in session.take_errors().iter() {
                // INSERT of (id = Int64(17)): AlreadyPresent: key already present
                println!("{failed}");
            }
        }
        flushed => println!("{} rows", flushed?.rows),
    }
    println!("{:?}", session.statistics());
    client.delete_table("write_rows").await?;
    Ok(())
}
