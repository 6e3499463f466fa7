//! The leading node, which makes the map.
//!
//! Owns: the election and the map; the leader also removes remains of deleted buckets
//! (`deletions`). Invariant: a node writes a map only if it still leads and the map is unchanged
//! since it read it, so the maps form one line. Leadership grants no right to serve anything.

use oribi_types::Vbid;
use serde::Deserialize;

use crate::agent::{Agent, ClusterView, understood};
use crate::agreement::{AgreementError, RecordChange, RecordComparison};
use crate::assignment::assign;
use crate::records::{MapBucket, MapNode, MapRecord, NodeRecord, VbucketPlace};
use crate::signals::LeaveStage;

/// The bucket settings that the map needs.
#[derive(Deserialize)]
pub(crate) struct BucketOutline {
    pub(crate) uuid: String,
    pub(crate) vbuckets: u16,
    /// Copies besides the active one, of a bucket whose documents are on the nodes' disks.
    #[serde(default)]
    pub(crate) replicas: Option<u8>,
}

impl Agent {
    /// Brings the map up to date if this node leads; becomes the leader if there is none.
    pub(crate) async fn lead(&mut self, view: &ClusterView) -> Result<(), AgreementError> {
        let key = self.keys.leader();
        let Some(leader) = &view.leader else {
            if self.stage() == LeaveStage::Serving {
                let put = [self.put_in_session(key.clone(), self.token())];
                self.agreement
                    .transact(&[RecordComparison::Absent(key)], &put, self.limit())
                    .await?;
            }
            return Ok(());
        };
        if leader.value != self.token() {
            return Ok(());
        }
        self.remove_remains(view);
        self.lead_copies(view, leader).await?;
        let Some(map) = next_map(view).filter(|map| *map != view.map) else { return Ok(()) };
        let unchanged = match view.map_revision {
            0 => RecordComparison::Absent(self.keys.map()),
            revision => RecordComparison::ModifiedAt(self.keys.map(), revision),
        };
        let conditions = [RecordComparison::CreatedAt(key, leader.create_revision), unchanged];
        let text = serde_json::to_vec(&map).expect("plain structs with string keys");
        let put = [RecordChange::put(self.keys.map(), text)];
        if self.agreement.transact(&conditions, &put, self.limit()).await?.is_some() {
            tracing::info!(nodes = map.nodes.len(), buckets = map.buckets.len(), "made a new map");
        }
        Ok(())
    }
}

/// The map for the present nodes; `None` when there are none. Nodes that are gone come last, as
/// leaving, until others have the active role of their vbuckets: Couchbase's Java client of streams
/// gives up a vbucket for which the map names no node.
fn next_map(view: &ClusterView) -> Option<MapRecord> {
    let staying = view.nodes.iter().filter(|(_, record)| !record.leaving);
    let mut nodes: Vec<MapNode> = staying
        .map(|(name, record)| MapNode { name: name.clone(), record: record.clone() })
        .collect();
    if nodes.is_empty() {
        return None;
    }
    let mut map = MapRecord::default();
    for (name, entry) in &view.buckets {
        let Some(outline) = understood::<BucketOutline>(entry) else { continue };
        if outline.replicas.is_some() {
            // Its vbuckets have separate records.
            continue;
        }
        let known = view.map.buckets.get(name).filter(|known| known.uuid == outline.uuid);
        let owner = |vbucket: u16| known.and_then(|k| k.owner(&view.map, usize::from(vbucket)));
        let before: Vec<Option<&str>> = (0..outline.vbuckets).map(owner).collect();
        let owners = owners_of(view, &outline.uuid, &before, &nodes);
        assert_eq!(owners.len(), before.len(), "each vbucket has an owner");
        debug_assert!(owners.iter().all(|owner| *owner < nodes.len()), "owners are in the map");
        map.buckets.insert(name.clone(), MapBucket { uuid: outline.uuid, owners });
    }
    nodes.extend(succeeded(view, &nodes));
    Some(MapRecord { nodes, ..map })
}

/// Nodes of the last map that are not among `staying`, and whose active role others are to take.
fn succeeded(view: &ClusterView, staying: &[MapNode]) -> Vec<MapNode> {
    let stays = |name: &str| staying.iter().any(|node| node.name == name);
    let gone = view.map.nodes.iter().filter(|node| !stays(&node.name));
    let succeeded = gone.filter(|node| view.has_successors(&node.name));
    let leaving = |node: &MapNode| NodeRecord { leaving: true, ..node.record.clone() };
    succeeded.map(|node| MapNode { name: node.name.clone(), record: leaving(node) }).collect()
}

/// The positions of a bucket's owners among `nodes`. A node that cannot reach the store keeps the
/// vbuckets it holds, which it serves from memory, and receives no others; one that a rebalance has
/// removed keeps none. If no node is left, all count as able.
fn owners_of(
    view: &ClusterView,
    uuid: &str,
    before: &[Option<&str>],
    nodes: &[MapNode],
) -> Vec<usize> {
    let is_able =
        |node: &&MapNode| !node.record.unable.contains(uuid) && !view.is_ejected(&node.name);
    let able: Vec<&str> = nodes.iter().filter(is_able).map(|node| node.name.as_str()).collect();
    let names: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
    if able.is_empty() {
        return assign(before, &names);
    }
    let position = |name: &str| names.iter().position(|known| *known == name);
    let keeper = |(vbucket, owner): (usize, &Option<&str>)| {
        let owner = owner.filter(|owner| !able.contains(owner) && !view.is_ejected(owner))?;
        let vbid = Vbid(u16::try_from(vbucket).ok()?);
        let place = VbucketPlace { uuid: uuid.to_owned(), vbid };
        position(owner).filter(|_| view.is_held_by(owner, &place))
    };
    let kept: Vec<Option<usize>> = before.iter().enumerate().map(keeper).collect();
    let is_free = |(_, kept): &(&Option<&str>, &Option<usize>)| kept.is_none();
    let free: Vec<Option<&str>> =
        before.iter().zip(&kept).filter(is_free).map(|(before, _)| *before).collect();
    debug_assert!(able.len() <= nodes.len(), "an able node is present");
    let mut given = assign(&free, &able).into_iter().filter_map(|owner| position(able[owner]));
    kept.into_iter()
        .map(|kept| kept.or_else(|| given.next()).expect("one for each that is free"))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use oribi_replication::copies::{CopiesEpoch, CopiesRecord, CopyId};
    use oribi_types::Vbid;

    use super::next_map;
    use crate::agent::ClusterView;
    use crate::agreement::{AgreementRecord, SessionId};
    use crate::copies::moves::RebalanceRecord;
    use crate::copies::roster::Roster;
    use crate::records::{CopiesEntry, Holder, NodeRecord, VbucketPlace, token_of};

    fn node(leaving: bool) -> NodeRecord {
        NodeRecord {
            host: "h".to_owned(),
            kv: 1,
            mgmt: 2,
            kv_tls: None,
            mgmt_tls: None,
            query: None,
            query_tls: None,
            disk: None,
            beacons: None,
            leaving,
            unable: BTreeSet::new(),
        }
    }

    fn view(nodes: &[(&str, bool)]) -> ClusterView {
        let bucket = AgreementRecord {
            key: "b".to_owned(),
            value: br#"{"uuid":"u","vbuckets":8,"more":1}"#.to_vec(),
            ..AgreementRecord::default()
        };
        ClusterView {
            nodes: nodes
                .iter()
                .map(|(name, leaving)| ((*name).to_owned(), node(*leaving)))
                .collect(),
            buckets: [("b".to_owned(), bucket)].into(),
            ..ClusterView::default()
        }
    }

    #[test]
    fn the_map_follows_joins_leaves_and_losses() {
        assert!(next_map(&view(&[])).is_none());
        assert!(next_map(&view(&[("a", true)])).is_none());
        let alone = next_map(&view(&[("a", false)])).unwrap();
        assert_eq!(alone.buckets["b"].owners, [0; 8]);
        let mut joined = view(&[("0", false), ("a", false)]);
        joined.map = alone.clone();
        let both = next_map(&joined).unwrap();
        let of = |name: &str, map: &crate::records::MapRecord| {
            (0..8).filter(|vb| map.buckets["b"].owner(map, *vb) == Some(name)).count()
        };
        // Positions have changed with the list of nodes, owners only as far as needed.
        assert_eq!((of("0", &both), of("a", &both)), (4, 4));
        let mut leaving = view(&[("0", false), ("a", true)]);
        leaving.map = both;
        let left = next_map(&leaving).unwrap();
        assert_eq!((left.nodes.len(), of("0", &left)), (1, 8));
        // A re-created bucket has no owner.
        let mut anew = view(&[("0", false)]);
        anew.map = left;
        anew.map.buckets.get_mut("b").unwrap().uuid = "other".to_owned();
        assert_eq!(next_map(&anew).unwrap().buckets["b"].uuid, "u");
    }

    /// Regression: a map without an active node ended the streams of Couchbase's Java client, and
    /// with them a task of its Kafka connector, at every failover.
    #[test]
    fn a_gone_active_node_is_named_until_promotion() {
        let names = ["a", "b", "c"];
        let mut view = view(&names.map(|name| (name, false)));
        let text = br#"{"uuid":"u","vbuckets":1,"replicas":1}"#;
        view.buckets.get_mut("b").unwrap().value = text.to_vec();
        for (name, record) in &mut view.nodes {
            record.disk = Some(name.clone());
        }
        view.roster = Roster::default().with(names.iter().map(|name| (*name, *name))).unwrap();
        let copies = [1, 2].map(|node| CopyId { node, copy: 1 });
        let record = CopiesRecord {
            epoch: CopiesEpoch(1),
            active: copies[0],
            members: copies.to_vec(),
            joining: Vec::new(),
            configured: 2,
            joining_configured: None,
            handover: None,
        };
        let place = VbucketPlace { uuid: "u".to_owned(), vbid: Vbid(0) };
        let (key, bucket) = ("k".to_owned(), "b".to_owned());
        view.copies.insert(place.clone(), CopiesEntry { key, bucket, revision: 1, record });
        let rows = |view: &mut ClusterView| {
            view.map = next_map(view).unwrap();
            let (_, placement) = view.copy_placements(1).next().unwrap();
            (view.map.nodes.len(), placement.owners[0], placement.replicas[0][0])
        };
        assert_eq!(rows(&mut view), (3, Some(0), Some(1)));
        view.nodes.get_mut("a").unwrap().leaving = true;
        assert_eq!(rows(&mut view), (3, Some(2), Some(0)));
        view.nodes.remove("a");
        assert_eq!(rows(&mut view), (3, Some(2), Some(0)));
        assert_eq!(next_map(&view).unwrap(), view.map, "a second look changes nothing");
        // Without a node that may take over, there is no active copy.
        let left = view.nodes.remove("b").unwrap();
        assert_eq!(rows(&mut view), (1, None, None));
        view.nodes.insert("b".to_owned(), left);
        let record = &mut view.copies.get_mut(&place).unwrap().record;
        (record.active, record.members) = (copies[1], vec![copies[1]]);
        assert_eq!(rows(&mut view), (2, Some(0), None));
    }

    #[test]
    fn a_node_without_store_keeps_but_gains_no_vbuckets() {
        let mut view = view(&[("a", false), ("b", false), ("c", false)]);
        view.map = next_map(&view).unwrap();
        let of = |name: &str, view: &ClusterView| {
            let owns =
                |vb: &u16| view.map.buckets["b"].owner(&view.map, usize::from(*vb)) == Some(name);
            (0..8).filter(owns).collect::<Vec<u16>>()
        };
        let unable: BTreeSet<String> = ["u".to_owned()].into();
        view.nodes.get_mut("a").unwrap().unable = unable.clone();
        let had = of("a", &view);
        assert!(had.len() >= 2);
        let place = VbucketPlace { uuid: "u".to_owned(), vbid: Vbid(had[0]) };
        view.held.insert(place, Holder { key: "k".to_owned(), token: token_of("a", SessionId(1)) });
        view.map = next_map(&view).unwrap();
        assert_eq!(of("a", &view), had[..1]);
        assert_eq!(of("b", &view).len().abs_diff(of("c", &view).len()), 1);
        assert_eq!(next_map(&view).unwrap(), view.map, "a second look moves no vbucket");
        // A node that was removed has none, until another rebalance takes it in.
        let mut removed = RebalanceRecord::new("i".to_owned(), ["b".to_owned()].into());
        view.rebalance = Some((removed.clone(), 1));
        let kept = next_map(&view).unwrap();
        let owns = |owner: &usize| kept.nodes[*owner].name == "b";
        assert_eq!(kept.buckets["b"].owners.iter().filter(|owner| owns(owner)).count(), 0);
        removed.ejected.clear();
        view.rebalance = Some((removed, 2));
        // The vbuckets it gives up go to others; when no node reaches the store, everything stays.
        view.held.clear();
        view.map = next_map(&view).unwrap();
        assert!(of("a", &view).is_empty());
        view.nodes.values_mut().for_each(|record| record.unable = unable.clone());
        let next = next_map(&view).unwrap();
        assert_eq!(next.buckets["b"].owners.iter().filter(|owner| **owner == 0).count(), 2);
    }
}
