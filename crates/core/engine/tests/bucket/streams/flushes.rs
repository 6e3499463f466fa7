//! Streams that are opened while a flush empties the bucket.

use std::sync::Arc;

use oribi_engine::dcp::{StreamFilter, VbucketDcpStream};
use oribi_types::VbUuid;
use parking_lot::Mutex;

use super::{StreamContents, WakeCount, backfill, from};
use crate::operations_by_vbid::OperationsByVbid;
use crate::ownership::{ALL, InterruptedStore, load_all, node};
use crate::{NOW, VB, done, key, set};

type OpenStream = (VbucketDcpStream, StreamContents);

// Invariant: A stream that opens during a flush shows nothing of before, and reaches its end.
#[test]
fn a_stream_shows_nothing_that_a_flush_removes() {
    let store = InterruptedStore::on(&Arc::default());
    let bucket = node(store.clone());
    bucket.take_over(&ALL).unwrap();
    load_all(&bucket);
    done(bucket.store(VB, key("flushed"), &set("1"), NOW));
    bucket.flush_step().unwrap();
    let kept = Arc::<Mutex<Option<OpenStream>>>::default();
    let (opened, other) = (Arc::clone(&kept), Arc::clone(&bucket));
    store.before_drop(VB, move || {
        let request = from(0, VbUuid(0), StreamFilter::All);
        let mut stream = other.open_stream(&request, Arc::<WakeCount>::default(), 1).unwrap();
        let mut heard = StreamContents::default();
        heard.read(&mut stream);
        backfill(&other);
        heard.read(&mut stream);
        *opened.lock() = Some((stream, heard));
    });
    bucket.flush_all().unwrap();
    let (mut stream, mut heard) = kept.lock().take().unwrap();
    backfill(&bucket);
    heard.read(&mut stream);
    assert!(heard.table.is_empty(), "{:?}", heard.table);
    assert_eq!(heard.end, None);
    assert_eq!(stream.last_read_seqno(), bucket.vbucket(VB).unwrap().high_seqno());
}
