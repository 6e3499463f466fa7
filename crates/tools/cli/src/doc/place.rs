//! The location of documents: the server, and the collection on it.

use std::ffi::OsStr;

use clap::Args;
use oribi_client::{Client, Collection};

use crate::stats::clean;
use crate::target::{Target, find_collection};

/// The server and the collection on it.
#[derive(Args, Debug)]
pub struct CollectionTarget {
    #[command(flatten)]
    pub target: Target,
    /// Collection, as scope.collection; the default one if not given.
    #[arg(long)]
    pub collection: Option<String>,
}

impl CollectionTarget {
    /// Connects and looks up the collection. `unordered_execution` as in
    /// [`oribi_client::ConnectOptions`].
    pub async fn connect(&self, unordered_execution: bool) -> anyhow::Result<(Client, Collection)> {
        let options = self.target.options()?.unordered_execution(unordered_execution);
        let client = self.target.client(options).await?;
        let collection = find_collection(&client, self.collection.as_deref()).await?;
        Ok((client, collection))
    }
}

/// The message for a key without a document.
pub fn missing(key: &OsStr, collection: &Collection) -> String {
    format!("no {} in {}", named(key.as_encoded_bytes()), collection.path())
}

/// A document in a message. A key has any bytes, also those that control a terminal.
pub fn named(key: &[u8]) -> String {
    format!("document \"{}\"", clean(key))
}
