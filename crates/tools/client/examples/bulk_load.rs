//! A bulk load: thousands of writes in flight from one task, and a second try for those that
//! failed.
//!
//! Needs a server on this machine with its development user, as `oribi serve` starts one:
//! `cargo run --release -p oribi-client --example bulk_load`.

use std::error::Error;
use std::time::Instant;

use oribi_client::{
    Bytes, Client, Collection, Completion, ConnectOptions, Operation, PipelineOptions, WriteOptions,
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    run(ConnectOptions::new("Administrator", "password", "default"), 100_000).await
}

/// Loads so many documents.
pub async fn run(options: ConnectOptions, documents: u64) -> Result<(), Box<dyn Error>> {
    let client = Client::connect(options).await?;
    let collection = client.default_collection();
    let mut pipeline = client.pipeline(PipelineOptions::new().operations_max(2000));
    let began = Instant::now();
    let mut written = 0;
    for number in 0..documents {
        // Taking results while the pipeline is full bounds memory.
        while pipeline.is_full() {
            if let Some(completed) = pipeline.next().await {
                settle(&client, collection, completed).await?;
                written += 1;
            }
        }
        let (key, value) = document(number);
        pipeline.queue(collection, &Operation::upsert(&key, value, &WriteOptions::json()))?;
    }
    while let Some(completed) = pipeline.next().await {
        settle(&client, collection, completed).await?;
        written += 1;
    }
    println!("{written} documents in {:.2?}", began.elapsed());
    Ok(())
}

/// Results come in the order of the writes, so the number tells which document it was. A pipeline
/// repeats nothing by itself. Writing the same value twice does no harm here, so the client may try
/// again.
async fn settle(
    client: &Client,
    collection: &Collection,
    completed: Completion,
) -> Result<(), Box<dyn Error>> {
    if completed.result.is_err() {
        let (key, value) = document(completed.number);
        client.upsert(collection, &key, value, &WriteOptions::json()).await?;
    }
    Ok(())
}

fn document(number: u64) -> (Vec<u8>, Bytes) {
    let value = format!(r#"{{"number":{number}}}"#);
    (format!("bulk:{number}").into_bytes(), Bytes::from(value))
}
