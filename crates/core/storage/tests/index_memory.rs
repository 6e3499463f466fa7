//! What a log store holds in memory, by a counting allocator: for its index as much as it says, in
//! tables of many keys and of few, packed and not; and little for each further log.

use std::sync::Mutex;

use oribi_storage::{
    KvStore, LogOptions, LogStore, Packing, Record, StoreMaintenance, VbBatch, VbucketState,
};
use oribi_testkit::CountingAllocator;
use oribi_types::{Cas, CollectionId, Datatype, DocKey, RevSeqno, Seqno, Vbid};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::new();

/// Held by the test that counts.
static COUNTED: Mutex<()> = Mutex::new(());

const VBUCKETS: u16 = 16;
/// Memory of a commit and a table of segments in addition to the index: spans, states.
const BESIDE_BYTES_MAX: u64 = 64 << 10;
/// Memory that tables share and none of them uses: a chunk that is kept, and one that is not full.
const IDLE_BYTES_MAX: u64 = 2 * (2 << 20);

fn write(store: &LogStore, vbid: Vbid, keys: u64) {
    let keys: Vec<String> = (0..keys).map(|number| format!("{}-{number}", vbid.0)).collect();
    for (number, some) in (0..).zip(keys.chunks(1000)) {
        let first = number * 1000 + 1;
        let records: Vec<Record<'_>> = some.iter().zip(first..).map(record).collect();
        let high_seqno = Seqno(first + records.len() as u64);
        let state = VbucketState { high_seqno, ..VbucketState::empty() };
        store.commit(&[VbBatch { vbid, records, state }]).expect("it is committed");
    }
}

fn record((key, seqno): (&String, u64)) -> Record<'_> {
    Record {
        key: DocKey { collection: CollectionId::DEFAULT, key: key.as_bytes() },
        value: b"v",
        cas: Cas(1),
        seqno: Seqno(seqno),
        rev_seqno: RevSeqno(1),
        flags: 0,
        expiry: 0,
        datatype: Datatype::RAW,
        deleted: false,
        expired: false,
    }
}

#[test]
fn the_index_takes_what_the_store_says() {
    let _counted = COUNTED.lock();
    let packed = Packing { exact_min: 512, ..Packing::default() };
    for (packing, keys_each, bytes_each_max) in
        [(None, 20_000, 21), (Some(packed), 40_000, 10), (None, 100, 25)]
    {
        let directory = tempfile::tempdir().expect("a directory");
        let options =
            LogOptions { packing, compacts_in_background: false, ..LogOptions::default() };
        let store = LogStore::open(directory.path(), options).expect("the store opens");
        (0..VBUCKETS).for_each(|vbid| write(&store, Vbid(vbid), keys_each));
        let keys = keys_each * u64::from(VBUCKETS);
        let said = store.sizes().index_bytes;
        assert!(said <= keys * bytes_each_max + IDLE_BYTES_MAX, "{said} bytes for {keys} keys");

        // Not in order, so that tables that stay share chunks with tables that go.
        for from in 0..4 {
            let (said, held) = (store.sizes().index_bytes, ALLOCATOR.allocated());
            for vbid in (from..VBUCKETS).step_by(4) {
                store.drop_vbucket(Vbid(vbid), None).expect("it is dropped");
            }
            let given_back = held.abs_diff(ALLOCATOR.allocated()) as u64;
            let said = said - store.sizes().index_bytes;
            let beside = given_back.abs_diff(said);
            assert!(beside <= BESIDE_BYTES_MAX, "{given_back} bytes, said are {said}");
        }
        assert!(store.sizes().index_bytes <= IDLE_BYTES_MAX);
    }
}

/// Memory of a further log: the buffer of 1 MiB in which frames are put together, and little else.
const FURTHER_LOG_BYTES_MAX: usize = (1 << 20) + (192 << 10);
/// The same with the entries of an active segment of 8 MiB, half as long as its records where these
/// are as short as can be.
const FURTHER_FULL_LOG_BYTES_MAX: usize = FURTHER_LOG_BYTES_MAX + (4 << 20);

/// Bytes that an open store holds with the same documents in so many logs, and those of its index.
fn held_by(logs: usize, keys_each: u64) -> (usize, u64) {
    let directory = tempfile::tempdir().expect("a directory");
    let before = ALLOCATOR.allocated();
    let options = LogOptions { logs, compacts_in_background: false, ..LogOptions::default() };
    let store = LogStore::open(directory.path(), options).expect("the store opens");
    (0..VBUCKETS).for_each(|vbid| write(&store, Vbid(vbid), keys_each));
    let index_bytes = store.sizes().index_bytes;
    assert_eq!(index_bytes, store.memory_bytes());
    (ALLOCATOR.allocated() - before, index_bytes)
}

#[test]
fn a_further_log_takes_its_buffer_and_little_else() {
    let _counted = COUNTED.lock();
    for (keys_each, bytes_max) in
        [(200, FURTHER_LOG_BYTES_MAX), (20_000, FURTHER_FULL_LOG_BYTES_MAX)]
    {
        let (of_one, index_of_one) = held_by(1, keys_each);
        for logs in [2, 8, 16] {
            let (of_several, index_of_several) = held_by(logs, keys_each);
            assert_eq!(index_of_several, index_of_one, "logs share the memory of their tables");
            let each = of_several.saturating_sub(of_one) / (logs - 1);
            eprintln!("{keys_each} keys, {logs} logs: {each} bytes for each further one");
            assert!(each <= bytes_max, "{each} bytes for each of {logs} logs");
        }
    }
}
