//! A load without values tells the same about every document as one with them.

use std::ops::ControlFlow;

use oribi_storage::{KvStore, LoadPart, LoadValues, Record, StoreMaintenance};
use oribi_types::{CollectionId, Datatype, DocKey, Seqno, Vbid};

use super::fence::batch;
use crate::{CLUSTER, Place};

const VB: u16 = 5;
/// Value, datatype, and whether it is a tombstone.
type Document = (Vec<u8>, u8, bool);

/// Documents in one row, in several, with attributes, and a tombstone with those.
fn documents() -> Vec<Document> {
    let block = b"\0\0\0\x08\0\0\0\x04k\x001\0";
    let with_block = |body: &[u8]| [&block[..], body].concat();
    let (json, xattr) = (Datatype::JSON.0, Datatype::XATTR.0);
    vec![
        (Vec::new(), 0, false),
        (b"{\"a\":1}".to_vec(), json, false),
        (vec![7; 200_000], 0, false),
        (with_block(b"{}"), json | xattr, false),
        (with_block(&vec![b'7'; 150_000]), json | xattr, false),
        (with_block(b""), xattr, true),
        (Vec::new(), 0, true),
    ]
}

/// A loaded record, and the length of its value.
type TakeoverReport = (Vec<u8>, CollectionId, [u64; 6], u8, [bool; 2], usize);

fn told(record: &Record<'_>, value_bytes: usize) -> TakeoverReport {
    let Record { key, cas, seqno, rev_seqno, flags, expiry, datatype, .. } = *record;
    let numbers = [cas.0, seqno.0, rev_seqno.0, flags.into(), expiry.into(), 0];
    let bits = [record.deleted, record.expired];
    (key.key.to_vec(), key.collection, numbers, datatype.0, bits, value_bytes)
}

#[test]
fn metadata_is_the_same_with_and_without_values() {
    let Some(cluster) = CLUSTER.get() else { return };
    let store = Place::new(cluster).open_owned().unwrap();
    let documents = documents();
    let keys: Vec<String> = (0..documents.len()).map(|number| format!("key-{number}")).collect();
    let mut batch = batch(VB, b"", 1);
    let template = batch.records.remove(0);
    for (number, (value, datatype, deleted)) in documents.iter().enumerate() {
        let seqno = Seqno(number as u64 + 1);
        let collection = CollectionId(if number % 2 == 0 { 0 } else { 9 });
        let key = DocKey { collection, key: keys[number].as_bytes() };
        let (flags, expiry) = (u32::MAX - number as u32, number as u32);
        let (datatype, deleted) = (Datatype(*datatype), *deleted);
        // The last one is a tombstone that expiry made.
        let expired = number + 1 == documents.len();
        let record =
            Record { key, value, seqno, flags, expiry, datatype, deleted, expired, ..template };
        batch.records.push(record);
        batch.state.high_seqno = seqno;
    }
    store.commit(&[batch]).unwrap();

    let part = || LoadPart::vbucket(Vbid(VB));
    let (mut with, mut without) = (Vec::new(), Vec::new());
    let mut visit = |vbid, record: Record<'_>, _| {
        assert_eq!(vbid, Vbid(VB));
        with.push(told(&record, record.value.len()));
        ControlFlow::Continue(())
    };
    store.load_part(part(), LoadValues::Read, &mut visit).unwrap();
    let mut visit = |vbid, record: Record<'_>, value_bytes| {
        assert_eq!((vbid, record.value), (Vbid(VB), &b""[..]));
        without.push(told(&record, value_bytes));
        ControlFlow::Continue(())
    };
    let bytes_read = || store.stats().bytes_read;
    let before = bytes_read();
    store.load_part(part(), LoadValues::Skip, &mut visit).unwrap();
    let key_bytes: usize = keys.iter().map(String::len).sum();
    assert_eq!(bytes_read() - before, key_bytes as u64, "values were read");
    assert_eq!((with.len(), with), (documents.len(), without));

    let mut shown = 0;
    let mut stop = |_, _: Record<'_>, _| {
        shown += 1;
        ControlFlow::Break(())
    };
    store.load_part(part(), LoadValues::Skip, &mut stop).unwrap();
    assert_eq!(shown, 1);
}
