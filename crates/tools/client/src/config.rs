//! The cluster map: which node serves which vbucket.
//!
//! Owns parsing of the document that servers answer GET_CLUSTER_CONFIG with. Unknown fields are
//! ignored; a document that names no usable node is an error, because nothing could be sent.

use std::fmt;

use oribi_protocol::limits::VBUCKETS_MAX;
use oribi_protocol::request::ConfigVersion;
use oribi_types::Vbid;
use serde::Deserialize;

use crate::error::MalformedResponse;

/// Placeholder for the host that the client connected to.
const HOST_PLACEHOLDER: &str = "$HOST";

/// A node that serves documents.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct KvNode {
    /// Host name or address.
    pub host: String,
    /// Port of the key-value protocol, with or without TLS as was asked for.
    pub port: u16,
}

impl KvNode {
    /// The node at `host` and `port`.
    pub fn new(host: impl Into<String>, port: u16) -> KvNode {
        KvNode { host: host.into(), port }
    }
}

impl fmt::Display for KvNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

/// A bucket's cluster map.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ClusterMap {
    /// Version; a larger one is newer.
    pub version: ConfigVersion,
    /// Nodes with a key-value port, in the order that the vbucket map refers to.
    pub nodes: Vec<KvNode>,
    /// Position of the node that gave the map, if the map says so.
    this_node: Option<usize>,
    /// Per vbucket, the position of the node that is active for it.
    active: Vec<Option<usize>>,
}

impl ClusterMap {
    /// Older than every map, and without nodes.
    pub(crate) fn none() -> ClusterMap {
        let version = ConfigVersion { epoch: i64::MIN, revision: i64::MIN };
        ClusterMap { version, nodes: Vec::new(), this_node: None, active: vec![None] }
    }

    /// Parses a bucket's map for connections without TLS; `source_host` is where it was fetched
    /// from.
    pub fn parse(json: &[u8], source_host: &str) -> Result<ClusterMap, MalformedResponse> {
        ClusterMap::parse_for(json, source_host, false)
    }

    /// Parses a bucket's map for connections with TLS, or without.
    pub(crate) fn parse_for(
        json: &[u8],
        source_host: &str,
        with_tls: bool,
    ) -> Result<ClusterMap, MalformedResponse> {
        let document: Document = serde_json::from_slice(json)
            .map_err(|error| MalformedResponse::new(format!("cluster map: {error}")))?;
        let active: Vec<Option<usize>> = document
            .vbucket_server_map
            .vbucket_map
            .iter()
            .map(|chain| chain.first().and_then(|&node| usize::try_from(node).ok()))
            .collect();
        if active.is_empty() || active.len() > usize::from(VBUCKETS_MAX) {
            let count = active.len();
            return Err(MalformedResponse::new(format!("cluster map with {count} vbuckets")));
        }
        let (nodes, is_this): (Vec<KvNode>, Vec<bool>) = document
            .nodes_ext
            .into_iter()
            .filter_map(|node| {
                let host = node.hostname.filter(|host| host != HOST_PLACEHOLDER);
                let host = host.unwrap_or_else(|| source_host.to_owned());
                let Services { kv, kv_ssl } = node.services;
                let port = if with_tls { kv_ssl } else { kv };
                port.map(|port| (KvNode { host, port }, node.this_node))
            })
            .unzip();
        if nodes.is_empty() {
            let port = if with_tls { " with a TLS port" } else { "" };
            return Err(MalformedResponse::new(format!(
                "cluster map without a key-value node{port}"
            )));
        }
        let this_node = is_this.iter().position(|&is_this| is_this);
        let version = ConfigVersion { epoch: document.rev_epoch, revision: document.rev };
        Ok(ClusterMap { version, nodes, this_node, active })
    }

    /// The node that gave the map, if the map says so.
    pub fn this_node(&self) -> Option<&KvNode> {
        self.nodes.get(self.this_node?)
    }

    /// Number of vbuckets.
    pub fn vbucket_count(&self) -> u16 {
        // Parsing has checked the bound.
        u16::try_from(self.active.len()).unwrap_or(VBUCKETS_MAX)
    }

    /// The vbucket of a logical key.
    pub fn vbucket_of(&self, key: &[u8]) -> Vbid {
        oribi_protocol::hash::vbucket_of(key, self.vbucket_count())
    }

    /// The node that is active for a vbucket, if there is one.
    pub fn active_node(&self, vbid: Vbid) -> Option<&KvNode> {
        self.nodes.get(self.active_position(vbid)?)
    }

    /// Position in `nodes` of the node that is active for a vbucket.
    pub(crate) fn active_position(&self, vbid: Vbid) -> Option<usize> {
        let position = *self.active.get(usize::from(vbid.0))?;
        position.filter(|&position| position < self.nodes.len())
    }
}

#[derive(Deserialize)]
struct Document {
    #[serde(default)]
    rev: i64,
    #[serde(default, rename = "revEpoch")]
    rev_epoch: i64,
    #[serde(rename = "nodesExt")]
    nodes_ext: Vec<NodeExt>,
    #[serde(rename = "vBucketServerMap")]
    vbucket_server_map: VbucketServerMap,
}

#[derive(Deserialize)]
struct NodeExt {
    hostname: Option<String>,
    #[serde(default, rename = "thisNode")]
    this_node: bool,
    services: Services,
}

#[derive(Deserialize)]
struct Services {
    kv: Option<u16>,
    #[serde(rename = "kvSSL")]
    kv_ssl: Option<u16>,
}

#[derive(Deserialize)]
struct VbucketServerMap {
    #[serde(rename = "vBucketMap")]
    vbucket_map: Vec<Vec<i64>>,
}

#[cfg(test)]
mod tests {
    //! Maps that servers send, and maps that none should.

    use super::*;

    const TWO_NODES: &str = r#"{"rev":7,"revEpoch":2,"name":"default",
        "nodesExt":[{"services":{"mgmt":8091}},
                    {"thisNode":true,"services":{"kv":11210,"mgmt":8091}},
                    {"hostname":"$HOST","services":{"kv":12000}},
                    {"hostname":"10.0.0.3","services":{"kv":11210}}],
        "vBucketServerMap":{"numReplicas":0,"vBucketMap":[[0],[2,1],[-1],[]]}}"#;

    #[test]
    fn parses_nodes_and_vbuckets() {
        let config = ClusterMap::parse(TWO_NODES.as_bytes(), "db.example").unwrap();
        assert_eq!(config.version, ConfigVersion { epoch: 2, revision: 7 });
        let hosts: Vec<(&str, u16)> =
            config.nodes.iter().map(|node| (node.host.as_str(), node.port)).collect();
        assert_eq!(hosts, [("db.example", 11210), ("db.example", 12000), ("10.0.0.3", 11210)]);
        assert_eq!(config.this_node(), Some(&config.nodes[0]));
        assert_eq!(config.vbucket_count(), 4);
        assert_eq!(config.active_node(Vbid(0)), Some(&config.nodes[0]));
        assert_eq!(config.active_node(Vbid(1)), Some(&config.nodes[2]));
        assert_eq!(config.active_node(Vbid(2)), None);
        assert_eq!(config.active_node(Vbid(3)), None);
        assert_eq!(config.active_node(Vbid(4)), None);
    }

    #[test]
    fn with_tls_the_other_ports_count() {
        let json = TWO_NODES.replace("\"kv\":11210", "\"kv\":11210,\"kvSSL\":11207");
        let config = ClusterMap::parse_for(json.as_bytes(), "db.example", true).unwrap();
        let ports: Vec<u16> = config.nodes.iter().map(|node| node.port).collect();
        assert_eq!(ports, [11207, 11207]);
        let error = ClusterMap::parse_for(TWO_NODES.as_bytes(), "h", true).unwrap_err();
        assert!(error.to_string().contains("TLS"), "{error}");
    }

    #[test]
    fn refuses_maps_that_lead_nowhere() {
        let no_node = TWO_NODES.replace("\"kv\"", "\"n1ql\"");
        let no_vbucket = TWO_NODES.replace("[[0],[2,1],[-1],[]]", "[]");
        let many = TWO_NODES.replace("[[0],", &format!("[{}", "[0],".repeat(1024)));
        for json in [no_node.as_str(), &no_vbucket, &many, "{}", "", "[1]"] {
            ClusterMap::parse(json.as_bytes(), "h").expect_err("refused");
        }
    }
}
