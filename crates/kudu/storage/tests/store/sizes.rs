//! A value that grows and shrinks while it is read: every reader sees one version, whole.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

use oribi_storage::{KvStore, Record, VbBatch, VbucketState, unlimited};
use oribi_testkit::StopOnDrop;
use oribi_types::{Cas, CollectionId, Datatype, DocKey, RevSeqno, Seqno, Vbid};

use crate::{CLUSTER, Place};

const VB: Vbid = Vbid(5);
const KEY: DocKey<'static> = DocKey { collection: CollectionId(0), key: b"key" };

/// Up and down, over the limit of one row and over that of one answer of a scan.
const SIZES: [usize; 14] = [
    1,
    20 << 20,
    61_441,
    61_440,
    5 << 20,
    100,
    200_000,
    180_000,
    61_440,
    9 << 20,
    1 << 20,
    1,
    70_000,
    2,
];

fn value(version: usize) -> Vec<u8> {
    vec![version as u8; SIZES[version]]
}

fn commit(store: &dyn KvStore, version: usize) {
    let value = value(version);
    let seqno = version as u64 + 1;
    let datatype = if version.is_multiple_of(2) { Datatype::JSON } else { Datatype::RAW };
    let record = Record {
        key: KEY,
        value: &value,
        cas: Cas(seqno),
        seqno: Seqno(seqno),
        rev_seqno: RevSeqno(seqno),
        flags: 0,
        expiry: 0,
        datatype,
        deleted: false,
        expired: false,
    };
    let state =
        VbucketState { high_seqno: Seqno(seqno), max_cas: Cas(seqno), ..VbucketState::empty() };
    store.commit(&[VbBatch { vbid: VB, records: vec![record], state }]).unwrap();
}

/// The version of a record, which must be that of every byte of it.
fn version_of(record: &Record<'_>) -> usize {
    let version = usize::try_from(record.seqno.0).unwrap() - 1;
    assert_eq!(record.cas.0, record.seqno.0);
    assert!(record.value == value(version), "version {version} is mixed with another one");
    version
}

// Invariant: A batch on Kudu is one Write to one tablet with the vbucket's state in it, so it is
// atomic.
#[test]
fn no_reader_sees_a_mix_of_versions() {
    let Some(cluster) = CLUSTER.get() else { return };
    let place = Place::new(cluster);
    let store = place.open_owned().unwrap();
    commit(&store, 0);
    let is_over = AtomicBool::new(false);
    let reads = std::thread::scope(|scope| {
        let stopped = StopOnDrop(&is_over);
        let read = |by_scan: bool| {
            let (store, is_over) = (&store, &is_over);
            scope.spawn(move || {
                let (mut reads, mut newest) = (0, 0);
                while !is_over.load(Ordering::Acquire) {
                    let mut seen = None;
                    if by_scan {
                        let mut visit = |record: Record<'_>| {
                            seen = Some(version_of(&record));
                            ControlFlow::Continue(())
                        };
                        store.scan_keys(VB, &mut visit).unwrap();
                    } else {
                        store
                            .get(VB, KEY, &mut unlimited, &mut |record| {
                                seen = Some(version_of(&record))
                            })
                            .unwrap();
                    }
                    let seen = seen.expect("the document is always there");
                    assert!(seen >= newest, "version {seen} after {newest}");
                    newest = seen;
                    reads += 1;
                }
                reads
            })
        };
        let readers = [read(false), read(true)];
        (1..SIZES.len()).for_each(|version| commit(&store, version));
        drop(stopped);
        readers.map(|reader| reader.join().unwrap())
    });
    assert!(reads.iter().all(|reads| *reads > 0), "nobody read: {reads:?}");
    assert_eq!(rows_of_the_document(cluster, &place), 1, "rows of longer versions are left");

    // Another owner knows how many rows there are, although it did not write them.
    commit(&store, 4);
    drop(store);
    let store = place.open_owned().unwrap();
    commit(&store, 5);
    assert_eq!(rows_of_the_document(cluster, &place), 1, "rows of longer versions are left");
}

fn rows_of_the_document(cluster: &oribi_testkit::KuduCluster, place: &Place) -> usize {
    let masters = cluster.master_addresses();
    let table = place.url.table_of(&place.bucket);
    let columns = "-columns=collection,key,chunk";
    let text = cluster.tool_stdout(&["table", "scan", &masters, &table, columns]).unwrap();
    text.lines().filter(|line| line.contains("key=\"key\"")).count()
}
