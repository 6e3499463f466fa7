//! A client of one bucket on all nodes of a cluster.
//!
//! An operation goes to the node that the cluster map names for its key's vbucket. The client
//! repeats it until its timeout, as long as that may help and can do no harm:
//! - the server asks for it: a temporary failure, or another durable write of the key;
//! - the vbucket is not active on the node: the client uses the map in the refusal if it is newer,
//!   and fetches the map otherwise;
//! - there was no connection, or it ended before the request was sent;
//! - the connection ended while a read was in flight.
//!
//! A write in flight on a connection that ends fails with [`ClientError::Closed`]: the client
//! cannot know whether the server executed it. When a server does not know a collection, the client
//! looks it up once more, because it may exist under a new id. Many operations in flight are
//! [`crate::Pipeline`]'s business, which repeats nothing.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use oribi_protocol::feature::Feature;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::RequestParts;
use oribi_protocol::response::CollectionIdExtras;
use oribi_protocol::status::Status;
use oribi_types::CollectionId;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::cluster::{ClusterNodes, ClusterTopology};
use crate::collection::{Collection, CollectionsManifest};
use crate::config::{ClusterMap, KvNode};
use crate::connection::Connection;
use crate::error::{ClientError, MalformedResponse, RejectionKind, Site};
use crate::operation::{Encoder, EncodingTerms, Operation};
use crate::options::ConnectOptions;
use crate::reply::Reply;
use crate::response::Response;
use crate::retry::Backoff;
use crate::stats::{NamedStat, Stat};

/// First pause before an operation is tried again, and the longest one.
const RETRY_PAUSE: Duration = Duration::from_millis(2);
const RETRY_PAUSE_MAX: Duration = Duration::from_millis(200);

/// A client; share it by reference or in an `Arc`. Dropping it closes its connections.
pub struct Client {
    cluster: Arc<ClusterNodes>,
    default_collection: Collection,
    /// Collections looked up so far, by path.
    collections: Mutex<HashMap<String, Collection>>,
}

/// When an operation ends, and how long that was from its start.
#[derive(Clone, Copy)]
pub(crate) struct Limit {
    pub deadline: Instant,
    pub after: Duration,
}

impl Limit {
    pub fn from_now(after: Duration) -> Limit {
        Limit { deadline: Instant::now() + after, after }
    }
}

impl Client {
    /// Connects to the first seed that answers, authenticates, selects the bucket and fetches its
    /// cluster map. Other nodes are connected to when they are first needed.
    pub async fn connect(options: ConnectOptions) -> Result<Client, ClientError> {
        Ok(Client {
            cluster: ClusterNodes::connect(options).await?,
            default_collection: Collection::new("_default._default", CollectionId::DEFAULT),
            collections: Mutex::default(),
        })
    }

    /// The present cluster map.
    pub fn config(&self) -> Arc<ClusterMap> {
        self.cluster.topology().config.clone()
    }

    /// Fetches the cluster map; an older one than the present is ignored.
    pub async fn refresh_config(&self) -> Result<(), ClientError> {
        self.cluster.refresh(Instant::now() + self.options().operation_timeout).await
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
        let limit = Limit::from_now(self.options().operation_timeout);
        let collection = Collection::new(&path, self.look_up(&path, limit).await?);
        Ok(self.collections.lock().entry(path).or_insert(collection).clone())
    }

    async fn look_up(&self, path: &str, limit: Limit) -> Result<CollectionId, ClientError> {
        let parts = RequestParts::new(Opcode::CollectionsGetId);
        let value = Bytes::copy_from_slice(path.as_bytes());
        let (peer, response) = ask_any(&self.cluster, &parts, value, limit).await?;
        response.outcome()?;
        let extras = CollectionIdExtras::decode(response.extras())
            .ok_or_else(|| MalformedResponse::new("a collection's id comes in twelve bytes"))
            .map_err(|error| error.at(Site { peer, operation: parts.opcode.name() }))?;
        Ok(extras.collection)
    }

    /// All scopes and collections of the bucket.
    pub async fn collections_manifest(&self) -> Result<CollectionsManifest, ClientError> {
        fetch_manifest(&self.cluster).await
    }

    /// Runs any operation, with retries, within the client's operation timeout.
    pub async fn run(
        &self,
        collection: &Collection,
        operation: &Operation<'_>,
    ) -> Result<Reply, ClientError> {
        self.run_within(collection, operation, self.options().operation_timeout).await
    }

    /// Runs any operation, with retries, within `timeout`.
    pub async fn run_within(
        &self,
        collection: &Collection,
        operation: &Operation<'_>,
        timeout: Duration,
    ) -> Result<Reply, ClientError> {
        operation.check(collection.id())?;
        let limit = Limit::from_now(timeout);
        let mut backoff = Backoff::new(RETRY_PAUSE, RETRY_PAUSE_MAX);
        loop {
            let topology = self.cluster.topology();
            let attempt = self.attempt(&topology, collection, operation, limit).await;
            let error = match attempt {
                Ok(reply) => return Ok(reply),
                Err(error) => error,
            };
            if !self.prepare_retry(&topology, collection, operation, &error, limit).await? {
                return Err(error);
            }
            let pause = backoff.pause();
            if Instant::now() + pause >= limit.deadline {
                return Err(error);
            }
            tokio::time::sleep(pause).await;
        }
    }

    async fn attempt(
        &self,
        topology: &ClusterTopology,
        collection: &Collection,
        operation: &Operation<'_>,
        limit: Limit,
    ) -> Result<Reply, ClientError> {
        let Limit { deadline, after } = limit;
        let opcode = operation.opcode();
        let vbid = topology.config.vbucket_of(operation.key());
        let Some(node) = topology.active_node(vbid) else {
            return Err(RejectionKind::NotMyVbucket.into());
        };
        let connection = node.link(vbid).connection(opcode, deadline, after).await?;
        let mut encoder = Encoder::default();
        let terms = EncodingTerms::of(connection.features(), self.options().compress_writes);
        let (parts, value) = encoder.encode(operation, vbid, collection.id(), terms)?;
        let response = connection.call(&parts, value, deadline, after).await?;
        if response.header.vbucket_or_status == Status::NotMyVbucket.code() {
            self.cluster.learn_from_refusal(&response, node.address());
        }
        Reply::from_response(response, vbid).map_err(|unusable| {
            unusable.at(|| Site { peer: connection.peer().clone(), operation: opcode.name() })
        })
    }

    /// Does what may make an operation succeed that was tried under `topology`; false when nothing
    /// can.
    async fn prepare_retry(
        &self,
        topology: &ClusterTopology,
        collection: &Collection,
        operation: &Operation<'_>,
        error: &ClientError,
        limit: Limit,
    ) -> Result<bool, ClientError> {
        match error {
            ClientError::Rejected(RejectionKind::UnknownCollection)
                if collection.id() != CollectionId::DEFAULT =>
            {
                Ok(collection.renew(self.look_up(collection.path(), limit).await?))
            }
            ClientError::Rejected(RejectionKind::NotMyVbucket) => {
                if self.cluster.topology().version() <= topology.version()
                    && let Err(error) = self.cluster.refresh(limit.deadline).await
                {
                    tracing::debug!(%error, "the cluster map cannot be fetched");
                }
                Ok(true)
            }
            ClientError::NotSent { .. } => Ok(true),
            ClientError::Closed { .. } => Ok(operation.is_read()),
            _ => Ok(error.is_transient()),
        }
    }

    pub(crate) fn cluster(&self) -> &Arc<ClusterNodes> {
        &self.cluster
    }

    pub(crate) fn options(&self) -> &ConnectOptions {
        self.cluster.options()
    }

    /// Sends one request that belongs to a vbucket and not to a key.
    pub(crate) async fn call_vbucket(
        &self,
        parts: &RequestParts<'_>,
        value: &Bytes,
    ) -> Result<(Arc<str>, Response), ClientError> {
        let Limit { deadline, after } = Limit::from_now(self.options().operation_timeout);
        let topology = self.cluster.topology();
        let Some(node) = topology.active_node(parts.vbid) else {
            return Err(self.cluster.no_node(parts.opcode));
        };
        let link = node.link(parts.vbid);
        let connection = link.connection(parts.opcode, deadline, after).await?;
        let response = connection.call(parts, value, deadline, after).await?;
        response.outcome()?;
        Ok((link.peer().clone(), response))
    }

    /// Opens a connection of one's own to one of the nodes, for what must not hold up operations.
    pub async fn open_connection(&self, node: &KvNode) -> Result<Connection, ClientError> {
        let options = self.options().clone().node(&self.cluster.reached_at(node));
        Connection::open(&options.map_announcements(false)).await
    }

    /// All statistics of a group from the first node of the map; `group` is empty for the general
    /// ones. They come over their own connection, because a long group would hold up operations.
    pub async fn stats(&self, group: &str) -> Result<Vec<NamedStat>, ClientError> {
        let config = self.config();
        let Some(node) = config.nodes.first() else {
            return Err(self.cluster.no_node(Opcode::Stat));
        };
        let mut connection = self.open_connection(node).await?;
        let mut stream = connection.stats(group).await?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let mut stats = Vec::new();
        while let Some(Stat { name, value }) = stream.next().await? {
            stats.push(NamedStat { name: text(name), value: text(value) });
        }
        Ok(stats)
    }
}

/// All scopes and collections of the bucket.
pub(crate) async fn fetch_manifest(
    cluster: &ClusterNodes,
) -> Result<CollectionsManifest, ClientError> {
    let parts = RequestParts::new(Opcode::CollectionsGetManifest);
    let limit = Limit::from_now(cluster.options().operation_timeout);
    let (peer, response) = ask_any(cluster, &parts, Bytes::new(), limit).await?;
    response.outcome()?;
    CollectionsManifest::parse(&response.into_value())
        .map_err(|error| error.at(Site { peer, operation: parts.opcode.name() }))
}

/// Asks any node a question about collections, again if its connection ends concurrently.
async fn ask_any(
    cluster: &ClusterNodes,
    parts: &RequestParts<'_>,
    value: Bytes,
    limit: Limit,
) -> Result<(Arc<str>, Response), ClientError> {
    let Limit { deadline, after } = limit;
    let mut backoff = Backoff::new(RETRY_PAUSE, RETRY_PAUSE_MAX);
    loop {
        let connection = cluster.any_connection(parts.opcode, deadline, after).await?;
        if !connection.features().has(Feature::Collections) {
            return Err(ClientError::NotOffered("collections"));
        }
        let error = match connection.call(parts, &value, deadline, after).await {
            Ok(response) => return Ok((connection.peer().clone(), response)),
            Err(error) => error,
        };
        let pause = backoff.pause();
        let may_retry = error.was_interrupted() || error.was_not_sent();
        if !may_retry || Instant::now() + pause >= deadline {
            return Err(error);
        }
        tokio::time::sleep(pause).await;
    }
}
