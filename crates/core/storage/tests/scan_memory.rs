//! What scans by key hold in memory, by a counting allocator: of all stores of the process
//! together, however many records there are and however long their keys.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::{Mutex, PoisonError};

use oribi_storage::{
    KvStore, LoadValues, LogOptions, LogStore, Record, ScanProgress, SeqnoRange, VbBatch,
    VbucketState, unlimited,
};
use oribi_testkit::CountingAllocator;
use oribi_types::{Cas, CollectionId, Datatype, DocKey, RevSeqno, Seqno, Vbid};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::new();

const VB: Vbid = Vbid(1);

/// A test counts what the whole process holds.
static ALONE: Mutex<()> = Mutex::new(());

/// The process's limit for scans, and the need of two of them to read the disk: joined reads
/// of half a MiB each.
const BYTES_MAX: usize = (16 << 20) + 2 * (1 << 20);

fn key(number: u64, bytes: usize) -> Vec<u8> {
    format!("{:0bytes$}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).into_bytes()
}

/// A store with so many documents in one vbucket.
fn store(directory: &std::path::Path, documents: u64, key_bytes: usize, value: &[u8]) -> LogStore {
    let store = LogStore::open(directory, LogOptions::default()).expect("the store opens");
    for first in (0..documents).step_by(10_000) {
        let numbers = first..(first + 10_000).min(documents);
        let keys: Vec<Vec<u8>> = numbers.clone().map(|number| key(number, key_bytes)).collect();
        let records = keys
            .iter()
            .zip(numbers.clone())
            .map(|(key, number)| Record {
                key: DocKey { collection: CollectionId::DEFAULT, key },
                value,
                cas: Cas(1),
                seqno: Seqno(number + 1),
                rev_seqno: RevSeqno(1),
                flags: 0,
                expiry: 0,
                datatype: Datatype::RAW,
                deleted: false,
                expired: false,
            })
            .collect();
        let state = VbucketState { high_seqno: Seqno(numbers.end), ..VbucketState::empty() };
        store.commit(&[VbBatch { vbid: VB, records, state }]).expect("it is committed");
    }
    store
}

/// Scans a store, and within that the others. Returns how many documents were seen in order.
fn scan(stores: &[LogStore]) -> usize {
    let Some((store, others)) = stores.split_first() else { return 0 };
    let (mut seen, mut last, mut inner) = (0, Vec::new(), None);
    let scanned = store.scan_keys(VB, &mut |record| {
        assert!(last.as_slice() < record.key.key, "in order, each once");
        last.clear();
        last.extend_from_slice(record.key.key);
        seen += 1;
        inner.get_or_insert_with(|| scan(others));
        ControlFlow::Continue(())
    });
    scanned.expect("it scans");
    seen + inner.unwrap_or(0)
}

#[test]
fn all_scans_stay_within_the_process_bound() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    // Two stores whose records are too many, and one whose keys are.
    for (stores, documents, key_bytes, value_bytes) in [(2, 3000, 20, 4000), (1, 80_000, 240, 10)] {
        let directory = tempfile::tempdir().expect("a directory");
        let value = vec![b'v'; value_bytes];
        let open = |number: u64| {
            let path = directory.path().join(number.to_string());
            store(&path, documents, key_bytes, &value)
        };
        let stores: Vec<LogStore> = (0..stores).map(open).collect();
        let before = ALLOCATOR.allocated();
        ALLOCATOR.reset_most();
        assert_eq!(scan(&stores), stores.len() * documents as usize);
        let most = ALLOCATOR.most() - before;
        assert!(most <= BYTES_MAX, "{most} bytes for keys of {key_bytes}, values of {value_bytes}");
    }
}

#[test]
fn a_scan_holds_no_large_record_while_reserving() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    const RECORD_BYTES: usize = 8 << 20;
    /// Bytes that a scan reads at once.
    const WAITING_BYTES_MAX: usize = 2 << 20;
    let directory = tempfile::tempdir().expect("a directory");
    let store = store(directory.path(), 4, 20, &vec![b'v'; RECORD_BYTES]);
    let before = ALLOCATOR.allocated();
    let held = || ALLOCATOR.allocated() - before;
    let from = DocKey { collection: CollectionId::DEFAULT, key: b"" };
    for in_order in [true, false] {
        ALLOCATOR.reset_most();
        let (mut asked, mut seen) = (0, 0);
        let mut room = |bytes: usize| {
            assert!(bytes >= RECORD_BYTES);
            assert!(held() <= WAITING_BYTES_MAX, "{} bytes while it asks", held());
            asked += 1;
            if asked == 4 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let mut visit = |record: Record<'_>| {
            assert_eq!(record.value.len(), RECORD_BYTES);
            seen += 1;
            ControlFlow::Continue(())
        };
        if in_order {
            store.scan_collection(VB, from, &mut room, &mut visit).expect("it scans");
        } else {
            let mut scan = store.begin_scan(VB, SeqnoRange::ALL).expect("it begins");
            let progress = scan.resume(&mut room, &mut visit).expect("it scans");
            assert_eq!(progress, ScanProgress::Paused);
            assert!(held() <= WAITING_BYTES_MAX, "{} bytes while it is paused", held());
            // The record for which there was no space is not lost.
            scan.resume(&mut unlimited, &mut visit).expect("it goes on");
            seen -= 1;
        }
        assert_eq!((asked, seen), (4, 3));
        let most = ALLOCATOR.most() - before;
        assert!(most <= RECORD_BYTES + WAITING_BYTES_MAX, "{most} bytes at most");
    }
}

#[test]
fn a_scan_without_values_reserves_nothing() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    const RECORD_BYTES: usize = 8 << 20;
    let directory = tempfile::tempdir().expect("a directory");
    let store = store(directory.path(), 4, 20, &vec![b'v'; RECORD_BYTES]);
    let before = ALLOCATOR.allocated();
    ALLOCATOR.reset_most();
    let range = SeqnoRange { values: LoadValues::Skip, ..SeqnoRange::ALL };
    let mut scan = store.begin_scan(VB, range).expect("it begins");
    let mut keys = BTreeSet::new();
    let mut room = |bytes: usize| panic!("{bytes} bytes for a value that is not shown");
    let progress = scan.resume(&mut room, &mut |record| {
        assert!(record.value.is_empty() && !record.deleted);
        keys.insert((record.key.key.to_vec(), record.seqno));
        ControlFlow::Continue(())
    });
    assert_eq!((progress.expect("it scans"), keys.len()), (ScanProgress::Ended, 4));
    let most = ALLOCATOR.most() - before;
    assert!(most <= 2 << 20, "{most} bytes at most");
}
