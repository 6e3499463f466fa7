//! The nodes of a cluster, and which of them an operation goes to.
//!
//! Owns the present cluster map with one [`ClusterNode`] for each node in it, replaced together: a
//! held [`ClusterTopology`] keeps its nodes connected. A map counts when its epoch and revision are
//! newer than those of the present one. Nodes that stay keep their connections. Nodes that left
//! close when their last user lets go of them.
//!
//! A node is reached where it was reached before. When the node that gave a map is listed there
//! under another address than was used, both are the same node ("localhost", address translation).
//!
//! One task fetches the map when a server announces a newer one, refuses a pipeline's operation or
//! cannot be reached. At most one fetch is in flight; other callers wait for its end and use its
//! result. It asks all nodes, because a node cut off from the others keeps offering its stale map
//! as the newest.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::{ConfigVersion, RequestParts};
use oribi_types::Vbid;
use parking_lot::{Mutex, RwLock};
use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::config::{ClusterMap, KvNode};
use crate::config_watch::ConfigWatch;
use crate::connection::Connection;
use crate::error::{ClientError, Site};
use crate::multiplexer::Multiplexer;
use crate::node::ClusterNode;
use crate::options::ConnectOptions;
use crate::response::Response;

mod fetching;

/// How long to wait for a connection to a node that another one may stand in for.
const CONNECT_PATIENCE: Duration = Duration::from_millis(500);

/// Pause of the fetching task after each fetch, so that a cluster in turmoil is not asked without
/// end.
const FETCH_PAUSE: Duration = Duration::from_millis(50);

/// A cluster map and its nodes.
pub(crate) struct ClusterTopology {
    /// The map.
    pub config: Arc<ClusterMap>,
    /// The map's nodes, in its order.
    nodes: Vec<Arc<ClusterNode>>,
}

impl ClusterTopology {
    /// The node that is active for a vbucket.
    pub fn active_node(&self, vbid: Vbid) -> Option<&Arc<ClusterNode>> {
        self.nodes.get(self.config.active_position(vbid)?)
    }

    /// Version of the map.
    pub fn version(&self) -> ConfigVersion {
        self.config.version
    }

    /// Nodes in the order in which to ask them what any could answer: connected ones first.
    fn by_readiness(&self) -> Vec<&Arc<ClusterNode>> {
        let (ready, others): (Vec<_>, Vec<_>) =
            self.nodes.iter().partition(|node| node.open_connection().is_some());
        [ready, others].concat()
    }
}

/// See the module text.
pub(crate) struct ClusterNodes {
    options: ConnectOptions,
    watch: Arc<ConfigWatch>,
    /// Where connections are opened and the map is fetched.
    runtime: Handle,
    topology: RwLock<Arc<ClusterTopology>>,
    /// Counts changes of `topology`, so that a holder of one can tell whether it is stale.
    generation: AtomicU64,
    /// Where nodes are reached, by the address that maps give them, as far as they differ.
    reached: Mutex<HashMap<KvNode, KvNode>>,
    /// Held while the map is fetched; counts fetches.
    fetches: tokio::sync::Mutex<u64>,
    fetches_ended: AtomicU64,
}

impl ClusterNodes {
    /// Connects to the first of the seeds that answers, and fetches the map from it.
    pub async fn connect(options: ConnectOptions) -> Result<Arc<ClusterNodes>, ClientError> {
        let options = ConnectOptions { map_announcements: true, ..options };
        let mut seeds = vec![KvNode::new(&*options.host, options.port)];
        seeds.extend_from_slice(&options.seeds);
        let mut first_error = None;
        for seed in seeds {
            match ask_seed(&options, &seed).await {
                Ok((connection, config)) => {
                    return Ok(ClusterNodes::start(options, &seed, connection, config));
                }
                Err(error) if error.is_final() => return Err(error),
                Err(error) => drop(first_error.get_or_insert(error)),
            }
        }
        Err(first_error.expect("there is at least one seed, and it failed"))
    }

    fn start(
        options: ConnectOptions,
        seed: &KvNode,
        connection: Connection,
        config: ClusterMap,
    ) -> Arc<ClusterNodes> {
        let topology = ClusterTopology { config: Arc::new(ClusterMap::none()), nodes: Vec::new() };
        let cluster = Arc::new(ClusterNodes {
            options,
            watch: Arc::default(),
            runtime: Handle::current(),
            topology: RwLock::new(Arc::new(topology)),
            generation: AtomicU64::new(0),
            reached: Mutex::default(),
            fetches: tokio::sync::Mutex::new(0),
            fetches_ended: AtomicU64::new(0),
        });
        cluster.learn(config, seed);
        let topology = cluster.topology();
        if let Some(node) = topology.nodes.iter().find(|node| node.address() == seed) {
            node.adopt(connection);
        }
        tokio::spawn(fetch_on_change(Arc::downgrade(&cluster), cluster.watch.clone()));
        cluster
    }

    /// The present map and nodes.
    pub fn topology(&self) -> Arc<ClusterTopology> {
        self.topology.read().clone()
    }

    /// Changes whenever [`ClusterNodes::topology`] does.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Uses a map that `source` gave, if it is newer than the present one.
    pub fn learn(&self, config: ClusterMap, source: &KvNode) -> bool {
        let mut topology = self.topology.write();
        if config.version <= topology.version() {
            return false;
        }
        let is_first = topology.nodes.is_empty();
        let nodes = self.addresses(&config, source, is_first);
        let nodes = nodes.into_iter().map(|address| {
            let known = topology.nodes.iter().find(|node| *node.address() == address);
            known.cloned().unwrap_or_else(|| {
                ClusterNode::new(address, &self.options, &self.watch, &self.runtime)
            })
        });
        let nodes = nodes.collect();
        tracing::debug!(version = ?config.version, nodes = config.nodes.len(), "new cluster map");
        let left = std::mem::replace(
            &mut *topology,
            Arc::new(ClusterTopology { config: Arc::new(config), nodes }),
        );
        self.generation.fetch_add(1, Ordering::Release);
        let present = Arc::clone(&topology);
        drop(topology);
        for node in &left.nodes {
            if !present.nodes.iter().any(|stays| Arc::ptr_eq(stays, node)) {
                node.leave();
            }
        }
        // Closing connections takes its own locks.
        drop(left);
        true
    }

    /// Where each node of a map is reached. The only node of the first map is the one that gave it,
    /// also when it does not say so; later a node may well name the one that took its place.
    fn addresses(&self, config: &ClusterMap, source: &KvNode, is_first: bool) -> Vec<KvNode> {
        let mut reached = self.reached.lock();
        let only_node = match &config.nodes[..] {
            [only] if is_first => Some(only),
            _ => None,
        };
        if let Some(this_node) = config.this_node().or(only_node)
            && !config.nodes.contains(source)
        {
            reached.insert(this_node.clone(), source.clone());
        }
        let address = |node: &KvNode| reached.get(node).unwrap_or(node).clone();
        config.nodes.iter().map(address).collect()
    }

    /// Uses the map in a refusal of `source`, if there is a newer one in it. Else a refusal of this
    /// kind means that the map should be fetched.
    pub fn learn_from_refusal(&self, refusal: &Response, source: &KvNode) -> bool {
        let value = refusal.value();
        if value.is_empty() {
            return false;
        }
        match ClusterMap::parse_for(&value, &source.host, self.options.tls.is_some()) {
            Ok(config) => self.learn(config, source),
            Err(error) => {
                tracing::debug!(peer = %source, %error, "a refusal's cluster map is no use");
                false
            }
        }
    }

    /// Has the map fetched, without waiting for it.
    pub fn refresh_soon(&self) {
        self.watch.report_refusal();
    }

    /// Fetches the map, or waits for a fetch that another caller began after now.
    pub async fn refresh(&self, deadline: Instant) -> Result<(), ClientError> {
        let ended = self.fetches_ended.load(Ordering::Acquire);
        let began = Instant::now();
        let Ok(mut fetches) = tokio::time::timeout_at(deadline, self.fetches.lock()).await else {
            let at = self.site(Opcode::GetClusterConfig);
            return Err(ClientError::Timeout { at, after: began.elapsed() });
        };
        // One that had begun before may bring an old map, but the next refusal will tell.
        if *fetches > ended {
            return Ok(());
        }
        let outcome = self.fetch(deadline).await;
        *fetches += 1;
        self.fetches_ended.store(*fetches, Ordering::Release);
        outcome
    }

    /// A connection to any node, for a request that every node can answer. It passes over nodes
    /// that it cannot connect to in time.
    pub async fn any_connection(
        &self,
        opcode: Opcode,
        deadline: Instant,
        after: Duration,
    ) -> Result<Arc<Multiplexer>, ClientError> {
        let topology = self.topology();
        for node in topology.by_readiness().into_iter().cycle() {
            let until = deadline.min(Instant::now() + CONNECT_PATIENCE);
            match node.link(Vbid(0)).connection(opcode, until, after).await {
                Err(error) if error.was_not_sent() && until < deadline => {}
                outcome => return outcome,
            }
        }
        Err(self.no_node(opcode))
    }

    /// The error of an operation that no node can be found for.
    pub fn no_node(&self, opcode: Opcode) -> ClientError {
        ClientError::NotSent { at: self.site(opcode), reason: "no node serves it".into() }
    }

    /// Where an operation happens that is not bound to a node.
    fn site(&self, opcode: Opcode) -> Site {
        Site { peer: "the cluster".into(), operation: opcode.name() }
    }

    /// Where a node that a map names is reached.
    pub fn reached_at(&self, node: &KvNode) -> KvNode {
        self.reached.lock().get(node).unwrap_or(node).clone()
    }

    /// Where connections are served.
    pub fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Options that all connections share.
    pub fn options(&self) -> &ConnectOptions {
        &self.options
    }
}

impl Drop for ClusterNodes {
    fn drop(&mut self) {
        // The fetching task finds the cluster gone and ends.
        self.watch.wake();
    }
}

async fn ask_seed(
    options: &ConnectOptions,
    seed: &KvNode,
) -> Result<(Connection, ClusterMap), ClientError> {
    let options = options.clone().node(seed);
    let mut connection = Connection::open(&options).await?;
    let parts = RequestParts::new(Opcode::GetClusterConfig);
    let response = connection.call(&parts, &Bytes::new()).await?;
    response.outcome()?;
    match ClusterMap::parse_for(&response.value(), &seed.host, options.tls.is_some()) {
        Ok(config) => Ok((connection, config)),
        Err(error) => Err(error.at(connection.site(parts.opcode.name()))),
    }
}

/// Fetches the map whenever there is a reason to, until the cluster is gone.
async fn fetch_on_change(cluster: Weak<ClusterNodes>, watch: Arc<ConfigWatch>) {
    loop {
        watch.changed().await;
        let Some(cluster) = cluster.upgrade() else { return };
        if !watch.take_reason(cluster.topology().version()) {
            continue;
        }
        let deadline = Instant::now() + cluster.options.operation_timeout;
        if let Err(error) = cluster.refresh(deadline).await {
            tracing::debug!(%error, "the cluster map cannot be fetched");
        }
        drop(cluster);
        tokio::time::sleep(FETCH_PAUSE).await;
    }
}
