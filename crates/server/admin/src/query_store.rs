//! The buckets of this process as the datastore of SQL++ statements.
//!
//! Owns: the keyspaces that a user may name. A bucket's name is its default collection. The parts:
//! [`keyspace`] has documents as statements take them, read by [`lookup`], [`narrow_range`] or
//! [`snapshot_scans`] from the collection of a [`reader`], in a [`batch`]; [`change`] writes them,
//! [`place`] has what reads and changes need. Indexes are `query_indexes`', the language is
//! `oribi_query`'s.
//!
//! Invariants:
//! - a bucket, scope or collection in which the user has no right looks like a missing one;
//! - rights are checked at each read, scan and change, with the identity of the request;
//! - a scan shows each vbucket at one moment, with every write acknowledged before it began;
//! - every wait ends with the statement's time, its client, or the server;
//! - no worker's thread runs any of this, and no lock of the engine is held between two batches.
//!
//! Caller: `admin::query_service`, which owns threads, memory and answers.

mod batch;
mod change;
mod keyspace;
mod lookup;
mod narrow_range;
mod place;
mod reader;
mod snapshot_scans;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use oribi_auth::Privilege;
use oribi_engine::collections::BucketManifest;
use oribi_query::{
    Datastore, IndexChange, IndexDefinition, Keyspace, KeyspaceName, QueryError, Result,
};
use oribi_types::CollectionId;

use crate::query_indexes::QueryIndexes;
use crate::statement_control::{StatementControl, StatementEnd};
use keyspace::CollectionKeyspace;
use oribi_server::admin_api::rights::Rights;
use oribi_server::buckets::BucketHandle;
use oribi_server::server_context::ServerContext;
use place::KeyspacePlace;

/// Codes of a datastore without a keyspace, a bucket or a scope.
const NO_KEYSPACE: u32 = 12003;
const NO_BUCKET: u32 = 12020;
const NO_SCOPE: u32 = 12021;

/// Rights in a keyspace whose indexes a user may change: those to read and write all documents.
const INDEX_PRIVILEGES: [Privilege; 5] = [
    Privilege::Read,
    Privilege::RangeScan,
    Privilege::Insert,
    Privilege::Upsert,
    Privilege::Delete,
];

/// See the module text.
pub(crate) struct BucketStore {
    server: Arc<ServerContext>,
    control: Arc<StatementControl>,
    indexes: Arc<QueryIndexes>,
}

impl BucketStore {
    /// The buckets as the user of `control` sees them.
    pub fn new(
        server: Arc<ServerContext>,
        control: Arc<StatementControl>,
        indexes: Arc<QueryIndexes>,
    ) -> BucketStore {
        BucketStore { server, control, indexes }
    }

    /// Why the statement ends early, if it does.
    pub fn ending(&self) -> Option<StatementEnd> {
        self.control.ending()
    }

    /// The bucket and the part of its manifest that the user sees; none without any right.
    fn visible(&self, bucket: &str) -> Option<(Arc<BucketHandle>, Arc<BucketManifest>)> {
        let identity = self.control.identity();
        if !identity.access.reaches(bucket) {
            return None;
        }
        let handle = self.server.buckets.get(bucket)?;
        let manifest = Rights::of(identity, bucket).visible(handle.bucket().manifest());
        Some((handle, manifest))
    }
}

impl BucketStore {
    /// Where a keyspace is; 12003, 12020 or 12021 if the user sees none.
    fn place(&self, name: &KeyspaceName) -> Result<KeyspacePlace> {
        let missing = |code, what: &str, path: &str| {
            QueryError::datastore(code, format!("{what} not found: default:{path}"))
        };
        let (bucket, collection) = (&name.bucket, &name.collection);
        let Some((handle, manifest)) = self.visible(bucket) else {
            return Err(match collection {
                None => missing(NO_KEYSPACE, "Keyspace", bucket),
                Some(_) => missing(NO_BUCKET, "Bucket", bucket),
            });
        };
        let (scope, collection) = match collection {
            Some((scope, collection)) => (scope.as_str(), collection.as_str()),
            None => ("_default", "_default"),
        };
        let Some(scope) = manifest.scopes().iter().find(|one| &*one.name == scope) else {
            return Err(missing(NO_SCOPE, "Scope", &format!("{bucket}.{scope}")));
        };
        let Some(found) = scope.collections.iter().find(|one| &*one.name == collection) else {
            let path = format!("{bucket}.{}.{collection}", scope.name);
            return Err(missing(NO_KEYSPACE, "Keyspace", &path));
        };
        let (server, control) = (Arc::clone(&self.server), Arc::clone(&self.control));
        let (name, collection) = (name.clone(), found.id);
        Ok(KeyspacePlace { server, control, handle, name, collection })
    }
}

impl Datastore for BucketStore {
    fn keyspace(&self, name: &KeyspaceName) -> Result<Arc<dyn Keyspace>> {
        Ok(Arc::new(CollectionKeyspace::new(self.place(name)?, Arc::clone(&self.indexes))))
    }

    fn keyspaces(&self) -> Result<Vec<KeyspaceName>> {
        let mut names = Vec::new();
        for handle in self.server.buckets.list() {
            let bucket = handle.name().to_owned();
            let Some((_, manifest)) = self.visible(&bucket) else { continue };
            for scope in manifest.scopes() {
                for collection in &scope.collections {
                    let path = (scope.name.to_string(), collection.name.to_string());
                    let collection = (collection.id != CollectionId::DEFAULT).then_some(path);
                    names.push(KeyspaceName { bucket: bucket.clone(), collection });
                }
            }
        }
        Ok(names)
    }

    fn indexes(&self) -> Result<Vec<IndexDefinition>> {
        let mut all = Vec::new();
        for handle in self.server.buckets.list() {
            if self.visible(handle.name()).is_none() {
                continue;
            }
            let indexes = self.indexes.list(&handle, &self.server.connections.memory)?;
            all.extend(indexes.into_iter().filter(|one| self.place(&one.keyspace).is_ok()));
        }
        Ok(all)
    }

    fn change_indexes(&self, change: IndexChange) -> Result<()> {
        let keyspace = match &change {
            IndexChange::Create(definition) => &definition.keyspace,
            IndexChange::Drop { keyspace, .. } | IndexChange::Build { keyspace, .. } => keyspace,
        };
        let place = self.place(keyspace)?;
        place.check_rights(&INDEX_PRIVILEGES)?;
        let created = match &change {
            IndexChange::Create(definition) => Some(definition.name.clone()),
            IndexChange::Drop { .. } | IndexChange::Build { .. } => None,
        };
        let memory = &self.server.connections.memory;
        self.indexes.apply(&place.handle, memory, place.collection, change)?;
        let Some(name) = created else { return Ok(()) };
        // CREATE INDEX ends with an index that is online. Otherwise it is built nevertheless.
        let check = || self.control.check().map_err(|error| place.read_error(&error));
        self.indexes.wait_until_built(&place.handle, (place.collection, &name), &check)
    }

    fn version(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for handle in self.server.buckets.list() {
            handle.name().hash(&mut hasher);
            handle.bucket().manifest().uid().0.hash(&mut hasher);
        }
        self.indexes.version().hash(&mut hasher);
        hasher.finish()
    }
}
