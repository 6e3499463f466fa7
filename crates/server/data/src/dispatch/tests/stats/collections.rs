//! Groups that sum over vbuckets: `collections`, `scopes` and their forms for one of them.

use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::RequestParts;
use oribi_protocol::status::Status;
use oribi_types::Vbid;

use super::{Client, assert_names, create, entries, group, with_collections};
use crate::dispatch::tests::SET_EXTRAS;

const SUMS: [&str; 6] =
    ["collections_mem_used", "items", "data_size", "ops_store", "ops_delete", "ops_get"];

fn write(client: &mut Client, opcode: Opcode, id: u32, key: &[u8], vbid: u16, value: &[u8]) {
    assert!(id < 128, "one byte of prefix");
    let key = [&[id as u8][..], key].concat();
    let extras: &[u8] = if opcode == Opcode::Set { &SET_EXTRAS } else { &[] };
    let request =
        RequestParts { key: &key, vbid: Vbid(vbid), value, extras, ..RequestParts::new(opcode) };
    assert_eq!(client.ask(&request).status, Status::Success);
}

// Compat (Statistics): `collections [scope.coll]`, `collections-byid`, `scopes [name]`,
// `scopes-byid`
#[test]
fn collections_stat_has_ten_entries_and_the_manifest() {
    let mut client = with_collections();
    let hotels = create(&client, "travel", "hotels", None).0;
    let cars = create(&client, "travel", "cars", Some(60)).0;
    for vbid in 0..4 {
        write(&mut client, Opcode::Set, hotels, b"abc", vbid, b"12345");
    }
    write(&mut client, Opcode::Delete, hotels, b"abc", 2, b"");
    write(&mut client, Opcode::Get, hotels, b"abc", 1, b"");
    let all = entries(&mut client, "collections");
    assert_eq!(all.len(), 1 + 10 * 3 + 1, "the time to live of one collection is set");
    assert_eq!(all[0], ("manifest_uid".to_owned(), "3".to_owned()));
    let one = group(&mut client, "collections travel.hotels");
    let prefix = format!("0x8:{hotels:#x}:");
    assert_names(&one, &prefix, &[&SUMS[..], &["name", "scope_name"]].concat());
    for (name, value) in [
        ("items", "3"),
        ("data_size", "24"),
        ("ops_store", "4"),
        ("ops_delete", "1"),
        ("ops_get", "1"),
        ("name", "hotels"),
        ("scope_name", "travel"),
    ] {
        assert_eq!(one[&format!("{prefix}{name}")], value, "{name}");
        let expected = (format!("{prefix}{name}"), value.to_owned());
        assert!(all.contains(&expected), "{name} is in the list of all");
    }
    assert_eq!(group(&mut client, &format!("collections-byid {hotels:#x}")), one);
    let cars_entries = group(&mut client, &format!("collections-byid {cars:x}"));
    assert_eq!(cars_entries[&format!("0x8:{cars:#x}:maxTTL")], "60");
    assert_eq!(cars_entries[&format!("0x8:{cars:#x}:items")], "0");
}

#[test]
fn scopes_sum_their_collections() {
    let mut client = with_collections();
    let hotels = create(&client, "travel", "hotels", None).0;
    let cars = create(&client, "travel", "cars", None).0;
    write(&mut client, Opcode::Set, hotels, b"a", 0, b"1");
    write(&mut client, Opcode::Set, cars, b"b", 1, b"2");
    write(&mut client, Opcode::Set, 0, b"c", 1, b"3");
    let all = entries(&mut client, "scopes");
    // For each scope 2 entries and one per collection, then 8.
    assert_eq!(all.len(), 1 + (2 + 1) + (2 + 2) + 2 * 8);
    let one = group(&mut client, "scopes travel");
    assert_names(&one, "0x8:", &[&SUMS[..], &["name", "collections"]].concat());
    assert_eq!((one["0x8:items"].as_str(), one["0x8:collections"].as_str()), ("2", "2"));
    assert_eq!(one["0x8:ops_store"], "2");
    assert_eq!(group(&mut client, "scopes-byid 0x8"), one);
    assert_eq!(group(&mut client, "scopes _default")["0x0:items"], "1");
}

#[test]
fn dropped_collection_leaves_the_groups() {
    let mut client = with_collections();
    let hotels = create(&client, "travel", "hotels", None).0;
    write(&mut client, Opcode::Set, hotels, b"a", 0, b"1");
    let bucket = client.harness.bucket().bucket();
    let (scope, name) = ("travel".to_owned(), "hotels".to_owned());
    bucket
        .update_manifest(&oribi_engine::collections::ManifestChange::DropCollection { scope, name })
        .unwrap();
    assert_eq!(entries(&mut client, "collections").len(), 1 + 10);
    assert_eq!(group(&mut client, "scopes travel")["0x8:items"], "0");
    let details = group(&mut client, "collections-details 0");
    assert!(details.keys().all(|name| !name.contains(&format!("{hotels:#x}"))));
}
