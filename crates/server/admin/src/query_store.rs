//! The buckets of this process as the datastore of SQL++ statements.
//!
//! Owns: the keyspaces that a user may name, and index definitions. A bucket's name is its default
//! collection. The parts: [`keyspace`] reads documents, [`change`]
//! writes them, [`place`] has what both need, [`indexes`] the definitions. The language is
//! `oribi_query`'s.
//!
//! Invariants:
//! - a bucket, scope or collection in which the user has no right looks like a missing one;
//! - rights are checked at each read, scan and change, with the identity of the request;
//! - no worker's thread runs any of this, and no lock of the engine is held between two batches.
//!
//! Caller: `admin::query_service`, which owns threads, memory and answers.

mod change;
pub(crate) mod indexes;
mod keyspace;
mod place;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use oribi_engine::collections::BucketManifest;
use oribi_query::{
    Datastore, IndexChange, IndexDefinition, Keyspace, KeyspaceName, QueryError, Result,
};
use oribi_types::CollectionId;

use crate::sql::control::StatementControl;
use indexes::IndexDefinitions;
use keyspace::CollectionKeyspace;
use oribi_server::admin_api::rights::Rights;
use oribi_server::buckets::BucketHandle;
use oribi_server::server_context::ServerContext;
use place::KeyspacePlace;

/// Codes of a datastore without a keyspace, a bucket or a scope.
const NO_KEYSPACE: u32 = 12003;
const NO_BUCKET: u32 = 12020;
const NO_SCOPE: u32 = 12021;

/// See the module text.
pub(crate) struct BucketStore {
    server: Arc<ServerContext>,
    control: Arc<StatementControl>,
    indexes: Arc<IndexDefinitions>,
}

impl BucketStore {
    /// The buckets as the user of `control` sees them.
    pub fn new(
        server: Arc<ServerContext>,
        control: Arc<StatementControl>,
        indexes: Arc<IndexDefinitions>,
    ) -> BucketStore {
        BucketStore { server, control, indexes }
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

impl Datastore for BucketStore {
    fn keyspace(&self, name: &KeyspaceName) -> Result<Arc<dyn Keyspace>> {
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
        let place = KeyspacePlace { server, control, handle, name, collection };
        Ok(Arc::new(CollectionKeyspace::new(place)))
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
        Ok(self
            .indexes
            .list()
            .into_iter()
            .filter(|one| self.keyspace(&one.keyspace).is_ok())
            .collect())
    }

    fn change_indexes(&self, change: IndexChange) -> Result<()> {
        let keyspace = match &change {
            IndexChange::Create(definition) => &definition.keyspace,
            IndexChange::Drop { keyspace, .. } | IndexChange::Build { keyspace, .. } => keyspace,
        };
        self.keyspace(keyspace)?;
        if !self.control.identity().access.is_admin() {
            let msg = "User does not have the right to manage indexes: it needs the role admin";
            return Err(QueryError::datastore(13014, msg));
        }
        self.indexes.apply(change)
    }

    fn version(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for handle in self.server.buckets.list() {
            handle.name().hash(&mut hasher);
            handle.bucket().manifest().uid().0.hash(&mut hasher);
        }
        self.indexes.list().len().hash(&mut hasher);
        hasher.finish()
    }
}
