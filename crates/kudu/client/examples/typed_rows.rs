//! Structs as rows, written and read: `cargo run -p oribi-kudu --example typed_rows -- MASTERS`

use oribi_kudu::{
    ClientBuilder, ColumnSchema, ColumnSchemaBuilder, DataType, HashPartition, KuduRow, ReadMode,
    Schema, Session, SessionOptions, Table, TableCreator, Value,
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let masters = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:7051".to_owned());
    run(&masters).await
}

/// A row as it is written: its text is borrowed.
#[derive(KuduRow)]
struct Reading<'a> {
    sensor: i32,
    /// Microseconds since 1970-01-01T00:00:00Z.
    #[kudu(column = "measured_at")]
    at_micros: i64,
    /// In hundredths, as the column has two digits after the point.
    celsius: Option<i32>,
    remark: &'a str,
}

/// The columns that the report needs.
#[derive(Debug, PartialEq, KuduRow)]
struct Temperature {
    sensor: i32,
    celsius: Option<i32>,
}

/// Structs as rows of a table.
pub async fn run(masters: &str) -> Result<(), Box<dyn std::error::Error>> {
    let client = ClientBuilder::from_addresses(masters)?.build().await?;
    let schema = Schema::builder()
        .column(ColumnSchema::builder("sensor", DataType::Int32).key())
        .column(ColumnSchema::builder("measured_at", DataType::UnixtimeMicros).key())
        .column(ColumnSchemaBuilder::decimal("celsius", 5, 2))
        .column(ColumnSchema::builder("remark", DataType::String))
        .build()?;
    let creator = TableCreator::new("typed_rows", schema)
        .hash_partition(HashPartition::new(["sensor"], 3))
        .num_replicas(1);
    let table = client.create_table(creator).await?;
    let outcome = use_rows(&table).await;
    client.delete_table("typed_rows").await?;
    outcome
}

async fn use_rows(table: &Table) -> Result<(), Box<dyn std::error::Error>> {
    let mut session = Session::new(table, SessionOptions::new());
    for sensor in 0..100 {
        let remark = format!("sensor {sensor} is new");
        let celsius = (sensor % 10 != 0).then_some(2000 + sensor);
        session.insert_row(&Reading { sensor, at_micros: 17, celsius, remark: &remark }).await?;
    }
    let gone = Reading { sensor: 99, at_micros: 17, celsius: None, remark: "" };
    session.delete_row(&gone).await?;
    session.flush().await?;

    // All at once, as structs that own what they have.
    let scan = table.scan().read_mode(ReadMode::YourWrites);
    let mut all: Vec<Temperature> =
        scan.clone().columns_of::<Temperature>().build()?.read_all().await?;
    all.sort_by_key(|row| row.sensor);
    assert_eq!(all.len(), 99);
    assert_eq!(all[10], Temperature { sensor: 10, celsius: None });
    assert_eq!(all[11], Temperature { sensor: 11, celsius: Some(2011) });

    // Batch by batch, as structs that borrow from the batch.
    let mut scanner = scan.columns_of::<Reading>().build()?;
    while let Some(batch) = scanner.next_batch().await? {
        for reading in batch.rows_as::<Reading>()? {
            let Reading { sensor, at_micros, remark, .. } = reading?;
            println!("{sensor} at {at_micros}: {remark}");
        }
    }

    // One row by its key.
    let lookup = table.point_lookup().columns_of::<Temperature>().build()?;
    let key = [Value::Int32(7), Value::UnixtimeMicros(17)];
    let found = lookup.get(&key).await?.ok_or("the row was just written")?;
    println!("{:?}", found.read::<Temperature>()?);
    Ok(())
}
