//! The collections of a bucket.
//!
//! It owns reading the manifest, which the bucket's store keeps in the bucket's table. Clients no
//! longer see the documents of a dropped collection, but the store removes their rows in the
//! background, and SQL must not show them until then. Collection ids are never reused, so the list
//! of existing ones suffices. Invariants: a manifest is read once per run of statements, not for
//! each scan of a join. An unreadable manifest hides nothing, because users look at a table most
//! when something is wrong with it.

use std::sync::Arc;

use anyhow::{Context, Result};
use oribi_client::CollectionsManifest;
use oribi_kudu::{Predicate, ReadMode, Table};
use parking_lot::Mutex;

use super::cluster::{KuduRows, SqlCluster};

/// Where the store keeps the bucket's own documents, and the name of this one.
const LOCAL_VBUCKET: i16 = -1;
const LOCAL_COLLECTION: i64 = -2;
const NAME: &str = "manifest";

/// See the module text.
#[derive(Default)]
pub struct SqlCollections {
    read: Mutex<Option<Read>>,
}

/// What was read last.
struct Read {
    run: u64,
    /// The ids; none where nothing is known of them.
    ids: Option<Arc<[i64]>>,
}

impl SqlCollections {
    /// Holds for the rows of collections that exist; none when nothing is known.
    ///
    /// # Errors
    /// When the table cannot be read.
    pub fn that_exist(
        &self,
        cluster: &Arc<SqlCluster>,
        table: &Table,
    ) -> Result<Option<Predicate>> {
        let run = cluster.run();
        let mut last = self.read.lock();
        let ids = match &*last {
            Some(read) if read.run == run => read.ids.clone(),
            _ => {
                let manifest =
                    read_manifest(cluster, table).context("reading the bucket's collections")?;
                let ids = manifest.and_then(|text| ids_in(&text));
                *last = Some(Read { run, ids: ids.clone() });
                ids
            }
        };
        Ok(ids.map(|ids| Predicate::in_list("collection", ids.to_vec())))
    }
}

/// The manifest; none in a bucket whose collections have never changed.
fn read_manifest(cluster: &Arc<SqlCluster>, table: &Table) -> Result<Option<Vec<u8>>> {
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
fn ids_in(manifest: &[u8]) -> Option<Arc<[i64]>> {
    let manifest = CollectionsManifest::parse(manifest).ok()?;
    let collections = manifest.scopes.iter().flat_map(|scope| &scope.collections);
    Some(collections.map(|collection| i64::from(collection.id.0)).collect())
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
        assert_eq!(ids_in(manifest).as_deref(), Some(&[0, 26][..]));
        assert_eq!(ids_in(b"{}"), None);
        assert_eq!(ids_in(b"\xff"), None);
    }
}
