//! What scans hold in memory, by a counting allocator: the answers of a real Kudu are bounded
//! before they arrive, however long the documents and however slow the reader.

use std::ops::ControlFlow;

use oribi_storage::conformance::take_over;
use oribi_storage::{KvStore, Record, ScanProgress, SeqnoRange, VbBatch, VbucketState, unlimited};
use oribi_storage_kudu::{KuduStore, KuduUrl};
use oribi_testkit::{CountingAllocator, SharedKuduCluster};
use oribi_types::{Cas, CollectionId, Datatype, DocKey, RevSeqno, Seqno, Vbid};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::new();

static CLUSTER: SharedKuduCluster = SharedKuduCluster::new(1, 1);

const VBUCKETS: u16 = 8;
/// Documents of the longest row that Oribi makes, more than a hundred, which Kudu reads at a time.
const MANY: (Vbid, u64, usize) = (Vbid(1), 200, 60 << 10);
/// Documents that each need space.
const LARGE: (Vbid, u64, usize) = (Vbid(2), 4, 20 << 20);
/// A window and the answer with its rows.
const WAITING_BYTES_MAX: usize = 1 << 20;

fn fill(store: &KuduStore, (vbid, documents, bytes): (Vbid, u64, usize)) {
    let value = vec![b'v'; bytes];
    for seqno in 1..=documents {
        let key = format!("{seqno:020}");
        let record = Record {
            key: DocKey { collection: CollectionId::DEFAULT, key: key.as_bytes() },
            value: &value,
            cas: Cas(1),
            seqno: Seqno(seqno),
            rev_seqno: RevSeqno(1),
            flags: 0,
            expiry: 0,
            datatype: Datatype::RAW,
            deleted: false,
            expired: false,
        };
        let state = VbucketState { high_seqno: Seqno(seqno), ..VbucketState::empty() };
        store.commit(&[VbBatch { vbid, records: vec![record], state }]).expect("it is committed");
    }
}

/// One test: the allocator counts the whole process.
#[test]
fn a_scan_reserves_before_reading_a_large_document() {
    let Some(cluster) = CLUSTER.get() else { return };
    let url = format!("kudu://{}/scans?tablets=1&replicas=1", cluster.master_addresses());
    let url: KuduUrl = url.parse().expect("an address");
    let store = KuduStore::open(&url, "memory", VBUCKETS, &|| true).expect("it opens");
    take_over(&store, &(0..VBUCKETS).map(Vbid).collect::<Vec<_>>()).expect("it takes over");
    fill(&store, MANY);
    fill(&store, LARGE);
    let from = DocKey { collection: CollectionId::DEFAULT, key: b"" };
    let before = ALLOCATOR.allocated();
    let held = || ALLOCATOR.allocated().saturating_sub(before);

    // Each record may be the one at which the reader pauses for minutes.
    let mut seen = 0;
    let mut pause = |record: Record<'_>| {
        assert_eq!(record.value.len(), MANY.2);
        assert!(held() <= WAITING_BYTES_MAX, "{} bytes at record {seen}", held());
        seen += 1;
        ControlFlow::Continue(())
    };
    ALLOCATOR.reset_most();
    store.scan_collection(MANY.0, from, &mut unlimited, &mut pause).expect("it scans");
    assert_eq!(seen, MANY.1);
    let most = ALLOCATOR.most() - before;
    assert!(most <= WAITING_BYTES_MAX, "{most} bytes at most");

    // Sixty scans in the order of seqnos share what they hold.
    let all = SeqnoRange::ALL;
    let begin = |_| store.begin_scan(MANY.0, all).expect("it begins");
    let mut scans: Vec<_> = (0..60).map(begin).collect();
    for scan in &mut scans {
        let paused =
            scan.resume(&mut unlimited, &mut |_| ControlFlow::Break(())).expect("it scans");
        assert_eq!(paused, ScanProgress::Paused);
    }
    assert!(held() <= 36 << 20, "{} bytes of sixty scans", held());
    drop(scans);

    for in_order in [true, false] {
        ALLOCATOR.reset_most();
        let (mut asked, mut seen, mut promised) = (0, 0, 0);
        let mut room = |bytes: usize| {
            assert!(bytes >= LARGE.2);
            assert!(held() <= WAITING_BYTES_MAX, "{} bytes while it asks", held());
            asked += 1;
            promised = bytes;
            if asked == 4 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let mut visit = |record: Record<'_>| {
            assert_eq!(record.value.len(), LARGE.2);
            seen += 1;
            ControlFlow::Continue(())
        };
        if in_order {
            store.scan_collection(LARGE.0, from, &mut room, &mut visit).expect("it scans");
            // The reader's own copy is the rest of twice what was asked for.
            let most = ALLOCATOR.most() - before;
            assert!(most <= 2 * promised - LARGE.2, "{most} bytes at most");
        } else {
            let mut scan = store.begin_scan(LARGE.0, all).expect("it begins");
            let progress = scan.resume(&mut room, &mut visit).expect("it scans");
            assert_eq!(progress, ScanProgress::Paused);
            assert!(held() <= WAITING_BYTES_MAX, "{} bytes while it is paused", held());
            // The record for which there was no space is not lost.
            scan.resume(&mut unlimited, &mut visit).expect("it goes on");
            seen -= 1;
        }
        assert_eq!((asked, seen), (4, 3));
    }
}
