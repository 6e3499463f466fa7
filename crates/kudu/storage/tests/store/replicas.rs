//! Three replicas of every tablet: whoever is asked for a document is one that has its newest
//! acknowledged version.

use std::ops::ControlFlow;

use oribi_storage::conformance::take_over;
use oribi_storage::{KvStore, LookupResult, StoreError};
use oribi_testkit::{KuduCluster, KuduOptions, KuduServer, PATIENCE, poll_until};
use oribi_types::{CollectionId, DocKey, Vbid};

use super::fence::batch;
use crate::Place;

const KEY: DocKey<'static> = DocKey { collection: CollectionId(0), key: b"key" };
/// One vbucket of each tablet.
const VBUCKETS_APART: [u16; 8] = [0, 128, 256, 384, 512, 640, 768, 896];

fn commit(store: &dyn KvStore, seqno: u64) {
    let batches = VBUCKETS_APART.map(|vbid| batch(vbid, KEY.key, seqno));
    store.commit(&batches).unwrap();
}

/// The versions of all documents, in the order of their vbuckets; 0 for one that is not there.
fn versions(store: &dyn KvStore) -> Result<Vec<u64>, StoreError> {
    let keys = VBUCKETS_APART.map(|vbid| (Vbid(vbid), KEY));
    let mut versions = vec![0; keys.len()];
    let mut visit = |index: usize, answer: LookupResult<'_>| {
        versions[index] = match answer {
            LookupResult::Record(record) => record.seqno.0,
            LookupResult::Absent | LookupResult::Large => 0,
        };
        ControlFlow::Continue(())
    };
    store.get_many(&keys, usize::MAX, &mut visit)?;
    Ok(versions)
}

// Invariant: A read that must see the last write goes to the known leader only.
/// A replica that was away and comes back has old versions. It was believed to lead, and so to have
/// the newest ones, when the replica that did lead went away.
#[test]
fn a_replica_that_lags_is_never_read() {
    let Some(cluster) = KuduCluster::start_or_skip(KuduOptions::new(1, 3)) else { return };
    let place = Place::in_table(&cluster, "tablets=8&replicas=3");
    let store = place.open_owned().unwrap();
    for (round, (lagging, leading)) in [(0, 1), (1, 2), (2, 0)].into_iter().enumerate() {
        let seqno = 2 * round as u64 + 1;
        commit(&store, seqno);
        cluster.wait_healthy().unwrap();
        cluster.pause(KuduServer::TabletServer(lagging)).unwrap();
        commit(&store, seqno + 1);
        cluster.kill(KuduServer::TabletServer(leading)).unwrap();
        cluster.resume(KuduServer::TabletServer(lagging)).unwrap();
        let read = poll_until(PATIENCE, || versions(&store).ok());
        assert_eq!(read, Some(vec![seqno + 1; VBUCKETS_APART.len()]), "round {round}");
        cluster.restart(KuduServer::TabletServer(leading)).unwrap();
    }
}

/// A node's knowledge of the replicas at a takeover is as old as its last Write.
#[test]
fn a_takeover_reads_new_states_without_a_replica() {
    let Some(cluster) = KuduCluster::start_or_skip(KuduOptions::new(1, 3)) else { return };
    let place = Place::in_table(&cluster, "tablets=8&replicas=3");
    let one = place.open_owned().unwrap();
    commit(&one, 1);
    let other = place.open_owned().unwrap();
    cluster.pause(KuduServer::TabletServer(0)).unwrap();
    commit(&other, 2);
    let states = take_over(&one, &VBUCKETS_APART.map(Vbid));
    assert!(matches!(states, Ok(ref states) if states.len() == 8), "{states:?}");
    for (vbid, state) in states.unwrap() {
        assert_eq!(state, batch(vbid.0, KEY.key, 2).state, "{vbid}");
    }
    commit(&one, 3);
    assert!(matches!(other.commit(&[batch(0, b"key", 3)]), Err(StoreError::Fenced(_))));
    cluster.resume(KuduServer::TabletServer(0)).unwrap();
    assert_eq!(versions(&other).unwrap(), [3; 8], "every node reads what the owner has written");
}
