//! Segments come back whole; damaged ones are refused and never cause a panic.

use proptest::prelude::*;

use super::*;
use crate::testing::{TestDocument, any_document};

fn segment_of(level: i32, documents: &[TestDocument]) -> (Vec<u8>, Footer) {
    let mut writer = SegmentWriter::new(level).unwrap();
    for document in documents {
        writer.push(&document.as_record()).unwrap();
    }
    let (bytes, entry, footer) = writer.finish("b", 3, "0:1:2".to_owned()).unwrap();
    assert_eq!(ArchiveSegment::open("s", bytes).unwrap().entry(), entry);
    let bytes = bytes.to_vec();
    // The next one has nothing of it.
    writer.next();
    assert!(!writer.has_news() && writer.plain_bytes() == 0);
    writer.push(&TestDocument { vbid: 1, seqno: 9, ..Default::default() }.as_record()).unwrap();
    let (next, _, next_footer) = writer.finish("b", 4, String::new()).unwrap();
    assert_eq!((read(next).unwrap().len(), next_footer.vbuckets[0].first), (1, 9));
    (bytes, footer)
}

fn read(bytes: &[u8]) -> Result<Vec<TestDocument>, ArchiveError> {
    let segment = ArchiveSegment::open("s", bytes)?;
    let mut documents = Vec::new();
    segment.for_each(|record| {
        documents.push(TestDocument::of(record));
        Ok::<(), ArchiveError>(())
    })?;
    Ok(documents)
}

#[test]
fn long_segments_have_several_blocks() {
    let value = vec![b'v'; 100_000];
    let documents: Vec<TestDocument> = (1..30)
        .map(|seqno| TestDocument {
            vbid: (seqno % 2) as u16,
            seqno,
            value: value.clone(),
            ..Default::default()
        })
        .collect();
    let (bytes, footer) = segment_of(0, &documents);
    assert!(footer.blocks.len() > 3 && bytes.len() > 2_900_000, "{} bytes", bytes.len());
    assert_eq!(read(&bytes).unwrap(), documents);
    let (bytes, footer) = segment_of(1, &documents);
    assert!(footer.blocks.len() > 3 && bytes.len() < 100_000, "{} bytes", bytes.len());
    assert_eq!(read(&bytes).unwrap(), documents);
    let range = |vbucket, first, last, records| Range { vbucket, first, last, records };
    assert_eq!(footer.vbuckets, [range(0, 2, 28, 14), range(1, 1, 29, 15)]);
    assert_eq!((footer.mutations, footer.removals, footer.number), (29, 0, 3));
    assert_eq!(ArchiveSegment::open("s", &bytes).unwrap().into_footer(), footer);
}

#[test]
fn fast_levels_have_a_window_of_256_kib() {
    let value: Vec<u8> = (0..600_000_u64).map(|at| ((at * at) >> 7) as u8).collect();
    let documents = [TestDocument { value, ..Default::default() }];
    for (level, window) in [(-7, 256 * 1024), (1, 256 * 1024), (2, 256 * 1024), (3, 600_049)] {
        let (bytes, footer) = segment_of(level, &documents);
        assert_eq!(read(&bytes).unwrap(), documents);
        let frame = &bytes[footer.blocks[0].offset as usize..];
        assert_eq!(window_of(frame), window, "level {level}");
    }
}

/// Bytes that a reader of a zstd frame has to keep (RFC 8878, section 3.1.1.1).
fn window_of(frame: &[u8]) -> u64 {
    let (descriptor, window) = (frame[4], u64::from(frame[5]));
    match descriptor & 0x20 {
        0 => {
            let base = 1_u64 << (10 + (window >> 3));
            base + base / 8 * (window & 7)
        }
        // One segment: the length of the content, here of four bytes.
        _ => u64::from(u32::from_le_bytes(frame[5..9].try_into().unwrap())),
    }
}

#[test]
fn an_oversized_block_length_takes_no_memory() {
    let (bytes, mut footer) = segment_of(1, &[TestDocument::default()]);
    footer.blocks[0].inflated = u64::MAX;
    let error = read(&with_footer(&bytes, &footer)).unwrap_err().to_string();
    assert!(error.contains("18446744073709551615"), "{error}");
}

#[test]
fn blocks_lie_one_behind_the_other_in_the_file() {
    let documents = [TestDocument { value: vec![b'v'; 600_000], ..Default::default() }];
    let documents = [&documents[..], &documents[..]].concat();
    let (bytes, whole) = segment_of(1, &documents);
    assert_eq!((whole.blocks.len(), read(&with_footer(&bytes, &whole)).unwrap().len()), (2, 2));
    let refused = |change: &dyn Fn(&mut Vec<ArchiveBlock>), reason: &str| {
        let mut footer = whole.clone();
        change(&mut footer.blocks);
        let error = read(&with_footer(&bytes, &footer)).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    };
    refused(&|blocks| blocks[0].offset -= 1, "block 0 does not begin");
    refused(&|blocks| blocks[1].offset = u64::MAX, "block 1 does not begin");
    refused(&|blocks| blocks.swap(0, 1), "block 0 does not begin");
    refused(&|blocks| blocks[1].stored += 1, "do not end at the footer");
    refused(&|blocks| blocks[1].stored = u64::MAX, "do not end at the footer");
    refused(&|blocks| blocks.truncate(1), "do not end at the footer");
    refused(&|blocks| blocks[1].crc32 ^= 1, "the checksum of block 1");
    refused(&|blocks| blocks[1].inflated -= 1, "block 1");
    refused(&|blocks| blocks[1].records += 1, "block 1 has 1 records, not 2");
}

/// A segment with another footer, whose checksum is right.
fn with_footer(bytes: &[u8], footer: &Footer) -> Vec<u8> {
    let end = bytes.last_chunk::<END_BYTES>().unwrap();
    let text = serde_json::to_vec(footer).unwrap();
    let mut changed = bytes[..bytes.len() - END_BYTES - word(end, 0) as usize].to_vec();
    changed.extend_from_slice(&text);
    changed.extend_from_slice(&(text.len() as u32).to_be_bytes());
    changed.extend_from_slice(&crc32fast::hash(&text).to_be_bytes());
    changed.extend_from_slice(END);
    changed
}

proptest! {
    #[test]
    fn segments_come_back(
        level in -1..2,
        documents in prop::collection::vec(any_document(), 0..30),
    ) {
        let (bytes, footer) = segment_of(level, &documents);
        prop_assert_eq!(footer.mutations + footer.removals, documents.len() as u64);
        prop_assert_eq!(read(&bytes).unwrap(), documents);
    }

    /// Any one byte that changes, and any cut, is noticed.
    #[test]
    fn damage_is_noticed(
        level in 0..2,
        documents in prop::collection::vec(any_document(), 1..10),
        at in any::<prop::sample::Index>(),
        flip in 1..=255_u8,
    ) {
        let (bytes, _) = segment_of(level, &documents);
        let at = at.index(bytes.len());
        let mut damaged = bytes.clone();
        damaged[at] ^= flip;
        // A length of a block's inflated bytes may grow without harm only to what it is.
        prop_assert!(read(&damaged).is_err(), "byte {} of {}", at, bytes.len());
        prop_assert!(read(&bytes[..at]).is_err());
    }

    #[test]
    fn any_bytes_are_refused(noise in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&VERSION.to_be_bytes());
        bytes.extend_from_slice(&noise);
        bytes.extend_from_slice(END);
        prop_assert!(read(&noise).is_err());
        prop_assert!(read(&bytes).is_err());
    }
}
