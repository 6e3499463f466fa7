//! The collections of a bucket.
//!
//! It owns reading the manifest, which the bucket's store keeps in the bucket's table. Clients no
//! longer see the documents of a dropped collection, but the store removes their rows in the
//! background, and statements must not show them until then. Invariants: a manifest is read once
//! per statement. A bucket without a readable manifest has its default collection.

use std::sync::Arc;

use anyhow::{Context, Result};
use oribi_client::CollectionsManifest;
use oribi_kudu::{Predicate, ReadMode, Table};
use parking_lot::Mutex;

use super::cluster::{KuduRows, QueryCluster};

/// Where the store keeps the bucket's own documents, and the name of this one.
const LOCAL_VBUCKET: i16 = -1;
const LOCAL_COLLECTION: i64 = -2;
const NAME: &str = "manifest";

/// Path of the collection that a bucket's name stands for.
pub const DEFAULT_PATH: &str = "_default._default";

/// Paths of collections and their ids, in the order of the manifest.
type Listing = Arc<[(String, i64)]>;

/// See the module text.
#[derive(Default)]
pub struct QueryCollections {
    /// The run in which the listing was read, and the listing.
    read: Mutex<Option<(u64, Listing)>>,
}

impl QueryCollections {
    /// The collections that exist: their paths and ids.
    ///
    /// # Errors
    /// When the table cannot be read.
    pub fn list(&self, cluster: &Arc<QueryCluster>, table: &Table) -> Result<Listing> {
        let run = cluster.run();
        let mut last = self.read.lock();
        if let Some((read, listing)) = &*last
            && *read == run
        {
            return Ok(Arc::clone(listing));
        }
        let manifest = read_manifest(cluster, table).context("reading the bucket's collections")?;
        let default = || Listing::from([(DEFAULT_PATH.to_owned(), 0)]);
        let listing = manifest.and_then(|text| listing_in(&text)).unwrap_or_else(default);
        *last = Some((run, Arc::clone(&listing)));
        Ok(listing)
    }
}

/// The manifest; none in a bucket whose collections have never changed.
fn read_manifest(cluster: &Arc<QueryCluster>, table: &Table) -> Result<Option<Vec<u8>>> {
    let scan = table
        .scan()
        .columns(["chunk", "body"])
        .read_mode(ReadMode::AtSnapshot(None))
        .filter(Predicate::equal("vbucket", LOCAL_VBUCKET))
        .filter(Predicate::equal("collection", LOCAL_COLLECTION))
        .filter(Predicate::equal("key", NAME));
    let mut rows = KuduRows::start(cluster, scan)?;
    let mut pieces = Vec::new();
    while rows.advance()? {
        let Some(row) = rows.row() else { break };
        let body = row.get::<Option<&[u8]>>(1)?.unwrap_or_default();
        pieces.push((row.get::<i16>(0)?, body.to_vec()));
    }
    pieces.sort_unstable();
    let is_there = !pieces.is_empty();
    Ok(is_there.then(|| pieces.into_iter().flat_map(|(_, piece)| piece).collect()))
}

/// The collections of a manifest; none when it is not one.
fn listing_in(manifest: &[u8]) -> Option<Listing> {
    let manifest = CollectionsManifest::parse(manifest).ok()?;
    let of_scope = manifest.scopes.iter().flat_map(|scope| {
        let path = |name: &str| format!("{}.{name}", scope.name);
        scope.collections.iter().map(move |one| (path(&one.name), i64::from(one.id.0)))
    });
    Some(of_scope.collect())
}

#[cfg(test)]
mod tests {
    //! What a stored manifest says.

    use super::*;

    #[test]
    fn the_stored_manifest_names_what_exists() {
        let manifest = br#"{"uid":"1f","scopes":[
            {"name":"_default","uid":"0","collections":[{"name":"_default","uid":"0"}]},
            {"name":"a","uid":"8","collections":[{"name":"b","uid":"1a","maxTTL":5}]}],
            "nextScopeUid":"9","nextCollectionUid":"1b"}"#;
        let expected = [(DEFAULT_PATH.to_owned(), 0), ("a.b".to_owned(), 26)];
        assert_eq!(listing_in(manifest).as_deref(), Some(&expected[..]));
        assert_eq!(listing_in(b"{}"), None);
        assert_eq!(listing_in(b"\xff"), None);
    }
}
