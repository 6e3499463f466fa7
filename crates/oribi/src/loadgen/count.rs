//! Counting the rows of a table after a load.
//!
//! Reads what this client, and those whose timestamps it was told, have written: without that a replica that
//! lags behind would be believed.

use anyhow::Result;
use oribi_kudu::{Client, ReadMode};

/// The number of rows of a table.
pub async fn count_rows(client: &Client, table: &str) -> Result<u64> {
    let table = client.open_table(table).await?;
    Ok(table.scan().read_mode(ReadMode::YourWrites).count().await?)
}
