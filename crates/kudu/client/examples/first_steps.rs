//! A table from its creation to its end: `cargo run -p oribi-kudu --example first_steps -- MASTERS`

use oribi_kudu::{
    ClientBuilder, ColumnSchema, DataType, HashPartition, Schema, Session, SessionOptions,
    TableCreator, Value,
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let masters = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:7051".to_owned());
    run(&masters).await
}

/// A table, some rows, and what is in it afterwards.
pub async fn run(masters: &str) -> Result<(), Box<dyn std::error::Error>> {
    let client = ClientBuilder::from_addresses(masters)?.build().await?;
    let schema = Schema::builder()
        .column(ColumnSchema::builder("id", DataType::Int64).key())
        .column(ColumnSchema::builder("name", DataType::String).nullable(false))
        .column(ColumnSchema::builder("height_m", DataType::Double).nullable(true))
        .build()?;
    let creator = TableCreator::new("first_steps", schema)
        .hash_partition(HashPartition::new(["id"], 4))
        .num_replicas(1);
    let table = client.create_table(creator).await?;

    let mut session = Session::new(&table, SessionOptions::default());
    for (id, name) in [(1, "Everest"), (2, "K2"), (3, "Kangchenjunga")] {
        let mut row = session.insert();
        row.set_i64("id", id)?.set_string("name", name)?;
        row.apply().await?;
    }
    let mut row = session.update();
    row.set_i64("id", 1)?.set_f64("height_m", 8848.86)?;
    row.apply().await?;
    session.flush().await?;

    let lookup = table.point_lookup().build()?;
    let found = lookup.get(&[Value::Int64(1)]).await?.ok_or("the row was just written")?;
    println!("{} {:?}", found.get::<&str>(1)?, found.get::<Option<f64>>(2)?);

    client.delete_table("first_steps").await?;
    Ok(())
}
