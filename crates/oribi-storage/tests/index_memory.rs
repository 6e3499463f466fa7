//! What the index of a log store holds in memory, by a counting allocator: as much as the store
//! says, in tables of many keys and of few, packed and not.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use oribi_storage::{KvStore, LogOptions, LogStore, Packing, Record, VbBatch, VbucketState};
use oribi_types::{Cas, CollectionId, Datatype, DocKey, RevSeqno, Seqno, Vbid};

/// Counts the bytes that are allocated.
struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        NOW.fetch_add(layout.size(), Relaxed);
        // SAFETY: the caller's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const VBUCKETS: u16 = 16;
/// What a commit and a table of segments leave behind beside the index: spans, states.
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
            let (said, held) = (store.sizes().index_bytes, NOW.load(Relaxed));
            for vbid in (from..VBUCKETS).step_by(4) {
                store.drop_vbucket(Vbid(vbid)).expect("it is dropped");
            }
            let given_back = held.abs_diff(NOW.load(Relaxed)) as u64;
            let said = said - store.sizes().index_bytes;
            let beside = given_back.abs_diff(said);
            assert!(beside <= BESIDE_BYTES_MAX, "{given_back} bytes, said are {said}");
        }
        assert!(store.sizes().index_bytes <= IDLE_BYTES_MAX);
    }
}
