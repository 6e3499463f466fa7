//! A client of one node and one bucket: typed operations with retries.
//!
//! An operation is tried again until its timeout while the server says that trying again may
//! help: a temporary failure, another durable write of the key, a vbucket that is not active (the
//! cluster map is fetched again first). A collection that the server does not know is looked up
//! once more, because it may have been created anew under another id. Nothing whose outcome
//! is unknown is repeated.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use oribi_protocol::feature::Feature;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::RequestParts;
use oribi_protocol::response::CollectionIdExtras;
use oribi_types::{Cas, CollectionId};
use parking_lot::{Mutex, RwLock};
use tokio::time::Instant;

use crate::bootstrap::ConnectOptions;
use crate::config::ClusterConfig;
use crate::connection::Connection;
use crate::error::{ClientError, Malformed, Refused, Site};
use crate::multiplexer::{Multiplexer, Waiter};
use crate::operation::{
    CounterOptions, Document, Encoder, MutationToken, Operation, Reply, WriteOptions,
};
use crate::pipeline::{Pipeline, PipelineOptions};
use crate::stats::Stat;

/// First pause before an operation is tried again; it doubles up to [`RETRY_PAUSE_MAX`].
const RETRY_PAUSE: Duration = Duration::from_millis(2);
const RETRY_PAUSE_MAX: Duration = Duration::from_millis(200);

/// A collection whose id was looked up. Clones share the id, which is refreshed when it turns stale.
#[derive(Clone, Debug)]
pub struct Collection(Arc<NamedId>);

#[derive(Debug)]
struct NamedId {
    /// `scope.collection`.
    path: String,
    id: AtomicU32,
}

impl Collection {
    fn new(path: &str, id: CollectionId) -> Collection {
        Collection(Arc::new(NamedId { path: path.to_owned(), id: AtomicU32::new(id.0) }))
    }

    /// Its path, `scope.collection`.
    pub fn path(&self) -> &str {
        &self.0.path
    }

    /// Its id.
    pub fn id(&self) -> CollectionId {
        CollectionId(self.0.id.load(Ordering::Relaxed))
    }
}

/// A client; share it by reference or in an `Arc`.
pub struct Client {
    connection: Multiplexer,
    options: ConnectOptions,
    config: RwLock<Arc<ClusterConfig>>,
    default_collection: Collection,
    /// Collections looked up so far, by path.
    collections: Mutex<HashMap<String, Collection>>,
}

impl Client {
    /// Connects, authenticates, selects the bucket and fetches its cluster map.
    pub async fn connect(options: ConnectOptions) -> Result<Client, ClientError> {
        let mut connection = Connection::open(&options).await?;
        let config = connection.cluster_config().await?;
        Ok(Client {
            connection: Multiplexer::start(connection),
            options,
            config: RwLock::new(Arc::new(config)),
            default_collection: Collection::new("_default._default", CollectionId::DEFAULT),
            collections: Mutex::default(),
        })
    }

    /// The cluster map as it was last fetched.
    pub fn config(&self) -> Arc<ClusterConfig> {
        self.config.read().clone()
    }

    /// Fetches the cluster map; an older one than the present is ignored.
    pub async fn refresh_config(&self) -> Result<(), ClientError> {
        let parts = RequestParts::new(Opcode::GetClusterConfig);
        let timeout = self.options.operation_timeout;
        let response = self.connection.call(&parts, &Bytes::new(), timeout).await?;
        response.outcome()?;
        let fetched = ClusterConfig::parse(&response.value(), &self.options.host)
            .map_err(|error| error.at(self.site(parts.opcode)))?;
        let mut config = self.config.write();
        if fetched.version >= config.version {
            *config = Arc::new(fetched);
        }
        Ok(())
    }

    /// The default collection; its id needs no lookup.
    pub fn default_collection(&self) -> &Collection {
        &self.default_collection
    }

    /// Looks a collection up, at the server the first time. `path` is `scope.collection`, or
    /// `collection` alone for one in the default scope.
    pub async fn collection(&self, path: &str) -> Result<Collection, ClientError> {
        let path = match path.contains('.') {
            true => path.to_owned(),
            false => format!("_default.{path}"),
        };
        if path == self.default_collection.path() {
            return Ok(self.default_collection.clone());
        }
        let known = self.collections.lock().get(&path).cloned();
        if let Some(collection) = known {
            return Ok(collection);
        }
        if !self.connection.has(Feature::Collections) {
            return Err(ClientError::NotOffered("collections"));
        }
        let collection = Collection::new(&path, self.look_up(&path).await?);
        Ok(self.collections.lock().entry(path).or_insert(collection).clone())
    }

    async fn look_up(&self, path: &str) -> Result<CollectionId, ClientError> {
        let parts = RequestParts::new(Opcode::CollectionsGetId);
        let value = Bytes::copy_from_slice(path.as_bytes());
        let response = self.connection.call(&parts, &value, self.options.operation_timeout).await?;
        response.outcome()?;
        let extras = CollectionIdExtras::decode(response.extras())
            .ok_or_else(|| Malformed::new("a collection's id comes in twelve bytes"))
            .map_err(|error| error.at(self.site(parts.opcode)))?;
        Ok(extras.collection)
    }

    /// Reads a document; `None` when there is none.
    pub async fn get(
        &self,
        collection: &Collection,
        key: &[u8],
    ) -> Result<Option<Document>, ClientError> {
        match self.run(collection, &Operation::get(key)).await {
            Ok(reply) => Ok(Some(reply.into_document())),
            Err(ClientError::Refused(Refused::NotFound)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes a document whether it exists or not.
    pub async fn upsert(
        &self,
        collection: &Collection,
        key: &[u8],
        value: Bytes,
        options: &WriteOptions,
    ) -> Result<(Cas, Option<MutationToken>), ClientError> {
        self.mutate(collection, Operation::upsert(key, value, options)).await
    }

    /// Writes a document that must not exist, else [`Refused::Exists`].
    pub async fn add(
        &self,
        collection: &Collection,
        key: &[u8],
        value: Bytes,
        options: &WriteOptions,
    ) -> Result<(Cas, Option<MutationToken>), ClientError> {
        self.mutate(collection, Operation::add(key, value, options)).await
    }

    /// Writes a document that must exist, else [`Refused::NotFound`].
    pub async fn replace(
        &self,
        collection: &Collection,
        key: &[u8],
        value: Bytes,
        options: &WriteOptions,
    ) -> Result<(Cas, Option<MutationToken>), ClientError> {
        self.mutate(collection, Operation::replace(key, value, options)).await
    }

    /// Removes a document, else [`Refused::NotFound`].
    pub async fn delete(
        &self,
        collection: &Collection,
        key: &[u8],
        options: &WriteOptions,
    ) -> Result<(Cas, Option<MutationToken>), ClientError> {
        self.mutate(collection, Operation::delete(key, options)).await
    }

    /// Sets a document's expiry.
    pub async fn touch(
        &self,
        collection: &Collection,
        key: &[u8],
        expiry: u32,
    ) -> Result<Cas, ClientError> {
        Ok(self.run(collection, &Operation::touch(key, expiry)).await?.cas)
    }

    /// Changes a counter and returns its new value.
    pub async fn counter(
        &self,
        collection: &Collection,
        key: &[u8],
        options: &CounterOptions,
    ) -> Result<u64, ClientError> {
        let reply = self.run(collection, &Operation::counter(key, options)).await?;
        reply.counter_value().map_err(|error| error.at(self.site(Opcode::Increment)))
    }

    async fn mutate(
        &self,
        collection: &Collection,
        operation: Operation<'_>,
    ) -> Result<(Cas, Option<MutationToken>), ClientError> {
        let reply = self.run(collection, &operation).await?;
        Ok((reply.cas, reply.mutation))
    }

    /// Runs any operation, with retries.
    pub async fn run(
        &self,
        collection: &Collection,
        operation: &Operation<'_>,
    ) -> Result<Reply, ClientError> {
        let deadline = Instant::now() + self.options.operation_timeout;
        let mut pause = RETRY_PAUSE;
        loop {
            let error = match self.attempt(collection, operation, deadline).await {
                Ok(reply) => return Ok(reply),
                Err(error) => error,
            };
            if !self.prepare_retry(collection, &error).await? {
                return Err(error);
            }
            if Instant::now() + pause >= deadline {
                return Err(error);
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(RETRY_PAUSE_MAX);
        }
    }

    async fn attempt(
        &self,
        collection: &Collection,
        operation: &Operation<'_>,
        deadline: Instant,
    ) -> Result<Reply, ClientError> {
        let mut encoder = Encoder::default();
        let parts = self.encode(&mut encoder, collection, operation)?;
        let timeout = deadline.saturating_duration_since(Instant::now());
        let response = self.connection.call(&parts, operation.value(), timeout).await?;
        Reply::from_response(&response)
    }

    /// Does what may make a refused operation succeed; false when nothing can.
    async fn prepare_retry(
        &self,
        collection: &Collection,
        error: &ClientError,
    ) -> Result<bool, ClientError> {
        match error.refused() {
            Some(Refused::UnknownCollection) if !collection.id().eq(&CollectionId::DEFAULT) => {
                let id = self.look_up(collection.path()).await?;
                Ok(collection.0.id.swap(id.0, Ordering::Relaxed) != id.0)
            }
            Some(Refused::NotMyVbucket) => self.refresh_config().await.map(|()| true),
            _ => Ok(error.is_transient()),
        }
    }

    /// Checks and encodes an operation under the present cluster map and collection id.
    fn encode<'e>(
        &self,
        encoder: &'e mut Encoder,
        collection: &Collection,
        operation: &Operation<'_>,
    ) -> Result<RequestParts<'e>, ClientError> {
        let id = collection.id();
        operation.check(id)?;
        let prefix = self.connection.has(Feature::Collections).then_some(id);
        let vbid = self.config.read().vbucket_of(operation.key());
        let parts = encoder.encode(operation, vbid, prefix);
        if !parts.framing.is_empty() && !self.connection.has(Feature::AltRequest) {
            return Err(ClientError::NotOffered("durability or preserved expiry"));
        }
        Ok(parts)
    }

    /// Queues an operation for [`Pipeline`].
    pub(crate) fn submit(
        &self,
        encoder: &mut Encoder,
        collection: &Collection,
        operation: &Operation<'_>,
        waiter: Waiter,
    ) -> Result<(), ClientError> {
        let parts = self.encode(encoder, collection, operation)?;
        self.connection.submit(&parts, operation.value(), waiter)
    }

    /// A batch of operations in flight together; see [`Pipeline`].
    pub fn pipeline(&self, options: PipelineOptions) -> Pipeline<'_> {
        Pipeline::new(self, options)
    }

    /// Limit for one operation.
    pub(crate) fn operation_timeout(&self) -> Duration {
        self.options.operation_timeout
    }

    fn site(&self, opcode: Opcode) -> Site {
        Site { peer: self.connection.peer().clone(), operation: opcode.name() }
    }

    /// The error of an operation in a pipeline that got no answer in time.
    pub(crate) fn timed_out(&self) -> ClientError {
        let at = Site { peer: self.connection.peer().clone(), operation: "pipeline" };
        ClientError::Timeout { at, after: self.options.operation_timeout }
    }

    /// All statistics of a group, as names and values; `group` is empty for the general ones. They
    /// come over a connection of their own, because a long group would hold up operations.
    pub async fn stats(&self, group: &str) -> Result<Vec<(String, String)>, ClientError> {
        let mut connection = Connection::open(&self.options).await?;
        let mut stream = connection.stats(group).await?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let mut stats = Vec::new();
        while let Some(Stat { name, value }) = stream.next().await? {
            stats.push((text(name), text(value)));
        }
        Ok(stats)
    }
}
