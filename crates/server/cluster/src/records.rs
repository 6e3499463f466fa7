//! The layout in etcd: names of keys, and the records that are more than a name.
//!
//! Owns: layout and spelling, for all versions that ever share a cluster. All keys are below
//! `/oribi/CLUSTER/`:
//!
//! | key | holds | lives |
//! |---|---|---|
//! | `c/epoch` | UNIX seconds at which the cluster was made | always |
//! | `c/identity` | uuid and name of the cluster | always |
//! | `c/secret` | a [`SecretProof`] of the first node that has a secret | always |
//! | `c/nodes/NAME` | a [`NodeRecord`] | as long as the node's lease |
//! | `c/leader` | name and lease of the node that makes the map | as long as its lease |
//! | `c/map` | a [`MapRecord`] | always |
//! | `c/buckets/NAME` | the bucket's settings, as in `bucket.json` | as long as the bucket |
//! | `c/settings/NAME` | the settings of buckets that a node has in force | as long as the node's lease |
//! | `c/manifests/NAME` | its collections, as stored | as long as the bucket |
//! | `c/deleted/UUID` | [`BucketRemains`] of a deleted bucket; nothing when they are gone | always |
//! | `c/users` | users and roles with their verifiers, as `oribi-auth` writes them | always |
//! | `c/roster` | numbers of nodes and their disks, see `copies::roster` | always |
//! | `c/failover` | a request to fail a node over | until it is done |
//! | `c/rebalance` | the last rebalance, see `rebalance` | always |
//! | `copies/BUCKET/UUID/VBUCKET` | a [`CopiesRecord`] | as long as the bucket |
//! | `reports/UUID/NODE` | the copies on a node | as long as the node's lease |
//! | `held/BUCKET/UUID/VBUCKET` | name and lease of the node that may serve it | like its lease |

use std::collections::{BTreeMap, BTreeSet};

use oribi_config::BucketStorage;
use oribi_replication::copies::CopiesRecord;
use oribi_types::Vbid;
use serde::{Deserialize, Serialize};

use crate::agreement::SessionId;
#[cfg(doc)]
use crate::secret::SecretProof;
use crate::topology::TopologyNode;

#[derive(Debug, Clone)]
pub(crate) struct RecordKeys(String);

impl RecordKeys {
    pub(crate) fn new(cluster: &str) -> RecordKeys {
        assert!(!cluster.is_empty() && !cluster.contains('/'), "clusters do not share a prefix");
        RecordKeys(format!("/oribi/{cluster}/"))
    }

    /// Prefix of all keys.
    pub(crate) fn all(&self) -> &str {
        &self.0
    }

    pub(crate) fn epoch(&self) -> String {
        format!("{}c/epoch", self.0)
    }

    pub(crate) fn identity(&self) -> String {
        format!("{}c/identity", self.0)
    }

    pub(crate) fn secret(&self) -> String {
        format!("{}c/secret", self.0)
    }

    pub(crate) fn nodes(&self) -> String {
        format!("{}c/nodes/", self.0)
    }

    pub(crate) fn node(&self, name: &str) -> String {
        format!("{}{name}", self.nodes())
    }

    pub(crate) fn leader(&self) -> String {
        format!("{}c/leader", self.0)
    }

    pub(crate) fn map(&self) -> String {
        format!("{}c/map", self.0)
    }

    pub(crate) fn buckets(&self) -> String {
        format!("{}c/buckets/", self.0)
    }

    pub(crate) fn bucket(&self, name: &str) -> String {
        format!("{}{name}", self.buckets())
    }

    pub(crate) fn settings_reports(&self) -> String {
        format!("{}c/settings/", self.0)
    }

    pub(crate) fn settings_report(&self, node: &str) -> String {
        format!("{}{node}", self.settings_reports())
    }

    pub(crate) fn manifests(&self) -> String {
        format!("{}c/manifests/", self.0)
    }

    pub(crate) fn manifest(&self, bucket: &str) -> String {
        format!("{}{bucket}", self.manifests())
    }

    pub(crate) fn all_deleted(&self) -> String {
        format!("{}c/deleted/", self.0)
    }

    pub(crate) fn deleted(&self, uuid: &str) -> String {
        format!("{}{uuid}", self.all_deleted())
    }

    pub(crate) fn users(&self) -> String {
        format!("{}c/users", self.0)
    }

    pub(crate) fn roster(&self) -> String {
        format!("{}c/roster", self.0)
    }

    pub(crate) fn failover(&self) -> String {
        format!("{}c/failover", self.0)
    }

    pub(crate) fn rebalance(&self) -> String {
        format!("{}c/rebalance", self.0)
    }

    fn all_copies(&self) -> String {
        format!("{}copies/", self.0)
    }

    pub(crate) fn copies(&self, bucket: &str, uuid: &str, vbid: Vbid) -> String {
        format!("{}{bucket}/{uuid}/{:04}", self.all_copies(), vbid.0)
    }

    /// The bucket and the vbucket of a `copies` key.
    pub(crate) fn copies_of(&self, key: &str) -> Option<(String, VbucketPlace)> {
        let rest = key.strip_prefix(&self.all_copies())?;
        Some((rest.split('/').next()?.to_owned(), place_in(rest)?))
    }

    fn all_reports(&self) -> String {
        format!("{}reports/", self.0)
    }

    pub(crate) fn report(&self, uuid: &str, node: &str) -> String {
        format!("{}{uuid}/{node}", self.all_reports())
    }

    /// The uuid of the bucket and the node of a `reports` key.
    pub(crate) fn report_of<'k>(&self, key: &'k str) -> Option<(&'k str, &'k str)> {
        key.strip_prefix(&self.all_reports())?.split_once('/')
    }

    fn all_held(&self) -> String {
        format!("{}held/", self.0)
    }

    /// A bucket re-created under an old name has its own keys, because those of the old one may
    /// live for a while.
    pub(crate) fn held_of(&self, bucket: &str, uuid: &str) -> String {
        format!("{}{bucket}/{uuid}/", self.all_held())
    }

    pub(crate) fn held(&self, bucket: &str, uuid: &str, vbid: Vbid) -> String {
        format!("{}{:04}", self.held_of(bucket, uuid), vbid.0)
    }

    /// The vbucket of a `held` key.
    pub(crate) fn vbucket_of(&self, key: &str) -> Option<VbucketPlace> {
        place_in(key.strip_prefix(&self.all_held())?)
    }
}

/// The place in `BUCKET/UUID/VBUCKET`.
fn place_in(rest: &str) -> Option<VbucketPlace> {
    let mut parts = rest.split('/').skip(1);
    let (uuid, vbucket) = (parts.next()?, parts.next()?);
    let vbid = Vbid(vbucket.parse().ok()?);
    parts.next().is_none().then(|| VbucketPlace { uuid: uuid.to_owned(), vbid })
}

/// The record of a vbucket's copies, as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CopiesEntry {
    pub(crate) key: String,
    pub(crate) bucket: String,
    pub(crate) revision: i64,
    pub(crate) record: CopiesRecord,
}

/// Data of a deleted bucket that may remain outside the nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BucketRemains {
    /// Its name, for the log.
    pub(crate) bucket: String,
    pub(crate) storage: BucketStorage,
    /// The id that its store assigned.
    pub(crate) id: String,
}

/// A vbucket of a bucket.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct VbucketPlace {
    pub(crate) uuid: String,
    pub(crate) vbid: Vbid,
}

/// The session that may serve a vbucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) key: String,
    /// A value made by [`token_of`].
    pub(crate) token: Vec<u8>,
}

impl Holder {
    /// True for a session of the node of this name.
    pub(crate) fn is_of(&self, node: &str) -> bool {
        let rest = self.token.strip_prefix(node.as_bytes());
        // A name may contain spaces; a lease contains none.
        rest.and_then(|rest| rest.strip_prefix(b" ")).is_some_and(|lease| !lease.contains(&b' '))
    }
}

/// The value that a session of a node writes into the keys that it holds.
pub(crate) fn token_of(node: &str, session: SessionId) -> Vec<u8> {
    format!("{node} {:x}", session.0).into_bytes()
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NodeRecord {
    pub(crate) host: String,
    pub(crate) kv: u16,
    pub(crate) mgmt: u16,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) kv_tls: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) mgmt_tls: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) query: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) query_tls: Option<u16>,
    /// The disk of a node that may have copies of vbuckets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) disk: Option<String>,
    /// Where it receives beacons of other nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) beacons: Option<BeaconRecord>,
    /// The node leaves: it accepts no vbuckets and hands over those it has.
    #[serde(default)]
    pub(crate) leaving: bool,
    /// Uuids of buckets whose vbuckets the node cannot take over, because it cannot reach their
    /// store.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) unable: BTreeSet<String>,
}

/// The sender of a node's beacons.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BeaconRecord {
    /// Of UDP, at the node's host.
    pub(crate) port: u16,
    pub(crate) process: u64,
}

impl NodeRecord {
    pub(crate) fn of(node: &TopologyNode, leaving: bool, unable: BTreeSet<String>) -> NodeRecord {
        NodeRecord {
            host: node.host.clone(),
            kv: node.kv,
            mgmt: node.mgmt,
            kv_tls: node.kv_tls,
            mgmt_tls: node.mgmt_tls,
            query: node.query,
            query_tls: node.query_tls,
            disk: None,
            beacons: None,
            leaving,
            unable,
        }
    }

    pub(crate) fn named(&self, name: &str) -> TopologyNode {
        TopologyNode {
            name: name.to_owned(),
            host: self.host.clone(),
            kv: self.kv,
            mgmt: self.mgmt,
            kv_tls: self.kv_tls,
            mgmt_tls: self.mgmt_tls,
            query: self.query,
            query_tls: self.query_tls,
        }
    }
}

/// The planned owner of each vbucket.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct MapRecord {
    /// Nodes, in the order in which clients see them.
    pub(crate) nodes: Vec<MapNode>,
    pub(crate) buckets: BTreeMap<String, MapBucket>,
}

/// A node in the map.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MapNode {
    pub(crate) name: String,
    #[serde(flatten)]
    pub(crate) record: NodeRecord,
}

/// A bucket in the map.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MapBucket {
    pub(crate) uuid: String,
    /// Position in the list of nodes, for each vbucket.
    pub(crate) owners: Vec<usize>,
}

impl MapBucket {
    /// Name of the planned owner of a vbucket.
    pub(crate) fn owner<'m>(&self, map: &'m MapRecord, vbucket: usize) -> Option<&'m str> {
        let node = map.nodes.get(*self.owners.get(vbucket)?)?;
        Some(&node.name)
    }
}

#[cfg(test)]
mod tests {
    use oribi_types::Vbid;

    use super::{
        BeaconRecord, Holder, MapBucket, MapNode, MapRecord, NodeRecord, RecordKeys, SessionId,
        VbucketPlace, token_of,
    };

    #[test]
    fn keys_of_a_kind_share_an_exclusive_prefix() {
        let keys = RecordKeys::new("c1");
        assert_eq!(keys.held("b", "u", Vbid(7)), "/oribi/c1/held/b/u/0007");
        assert!(keys.held("b", "u", Vbid(7)).starts_with(keys.all()));
        assert!(!keys.held("b", "u", Vbid(7)).starts_with(&keys.nodes()));
        assert!(!RecordKeys::new("c10").all().starts_with(keys.all()));
    }

    #[test]
    fn the_key_of_a_holder_names_its_vbucket() {
        let keys = RecordKeys::new("c1");
        let place = keys.vbucket_of(&keys.held("b", "u", Vbid(1023)));
        assert_eq!(place, Some(VbucketPlace { uuid: "u".to_owned(), vbid: Vbid(1023) }));
        for other in [keys.node("n"), keys.held_of("b", "u"), keys.held("b", "u", Vbid(1)) + "/x"] {
            assert_eq!(keys.vbucket_of(&other), None, "{other}");
        }
        let holder = Holder { key: String::new(), token: token_of("a b", SessionId(0x1f)) };
        assert!(holder.is_of("a b"));
        assert!(!holder.is_of("a") && !holder.is_of("a b 1f") && !holder.is_of("b"));
    }

    #[test]
    fn a_map_is_read_as_written() {
        let record = NodeRecord {
            host: "h".to_owned(),
            kv: 1,
            mgmt: 2,
            kv_tls: None,
            mgmt_tls: Some(3),
            query: Some(4),
            query_tls: None,
            disk: Some("d".to_owned()),
            beacons: Some(BeaconRecord { port: 1, process: u64::MAX }),
            leaving: false,
            unable: ["u".to_owned()].into(),
        };
        let bucket = MapBucket { uuid: "u".to_owned(), owners: vec![0, 1, 0] };
        let map = MapRecord {
            nodes: vec![MapNode { name: "n".to_owned(), record }],
            buckets: [("b".to_owned(), bucket.clone())].into(),
        };
        let text = serde_json::to_string(&map).unwrap();
        assert_eq!(serde_json::from_str::<MapRecord>(&text).unwrap(), map);
        assert_eq!(bucket.owner(&map, 0), Some("n"));
        assert_eq!(bucket.owner(&map, 1), None, "a node that is not there");
        assert_eq!(bucket.owner(&map, 3), None, "a vbucket that is not there");
    }
}
