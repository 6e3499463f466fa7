//! The JSON of cluster configuration documents.
//!
//! Owns: their fields and spelling. Without a topology a document shows this node alone and names
//! no host, so that a client uses the address it connected to; a node with an address for clients
//! outside names both. With a topology every node has its advertised host. The cluster
//! configuration calls this once for each revision.

use std::collections::BTreeMap;

use oribi_cluster::identity::ClusterIdentity;
use oribi_cluster::topology::{Placement, Topology, TopologyNode};
use serde::Serialize;
use serde_json::Value;

use super::address::{ExternalAddress, before_port};
use super::version::ConfigDocumentVersion;

/// Capabilities of a node, in the words that clients look for. `preserve_expiry` and
/// `preserveExpiry` are the same capability as spelled by different clients.
pub const BUCKET_CAPABILITIES: [&str; 19] = [
    "dcp",
    "dcp.IgnorePurgedTombstones",
    "collections",
    "durableWrite",
    "tombstonedUserXAttrs",
    "cbhello",
    "touch",
    "cccp",
    "nodesExt",
    "xattr",
    "rangeScan",
    "subdoc.ReplaceBodyWithXattr",
    "subdoc.ReviveDocument",
    // Without this capability, clients do not even request a part of a document from a replica.
    "subdoc.ReplicaRead",
    "subdoc.DocumentMacroSupport",
    "subdoc.AccessDeleted",
    "subdoc.BinaryXattr",
    "preserveExpiry",
    "preserve_expiry",
];

/// The group of every node: the default group of a cluster without configured groups. Clients that
/// prefer a group compare by name. A missing name would match a client without a preference.
pub const SERVER_GROUP: &str = "Group 1";

/// Capabilities of a node's query service, in the words that clients look for: a statement is
/// prepared and run by one request.
const QUERY_CAPABILITIES: [&str; 1] = ["enhancedPreparedStatements"];

/// Placeholder for the address that the client connected to.
const THIS_HOST: &str = "$HOST";

/// The facts of a bucket that its document shows.
#[derive(Debug, Clone, Copy)]
pub struct BucketFacts<'a> {
    pub name: &'a str,
    pub uuid: &'a str,
    /// The bucket type that clients see.
    pub bucket_type: &'static str,
    pub vbuckets: u16,
    /// Version of the collections manifest.
    pub manifest_uid: u64,
}

/// The nodes of a cluster, and the copies of each vbucket as positions among them: the active one,
/// then the replicas, -1 for none.
pub(super) struct BucketMap {
    pub(super) nodes: Vec<NodeExt>,
    pub(super) rows: Vec<Vec<i32>>,
    /// Replicas of each row.
    pub(super) replica_count: usize,
}

/// The document of a bucket.
pub(super) fn bucket(
    facts: &BucketFacts<'_>,
    version: ConfigDocumentVersion,
    identity: &ClusterIdentity,
    map: &BucketMap,
) -> String {
    render(&BucketDocument {
        rev: version.rev,
        rev_epoch: version.epoch,
        name: facts.name,
        uuid: facts.uuid,
        node_locator: "vbucket",
        bucket_type: facts.bucket_type,
        nodes: map
            .nodes
            .iter()
            .map(|node| Node {
                hostname: format!("{}:{}", node.host_or(THIS_HOST), node.services.mgmt),
                ports: Ports { direct: node.services.kv },
            })
            .collect(),
        nodes_ext: &map.nodes,
        vbucket_server_map: VbucketServerMap::new(map, THIS_HOST),
        bucket_capabilities_ver: "",
        bucket_capabilities: BUCKET_CAPABILITIES,
        cluster_capabilities_ver: [1, 0],
        cluster_capabilities: capabilities_of(&map.nodes),
        cluster_uuid: &identity.uuid,
        cluster_name: &identity.name,
        collections_manifest_uid: format!("{:x}", facts.manifest_uid),
    })
}

/// The capabilities of the services that nodes have.
fn capabilities_of(nodes: &[NodeExt]) -> BTreeMap<&'static str, Vec<&'static str>> {
    let has_queries = |node: &NodeExt| {
        let services = &node.services;
        services.n1ql.is_some() || services.n1ql_ssl.is_some()
    };
    let queries = nodes.iter().any(has_queries);
    queries.then(|| ("n1ql", QUERY_CAPABILITIES.to_vec())).into_iter().collect()
}

/// The owners alone, for a client that knows a node without a host name as `host`.
pub(super) fn server_map(map: &BucketMap, host: &str) -> Value {
    serde_json::to_value(VbucketServerMap::new(map, host))
        .expect("plain structs with string keys always serialise")
}

/// The document for connections without a bucket.
pub(super) fn global(
    version: ConfigDocumentVersion,
    identity: &ClusterIdentity,
    nodes: &[NodeExt],
) -> String {
    render(&GlobalDocument {
        rev: version.rev,
        rev_epoch: version.epoch,
        nodes_ext: nodes,
        cluster_capabilities_ver: [1, 0],
        cluster_capabilities: capabilities_of(nodes),
        cluster_uuid: &identity.uuid,
        cluster_name: &identity.name,
    })
}

/// The nodes of a topology as documents show them to clients of the node `this`.
pub(super) fn nodes_of(topology: &Topology) -> Vec<NodeExt> {
    let entry = |node: &TopologyNode| NodeExt {
        this_node: node.name == topology.this,
        hostname: Some(before_port(&node.host)),
        server_group: SERVER_GROUP,
        services: Services {
            kv: node.kv,
            mgmt: node.mgmt,
            kv_ssl: node.kv_tls,
            mgmt_ssl: node.mgmt_tls,
            n1ql: node.query,
            n1ql_ssl: node.query_tls,
            index_admin: node.query.map(|_| node.mgmt),
        },
        alternate_addresses: None,
    };
    topology.nodes.iter().map(entry).collect()
}

/// The row of each vbucket: positions in the list of nodes.
pub(super) fn rows_of(placement: &Placement) -> Vec<Vec<i32>> {
    let position = |node: Option<usize>| node.and_then(|node| i32::try_from(node).ok());
    let row = |(vbucket, owner): (usize, &Option<usize>)| {
        let replicas = placement.replicas.get(vbucket).into_iter().flatten();
        let copies = std::iter::once(owner).chain(replicas);
        copies.map(|node| position(*node).unwrap_or(-1)).collect()
    };
    placement.owners.iter().enumerate().map(row).collect()
}

fn render(document: &impl Serialize) -> String {
    serde_json::to_string(document).expect("plain structs with string keys always serialise")
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct GlobalDocument<'a> {
    rev: u64,
    rev_epoch: i64,
    nodes_ext: &'a [NodeExt],
    cluster_capabilities_ver: [u8; 2],
    cluster_capabilities: BTreeMap<&'static str, Vec<&'static str>>,
    #[serde(rename = "clusterUUID")]
    cluster_uuid: &'a str,
    cluster_name: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct BucketDocument<'a> {
    rev: u64,
    rev_epoch: i64,
    name: &'a str,
    uuid: &'a str,
    node_locator: &'static str,
    bucket_type: &'static str,
    nodes: Vec<Node>,
    nodes_ext: &'a [NodeExt],
    #[serde(rename = "vBucketServerMap")]
    vbucket_server_map: VbucketServerMap<'a>,
    bucket_capabilities_ver: &'static str,
    bucket_capabilities: [&'static str; BUCKET_CAPABILITIES.len()],
    cluster_capabilities_ver: [u8; 2],
    cluster_capabilities: BTreeMap<&'static str, Vec<&'static str>>,
    #[serde(rename = "clusterUUID")]
    cluster_uuid: &'a str,
    cluster_name: &'a str,
    collections_manifest_uid: String,
}

#[derive(Serialize)]
struct Node {
    hostname: String,
    ports: Ports,
}

#[derive(Serialize)]
struct Ports {
    direct: u16,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NodeExt {
    pub(super) this_node: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) hostname: Option<String>,
    pub(super) server_group: &'static str,
    pub(super) services: Services,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) alternate_addresses: Option<AlternateAddresses>,
}

impl NodeExt {
    fn host_or<'a>(&'a self, host: &'a str) -> &'a str {
        self.hostname.as_deref().unwrap_or(host)
    }
}

/// Addresses in networks other than the node's own.
#[derive(Serialize)]
pub(super) struct AlternateAddresses {
    pub(super) external: ExternalAddress,
}

#[derive(Serialize)]
pub(super) struct Services {
    pub(super) kv: u16,
    pub(super) mgmt: u16,
    #[serde(rename = "kvSSL", skip_serializing_if = "Option::is_none")]
    pub(super) kv_ssl: Option<u16>,
    #[serde(rename = "mgmtSSL", skip_serializing_if = "Option::is_none")]
    pub(super) mgmt_ssl: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) n1ql: Option<u16>,
    #[serde(rename = "n1qlSSL", skip_serializing_if = "Option::is_none")]
    pub(super) n1ql_ssl: Option<u16>,
    /// Testcontainers' modules wait until a node has a service of indexes. Indexes are part of the
    /// query service here, so the port is that of the admin HTTP.
    #[serde(rename = "indexAdmin", skip_serializing_if = "Option::is_none")]
    pub(super) index_admin: Option<u16>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct VbucketServerMap<'a> {
    hash_algorithm: &'static str,
    num_replicas: usize,
    server_list: Vec<String>,
    #[serde(rename = "vBucketMap")]
    vbucket_map: &'a [Vec<i32>],
}

impl VbucketServerMap<'_> {
    fn new<'a>(map: &'a BucketMap, host: &str) -> VbucketServerMap<'a> {
        let address = |node: &NodeExt| format!("{}:{}", node.host_or(host), node.services.kv);
        VbucketServerMap {
            hash_algorithm: "CRC",
            num_replicas: map.replica_count,
            server_list: map.nodes.iter().map(address).collect(),
            vbucket_map: &map.rows,
        }
    }
}
