//! Buckets and other tables of a Kudu cluster.
//!
//! Owns: the keyspaces, by their names. [`cluster`] reads rows, [`bucket_keyspace`] with
//! [`layout`], [`document`], [`long_document`] and [`collections`] has the documents of buckets,
//! [`plain_keyspace`] with [`predicates`] the rows of other tables.

mod bucket_keyspace;
mod cluster;
mod collections;
mod document;
mod layout;
mod long_document;
mod plain_keyspace;
mod predicates;
mod refusal;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use oribi_kudu::Table;
use oribi_query::{Datastore, IndexChange, IndexDefinition, Keyspace, KeyspaceName, QueryError};
use serde_json::{Map, Value};
use tokio::runtime::Runtime;

use self::bucket_keyspace::BucketKeyspace;
use self::cluster::QueryCluster;
use self::collections::{DEFAULT_PATH, QueryCollections};
use self::plain_keyspace::PlainKeyspace;
use self::refusal::{failed, read_only};
use super::local::LocalEngine;
use super::source::{QuerySource, ResultSink, Summary};

/// See the module text.
pub struct KuduSource {
    engine: LocalEngine,
    store: KuduStore,
}

struct KuduStore {
    cluster: Arc<QueryCluster>,
    tables: BTreeMap<String, TableKind>,
}

enum TableKind {
    Bucket(Table, QueryCollections),
    Plain(Table),
}

impl KuduSource {
    /// Finds the tables of the buckets in `database`, and those that are named.
    ///
    /// # Errors
    /// When the cluster does not answer, or a named table does not exist.
    pub fn connect(
        masters: &str,
        database: &str,
        named: &[String],
        timeout: Duration,
    ) -> Result<Arc<KuduSource>> {
        let cluster = QueryCluster::connect(masters, timeout)?;
        let client = cluster.client();
        let prefix = format!("{database}.");
        let mut tables = BTreeMap::new();
        for summary in cluster.wait(client.list_tables(&prefix))?? {
            let Some(name) = summary.name.strip_prefix(&prefix) else { continue };
            let table = cluster.wait(client.open_table(&summary.name))??;
            if layout::is_bucket(table.schema()) {
                let bucket = TableKind::Bucket(table, QueryCollections::default());
                tables.insert(name.to_owned(), bucket);
            }
        }
        for name in named {
            let table = cluster.wait(client.open_table(name))??;
            tables.insert(name.clone(), TableKind::Plain(table));
        }
        let store = KuduStore { cluster, tables };
        Ok(Arc::new(KuduSource { engine: LocalEngine::default(), store }))
    }
}

impl QuerySource for KuduSource {
    fn runtime(&self) -> &Runtime {
        self.store.cluster.runtime()
    }

    fn run(&self, request: &Map<String, Value>, sink: &mut dyn ResultSink) -> Result<Summary> {
        self.engine.run(&self.store, request, sink)
    }

    fn interrupt(&self) {
        self.engine.interrupt();
        self.store.cluster.interrupt();
    }

    fn is_interrupted(&self) -> bool {
        self.engine.is_interrupted()
    }

    fn begin_statement(&self) {
        self.engine.begin_statement();
        self.store.cluster.begin_statement();
    }

    fn cost(&self) -> Option<String> {
        Some(self.store.cluster.cost())
    }
}

impl Datastore for KuduStore {
    fn keyspace(&self, name: &KeyspaceName) -> oribi_query::Result<Arc<dyn Keyspace>> {
        let path = match &name.collection {
            None => format!("default:{}", name.bucket),
            Some((scope, collection)) => format!("default:{}.{scope}.{collection}", name.bucket),
        };
        let missing = || QueryError::keyspace_missing(&path);
        let cluster = Arc::clone(&self.cluster);
        match (self.tables.get(&name.bucket).ok_or_else(missing)?, &name.collection) {
            (TableKind::Plain(table), None) => {
                Ok(Arc::new(PlainKeyspace::new(cluster, table.clone(), name.clone())))
            }
            (TableKind::Plain(_), Some(_)) => Err(missing()),
            (TableKind::Bucket(table, collections), collection) => {
                let wanted = match collection {
                    None => DEFAULT_PATH.to_owned(),
                    Some((scope, collection)) => format!("{scope}.{collection}"),
                };
                let listing = collections.list(&cluster, table).map_err(failed)?;
                let found = listing.iter().find(|(path, _)| *path == wanted);
                let (_, id) = found.ok_or_else(missing)?;
                Ok(Arc::new(BucketKeyspace::new(cluster, table.clone(), name.clone(), *id)))
            }
        }
    }

    fn keyspaces(&self) -> oribi_query::Result<Vec<KeyspaceName>> {
        let mut names = Vec::new();
        for (bucket, kind) in &self.tables {
            let TableKind::Bucket(table, collections) = kind else {
                names.push(KeyspaceName { bucket: bucket.clone(), collection: None });
                continue;
            };
            let listing = collections.list(&self.cluster, table).map_err(failed)?;
            names.extend(listing.iter().map(|(path, _)| {
                KeyspaceName {
                    bucket: bucket.clone(),
                    collection: path
                        .split_once('.')
                        .filter(|_| path != DEFAULT_PATH)
                        .map(|(scope, name)| (scope.to_owned(), name.to_owned())),
                }
            }));
        }
        Ok(names)
    }

    fn indexes(&self) -> oribi_query::Result<Vec<IndexDefinition>> {
        Ok(Vec::new())
    }

    fn change_indexes(&self, _change: IndexChange) -> oribi_query::Result<()> {
        Err(read_only())
    }

    fn version(&self) -> u64 {
        0
    }
}
