//! Cluster configuration documents: what tells a client where each vbucket lives.
//!
//! Owns: the revision and the text of the two documents, one per bucket and one for connections
//! without a bucket. Invariants: the revision only grows, over restarts too (it starts at the wall
//! clock's second), because clients ignore a document that is older than the one they have; no
//! document names a host, so that a client uses the address it connected to; the document without
//! bucket carries neither `name`, `uuid`, `nodeLocator` nor `nodes`, by which clients tell it from a
//! bucket's. Called by the dispatcher for each GET_CLUSTER_CONFIG and NotMyVbucket, therefore each
//! text is made once per revision. It does not decide anything about placement: there is one node.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use serde::Serialize;

/// Generation of the revision numbers; it would change if revisions had to start over.
pub const REV_EPOCH: i64 = 1;

/// What a single node can do, in the words that clients look for. `preserve_expiry` and
/// `preserveExpiry` are the same capability as spelled by different clients.
pub(crate) const BUCKET_CAPABILITIES: [&str; 12] = [
    "collections",
    "durableWrite",
    "tombstonedUserXAttrs",
    "cbhello",
    "touch",
    "cccp",
    "nodesExt",
    "xattr",
    "subdoc.ReplaceBodyWithXattr",
    "subdoc.ReviveDocument",
    "preserveExpiry",
    "preserve_expiry",
];

/// One rendered document.
#[derive(Debug)]
pub struct Document {
    /// Revision that it shows.
    pub rev: u64,
    /// JSON text.
    pub json: Arc<str>,
}

/// The facts of a bucket that its document shows.
#[derive(Debug, Clone, Copy)]
pub struct BucketFacts<'a> {
    /// Bucket name.
    pub name: &'a str,
    /// 32 hexadecimal digits.
    pub uuid: &'a str,
    /// What clients call its kind.
    pub bucket_type: &'static str,
    /// Power of two.
    pub vbuckets: u16,
    /// Version of the collections manifest.
    pub manifest_uid: u64,
}

/// Ports with TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TlsPorts {
    /// Memcached binary protocol.
    pub kv: u16,
    /// Admin HTTP.
    pub mgmt: u16,
}

/// See the module text.
#[derive(Debug)]
pub struct ClusterConfig {
    kv_port: u16,
    mgmt_port: u16,
    tls_ports: Option<TlsPorts>,
    rev: AtomicU64,
    /// Rendered documents by bucket name; the empty name is the document without bucket.
    rendered: Mutex<HashMap<String, Arc<Document>>>,
}

impl ClusterConfig {
    /// `unix_s` is the time of the start, the first revision.
    pub fn new(kv_port: u16, mgmt_port: u16, unix_s: u32) -> ClusterConfig {
        ClusterConfig {
            kv_port,
            mgmt_port,
            tls_ports: None,
            rev: AtomicU64::new(u64::from(unix_s).max(1)),
            rendered: Mutex::new(HashMap::new()),
        }
    }

    /// The same with ports for clients that speak TLS.
    pub fn with_tls(self, tls_ports: Option<TlsPorts>) -> ClusterConfig {
        ClusterConfig { tls_ports, ..self }
    }

    /// Current revision.
    pub fn rev(&self) -> u64 {
        self.rev.load(Ordering::Acquire)
    }

    /// Ports of the memcached binary protocol and of the admin HTTP.
    pub fn ports(&self) -> (u16, u16) {
        (self.kv_port, self.mgmt_port)
    }

    /// The same with TLS, where it is spoken.
    pub fn tls_ports(&self) -> Option<TlsPorts> {
        self.tls_ports
    }

    /// To be called after a bucket or a manifest changed: later documents carry a higher revision.
    pub fn advance(&self) {
        self.rev.fetch_add(1, Ordering::AcqRel);
        self.rendered.lock().clear();
    }

    /// The document of a bucket.
    pub fn bucket_document(&self, facts: &BucketFacts<'_>) -> Arc<Document> {
        self.rendered_or(facts.name, |rev| self.render_bucket(facts, rev))
    }

    /// The document for connections that have not selected a bucket.
    pub fn global_document(&self) -> Arc<Document> {
        self.rendered_or("", |rev| {
            render(&GlobalDocument {
                rev,
                rev_epoch: REV_EPOCH,
                nodes_ext: [self.node()],
                cluster_capabilities_ver: [1, 0],
                cluster_capabilities: BTreeMap::new(),
            })
        })
    }

    fn rendered_or(&self, name: &str, render: impl FnOnce(u64) -> String) -> Arc<Document> {
        let mut rendered = self.rendered.lock();
        let rev = self.rev();
        if let Some(document) = rendered.get(name).filter(|document| document.rev == rev) {
            return Arc::clone(document);
        }
        let document = Arc::new(Document { rev, json: Arc::from(render(rev)) });
        rendered.insert(name.to_owned(), Arc::clone(&document));
        document
    }

    fn node(&self) -> NodeExt {
        NodeExt {
            this_node: true,
            services: Services {
                kv: self.kv_port,
                mgmt: self.mgmt_port,
                kv_ssl: self.tls_ports.map(|ports| ports.kv),
                mgmt_ssl: self.tls_ports.map(|ports| ports.mgmt),
            },
        }
    }

    fn render_bucket(&self, facts: &BucketFacts<'_>, rev: u64) -> String {
        render(&BucketDocument {
            rev,
            rev_epoch: REV_EPOCH,
            name: facts.name,
            uuid: facts.uuid,
            node_locator: "vbucket",
            bucket_type: facts.bucket_type,
            nodes: [Node {
                hostname: format!("$HOST:{}", self.mgmt_port),
                ports: Ports { direct: self.kv_port },
            }],
            nodes_ext: [self.node()],
            vbucket_server_map: VbucketServerMap {
                hash_algorithm: "CRC",
                num_replicas: 0,
                server_list: [format!("$HOST:{}", self.kv_port)],
                vbucket_map: vec![[0]; usize::from(facts.vbuckets)],
            },
            bucket_capabilities_ver: "",
            bucket_capabilities: BUCKET_CAPABILITIES,
            cluster_capabilities_ver: [1, 0],
            cluster_capabilities: BTreeMap::new(),
            collections_manifest_uid: format!("{:x}", facts.manifest_uid),
        })
    }
}

fn render(document: &impl Serialize) -> String {
    serde_json::to_string(document).expect("plain structs with string keys always serialise")
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct GlobalDocument {
    rev: u64,
    rev_epoch: i64,
    nodes_ext: [NodeExt; 1],
    cluster_capabilities_ver: [u8; 2],
    cluster_capabilities: BTreeMap<&'static str, Vec<&'static str>>,
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
    nodes: [Node; 1],
    nodes_ext: [NodeExt; 1],
    #[serde(rename = "vBucketServerMap")]
    vbucket_server_map: VbucketServerMap,
    bucket_capabilities_ver: &'static str,
    bucket_capabilities: [&'static str; BUCKET_CAPABILITIES.len()],
    cluster_capabilities_ver: [u8; 2],
    cluster_capabilities: BTreeMap<&'static str, Vec<&'static str>>,
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
struct NodeExt {
    this_node: bool,
    services: Services,
}

#[derive(Serialize)]
struct Services {
    kv: u16,
    mgmt: u16,
    #[serde(rename = "kvSSL", skip_serializing_if = "Option::is_none")]
    kv_ssl: Option<u16>,
    #[serde(rename = "mgmtSSL", skip_serializing_if = "Option::is_none")]
    mgmt_ssl: Option<u16>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct VbucketServerMap {
    hash_algorithm: &'static str,
    num_replicas: u8,
    server_list: [String; 1],
    #[serde(rename = "vBucketMap")]
    vbucket_map: Vec<[u16; 1]>,
}

#[cfg(test)]
mod tests {
    use super::{BucketFacts, ClusterConfig, TlsPorts};

    fn facts() -> BucketFacts<'static> {
        BucketFacts {
            name: "default",
            uuid: "00ff",
            bucket_type: "membase",
            vbuckets: 4,
            manifest_uid: 0x1f,
        }
    }

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
    fn every_change_shows_a_higher_revision() {
        let config = ClusterConfig::new(1, 2, 7);
        let before = config.bucket_document(&facts());
        assert!(std::sync::Arc::ptr_eq(&before, &config.bucket_document(&facts())));
        config.advance();
        assert_eq!(config.bucket_document(&facts()).rev, before.rev + 1);
    }
}
