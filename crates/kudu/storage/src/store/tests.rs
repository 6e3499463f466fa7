//! Waits of callers for a Kudu that does not answer, against a real Kudu that is paused.
//!
//! The tests share a cluster and run one after the other. Its clients forget the locations of
//! tablets after a second.

mod take_over;

use oribi_storage::conformance::take_over;
use std::sync::OnceLock;

use oribi_testkit::{KuduCluster, KuduOptions, KuduServer, PATIENCE, poll_until};
use oribi_types::{Cas, Datatype, RevSeqno};

use super::*;
use crate::epoch::Epoch;
use crate::layout::epoch_of;
use oribi_storage::unlimited;

const VBUCKETS: u16 = 8;
const VB: Vbid = Vbid(1);
const KEY: DocKey<'static> = DocKey { collection: CollectionId(0), key: b"key" };
const SHORT: Duration = Duration::from_millis(300);
const TABLET_SERVER: KuduServer = KuduServer::TabletServer(0);
const MASTER: KuduServer = KuduServer::Master(0);

static CLUSTER: OnceLock<Option<Mutex<KuduCluster>>> = OnceLock::new();

/// The cluster, for one test at a time.
fn cluster() -> Option<MutexGuard<'static, KuduCluster>> {
    let options = || KuduOptions::new(1, 1).master_flag("--table_locations_ttl_ms=1000");
    let cluster = CLUSTER.get_or_init(|| KuduCluster::start_or_skip(options()).map(Mutex::new));
    cluster.as_ref().map(Mutex::lock)
}

/// A server that is paused until this is dropped.
struct PausedScan<'c>(&'c KuduCluster, KuduServer);

impl<'c> PausedScan<'c> {
    fn new(cluster: &'c KuduCluster, server: KuduServer) -> PausedScan<'c> {
        cluster.pause(server).unwrap();
        PausedScan(cluster, server)
    }
}

impl Drop for PausedScan<'_> {
    fn drop(&mut self) {
        // This fails when the server has ended, which the test will notice.
        let _ = self.0.resume(self.1);
    }
}

fn all() -> Vec<Vbid> {
    (0..VBUCKETS).map(Vbid).collect()
}

fn open(cluster: &KuduCluster, bucket: &str) -> KuduStore {
    let url = format!("kudu://{}/tests?tablets=1&replicas=1", cluster.master_addresses());
    let store = KuduStore::open(&url.parse().unwrap(), bucket, VBUCKETS, &|| true).unwrap();
    take_over(&store, &all()).unwrap();
    settle(&store);
    store
}

/// Waits until the tablets accept what the new owner writes.
fn settle(store: &KuduStore) {
    let mut writer = store.writer.lock();
    store.block_on(store.shared.settle_take_over(&mut writer, Attempts::default())).unwrap();
}

fn soon() -> Option<Instant> {
    Some(Instant::now() + SHORT)
}

/// One version of the document, or its tombstone, and a state that knows of no purge.
fn batch(seqno: u64, value: &[u8], deleted: bool) -> VbBatch<'_> {
    let record = Record {
        key: KEY,
        value,
        cas: Cas(seqno),
        seqno: Seqno(seqno),
        rev_seqno: RevSeqno(seqno),
        flags: 0,
        expiry: u32::from(deleted),
        datatype: Datatype::RAW,
        deleted,
        expired: false,
    };
    let state =
        VbucketState { high_seqno: Seqno(seqno), max_cas: Cas(seqno), ..VbucketState::empty() };
    VbBatch { vbid: VB, records: vec![record], state }
}

fn failure(result: Result<(), StoreError>) -> String {
    match result {
        Err(StoreError::Io(why)) => why,
        other => panic!("{other:?}"),
    }
}

// Compat (Buckets on Kudu): collections while Kudu is away
/// Creating a collection blocked its caller, and held the writer, while Kudu was unreachable.
#[test]
fn waits_for_local_documents_are_bounded_and_ordered() {
    let Some(cluster) = cluster() else { return };
    let store = open(&cluster, "local");
    store.put_local("name", b"one").unwrap();
    let shared = &store.shared;
    let mut writer = store.writer.lock();
    let paused = PausedScan::new(&cluster, TABLET_SERVER);
    let put = shared.put_local(&mut writer, ("name", b"never"), soon());
    let unread = failure(store.block_on(put));
    assert!(unread.contains("nothing was sent"), "{unread}");
    let unit = |value| [Unit::Local { name: "name", value, rows_before: 1 }];
    let undecided = failure(store.block_on(shared.write(&mut writer, &unit(b"two"), soon())));
    assert!(undecided.contains("may or may not have happened"), "{undecided}");
    let behind = failure(store.block_on(shared.write(&mut writer, &unit(b"never"), soon())));
    assert!(behind.contains("earlier Write"), "{behind}");
    drop(paused);
    store.block_on(shared.settle_undecided(&mut writer, None)).unwrap();
    drop(writer);
    assert_eq!(store.get_local("name").unwrap().as_deref(), Some(&b"two"[..]));
    store.put_local("name", b"three").unwrap();
    assert_eq!(store.get_local("name").unwrap().as_deref(), Some(&b"three"[..]));
}

/// The thread that fetches for clients waited until Kudu was back, and delayed all keys after the
/// document.
#[test]
fn a_multi_row_document_waits_no_longer() {
    let Some(cluster) = cluster() else { return };
    let store = open(&cluster, "rows");
    let value = vec![7; 200_000];
    store.commit(&[batch(1, &value, false)]).unwrap();
    let mut bytes = 0;
    let mut read = |time_max| {
        let mut visit = |record: Record<'_>| bytes = record.value.len();
        store.block_on(store.shared.get_by_scan(VB, KEY, time_max, &mut visit))
    };
    let paused = PausedScan::new(&cluster, TABLET_SERVER);
    let began = Instant::now();
    assert!(matches!(read(SHORT), Err(StoreError::Io(_))));
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    drop(paused);
    assert!(read(PATIENCE).unwrap());
    assert_eq!(bytes, value.len());
}

/// The first row of a session asked for the locations of tablets. Nothing ended that wait, not even
/// the store's closing.
#[test]
fn a_wait_for_the_places_of_tablets_can_be_ended() {
    let Some(cluster) = cluster() else { return };
    let store = open(&cluster, "places");
    let mut writer = store.writer.lock();
    let paused = PausedScan::new(&cluster, MASTER);
    let mut seqno = 0;
    let ended = poll_until(PATIENCE, || {
        seqno += 1;
        let batch = batch(seqno, b"value", false);
        let written = store.block_on(async {
            writer.epoch.iter_mut().for_each(Epoch::renew_session);
            store.shared.write(&mut writer, &[Unit::Batch(&batch)], soon()).await
        });
        // A busy machine may take longer for a Write, too.
        let why = written.err().map(|error| failure(Err(error)));
        why.filter(|why| why.contains("nothing was sent"))
    });
    assert!(ended.is_some());
    drop(paused);
    drop(writer);
    store.commit(&[batch(seqno + 1, b"value", false)]).unwrap();
}

/// A slow tablet caused another epoch every ten seconds. For each of them every other owner encoded
/// its Writes again.
#[test]
fn a_take_over_makes_one_epoch_however_long_it_takes() {
    let Some(cluster) = cluster() else { return };
    let store = open(&cluster, "epochs");
    let epoch = || {
        let table = store.block_on(store.shared.client.open_table_by_id(store.shared.table.id()));
        epoch_of(&table.unwrap()).unwrap()
    };
    let before = epoch();
    let paused = PausedScan::new(&cluster, TABLET_SERVER);
    std::thread::scope(|scope| {
        let taken = scope.spawn(|| take_over(&store, &all()));
        let retried = poll_until(PATIENCE, || (store.retries() > 0).then_some(()));
        drop(paused);
        taken.join().unwrap().unwrap();
        assert!(retried.is_some(), "the take-over did not wait for the tablet");
    });
    assert_eq!(epoch(), before + 1);
    store.commit(&[batch(1, b"value", false)]).unwrap();
}

// Invariant: The purge seqno is durable before a tombstone is removed, and no commit lowers it.
/// A flush prepared before a purge overwrote the state with that of before the purge.
#[test]
fn a_later_state_does_not_take_a_purge_back() {
    let Some(cluster) = cluster() else { return };
    let store = open(&cluster, "purges");
    let purge_seqno = || {
        let states = store.vbucket_states().unwrap();
        states.iter().find(|(vbid, _)| *vbid == VB).map(|(_, state)| state.purge_seqno.0)
    };
    store.commit(&[batch(5, b"", true)]).unwrap();
    assert_eq!(purge_seqno(), Some(0));
    assert_eq!(store.compact(VB, 100).unwrap(), Some(Seqno(5)));
    assert_eq!(purge_seqno(), Some(5));
    store.commit(&[batch(6, b"value", false)]).unwrap();
    assert_eq!(purge_seqno(), Some(5), "the state said 0");
    store.drop_vbucket(VB, None).unwrap();
    store.commit(&[batch(1, b"value", false)]).unwrap();
    assert_eq!(purge_seqno(), Some(0), "it is another vbucket now");
}

/// In tests a window has 4 KiB, so the range is divided more than once.
#[test]
fn a_scan_by_seqno_reads_windows_of_one_snapshot() {
    let Some(cluster) = cluster() else { return };
    let store = open(&cluster, "windows");
    let keys: Vec<String> = (0..120).map(|number| format!("key-{}", number * 7 % 120)).collect();
    let values: Vec<Vec<u8>> =
        (0..120_usize).map(|number| vec![b'v'; number * 37 % 3000]).collect();
    let mut whole = batch(120, b"", false);
    let template = whole.records.remove(0);
    whole.records.extend((1..).zip(keys.iter().zip(&values)).map(|(seqno, (key, value))| {
        let key = DocKey { key: key.as_bytes(), ..KEY };
        Record { key, value, seqno: Seqno(seqno), ..template }
    }));
    let expected: Vec<(u64, usize)> =
        whole.records.iter().map(|record| (record.seqno.0, record.value.len())).collect();
    store.commit(&[whole]).unwrap();
    let mut scan = store.begin_scan(VB, SeqnoRange::seqnos(Seqno(0), Seqno(u64::MAX))).unwrap();
    assert_eq!(scan.snapshot().high_seqno, Seqno(120));
    let mut seen = Vec::new();
    let mut read = |most: usize, seen: &mut Vec<(u64, usize)>| {
        let until = seen.len() + most;
        scan.resume(&mut unlimited, &mut |record| {
            seen.push((record.seqno.0, record.value.len()));
            match seen.len() < until {
                true => std::ops::ControlFlow::Continue(()),
                false => std::ops::ControlFlow::Break(()),
            }
        })
        .unwrap()
    };
    assert_eq!(read(10, &mut seen), oribi_storage::ScanProgress::Paused);
    store.commit(&[batch(121, b"newer", false)]).unwrap();
    store.drop_vbucket(VB, None).unwrap();
    assert_eq!(read(1000, &mut seen), oribi_storage::ScanProgress::Ended);
    assert_eq!(seen, expected);
}
