//! Take-overs while the tablet has much in memory, and while the earlier owner goes on writing.

use std::sync::atomic::AtomicBool;

use super::*;
use crate::fence::TakingOver;

const PIECES: u64 = 12;
const PIECE_BYTES: usize = 6 << 20;
const ROUNDS: usize = 5;
const COMMITS_BEFORE: u64 = 20;

fn open_only(cluster: &KuduCluster, bucket: &str) -> KuduStore {
    let url = format!("kudu://{}/tests?tablets=1&replicas=1", cluster.master_addresses());
    KuduStore::open(&url.parse().unwrap(), bucket, VBUCKETS, &|| true).unwrap()
}

/// Whether the tablet is still busy with the last change of the table.
fn is_altering(store: &KuduStore) -> bool {
    let done = store.shared.client.wait_until_altered(&store.shared.table);
    store.block_on(async { tokio::time::timeout(Duration::from_millis(20), done).await.is_err() })
}

fn seqno_of(states: &[(Vbid, VbucketState)]) -> Option<u64> {
    states.iter().find(|(vbid, _)| *vbid == VB).map(|(_, state)| state.high_seqno.0)
}

/// It waited until the tablet had written its memory out: seconds after a bulk load.
#[test]
fn a_tablet_that_writes_its_memory_out_is_read_meanwhile() {
    let Some(cluster) = cluster() else { return };
    // It does not compress.
    let mut noise = 1_u64;
    let value: Vec<u8> = std::iter::repeat_with(|| {
        noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (noise >> 56) as u8
    })
    .take(PIECE_BYTES)
    .collect();
    let was_read_meanwhile = (0..ROUNDS).any(|round| {
        let bucket = format!("memory{round}");
        let old = open(&cluster, &bucket);
        let keys: Vec<String> = (1..=PIECES).map(|number| format!("key-{number}")).collect();
        for (seqno, key) in (1..).zip(&keys) {
            let mut batch = batch(seqno, &value, false);
            batch.records[0].key.key = key.as_bytes();
            old.commit(&[batch]).unwrap();
        }
        let new = open_only(&cluster, &bucket);
        let states = new.take_over(&all()).unwrap();
        assert_eq!(seqno_of(&states), Some(PIECES));
        let mut read_bytes = 0;
        let key = DocKey { key: keys[0].as_bytes(), ..KEY };
        assert!(new.get(VB, key, &mut |record| read_bytes = record.value.len()).unwrap());
        assert_eq!(read_bytes, value.len());
        let is_altering = is_altering(&new);
        let refused = old.commit(&[batch(PIECES + 1, b"late", false)]);
        assert!(matches!(refused, Err(StoreError::Fenced(_))), "{refused:?}");
        new.commit(&[batch(PIECES + 1, b"new", false)]).unwrap();
        // Many rows of the earlier owner become one.
        let mut shorter = batch(PIECES + 2, b"short", false);
        shorter.records[0].key.key = keys[0].as_bytes();
        new.commit(&[shorter]).unwrap();
        let mut read = Vec::new();
        assert!(new.get(VB, key, &mut |record| read = record.value.to_vec()).unwrap());
        assert_eq!(read, b"short");
        new.remove_remote().unwrap();
        is_altering
    });
    assert!(
        was_read_meanwhile,
        "every take-over ended after the tablet had written its memory out"
    );
}

/// Takes over while the earlier owner writes as fast as it can. Returns the seqno that the new
/// owner begins with, and that of the last write that the table has in the end.
fn race(
    cluster: &KuduCluster,
    bucket: &str,
    take: impl FnOnce(&KuduStore) -> Vec<(Vbid, VbucketState)>,
) -> (Option<u64>, Option<u64>) {
    let old = open(cluster, bucket);
    let new = open_only(cluster, bucket);
    let (is_busy, written) = (AtomicBool::new(false), AtomicU64::new(0));
    let begun = std::thread::scope(|scope| {
        scope.spawn(|| {
            let refused = (1..).find_map(|seqno| {
                is_busy.store(seqno > COMMITS_BEFORE, Ordering::Release);
                let committed = old.commit(&[batch(seqno, &[b'v'; 4096], false)]);
                written.store(seqno, Ordering::Release);
                committed.err()
            });
            assert!(matches!(refused, Some(StoreError::Fenced(_))), "{refused:?}");
        });
        poll_until(PATIENCE, || is_busy.load(Ordering::Acquire).then_some(())).unwrap();
        seqno_of(&take(&new))
    });
    let last = seqno_of(&new.vbucket_states().unwrap());
    new.remove_remote().unwrap();
    (begun, last)
}

#[test]
fn whatever_the_earlier_owner_wrote_is_in_the_states() {
    let Some(cluster) = cluster() else { return };
    for round in 0..ROUNDS {
        let (begun, last) =
            race(&cluster, &format!("race{round}"), |new| new.take_over(&all()).unwrap());
        assert!(begun.is_some_and(|begun| begun >= COMMITS_BEFORE), "{begun:?}");
        assert_eq!(begun, last, "round {round}: the earlier owner wrote after the fence");
    }
}

/// The planted bug: states that are read before the tablet has the epoch.
#[test]
fn states_that_were_read_before_the_fence_are_found() {
    let Some(cluster) = cluster() else { return };
    let hasty = |new: &KuduStore| {
        let states = new.vbucket_states().unwrap();
        new.take_over(&all()).unwrap();
        states
    };
    let is_found = (0..4 * ROUNDS).any(|round| {
        let (begun, last) = race(&cluster, &format!("hasty{round}"), hasty);
        begun != last
    });
    assert!(is_found);
}

#[test]
fn a_tablet_without_the_epoch_fences_nothing() {
    let Some(cluster) = cluster() else { return };
    let store = open(&cluster, "epoch");
    let fenced = |epoch| {
        let mut taking = TakingOver::of(epoch, &all());
        let mut vbids = store.block_on(store.shared.fenced(&mut taking)).unwrap();
        vbids.sort_unstable();
        vbids
    };
    assert_eq!([fenced(1), fenced(2), fenced(3)], [vec![], all(), vec![]]);
}
