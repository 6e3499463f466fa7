//! Take-overs while the tablet has much in memory, and while the earlier owner continues writing.

use oribi_storage::conformance::take_over;
use std::ops::ControlFlow;
use std::sync::atomic::AtomicBool;

use super::*;
use crate::fence::TakingOver;
use crate::rows::RowKey;
use oribi_storage::unlimited;

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
fn a_tablet_is_read_while_it_flushes() {
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
        let states = take_over(&new, &all()).unwrap();
        assert_eq!(seqno_of(&states), Some(PIECES));
        let mut read_bytes = 0;
        let key = DocKey { key: keys[0].as_bytes(), ..KEY };
        assert!(
            new.get(VB, key, &mut unlimited, &mut |record| read_bytes = record.value.len())
                .unwrap()
        );
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
        assert!(
            new.get(VB, key, &mut unlimited, &mut |record| read = record.value.to_vec()).unwrap()
        );
        assert_eq!(read, b"short");
        new.remove().unwrap();
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
    new.remove().unwrap();
    (begun, last)
}

#[test]
fn states_have_all_of_the_earlier_owner() {
    let Some(cluster) = cluster() else { return };
    for round in 0..ROUNDS {
        let (begun, last) =
            race(&cluster, &format!("race{round}"), |new| take_over(new, &all()).unwrap());
        assert!(begun.is_some_and(|begun| begun >= COMMITS_BEFORE), "{begun:?}");
        assert_eq!(begun, last, "round {round}: the earlier owner wrote after the fence");
    }
}

/// The mutant: states that are read before the tablet has the epoch.
#[test]
fn states_that_were_read_before_the_fence_are_found() {
    let Some(cluster) = cluster() else { return };
    let hasty = |new: &KuduStore| {
        let states = new.vbucket_states().unwrap();
        take_over(new, &all()).unwrap();
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

/// A lease on everything, for as long as the test lasts.
struct UnboundedLease;

impl Ownership for UnboundedLease {
    fn owns(&self, _: Vbid) -> bool {
        true
    }
}

fn open_leased(cluster: &KuduCluster, bucket: &str) -> KuduStore {
    let store = open_only(cluster, bucket);
    store.set_ownership(Arc::new(UnboundedLease));
    store
}

/// Takes over with leases; `meanwhile` runs when the states were read and nothing is fenced. The
/// seqno of the vbucket's state, and which vbuckets are to be given up.
fn take_early(store: &KuduStore, meanwhile: impl FnOnce()) -> (Option<u64>, Vec<Vbid>) {
    let (mut meanwhile, mut seqno, mut told) = (Some(meanwhile), None, 0);
    let overtaken = store.take_over(&all(), &mut |vbids, states| {
        told += vbids.len();
        seqno = seqno_of(&states).or(seqno);
        if let Some(meanwhile) = meanwhile.take() {
            meanwhile();
        }
    });
    assert_eq!(told, all().len(), "each is told of once");
    (seqno, overtaken.unwrap())
}

fn read(store: &KuduStore) -> Result<Option<Vec<u8>>, StoreError> {
    let mut value = None;
    store.get(VB, KEY, &mut unlimited, &mut |record| value = Some(record.value.to_vec()))?;
    Ok(value)
}

/// Every kind of read of the vbucket.
fn reads(store: &KuduStore) -> Vec<Result<(), StoreError>> {
    let go = || std::ops::ControlFlow::Continue(());
    let from = DocKey { key: b"", ..KEY };
    vec![
        read(store).map(drop),
        store.get_many(&[(VB, KEY)], usize::MAX, &mut |_, _| ControlFlow::Continue(())),
        store.scan_keys(VB, &mut |_| go()),
        store.scan_collection(VB, from, &mut unlimited, &mut |_| go()),
        store.begin_scan(VB, SeqnoRange::ALL).map(drop),
        store.plan_load().and_then(|plan| {
            let mut parts = plan.parts.into_iter();
            parts.try_for_each(|part| store.load_part(part, LoadValues::Skip, &mut |_, _, _| go()))
        }),
    ]
}

#[test]
fn an_unwritten_vbucket_is_read_before_the_fence() {
    let Some(cluster) = cluster() else { return };
    let old = open(&cluster, "early");
    old.commit(&[batch(1, b"one", false)]).unwrap();
    let new = open_leased(&cluster, "early");
    let taken = take_early(&new, || {
        let epoch = new.block_on(new.shared.client.open_table_by_id(new.shared.table.id()));
        assert_eq!(epoch_of(&epoch.unwrap()).unwrap(), 2, "nothing is fenced");
        assert!(reads(&new).into_iter().all(|read| read.is_ok()));
        assert_eq!(read(&new).unwrap().as_deref(), Some(&b"one"[..]));
    });
    assert_eq!(taken, (Some(1), Vec::new()));
    let refused = old.commit(&[batch(2, b"late", false)]);
    assert!(matches!(refused, Err(StoreError::Fenced(_))), "{refused:?}");
    new.commit(&[batch(2, b"two", false)]).unwrap();
    assert_eq!(read(&new).unwrap().as_deref(), Some(&b"two"[..]));
}

#[test]
fn writes_of_the_old_owner_before_the_fence_are_seen() {
    let Some(cluster) = cluster() else { return };
    let old = open(&cluster, "late");
    old.commit(&[batch(1, b"one", false)]).unwrap();
    let new = open_leased(&cluster, "late");
    let (seqno, overtaken) = take_early(&new, || {
        old.commit(&[batch(2, b"late", false)]).unwrap();
        assert!(reads(&new).into_iter().all(|read| read.is_ok()));
        assert_eq!(read(&new).unwrap().as_deref(), Some(&b"one"[..]));
    });
    assert_eq!((seqno, overtaken), (Some(1), vec![VB]));
    assert_eq!(read(&new).unwrap().as_deref(), Some(&b"one"[..]), "until it is given up");
    // Taken over again, the vbucket begins with what was written.
    assert_eq!(take_early(&new, || {}), (Some(2), Vec::new()));
    assert_eq!(read(&new).unwrap().as_deref(), Some(&b"late"[..]));
    new.commit(&[batch(3, b"new", false)]).unwrap();
    assert!(reads(&new).into_iter().all(|read| read.is_ok()));
}

// Invariant: A vbucket served before the fence is given up if its state row has changed at the
// fence.
/// A removal of rows leaves the state as it is.
#[test]
fn removals_of_old_owners_before_the_fence_are_seen() {
    let Some(cluster) = cluster() else { return };
    let removals: [fn(&KuduStore); 3] = [
        |old| old.purge_collection(VB, CollectionId(0)).unwrap(),
        |old| old.drop_vbucket(VB, None).unwrap(),
        |old| assert_eq!(old.compact(VB, 100).unwrap(), Some(Seqno(1))),
    ];
    for (number, remove) in removals.into_iter().enumerate() {
        let bucket = format!("removal{number}");
        let old = open(&cluster, &bucket);
        old.commit(&[batch(1, b"", true)]).unwrap();
        let new = open_leased(&cluster, &bucket);
        let (_, overtaken) = take_early(&new, || remove(&old));
        assert_eq!(overtaken, [VB], "removal {number}");
        // Half a removal is one, too.
        let old = open(&cluster, &bucket);
        old.commit(&[batch(2, b"two", false)]).unwrap();
        let (_, overtaken) = take_early(&new, || {
            let rows = [RowKey { collection: 0, key: KEY.key.to_vec(), chunk: 0 }];
            let unit = [Unit::Removal { vbid: VB, rows: &rows, state: None }];
            let mut writer = old.writer.lock();
            old.block_on(old.shared.write(&mut writer, &unit, None)).unwrap();
        });
        assert_eq!(overtaken, [VB], "half of a removal");
    }
}

/// Races a take-over with leases against an owner that continues writing. Without what it says of
/// overtaken vbuckets (the mutant) writes would be missing.
#[test]
fn with_leases_a_late_write_is_in_state_or_found() {
    let Some(cluster) = cluster() else { return };
    let (mut found, mut missing) = (0, 0);
    for round in 0..2 * ROUNDS {
        let mut given_up = Vec::new();
        let (begun, last) = race(&cluster, &format!("leases{round}"), |new| {
            new.set_ownership(Arc::new(UnboundedLease));
            let mut states = Vec::new();
            let ready = &mut |_: &[Vbid], part| states = part;
            given_up = new.take_over(&all(), ready).unwrap();
            states
        });
        let is_found = given_up == [VB];
        assert!(is_found || given_up.is_empty(), "{given_up:?}");
        assert!(is_found || begun == last, "{begun:?} {last:?}");
        found += usize::from(is_found);
        missing += usize::from(begun != last);
    }
    assert!(found > 0 && missing == found, "{found} of {missing} were found");
}

// Regression: processes that began epochs at once waited for each other's fences, because the
// master does not show a change under way. The pauses grew to a second for some keys.
#[test]
fn takeovers_at_once_do_not_wait_for_each_other() {
    const NODES: u16 = 4;
    let Some(cluster) = cluster() else { return };
    let first = open(&cluster, "at_once");
    let nodes: Vec<KuduStore> = (0..NODES).map(|_| open_more(&cluster, "at_once")).collect();
    std::thread::scope(|scope| {
        for (node, vbid) in nodes.iter().zip((0..NODES).map(Vbid)) {
            scope.spawn(move || {
                let mut writer = node.writer.lock();
                node.block_on(node.shared.begin_take_over(&mut writer, &[vbid])).unwrap();
            });
        }
    });
    let retries: Vec<u64> = nodes.iter().map(KuduStore::retries).collect();
    assert_eq!(retries, [0; NODES as usize], "a takeover waited for another one");
    first.remove().unwrap();
}

/// Opens a store without a takeover.
fn open_more(cluster: &KuduCluster, bucket: &str) -> KuduStore {
    let url = format!("kudu://{}/tests?tablets=1&replicas=1", cluster.master_addresses());
    KuduStore::open(&url.parse().unwrap(), bucket, VBUCKETS, &|| true).unwrap()
}
