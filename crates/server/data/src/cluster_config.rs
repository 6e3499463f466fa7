//! Cluster configuration documents, which tell clients where each vbucket lives.
//!
//! Owns: the version and the text of the documents, one per bucket and one for connections without
//! a bucket, and the list of workers to notify of changes. Invariants:
//! - A version only grows, even over restarts, because clients ignore a document that is older than
//!   theirs. The revisions of a node that is alone start at the wall clock's second. Nodes of a
//!   cluster use the revisions that the cluster agreed on, in an epoch of the cluster.
//! - The document without bucket carries neither `name`, `uuid`, `nodeLocator` nor `nodes`, because
//!   clients recognize it by their absence.
//!
//! The dispatcher calls this module for each GET_CLUSTER_CONFIG and NotMyVbucket, so each text is
//! built once per version. It makes no decision about placement.

pub mod address;
mod document;
mod version;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::{ArcSwap, ArcSwapOption};
use parking_lot::Mutex;
use serde_json::Value;

use address::{ExternalAddress, NodeAddress, before_port};
use document::{AlternateAddresses, BucketMap, NodeExt, Services};
use oribi_cluster::identity::ClusterIdentity;
use oribi_cluster::topology::Topology;

pub use document::BucketFacts;
pub use document::{BUCKET_CAPABILITIES, SERVER_GROUP};
pub use version::{ConfigDocumentVersion, REV_EPOCH};

#[derive(Debug)]
pub struct ConfigDocument {
    /// Version of the document.
    pub version: ConfigDocumentVersion,
    pub json: Arc<str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TlsPorts {
    pub kv: u16,
    pub mgmt: u16,
}

/// Ports of SQL++ over HTTP in the cluster map; none where this node has no such service.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QueryPorts {
    pub plain: Option<u16>,
    pub tls: Option<u16>,
}

/// Announces a change of the documents.
pub(crate) type OnChange = Box<dyn Fn() + Send + Sync>;

/// See the module text.
pub struct ClusterConfig {
    kv_port: u16,
    mgmt_port: u16,
    tls_ports: Option<TlsPorts>,
    query_ports: QueryPorts,
    rev: AtomicU64,
    identity: ArcSwap<ClusterIdentity>,
    topology: ArcSwapOption<Topology>,
    address: ArcSwap<NodeAddress>,
    /// Rendered documents by bucket name; the empty name is the document without bucket.
    rendered: Mutex<HashMap<String, Arc<ConfigDocument>>>,
    /// Called after each change.
    on_change: Mutex<Option<OnChange>>,
}

impl ClusterConfig {
    /// `unix_s` is the time of the start, the first revision.
    pub fn new(kv_port: u16, mgmt_port: u16, unix_s: u32) -> ClusterConfig {
        ClusterConfig {
            kv_port,
            mgmt_port,
            tls_ports: None,
            query_ports: QueryPorts::default(),
            rev: AtomicU64::new(u64::from(unix_s).max(1)),
            identity: ArcSwap::from_pointee(ClusterIdentity::default()),
            topology: ArcSwapOption::empty(),
            address: ArcSwap::from_pointee(NodeAddress::default()),
            rendered: Mutex::new(HashMap::new()),
            on_change: Mutex::default(),
        }
    }

    /// The same with ports for TLS clients.
    pub fn with_tls(self, tls_ports: Option<TlsPorts>) -> ClusterConfig {
        ClusterConfig { tls_ports, ..self }
    }

    /// The same with ports for queries.
    pub fn with_queries(self, query_ports: QueryPorts) -> ClusterConfig {
        ClusterConfig { query_ports, ..self }
    }

    /// The uuid and the name that documents show.
    pub fn identity(&self) -> Arc<ClusterIdentity> {
        self.identity.load_full()
    }

    /// Sets the uuid and name that documents show. A node that is alone has to call
    /// [`ClusterConfig::advance`] as well; in a cluster the revision of the next topology covers
    /// it.
    pub fn set_identity(&self, identity: ClusterIdentity) {
        if **self.identity.load() != identity {
            self.identity.store(Arc::new(identity));
            self.rendered.lock().clear();
        }
    }

    /// The address of this node when it is alone.
    pub fn address(&self) -> Arc<NodeAddress> {
        self.address.load_full()
    }

    /// Sets the address that documents show of a node that is alone. Call
    /// [`ClusterConfig::advance`] as well.
    pub(crate) fn set_address(&self, address: NodeAddress) {
        self.address.store(Arc::new(address));
    }

    /// Ports of key-value clients and of the admin HTTP.
    pub fn ports(&self) -> (u16, u16) {
        (self.kv_port, self.mgmt_port)
    }

    /// The same ports with TLS, if TLS is enabled.
    pub fn tls_ports(&self) -> Option<TlsPorts> {
        self.tls_ports
    }

    /// Ports for queries, if the cluster map has any.
    pub fn query_ports(&self) -> QueryPorts {
        self.query_ports
    }

    /// The host under which the cluster knows this node, in the form that precedes a port.
    pub fn advertised_host(&self) -> Option<String> {
        let topology = self.topology()?;
        document::nodes_of(&topology).into_iter().find(|node| node.this_node)?.hostname
    }

    /// Registers the callback that announces each change to connections.
    pub(crate) fn on_change(&self, callback: OnChange) {
        *self.on_change.lock() = Some(callback);
    }

    /// Call after a bucket or a manifest has changed: later documents carry a higher revision.
    pub fn advance(&self) {
        let before = self.rev.fetch_add(1, Ordering::AcqRel);
        assert!(before > 0, "revisions begin at 1");
        self.changed();
    }

    /// The topology that the cluster has agreed on, if this node is in a cluster and has received
    /// one.
    pub fn topology(&self) -> Option<Arc<Topology>> {
        self.topology.load_full()
    }

    /// Publishes the topology that the cluster has agreed on; does nothing when it is unchanged.
    pub fn set_topology(&self, topology: Topology) {
        if self.topology.load().as_deref() != Some(&topology) {
            self.topology.store(Some(Arc::new(topology)));
            self.changed();
        }
    }

    fn changed(&self) {
        self.rendered.lock().clear();
        if let Some(announce) = &*self.on_change.lock() {
            announce();
        }
    }

    /// The document of a bucket.
    pub fn bucket_document(&self, facts: &BucketFacts<'_>) -> Arc<ConfigDocument> {
        match self.placed(facts) {
            Some((topology, rev)) => {
                let version = ConfigDocumentVersion { epoch: topology.epoch, rev };
                self.rendered_or(facts.name, version, || {
                    document::bucket(
                        facts,
                        version,
                        &self.identity(),
                        &placed_map(&topology, facts),
                    )
                })
            }
            None => {
                let version = self.own_version();
                self.rendered_or(facts.name, version, || {
                    document::bucket(facts, version, &self.identity(), &self.own_map(facts))
                })
            }
        }
    }

    /// The owners of a bucket's vbuckets, for a client that knows this node as `host`.
    pub(crate) fn vbucket_server_map(&self, facts: &BucketFacts<'_>, host: &str) -> Value {
        match self.placed(facts) {
            Some((topology, _)) => document::server_map(&placed_map(&topology, facts), host),
            None => document::server_map(&self.own_map(facts), host),
        }
    }

    /// The topology, if the cluster has agreed on owners of all the bucket's vbuckets, and the
    /// revision of that.
    fn placed(&self, facts: &BucketFacts<'_>) -> Option<(Arc<Topology>, u64)> {
        let topology = self.topology()?;
        let placement = topology.buckets.get(facts.name)?;
        let rev = placement.rev;
        (placement.owners.len() == usize::from(facts.vbuckets)).then_some((topology, rev))
    }

    /// This node owns everything.
    fn own_map(&self, facts: &BucketFacts<'_>) -> BucketMap {
        debug_assert!(facts.vbuckets > 0, "a bucket has a vbucket");
        let rows = vec![vec![0]; usize::from(facts.vbuckets)];
        BucketMap { nodes: vec![self.node()], rows, replica_count: 0 }
    }

    /// The document for connections that have not selected a bucket.
    pub fn global_document(&self) -> Arc<ConfigDocument> {
        match self.topology.load().as_ref() {
            Some(topology) => {
                let version = ConfigDocumentVersion { epoch: topology.epoch, rev: topology.rev };
                self.rendered_or("", version, || {
                    document::global(version, &self.identity(), &document::nodes_of(topology))
                })
            }
            None => {
                let version = self.own_version();
                self.rendered_or("", version, || {
                    document::global(version, &self.identity(), &[self.node()])
                })
            }
        }
    }

    fn own_version(&self) -> ConfigDocumentVersion {
        ConfigDocumentVersion { epoch: REV_EPOCH, rev: self.rev.load(Ordering::Acquire) }
    }

    fn rendered_or(
        &self,
        name: &str,
        version: ConfigDocumentVersion,
        render: impl FnOnce() -> String,
    ) -> Arc<ConfigDocument> {
        let mut rendered = self.rendered.lock();
        if let Some(document) = rendered.get(name).filter(|document| document.version == version) {
            return Arc::clone(document);
        }
        let document = Arc::new(ConfigDocument { version, json: Arc::from(render()) });
        assert!(!document.json.is_empty(), "a configuration has a text");
        rendered.insert(name.to_owned(), Arc::clone(&document));
        document
    }

    /// The admin HTTP serves queries as well, so its port outside is a port for queries when no
    /// other one is mapped.
    fn with_mapped_queries(&self, mut external: ExternalAddress) -> ExternalAddress {
        let ports = &mut external.ports;
        if self.query_ports.plain.is_some() {
            ports.n1ql = ports.n1ql.or(ports.mgmt);
        }
        if self.query_ports.tls.is_some() {
            ports.n1ql_ssl = ports.n1ql_ssl.or(ports.mgmt_ssl);
        }
        external
    }

    fn node(&self) -> NodeExt {
        let address = self.address.load();
        let external = address.external.clone().map(|external| self.with_mapped_queries(external));
        NodeExt {
            this_node: true,
            // Clients compare this name with the one that they connected to, to choose between
            // both addresses. Where there is one address, it is the one they connected to.
            hostname: address.host.as_deref().filter(|_| external.is_some()).map(before_port),
            server_group: SERVER_GROUP,
            services: Services {
                kv: self.kv_port,
                mgmt: self.mgmt_port,
                kv_ssl: self.tls_ports.map(|ports| ports.kv),
                mgmt_ssl: self.tls_ports.map(|ports| ports.mgmt),
                n1ql: self.query_ports.plain,
                n1ql_ssl: self.query_ports.tls,
                index_admin: self.query_ports.plain.map(|_| self.mgmt_port),
            },
            alternate_addresses: external.map(|external| AlternateAddresses { external }),
        }
    }
}

/// The nodes of a topology, and the copies of a bucket on them.
fn placed_map(topology: &Topology, facts: &BucketFacts<'_>) -> BucketMap {
    let placement = topology.buckets.get(facts.name);
    let map = BucketMap {
        nodes: document::nodes_of(topology),
        rows: placement.map(document::rows_of).unwrap_or_default(),
        replica_count: placement.map_or(0, |placement| placement.replica_count),
    };
    debug_assert_eq!(map.rows.len(), usize::from(facts.vbuckets), "a vbucket has its row");
    map
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::address::{ExternalAddress, ExternalPorts, NodeAddress};
    use oribi_cluster::topology::{Placement, Topology, TopologyNode};

    use super::{BucketFacts, ClusterConfig, QueryPorts, TlsPorts};

    fn facts() -> BucketFacts<'static> {
        BucketFacts {
            name: "default",
            uuid: "00ff",
            bucket_type: "membase",
            vbuckets: 4,
            manifest_uid: 0x1f,
        }
    }

    // Compat (Bootstrap and session): GET_CLUSTER_CONFIG
    #[test]
    fn bucket_document_has_what_every_client_requires() {
        let config = ClusterConfig::new(11210, 8091, 100);
        let text = config.bucket_document(&facts());
        let json: serde_json::Value = serde_json::from_str(&text.json).unwrap();
        assert_eq!(json["rev"], 100);
        assert_eq!(json["name"], "default");
        assert_eq!(json["nodeLocator"], "vbucket");
        assert_eq!(json["nodes"].as_array().unwrap().len(), 1);
        assert_eq!(json["nodesExt"][0]["thisNode"], true);
        assert!(json["nodesExt"][0].get("hostname").is_none());
        assert_eq!(json["nodesExt"][0]["services"]["mgmt"], 8091);
        assert_eq!(json["vBucketServerMap"]["hashAlgorithm"], "CRC");
        assert_eq!(json["vBucketServerMap"]["vBucketMap"].as_array().unwrap().len(), 4);
        assert_eq!(json["collectionsManifestUid"], "1f");
        assert!(json["clusterCapabilities"].as_object().unwrap().is_empty());
    }

    #[test]
    fn ports_with_tls_are_named_where_there_are_any() {
        let ports = TlsPorts { kv: 11207, mgmt: 18091 };
        let config = ClusterConfig::new(11210, 8091, 100).with_tls(Some(ports));
        for document in [config.bucket_document(&facts()), config.global_document()] {
            let json: serde_json::Value = serde_json::from_str(&document.json).unwrap();
            assert_eq!(json["nodesExt"][0]["services"]["kvSSL"], 11207);
            assert_eq!(json["nodesExt"][0]["services"]["mgmtSSL"], 18091);
        }
        let without = ClusterConfig::new(11210, 8091, 100).global_document();
        assert!(!without.json.contains("SSL"), "{}", without.json);
    }

    // Compat (SQL++ over HTTP): announced to SDKs, port 8093
    #[test]
    fn queries_are_announced_with_their_capability() {
        let queries = QueryPorts { plain: Some(8093), tls: Some(18093) };
        let config = ClusterConfig::new(11210, 8091, 100).with_queries(queries);
        for document in [config.bucket_document(&facts()), config.global_document()] {
            let json: serde_json::Value = serde_json::from_str(&document.json).unwrap();
            let services = &json["nodesExt"][0]["services"];
            assert_eq!((&services["n1ql"], &services["n1qlSSL"]), (&8093.into(), &18093.into()));
            assert_eq!(services["indexAdmin"], 8091);
            assert_eq!(json["clusterCapabilitiesVer"], serde_json::json!([1, 0]));
            let capabilities = serde_json::json!({ "n1ql": ["enhancedPreparedStatements"] });
            assert_eq!(json["clusterCapabilities"], capabilities);
        }
        let without = ClusterConfig::new(11210, 8091, 100).global_document();
        assert!(!without.json.contains("n1ql"), "{}", without.json);
    }

    #[test]
    fn global_document_cannot_be_taken_for_a_bucket() {
        let text = ClusterConfig::new(11210, 8091, 100).global_document();
        let json: serde_json::Value = serde_json::from_str(&text.json).unwrap();
        for absent in ["name", "uuid", "nodeLocator", "nodes", "vBucketServerMap"] {
            assert!(json.get(absent).is_none(), "{absent} must be absent");
        }
        assert_eq!(json["nodesExt"][0]["services"]["kv"], 11210);
    }

    #[test]
    fn an_address_outside_stands_beside_the_one_inside() {
        let config = ClusterConfig::new(11210, 8091, 100);
        let inside = NodeAddress { host: Some("fd00::2".to_owned()), external: None };
        config.set_address(inside.clone());
        assert!(!config.bucket_document(&facts()).json.contains("fd00"), "there is no choice");
        let ports = ExternalPorts { kv: Some(32768), mgmt: Some(32769), ..Default::default() };
        let external = Some(ExternalAddress { hostname: "localhost".to_owned(), ports });
        config.set_address(NodeAddress { external, ..inside });
        config.advance();
        for document in [config.bucket_document(&facts()), config.global_document()] {
            let json: serde_json::Value = serde_json::from_str(&document.json).unwrap();
            let node = &json["nodesExt"][0];
            assert_eq!(
                (&node["hostname"], &node["services"]["kv"]),
                (&"[fd00::2]".into(), &11210.into())
            );
            let external = serde_json::json!({
                "external": { "hostname": "localhost", "ports": { "kv": 32768, "mgmt": 32769 } },
            });
            assert_eq!(node["alternateAddresses"], external);
        }
    }

    #[test]
    fn every_change_shows_a_higher_revision() {
        let config = ClusterConfig::new(1, 2, 7);
        let before = config.bucket_document(&facts());
        assert!(Arc::ptr_eq(&before, &config.bucket_document(&facts())));
        config.advance();
        assert_eq!(config.bucket_document(&facts()).version.rev, before.version.rev + 1);
    }

    fn topology(rev: u64) -> Topology {
        let node = |name: &str, host: &str, kv| TopologyNode {
            name: name.to_owned(),
            host: host.to_owned(),
            kv,
            mgmt: kv + 1,
            kv_tls: None,
            mgmt_tls: None,
            query: Some(kv + 3),
            query_tls: None,
        };
        let owners = vec![Some(1), Some(0), None, Some(1)];
        Topology {
            epoch: 2000,
            rev: 5,
            nodes: vec![node("a", "10.0.0.1", 100), node("b", "fd00::1", 200)],
            this: "b".to_owned(),
            buckets: [(
                "default".to_owned(),
                Placement { owners, replicas: Vec::new(), replica_count: 0, rev },
            )]
            .into(),
        }
    }

    #[test]
    fn a_cluster_is_shown_with_all_nodes_and_owners() {
        let config = ClusterConfig::new(11210, 8091, 100);
        let alone = config.bucket_document(&facts());
        config.set_topology(topology(7));
        let document = config.bucket_document(&facts());
        assert!(document.version > alone.version);
        let json: serde_json::Value = serde_json::from_str(&document.json).unwrap();
        assert_eq!((&json["rev"], &json["revEpoch"]), (&7.into(), &2000.into()));
        assert_eq!(json["nodesExt"][0]["hostname"], "10.0.0.1");
        assert_eq!(json["nodesExt"][0]["thisNode"], false);
        assert_eq!(json["nodesExt"][1]["hostname"], "[fd00::1]");
        assert_eq!(json["nodesExt"][1]["thisNode"], true);
        assert_eq!(json["nodesExt"][1]["services"]["n1ql"], 203);
        assert!(json["clusterCapabilities"]["n1ql"].is_array());
        let map = &json["vBucketServerMap"];
        assert_eq!(map["serverList"], serde_json::json!(["10.0.0.1:100", "[fd00::1]:200"]));
        assert_eq!(map["vBucketMap"], serde_json::json!([[1], [0], [-1], [1]]));
        let global: serde_json::Value =
            serde_json::from_str(&config.global_document().json).unwrap();
        assert_eq!((&global["rev"], global["nodesExt"].as_array().unwrap().len()), (&5.into(), 2));
        // The document of a bucket that only this node has stays as it was.
        let local = BucketFacts { name: "local", ..facts() };
        assert!(config.bucket_document(&local).json.contains("$HOST"));
    }

    #[test]
    fn rows_show_the_active_copy_and_its_replicas() {
        let config = ClusterConfig::new(11210, 8091, 100);
        let mut topology = topology(7);
        let placement = topology.buckets.get_mut("default").unwrap();
        placement.replica_count = 2;
        placement.replicas = vec![vec![Some(0), None]; 4];
        placement.replicas[1] = vec![Some(1), None];
        config.set_topology(topology);
        let json: serde_json::Value =
            serde_json::from_str(&config.bucket_document(&facts()).json).unwrap();
        let map = &json["vBucketServerMap"];
        assert_eq!(map["numReplicas"], 2);
        let rows = serde_json::json!([[1, 0, -1], [0, 1, -1], [-1, 0, -1], [1, 0, -1]]);
        assert_eq!(map["vBucketMap"], rows);
        assert_eq!(map["serverList"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn each_change_is_announced_once() {
        let config = ClusterConfig::new(1, 2, 7);
        let announced = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&announced);
        config.on_change(Box::new(move || {
            counter.fetch_add(1, Ordering::Relaxed);
        }));
        config.advance();
        config.set_topology(topology(7));
        config.set_topology(topology(7));
        assert_eq!(announced.load(Ordering::Relaxed), 2);
    }
}
