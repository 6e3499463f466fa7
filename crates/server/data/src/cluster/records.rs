//! The layout in etcd: names of keys, and the records that are more than a name.
//!
//! Owns: layout and spelling, for all versions that ever share a cluster. All keys are below
//! `/oribi/CLUSTER/`:
//!
//! | key | holds | lives |
//! |---|---|---|
//! | `c/epoch` | UNIX seconds at which the cluster was made | always |
//! | `c/identity` | uuid and name of the cluster | always |
//! | `c/nodes/NAME` | a [`NodeRecord`] | as long as the node's lease |
//! | `c/leader` | name and lease of the node that makes the map | as long as its lease |
//! | `c/map` | a [`MapRecord`] | always |
//! | `c/buckets/NAME` | the bucket's settings, as in `bucket.json` | as long as the bucket |
//! | `c/manifests/NAME` | its collections, as stored | as long as the bucket |
//! | `c/deleted/UUID` | [`Remains`] of a deleted bucket; nothing when they are gone | always |
//! | `held/BUCKET/UUID/VBUCKET` | name and lease of the node that may serve it | like its lease |

use std::collections::{BTreeMap, BTreeSet};

use oribi_config::BucketStorage;
use oribi_types::Vbid;
use serde::{Deserialize, Serialize};

use crate::cluster_config::TopologyNode;

#[derive(Debug, Clone)]
pub(super) struct Keys(String);

impl Keys {
    pub(super) fn new(cluster: &str) -> Keys {
        Keys(format!("/oribi/{cluster}/"))
    }

    /// Prefix of all keys.
    pub(super) fn all(&self) -> &str {
        &self.0
    }

    pub(super) fn epoch(&self) -> String {
        format!("{}c/epoch", self.0)
    }

    pub(super) fn identity(&self) -> String {
        format!("{}c/identity", self.0)
    }

    pub(super) fn nodes(&self) -> String {
        format!("{}c/nodes/", self.0)
    }

    pub(super) fn node(&self, name: &str) -> String {
        format!("{}{name}", self.nodes())
    }

    pub(super) fn leader(&self) -> String {
        format!("{}c/leader", self.0)
    }

    pub(super) fn map(&self) -> String {
        format!("{}c/map", self.0)
    }

    pub(super) fn buckets(&self) -> String {
        format!("{}c/buckets/", self.0)
    }

    pub(super) fn bucket(&self, name: &str) -> String {
        format!("{}{name}", self.buckets())
    }

    pub(super) fn manifests(&self) -> String {
        format!("{}c/manifests/", self.0)
    }

    pub(super) fn manifest(&self, bucket: &str) -> String {
        format!("{}{bucket}", self.manifests())
    }

    pub(super) fn all_deleted(&self) -> String {
        format!("{}c/deleted/", self.0)
    }

    pub(super) fn deleted(&self, uuid: &str) -> String {
        format!("{}{uuid}", self.all_deleted())
    }

    fn all_held(&self) -> String {
        format!("{}held/", self.0)
    }

    /// A bucket re-created under an old name has its own keys, because those of the old one may
    /// live for a while.
    pub(super) fn held_of(&self, bucket: &str, uuid: &str) -> String {
        format!("{}{bucket}/{uuid}/", self.all_held())
    }

    pub(super) fn held(&self, bucket: &str, uuid: &str, vbid: Vbid) -> String {
        format!("{}{:04}", self.held_of(bucket, uuid), vbid.0)
    }

    /// The vbucket of a `held` key.
    pub(super) fn place_of(&self, key: &str) -> Option<Place> {
        let mut parts = key.strip_prefix(&self.all_held())?.split('/').skip(1);
        let (uuid, vbucket) = (parts.next()?, parts.next()?);
        let vbid = Vbid(vbucket.parse().ok()?);
        parts.next().is_none().then(|| Place { uuid: uuid.to_owned(), vbid })
    }
}

/// Data of a deleted bucket that may remain outside the nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Remains {
    /// Its name, for the log.
    pub(super) bucket: String,
    pub(super) storage: BucketStorage,
    /// The id that its store assigned.
    pub(super) id: String,
}

/// A vbucket of a bucket.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pub(super) uuid: String,
    pub(super) vbid: Vbid,
}

/// The session that may serve a vbucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Holder {
    pub(super) key: String,
    /// A value made by [`token_of`].
    pub(super) token: Vec<u8>,
}

impl Holder {
    /// True for a session of the node of this name.
    pub(super) fn is_of(&self, node: &str) -> bool {
        let rest = self.token.strip_prefix(node.as_bytes());
        // A name may contain spaces; a lease contains none.
        rest.and_then(|rest| rest.strip_prefix(b" ")).is_some_and(|lease| !lease.contains(&b' '))
    }
}

/// The value that a session of a node writes into the keys that it holds.
pub(super) fn token_of(node: &str, lease_id: i64) -> Vec<u8> {
    format!("{node} {lease_id:x}").into_bytes()
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct NodeRecord {
    pub(super) host: String,
    pub(super) kv: u16,
    pub(super) mgmt: u16,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) kv_tls: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) mgmt_tls: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) query: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) query_tls: Option<u16>,
    /// The node leaves: it accepts no vbuckets and hands over those it has.
    #[serde(default)]
    pub(super) leaving: bool,
    /// Uuids of buckets whose vbuckets the node cannot take over, because it cannot reach their
    /// store.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) unable: BTreeSet<String>,
}

impl NodeRecord {
    pub(super) fn of(node: &TopologyNode, leaving: bool, unable: BTreeSet<String>) -> NodeRecord {
        NodeRecord {
            host: node.host.clone(),
            kv: node.kv,
            mgmt: node.mgmt,
            kv_tls: node.kv_tls,
            mgmt_tls: node.mgmt_tls,
            query: node.query,
            query_tls: node.query_tls,
            leaving,
            unable,
        }
    }

    pub(super) fn named(&self, name: &str) -> TopologyNode {
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
pub(super) struct MapRecord {
    /// Nodes, in the order in which clients see them.
    pub(super) nodes: Vec<MapNode>,
    pub(super) buckets: BTreeMap<String, MapBucket>,
}

/// A node in the map.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MapNode {
    pub(super) name: String,
    #[serde(flatten)]
    pub(super) record: NodeRecord,
}

/// A bucket in the map.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MapBucket {
    pub(super) uuid: String,
    /// Position in the list of nodes, for each vbucket.
    pub(super) owners: Vec<usize>,
}

impl MapBucket {
    /// Name of the planned owner of a vbucket.
    pub(super) fn owner<'m>(&self, map: &'m MapRecord, vbucket: usize) -> Option<&'m str> {
        let node = map.nodes.get(*self.owners.get(vbucket)?)?;
        Some(&node.name)
    }
}

#[cfg(test)]
mod tests {
    use oribi_types::Vbid;

    use super::{Holder, Keys, MapBucket, MapNode, MapRecord, NodeRecord, Place, token_of};

    #[test]
    fn keys_of_a_kind_share_an_exclusive_prefix() {
        let keys = Keys::new("c1");
        assert_eq!(keys.held("b", "u", Vbid(7)), "/oribi/c1/held/b/u/0007");
        assert!(keys.held("b", "u", Vbid(7)).starts_with(keys.all()));
        assert!(!keys.held("b", "u", Vbid(7)).starts_with(&keys.nodes()));
        assert!(!Keys::new("c10").all().starts_with(keys.all()));
    }

    #[test]
    fn a_holders_key_tells_what_it_is_about() {
        let keys = Keys::new("c1");
        let place = keys.place_of(&keys.held("b", "u", Vbid(1023)));
        assert_eq!(place, Some(Place { uuid: "u".to_owned(), vbid: Vbid(1023) }));
        for other in [keys.node("n"), keys.held_of("b", "u"), keys.held("b", "u", Vbid(1)) + "/x"] {
            assert_eq!(keys.place_of(&other), None, "{other}");
        }
        let holder = Holder { key: String::new(), token: token_of("a b", 0x1f) };
        assert!(holder.is_of("a b"));
        assert!(!holder.is_of("a") && !holder.is_of("a b 1f") && !holder.is_of("b"));
    }

    #[test]
    fn a_map_reads_as_it_was_written() {
        let record = NodeRecord {
            host: "h".to_owned(),
            kv: 1,
            mgmt: 2,
            kv_tls: None,
            mgmt_tls: Some(3),
            query: Some(4),
            query_tls: None,
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
