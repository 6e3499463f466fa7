//! The table against a plain map, and the layout against its document.

use std::collections::BTreeMap;

use oribi_types::{Seqno, Vbid};

use super::super::Packing;
use super::super::hint::{
    HINT_ASCENDING_AT, HINT_CHECKSUM_AT, HINT_COLLECTION_AT, HINT_ENTRY_BYTES, HINT_EXPIRY_AT,
    HINT_FINGERPRINT_AT, HINT_HEADER_BYTES, HINT_HIGHEST_AT, HINT_KIND_AT, HINT_LOWEST_AT,
    HINT_SEGMENT_AT, HINT_SEGMENT_BYTES_AT, HINT_SIZE_AT, HINT_SPAN_KIND, HINT_UNIT_AT,
    HINT_VBID_AT, HINT_VERSION_AT, Hint, HintVersion, read,
};
use super::super::index::{
    CHUNK_BYTES, Entry, Fingerprint, IndexMemory, IndexTable, Mark, RecordPlace, Size,
};
use super::super::layout::{
    FRAME_CHECKSUM_AT, FRAME_HEADER_BYTES, FRAME_NUMBER_AT, FRAME_PAYLOAD_BYTES_AT,
    FRAME_RECORDS_AT, FRAME_SEGMENT_AT, FRAME_SYNCED_AT, FRAME_TRAILER_BYTES, RECORD_BITS_AT,
    RECORD_CAS_AT, RECORD_CHECKSUM_AT, RECORD_COLLECTION_AT, RECORD_DATATYPE_AT, RECORD_EXPIRY_AT,
    RECORD_FLAGS_AT, RECORD_HEADER_BYTES, RECORD_KEY_BYTES_AT, RECORD_KIND_AT, RECORD_ORIGIN_AT,
    RECORD_RESERVED_AT, RECORD_REV_SEQNO_AT, RECORD_SEQNO_AT, RECORD_VALUE_BYTES_AT,
    RECORD_VBID_AT, SEGMENT_CHECKSUM_AT, SEGMENT_HEADER_BYTES, SEGMENT_ID_AT, SEGMENT_SEED_AT,
    SEGMENT_VERSION_AT, StoredRecord, decode_record, decode_unchecked,
};
use super::super::spans::{SegmentKnowledge, Span, Spans};
use crate::SeededRandom;
use crate::conformance::fixture::OwnedFields;

/// An entry, without the part of the fingerprint that a packed one lacks.
fn said(entry: Entry) -> (Size, Mark, RecordPlace) {
    (entry.size(), entry.mark(), entry.place())
}

/// Random entries in, out and elsewhere, packed now and then, against a map: many fingerprints, few
/// that repeat, and crowded ones, which push each other on and past the end.
#[test]
fn a_table_is_a_map() {
    let sources: [fn(u128) -> u128; 3] = [
        |number| number,
        |number| (number % 701) << 100,
        // All homes are the same one, the last.
        |number| (u128::MAX << 62) | ((number % 401) << 52),
    ];
    for (seed, source) in (1..).zip(sources) {
        // With few bits of fingerprints, packed entries are taken for those of other keys.
        for prefix_bits in [1, 12, 32] {
            run_table(seed, source, prefix_bits);
        }
    }
}

fn run_table(seed: u64, source: fn(u128) -> u128, prefix_bits: u32) {
    let mut random = SeededRandom::new(seed + u64::from(prefix_bits));
    let packing = Packing { prefix_bits, exact_min: 2, ..Packing::default() };
    let mut table = IndexTable::new(&IndexMemory::default());
    let mut model: BTreeMap<Fingerprint, Entry> = BTreeMap::new();
    for step in 0..6_000u32 {
        let number = u128::from(random.number()) << 64 | u128::from(random.number());
        let mut fingerprint = Fingerprint::of(source(number));
        if random.below(2) == 0
            && let Some((known, _)) = model.range(fingerprint..).next()
        {
            fingerprint = *known;
        }
        let place = RecordPlace { slot: (step % 7) as u16, unit: step + 1 };
        let mark = [Mark::Document, Mark::Tombstone, Mark::Purged][step as usize % 3];
        let size = Size::of(1 << (step % 26));
        let entry = Entry::new(fingerprint, size, mark, place);
        assert_eq!((said(entry), entry.fingerprint()), ((size, mark, place), fingerprint));
        let known = model.get(&fingerprint).copied();
        let from = known.map_or(place, Entry::place);
        let shrinks = step / 1000 % 2 == 1;
        let before = match random.below(4) {
            choice if choice < if shrinks { 2 } else { 1 } => {
                model.remove(&fingerprint);
                table.remove_at(fingerprint, from)
            }
            3 if known.is_some() => {
                model.insert(fingerprint, entry);
                table.replace_at(fingerprint, from, entry)
            }
            _ => {
                model.insert(fingerprint, entry);
                let is_unsure = table.unsure(fingerprint).any(|found| found.place() == from);
                let packed = is_unsure.then(|| table.remove_at(fingerprint, from)).flatten();
                table.put(entry).or(packed)
            }
        };
        assert_eq!(before.map(said), known.map(said), "seed {seed}, step {step}");
        let now = model.get(&fingerprint).copied();
        assert_eq!(table.at(fingerprint, place).map(said), now.map(said));
        let is_found =
            table.candidates(fingerprint).any(|found| Some(said(found)) == now.map(said));
        assert_eq!(is_found, now.is_some());
        assert_eq!(table.len(), model.len());
        if random.below(100) == 0 {
            let old: Vec<bool> = (0..7).map(|_| random.below(4) > 0).collect();
            table.take_packed(table.packed(packing, &old), packing, &old);
        }
        if step % 500 == 0 {
            let mut listed: Vec<RecordPlace> = table.iter().map(Entry::place).collect();
            let mut expected: Vec<RecordPlace> =
                model.values().map(|entry| entry.place()).collect();
            listed.sort_unstable();
            expected.sort_unstable();
            assert_eq!(listed, expected, "seed {seed}, step {step}");
            let all: Vec<Entry> = table.iter_from(Fingerprint::FIRST).collect();
            assert_eq!(all.len(), listed.len());
            for from in all.iter().step_by(7).map(|entry| entry.fingerprint()) {
                let from = from.group(Some(packing));
                let behind = all.partition_point(|entry| entry.fingerprint() < from);
                assert!(table.iter_from(from).eq(all[behind..].iter().copied()), "{from:?}");
            }
            for (fingerprint, entry) in &model {
                let found = table.at(*fingerprint, entry.place());
                assert_eq!(found.map(said), Some(said(*entry)));
            }
        }
    }
}

/// Two classes to an octave: no length up to four mebibytes is further than a quarter from its
/// class.
#[test]
fn a_class_of_length_is_near_to_the_length() {
    for bytes in (64..4 << 20).step_by(8) {
        let size = Size::of(bytes);
        let ratio = size.bytes() as f64 / bytes as f64;
        assert!((0.8..=1.25).contains(&ratio), "{bytes} as {}", size.bytes());
        assert_eq!(Size::from_number(size.number()), Some(size));
    }
    assert_eq!((Size::of(0), Size::of(20 << 20)), (Size::of(64), Size::of(4 << 20)));
    assert_eq!(Size::from_number(32), None);
}

/// Bytes allocated for the only table in this memory.
fn bytes_of(memory: &IndexMemory, table: &IndexTable) -> usize {
    memory.bytes() + table.own_bytes()
}

/// The promise of the index: at most twenty bytes a key, at every size from a thousand keys on.
#[test]
fn an_entry_costs_at_most_twenty_bytes() {
    let mut random = SeededRandom::new(9);
    let memory = IndexMemory::default();
    let mut table = IndexTable::new(&memory);
    // A chunk that is kept, and one that is not full.
    let idle_max = 2 * CHUNK_BYTES;
    let (mut total, mut sizes) = (0.0, 0.0);
    for number in 1..200_000u32 {
        let hash = u128::from(random.number()) << 64 | u128::from(random.number());
        let place = RecordPlace { slot: 1, unit: number };
        let fingerprint = Fingerprint::of(hash);
        table.put(Entry::new(fingerprint, Size::of(600), Mark::Document, place));
        if number > 1000 {
            let bytes = bytes_of(&memory, &table).saturating_sub(idle_max) as f64;
            let bytes = bytes / f64::from(number);
            assert!(bytes <= 21.0, "{bytes} bytes an entry at {number}");
            (total, sizes) = (total + bytes, sizes + 1.0);
        }
    }
    let mean = total / sizes;
    assert!(mean <= 20.0, "{mean} bytes an entry on average");
}

/// The promise of a packed index, for a table that grows to more than a million keys: eight bytes a
/// packed key, half a byte more for those that are not packed yet, and at no moment more than one
/// table twice.
#[test]
fn a_packed_entry_costs_at_most_eight_bytes() {
    const KEYS: u32 = 1_100_000;
    const WATCHED_FROM: u32 = 500_000;
    // As with records of 600 bytes in segments of 64 MiB.
    const UNITS_EACH: u32 = 75;
    const UNITS_PER_SEGMENT: u32 = 8 << 20;
    let mut random = SeededRandom::new(9);
    let (packing, memory) = (Packing::default(), IndexMemory::default());
    let mut table = IndexTable::new(&memory);
    let (mut total, mut looks, mut packings, mut packed_each) = (0.0, 0.0, 0, 0.0_f64);
    let (mut strangers, old) = (0, vec![true; 16]);
    for number in 0..KEYS {
        let hash = u128::from(random.number()) << 64 | u128::from(random.number());
        let records_per_segment = UNITS_PER_SEGMENT / UNITS_EACH;
        let slot = (number / records_per_segment) as u16;
        let unit = number % records_per_segment * UNITS_EACH + 4;
        let fingerprint = Fingerprint::of(hash);
        strangers += u32::from(table.unsure(fingerprint).next().is_some());
        table.put(Entry::new(
            fingerprint,
            Size::of(600),
            Mark::Document,
            RecordPlace { slot, unit },
        ));
        // Fewer packings at first, to save time.
        let is_watched = number >= WATCHED_FROM;
        if number == WATCHED_FROM || !is_watched && number.is_power_of_two() {
            table.take_packed(table.packed(packing, &old), packing, &old);
        }
        if !is_watched || number % 64 != 0 {
            continue;
        }
        let bytes_each =
            |table: &IndexTable| bytes_of(&memory, table) as f64 / f64::from(number + 1);
        assert!(bytes_each(&table) <= 8.5, "{} bytes a key of {number}", bytes_each(&table));
        if table.is_due(packing) {
            table.take_packed(table.packed(packing, &old), packing, &old);
            packings += 1;
            packed_each = packed_each.max(bytes_each(&table));
        }
        total += bytes_each(&table);
        looks += 1.0;
    }
    let mean = total / looks;
    eprintln!("{packed_each} bytes packed at most, {mean} of all on average, {packings} packings");
    assert!(packed_each <= 8.0 && mean <= 8.0, "{packed_each}, {mean} bytes a key");
    assert!((20..40).contains(&packings), "each pays for a 32nd: {packings}");
    // Of a million keys of which each has met half of the others, one in 8,000 on average.
    assert!(strangers < KEYS / 4000, "{strangers} new keys look like others");
    assert_eq!(table.len(), KEYS as usize);
}

const DOCUMENT: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/storage-format.md"));

/// Second column of the row of this constant.
fn documented(name: &str) -> &'static str {
    let row = DOCUMENT.lines().find(|line| line.starts_with(&format!("| `{name}` |")));
    let row = row.unwrap_or_else(|| panic!("{name} is not in the document"));
    row.split('|').nth(2).expect("a row has a second column").trim()
}

#[test]
fn the_document_says_what_the_constants_are() {
    let offsets = [
        ("SEGMENT_VERSION_AT", SEGMENT_VERSION_AT),
        ("SEGMENT_ID_AT", SEGMENT_ID_AT),
        ("SEGMENT_SEED_AT", SEGMENT_SEED_AT),
        ("SEGMENT_CHECKSUM_AT", SEGMENT_CHECKSUM_AT),
        ("SEGMENT_HEADER_BYTES", SEGMENT_HEADER_BYTES),
        ("FRAME_SEGMENT_AT", FRAME_SEGMENT_AT),
        ("FRAME_NUMBER_AT", FRAME_NUMBER_AT),
        ("FRAME_SYNCED_AT", FRAME_SYNCED_AT),
        ("FRAME_PAYLOAD_BYTES_AT", FRAME_PAYLOAD_BYTES_AT),
        ("FRAME_RECORDS_AT", FRAME_RECORDS_AT),
        ("FRAME_CHECKSUM_AT", FRAME_CHECKSUM_AT),
        ("FRAME_HEADER_BYTES", FRAME_HEADER_BYTES),
        ("FRAME_TRAILER_BYTES", FRAME_TRAILER_BYTES),
        ("RECORD_VALUE_BYTES_AT", RECORD_VALUE_BYTES_AT),
        ("RECORD_KEY_BYTES_AT", RECORD_KEY_BYTES_AT),
        ("RECORD_VBID_AT", RECORD_VBID_AT),
        ("RECORD_KIND_AT", RECORD_KIND_AT),
        ("RECORD_DATATYPE_AT", RECORD_DATATYPE_AT),
        ("RECORD_BITS_AT", RECORD_BITS_AT),
        ("RECORD_RESERVED_AT", RECORD_RESERVED_AT),
        ("RECORD_COLLECTION_AT", RECORD_COLLECTION_AT),
        ("RECORD_FLAGS_AT", RECORD_FLAGS_AT),
        ("RECORD_EXPIRY_AT", RECORD_EXPIRY_AT),
        ("RECORD_CAS_AT", RECORD_CAS_AT),
        ("RECORD_SEQNO_AT", RECORD_SEQNO_AT),
        ("RECORD_REV_SEQNO_AT", RECORD_REV_SEQNO_AT),
        ("RECORD_ORIGIN_AT", RECORD_ORIGIN_AT),
        ("RECORD_CHECKSUM_AT", RECORD_CHECKSUM_AT),
        ("RECORD_HEADER_BYTES", RECORD_HEADER_BYTES),
        ("HINT_VERSION_AT", HINT_VERSION_AT),
        ("HINT_SEGMENT_AT", HINT_SEGMENT_AT),
        ("HINT_SEGMENT_BYTES_AT", HINT_SEGMENT_BYTES_AT),
        ("HINT_CHECKSUM_AT", HINT_CHECKSUM_AT),
        ("HINT_HEADER_BYTES", HINT_HEADER_BYTES),
        ("HINT_FINGERPRINT_AT", HINT_FINGERPRINT_AT),
        ("HINT_UNIT_AT", HINT_UNIT_AT),
        ("HINT_EXPIRY_AT", HINT_EXPIRY_AT),
        ("HINT_COLLECTION_AT", HINT_COLLECTION_AT),
        ("HINT_VBID_AT", HINT_VBID_AT),
        ("HINT_KIND_AT", HINT_KIND_AT),
        ("HINT_SIZE_AT", HINT_SIZE_AT),
        ("HINT_ENTRY_BYTES", HINT_ENTRY_BYTES),
        ("HINT_LOWEST_AT", HINT_LOWEST_AT),
        ("HINT_HIGHEST_AT", HINT_HIGHEST_AT),
        ("HINT_ASCENDING_AT", HINT_ASCENDING_AT),
        ("HINT_SPAN_KIND", usize::from(HINT_SPAN_KIND)),
    ];
    for (name, offset) in offsets {
        assert_eq!(documented(name), offset.to_string(), "{name}");
    }
}

/// The bytes of one record, written down: a change of them is a change of format.
#[test]
fn the_bytes_are_those_of_version_one() {
    let kept = OwnedFields::tombstone(0x11, b"k", 0x33).in_collection(0x0a0b_0c0d);
    let stored = StoredRecord::version(Vbid(0x0102), 0x55, kept.record());
    let mut bytes = Vec::new();
    let checksum = stored.push_head(&mut bytes);
    let expected = b"\0\0\0\0\x01\0\x02\x01\x02\0\0\0\x0d\x0c\x0b\x0a\x11\0\xad\xde\x33\0\0\0\
                     \x11\0\x66\x55\x44\x33\x22\x11\x11\0\0\0\0\0\0\0\x75\0\0\0\0\0\0\0\x55\0\0\0";
    assert_eq!(bytes[..52], expected[..]);
    assert_eq!(bytes[52..56], checksum.to_le_bytes());
    assert_eq!(bytes[56..], *b"k");
    assert_eq!(decode_record(&bytes), Ok((stored, checksum)));
    let expired = OwnedFields::expired(0x11, b"k", 0x33).in_collection(0x0a0b_0c0d);
    let stored = StoredRecord::version(Vbid(0x0102), 0x55, expired.record());
    let mut bits = Vec::new();
    stored.push_head(&mut bits);
    assert_eq!((bits[10], &bits[..10], &bits[11..52]), (1, &bytes[..10], &bytes[11..52]));
    bits.resize(64, 0);
    assert_eq!(decode_record(&bits).map(|(decoded, _)| decoded), Ok(stored));
}

/// An index file of this version has the seqnos; one of the version before is as good for the rest.
#[test]
fn an_index_file_says_which_seqnos_there_are() {
    let span = Span { lowest: Seqno(3), highest: Seqno(9), is_ascending: false };
    let mut complete = Spans::complete();
    complete.wrote(Vbid(7), span);
    for (spans, of_7, of_8) in [
        (complete, SegmentKnowledge::Span(span), SegmentKnowledge::Absent),
        (Spans::default(), SegmentKnowledge::Nothing, SegmentKnowledge::Nothing),
    ] {
        let kept = OwnedFields::document(5, b"key", b"value");
        let stored = StoredRecord::version(Vbid(7), 1, kept.record());
        let version = HintVersion::of(&stored, Fingerprint::of(1 << 100), 4096);
        let mut hint = Hint::default();
        hint.push(&version);
        let content = hint.content(1, 8192, 42, &spans).to_vec();
        let listed = read(&content, 1, 8192, 42).expect("a whole file");
        assert_eq!((listed.spans.of(Vbid(7)), listed.spans.of(Vbid(8))), (of_7, of_8));
        assert_eq!(listed.versions.collect::<Vec<_>>(), [version]);
    }
}

/// Bits that no version writes, and the bit of expiry where nothing expired.
#[test]
fn unknown_bits_are_refused() {
    let kept = OwnedFields::tombstone(1, b"key", 2);
    for (kind, byte, bits) in [(1, 10, 1), (2, 10, 2), (3, 10, 0x81), (4, 10, 1), (2, 11, 1)] {
        let mut bytes = Vec::new();
        StoredRecord::version(Vbid(1), 1, kept.record()).push_head(&mut bytes);
        bytes.resize(64, 0);
        (bytes[RECORD_KIND_AT], bytes[byte]) = (kind, bits);
        assert_eq!(
            decode_unchecked(&bytes).err(),
            Some("a record that this version does not write")
        );
    }
}
