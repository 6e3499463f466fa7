//! The tables of a running server.
//!
//! Owns: their names. `BUCKET` has the documents of all its collections, `BUCKET.SCOPE.COLLECTION`
//! those of one; of the bucket of the command line, `SCOPE.COLLECTION` is enough.

use std::sync::Arc;

use anyhow::{Result, bail};
use oribi_sql::catalog::Catalog;
use oribi_sql::documents::DocumentTable;
use oribi_sql::source::TableSource;

use super::server::ServerLink;
use super::server_documents::ServerDocuments;

/// The tables of a server.
pub struct ServerTables(pub Arc<ServerLink>);

impl Catalog for ServerTables {
    fn names(&self) -> Result<Vec<String>> {
        let near = self.0.near();
        let (mut names, mut of_collections) = (self.0.buckets()?, Vec::new());
        for bucket in &names {
            // A bucket of which nothing can be learned has one table.
            let Ok(client) = self.0.client(bucket) else { continue };
            let collections = self.0.collections(&client).unwrap_or_default();
            of_collections.extend(collections.iter().map(|(path, _)| format!("{bucket}.{path}")));
            if bucket == near {
                of_collections.extend(collections.into_iter().map(|(path, _)| path));
            }
        }
        names.extend(of_collections);
        Ok(names)
    }

    fn table(&self, name: &str) -> Result<Arc<dyn TableSource>> {
        let near = self.0.near();
        for bucket in self.0.buckets()? {
            let is_whole = name == bucket;
            let of_bucket = name.strip_prefix(&bucket).and_then(|rest| rest.strip_prefix('.'));
            if !is_whole && of_bucket.is_none() && bucket != near {
                continue;
            }
            let client = self.0.client(&bucket)?;
            let mut collections = self.0.collections(&client)?;
            let is_near = bucket == near;
            collections
                .retain(|(path, _)| is_whole || of_bucket == Some(path) || is_near && name == path);
            if !collections.is_empty() {
                let documents = ServerDocuments::new(Arc::clone(&self.0), client, collections);
                return Ok(Arc::new(DocumentTable::new(Arc::new(documents))));
            }
        }
        bail!("no such table: {name}")
    }
}
