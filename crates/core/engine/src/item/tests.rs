//! The item block: layout, contents, sharing.

use std::mem::{MaybeUninit, offset_of};

use oribi_types::{Cas, CollectionId, Datatype, DocKey, RevSeqno, Seqno};

use super::wide::{NARROW_VALUE_BYTES_MAX, WIDE_BYTES};
use super::{FillingItem, HEADER_BYTES, Header, ItemFields, ItemRef, NewItem, U48_MAX};

fn key(bytes: &[u8]) -> DocKey<'_> {
    DocKey { collection: CollectionId(9), key: bytes }
}

#[test]
fn layout_matches_the_table_in_the_module_docs() {
    let rows: Vec<(usize, String)> = include_str!("../item.rs")
        .lines()
        .filter_map(|line| line.strip_prefix("//! | "))
        .filter_map(|row| {
            let mut cells = row.split(" | ");
            let offset = cells.next()?.parse().ok()?;
            Some((offset, cells.nth(1)?.trim_end_matches(" |").to_owned()))
        })
        .collect();
    let expected = [
        (
            offset_of!(Header, refcount),
            "reference count (low 28 bits), incompressible, frequency of use",
        ),
        (offset_of!(Header, lengths), "value length (low 14 bits), wide, dense (top bit)"),
        (offset_of!(Header, rev), "revision"),
        (offset_of!(Header, cas), "CAS"),
        (offset_of!(Header, seqno_low), "seqno, low 32 bits"),
        (offset_of!(Header, seqno_high), "seqno, high 16 bits"),
        (offset_of!(Header, key_bytes), "key length"),
        (
            offset_of!(Header, kind),
            "datatype (low bits), evicted, which optional fields follow, deleted (top bit)",
        ),
        (HEADER_BYTES, "optional fields, key, then value"),
    ];
    let expected: Vec<(usize, String)> =
        expected.into_iter().map(|(at, name)| (at, name.to_owned())).collect();
    assert_eq!(rows, expected);
}

#[test]
fn a_block_returns_what_it_was_made_of() {
    let fields =
        ItemFields { flags: 7, expiry: 99, datatype: Datatype::JSON, ..Default::default() };
    let mut new = NewItem::new(key(b"k1"), fields, &[b"{\"a\":", b"1}"]);
    new.set_version(Cas(5), Seqno(0xffff_0000_0006), RevSeqno(0x1234_5678_9abc));
    let item = new.publish();
    let twin = item.clone();
    drop(item);
    assert_eq!(twin.key(), key(b"k1"));
    assert_eq!(twin.value(), b"{\"a\":1}");
    assert_eq!((twin.cas(), twin.seqno()), (Cas(5), Seqno(0xffff_0000_0006)));
    assert_eq!(twin.rev_seqno(), RevSeqno(0x1234_5678_9abc));
    assert_eq!((twin.flags(), twin.expiry(), twin.datatype()), (7, 99, Datatype::JSON));
    assert!(!twin.is_deleted());
    assert!(twin.is_expired(99) && !twin.is_expired(98));
}

#[test]
fn the_smallest_and_a_large_block() {
    let tombstone =
        NewItem::new(key(b"k"), ItemFields { deleted: true, ..Default::default() }, &[]).publish();
    assert!(tombstone.is_deleted() && tombstone.value().is_empty());
    assert_eq!(tombstone.block_bytes(), 48, "the arena's smallest");
    let big = vec![0xab; 20 << 20];
    let item = NewItem::new(key(&[b'x'; 250]), ItemFields::default(), &[&big]).publish();
    assert_eq!(item.value(), &big[..]);
    assert_eq!(item.key().key.len(), 250);
}

#[test]
fn long_values_and_large_revisions_widen_a_block() {
    let lengths = [0, 1, NARROW_VALUE_BYTES_MAX, NARROW_VALUE_BYTES_MAX + 1, 100_000];
    let revisions = [0, 1, 0xffff, 0x1_0000, U48_MAX];
    for (value_bytes, rev) in lengths.into_iter().flat_map(|len| revisions.map(|rev| (len, rev))) {
        let is_wide = value_bytes > NARROW_VALUE_BYTES_MAX || rev > 0xffff;
        let value = vec![0xcd; value_bytes];
        for evicted in [false, true] {
            let fields = ItemFields { flags: 7, expiry: 99, evicted, ..Default::default() };
            let mut new = NewItem::new(key(b"k1"), fields, &[&value]);
            new.set_version(Cas(5), Seqno(6), RevSeqno(rev));
            let item = new.publish();
            assert_eq!((item.rev_seqno(), item.value_bytes()), (RevSeqno(rev), value_bytes));
            assert_eq!((item.cas(), item.seqno(), item.key()), (Cas(5), Seqno(6), key(b"k1")));
            assert_eq!((item.flags(), item.expiry(), item.is_evicted()), (7, 99, evicted));
            let present: &[u8] = if evicted { b"" } else { &value };
            assert_eq!(item.value(), present);
            let wide = if is_wide { WIDE_BYTES } else { 0 };
            let bytes = wide + HEADER_BYTES + 12 + 2 + present.len();
            assert_eq!((item.wide_bytes(), item.allocated_bytes()), (wide, bytes));
            let copy = NewItem::copy_of(&item, evicted).publish();
            assert_eq!((copy.rev_seqno(), copy.value()), (RevSeqno(rev), present));
        }
    }
}

#[test]
fn a_block_is_shared_across_threads() {
    let item = NewItem::new(key(b"shared"), ItemFields::default(), &[b"value"]).publish();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let item = item.clone();
            scope.spawn(move || {
                for _ in 0..10_000 {
                    let twin = item.clone();
                    assert_eq!(twin.value(), b"value");
                }
            });
        }
    });
    assert_eq!(item.value(), b"value");
}

#[test]
fn every_choice_of_optional_fields_reads_back() {
    for choice in 0..128_u32 {
        let given = |bit: u32, value: u32| if choice >> bit & 1 == 1 { value } else { 0 };
        let collection = CollectionId(given(0, 0x1234));
        let fields = ItemFields {
            flags: given(1, 0x0200_0006),
            expiry: given(2, 1_800_000_000),
            datatype: Datatype(given(3, 7) as u8),
            deleted: choice >> 4 & 1 == 1,
            evicted: choice >> 5 & 1 == 1,
            expired: choice >> 6 & 1 == 1,
            keeps_expiry: false,
        };
        let doc_key = DocKey { collection, key: b"some-key" };
        let item = NewItem::new(doc_key, fields, &[b"some value"]).publish();
        let value: &[u8] = if fields.evicted { b"" } else { b"some value" };
        assert_eq!((item.key(), item.value(), item.value_bytes()), (doc_key, value, 10));
        let is_expiration = fields.deleted && fields.expired;
        let flags = if is_expiration { 0 } else { fields.flags };
        assert_eq!((item.flags(), item.expiry()), (flags, fields.expiry));
        assert_eq!(item.is_expiration(), is_expiration);
        let copy = NewItem::copy_of(&item, fields.evicted);
        assert_eq!(copy.as_item().is_expiration(), is_expiration);
        assert_eq!((item.datatype(), item.is_deleted()), (fields.datatype, fields.deleted));
        assert_eq!(item.is_evicted(), fields.evicted);
        let optional = (choice & 7 | u32::from(is_expiration) << 1).count_ones() as usize * 4;
        assert_eq!(item.allocated_bytes(), HEADER_BYTES + optional + 8 + value.len());
        assert_eq!(item.block_bytes(), item.allocated_bytes().next_multiple_of(8).max(48));
    }
}

#[test]
fn an_expiry_can_be_set_later_where_room_was_made() {
    let fields = ItemFields { flags: 3, keeps_expiry: true, ..Default::default() };
    let mut new = NewItem::new(key(b"k"), fields, &[b"v"]);
    assert_eq!(new.as_item().expiry(), 0);
    new.set_expiry(77);
    let item = new.publish();
    assert_eq!(
        (item.expiry(), item.flags(), item.key(), item.value()),
        (77, 3, key(b"k"), &b"v"[..])
    );
}

fn fill<'a>(room: &'a mut [MaybeUninit<u8>], bytes: &[u8]) -> &'a mut [u8] {
    assert_eq!(room.len(), bytes.len());
    for (room, byte) in room.iter_mut().zip(bytes) {
        room.write(*byte);
    }
    // SAFETY: all of the room was just written.
    unsafe { std::slice::from_raw_parts_mut(room.as_mut_ptr().cast::<u8>(), room.len()) }
}

#[test]
fn a_value_is_received_straight_into_its_block() {
    let mut filling = FillingItem::new(key(b"k"), ItemFields::default(), 10);
    filling.append(b"0123");
    assert_eq!(filling.missing_bytes(), 6);
    filling.append(b"45");
    let failed = filling.fill_by(9, |_| Err("reset"));
    assert_eq!((failed, filling.missing_bytes()), (Err("reset"), 4));
    assert_eq!(filling.fill_by(9, |room| Ok::<_, ()>(fill(&mut room[..3], b"678"))), Ok(3));
    assert_eq!(filling.fill_by(9, |room| Ok::<_, ()>(fill(room, b"9"))), Ok(1));
    assert_eq!(filling.finish().publish().value(), b"0123456789");
    // One that is given up halfway is freed like any other.
    drop(FillingItem::new(key(b"k"), ItemFields::default(), 1 << 20));
}

#[test]
fn the_frequency_saturates_ages_and_is_inherited() {
    let item = NewItem::new(key(b"k"), ItemFields::default(), &[b"v"]).publish();
    assert_eq!((item.frequency(), item.references()), (0, 1));
    let readers: Vec<ItemRef> = (0..20).map(|_| item.clone_for_use()).collect();
    assert_eq!((item.frequency(), item.references()), (7, 21));
    let mut next = NewItem::new(key(b"k"), ItemFields::default(), &[b"w"]);
    next.inherit_frequency(&item);
    assert_eq!((next.as_item().frequency(), next.as_item().references()), (7, 1));
    drop(readers);
    (0..9).for_each(|_| item.age());
    assert_eq!((item.frequency(), item.references()), (0, 1));
    // To be written again is a use. A copy changes nothing.
    let mut next = NewItem::new(key(b"k"), ItemFields::default(), &[b"x"]);
    next.inherit_frequency(&item);
    assert_eq!((next.as_item().frequency(), next.as_item().references()), (1, 1));
    next.copy_frequency(&item);
    assert_eq!((next.as_item().frequency(), next.as_item().references()), (0, 1));
}

#[test]
fn an_evicted_copy_keeps_its_version_without_value() {
    let fields =
        ItemFields { flags: 7, expiry: 99, datatype: Datatype::JSON, ..Default::default() };
    let mut new = NewItem::new(key(b"k1"), fields, &[&[b'x'; 500]]);
    new.set_version(Cas(5), Seqno(6), RevSeqno(7));
    let item = new.publish();
    let evicted = NewItem::copy_of(&item, true).publish();
    assert!(evicted.is_evicted() && !item.is_evicted());
    assert_eq!((evicted.value(), evicted.value_bytes()), (&b""[..], 500));
    assert_eq!(evicted.document_bytes(), item.document_bytes());
    assert_eq!(evicted.block_bytes(), item.block_bytes_evicted());
    assert!(evicted.block_bytes() < item.block_bytes());
    for same in [evicted, NewItem::copy_of(&item, false).publish()] {
        assert_eq!((same.key(), same.flags(), same.expiry()), (key(b"k1"), 7, 99));
        assert_eq!((same.cas(), same.seqno(), same.rev_seqno()), (Cas(5), Seqno(6), RevSeqno(7)));
        assert_eq!((same.datatype(), same.is_deleted()), (Datatype::JSON, false));
    }
}
