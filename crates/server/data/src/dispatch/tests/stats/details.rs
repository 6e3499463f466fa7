//! Groups about each vbucket.

use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::RequestParts;
use oribi_types::Vbid;

use super::{assert_names, create, entries, group, with_collections};
use crate::dispatch::tests::{Client, SET_EXTRAS, about};

#[test]
fn vbucket_is_its_state() {
    let mut client = Client::modern();
    let states = group(&mut client, "vbucket");
    assert_names(&states, "vb_", &["0", "1", "2", "3"]);
    assert!(states.values().all(|state| state == "active"));
}

// Compat (Statistics): `vbucket`, `vbucket-details [vb]`, `vbucket-seqno [vb]`, `failovers [vb]`
#[test]
fn vbucket_seqno_has_ten_entries() {
    let mut client = Client::modern();
    let vbid = about(Opcode::Set, b"k").vbid.0;
    client.set(b"k", b"v");
    let names = [
        "high_seqno",
        "abs_high_seqno",
        "last_persisted_seqno",
        "uuid",
        "purge_seqno",
        "last_persisted_snap_start",
        "last_persisted_snap_end",
        "high_prepared_seqno",
        "high_completed_seqno",
        "max_visible_seqno",
    ];
    let one = group(&mut client, &format!("vbucket-seqno {vbid}"));
    assert_names(&one, &format!("vb_{vbid}:"), &names);
    assert_eq!(one[&format!("vb_{vbid}:high_seqno")], "1");
    assert_eq!(one[&format!("vb_{vbid}:last_persisted_seqno")], "0");
    client.harness.bucket().bucket().flush_step().unwrap();
    let flushed = group(&mut client, &format!("vbucket-seqno {vbid}"));
    assert_eq!(flushed[&format!("vb_{vbid}:last_persisted_seqno")], "1");
    assert_eq!(group(&mut client, "vbucket-seqno").len(), 40);
}

// Compat (Statistics): `vbucket`, `vbucket-details [vb]`, `vbucket-seqno [vb]`, `failovers [vb]`
#[test]
fn vbucket_details_count() {
    let mut client = Client::modern();
    let vbid = about(Opcode::Set, b"k").vbid.0;
    client.set(b"k", b"v");
    client.set(b"k", b"w");
    client.ask(&about(Opcode::Delete, b"k"));
    client.harness.advance_ms(1500);
    let one = group(&mut client, &format!("vbucket-details {vbid}"));
    assert_eq!(one[&format!("vb_{vbid}")], "active");
    for (name, value) in [
        ("num_items", "0"),
        ("ht_num_deleted_items", "1"),
        ("ops_create", "1"),
        ("ops_update", "1"),
        ("ops_delete", "1"),
        ("high_seqno", "3"),
        ("queue_size", "1"),
        ("queue_fill", "3"),
        ("max_deleted_revid", "3"),
    ] {
        assert_eq!(one[&format!("vb_{vbid}:{name}")], value, "{name}");
    }
    let age_ms: u64 = one[&format!("vb_{vbid}:queue_oldest_age_ms")].parse().unwrap();
    assert!((1499..=1500).contains(&age_ms), "{age_ms}");
    assert_eq!(group(&mut client, "vbucket-details").len(), 4 * one.len());
}

#[test]
fn failovers_list_histories_newest_first() {
    let mut client = Client::modern();
    let one = group(&mut client, "failovers 0");
    let names = ["num_entries", "num_erroneous_entries_erased", "0:id", "0:seq"];
    assert_names(&one, "vb_0:", &names);
    assert_eq!(one["vb_0:num_entries"], "1");
    assert_eq!(one["vb_0:0:id"], group(&mut client, "vbucket-seqno 0")["vb_0:uuid"]);
}

// Compat (Statistics): `hash [detail]`
#[test]
fn hash_tells_table_and_sample() {
    let mut client = Client::modern();
    for index in 0..100 {
        client.set(format!("key{index}").as_bytes(), b"v");
    }
    let all = group(&mut client, "hash");
    let sum = |name: &str| -> u64 {
        (0..4).map(|vbid| all[&format!("vb_{vbid}:{name}")].parse::<u64>().unwrap()).sum()
    };
    assert_eq!((sum("reported"), sum("counted"), sum("locks")), (100, 100, 4));
    assert!(sum("size") >= 100 && sum("mem_size") > 100);
    let sampled: u64 = all
        .iter()
        .filter(|(name, _)| name.contains(":histo_"))
        .map(|(_, count)| count.parse::<u64>().unwrap())
        .sum();
    assert_eq!(sampled, 100);
    assert_eq!(group(&mut client, "hash detail").len(), all.len());
}

// Compat (Statistics): `checkpoint [vb]`
#[test]
fn checkpoint_tells_queue_cursors_and_checkpoints() {
    let mut client = Client::modern();
    let vbid = about(Opcode::Set, b"k").vbid.0;
    client.set(b"k", b"v");
    let one = group(&mut client, &format!("checkpoint {vbid}"));
    let prefix = format!("vb_{vbid}:");
    for (name, value) in [
        ("num_checkpoint_items", "1"),
        ("num_open_checkpoint_items", "1"),
        ("num_checkpoints", "1"),
        ("num_conn_cursors", "1"),
        ("persistence:num_items_for_cursor", "1"),
        ("persistence:cursor_seqno", "0"),
    ] {
        assert_eq!(one[&format!("{prefix}{name}")], value, "{name}");
    }
    let id = &one[&format!("{prefix}open_checkpoint_id")];
    assert_eq!(one[&format!("{prefix}id_{id}:state")], "CHECKPOINT_OPEN");
    assert_eq!(one[&format!("{prefix}id_{id}:num_items")], "1");
    assert_eq!(one[&format!("{prefix}id_{id}:snap_end")], "1");
    client.harness.bucket().bucket().flush_step().unwrap();
    let flushed = group(&mut client, &format!("checkpoint {vbid}"));
    assert_eq!(flushed[&format!("{prefix}persistence:num_items_for_cursor")], "0");
}

// Compat (Statistics): `collections-details [vb]`, `scopes-details [vb]`
#[test]
fn collections_details_has_four_plus_nine_entries() {
    let mut client = with_collections();
    let hotels = create(&client, "travel", "hotels", None).0;
    let key = [&[hotels as u8][..], b"abc"].concat();
    let write = RequestParts {
        key: &key,
        vbid: Vbid(2),
        value: b"12345",
        extras: &SET_EXTRAS,
        ..RequestParts::new(Opcode::Set)
    };
    client.ask(&write);
    let one = group(&mut client, "collections-details 2");
    assert_eq!(one.len(), 4 + 9 * 2);
    for (name, value) in [
        ("collections", "2"),
        ("manifest:uid", "2"),
        ("default_mvs", "0"),
        ("default_legacy_max_dcp_seqno", "0"),
        ("0x0:name", "_default"),
        ("0x0:scope", "0x0"),
        ("0x0:items", "0"),
        ("0x8:name", "hotels"),
        ("0x8:scope", "0x8"),
        ("0x8:start_seqno", "0"),
        ("0x8:high_seqno", "3"),
        ("0x8:persisted_high_seqno", "0"),
        ("0x8:items", "1"),
        ("0x8:disk_size", "8"),
        ("0x8:history", "false"),
        ("0x8:flush_uid", "0"),
    ] {
        assert_eq!(one[&format!("vb_2:{name}")], value, "{name}");
    }
    // All vbuckets, and before them the manifest's uid and two entries per collection.
    assert_eq!(group(&mut client, "collections-details").len(), 1 + 2 * 2 + 4 * one.len());
}

#[test]
fn scopes_details_lists_scopes_and_collections() {
    let mut client = with_collections();
    create(&client, "travel", "hotels", None);
    create(&client, "travel", "cars", None);
    let one = group(&mut client, "scopes-details 1");
    let names = [
        "scopes",
        "manifest:uid",
        "0x0:name:",
        "0x8:name:",
        "0x0:0x0:items",
        "0x8:0x8:items",
        "0x8:0x9:items",
    ];
    assert_names(&one, "vb_1:", &names);
    assert_eq!(one["vb_1:0x8:name:"], "travel");
    assert_eq!(entries(&mut client, "scopes-details").len(), 4 * one.len());
}
