//! Writes of every kind in a bucket whose minimum durability raises them.

use oribi_protocol::frame_info::encode_durability;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::RequestParts;
use oribi_protocol::status::Status;
use oribi_types::DurabilityLevel;

use super::text::{expect, say};
use super::{Client, MODERN, SET_EXTRAS, about, counter_extras, replies};
use crate::buckets::DurabilityMin;
use crate::harness::ConnectionHarness;

const TIMEOUT_MS: u64 = crate::limits::DURABILITY_TIMEOUT_DEFAULT_MS + 100;
const AMBIGUOUS: &str = "SERVER_ERROR the write was not as durable as asked for before the timeout";
/// Extras of SET_WITH_META: expiry 0, a revision and a CAS.
const META_EXTRAS: [u8; 24] =
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 1, 0, 0];

/// Stores the documents that the table writes to, then raises the bucket and stops the flusher.
fn raise(harness: &mut ConnectionHarness) {
    let mut other = Client { harness: harness.beside() };
    for (key, value) in [(&b"k"[..], &b"5"[..]), (b"j", br#"{"a":1}"#)] {
        assert_eq!(other.set(key, value).status, Status::Success);
    }
    harness.bucket().bucket().flush_step().expect("the store is sound");
    harness.bucket().set_durability_min(DurabilityMin::PersistToMajority);
    harness.set_flushes(false);
}

/// What another client reads.
fn read(harness: &ConnectionHarness, key: &[u8]) -> Option<String> {
    let reply = Client { harness: harness.beside() }.get(key);
    let is_found = reply.status == Status::Success;
    is_found.then(|| String::from_utf8(reply.value).expect("these documents are text"))
}

fn metadata(harness: &ConnectionHarness, key: &[u8]) -> u64 {
    Client { harness: harness.beside() }.get(key).cas
}

/// Opcode, key, extras and value.
type BinaryWrite = (Opcode, &'static [u8], Vec<u8>, &'static [u8]);

/// Every binary write of a document.
fn writes() -> Vec<BinaryWrite> {
    use Opcode::*;
    let (set, count, touch) =
        (SET_EXTRAS.to_vec(), counter_extras(1, 0, 0).to_vec(), vec![0, 0, 0, 9]);
    let path = vec![0, 1, 0];
    let several = b"\xc8\0\0\x01\0\0\0\x01a2";
    vec![
        (Set, b"k", set.clone(), b"6"),
        (Setq, b"k", set.clone(), b"6"),
        (Add, b"new", set.clone(), b"6"),
        (Addq, b"new", set.clone(), b"6"),
        (Replace, b"k", set.clone(), b"6"),
        (Replaceq, b"k", set, b"6"),
        (Append, b"k", vec![], b"6"),
        (Appendq, b"k", vec![], b"6"),
        (Prepend, b"k", vec![], b"6"),
        (Prependq, b"k", vec![], b"6"),
        (Delete, b"k", vec![], b""),
        (Deleteq, b"k", vec![], b""),
        (Increment, b"k", count.clone(), b""),
        (Incrementq, b"k", count.clone(), b""),
        (Decrement, b"k", count.clone(), b""),
        (Decrementq, b"k", count, b""),
        (Touch, b"k", touch.clone(), b""),
        (Gat, b"k", touch.clone(), b""),
        (Gatq, b"k", touch, b""),
        (SubdocDictUpsert, b"j", path.clone(), b"a2"),
        (SubdocCounter, b"j", path, b"a2"),
        (SubdocMultiMutation, b"j", vec![], several),
    ]
}

// Compat (Buckets over HTTP): `durabilityMinLevel`
#[test]
fn binary_writes_wait_in_a_bucket_that_raises_them() {
    for features in [&MODERN[..], &[4, 7, 0x0b]] {
        for (opcode, key, extras, value) in writes() {
            let mut client = Client::with_features(features);
            raise(&mut client.harness);
            let before = (read(&client.harness, key), metadata(&client.harness, key));
            let request = RequestParts { extras: &extras, value, ..about(opcode, key) };
            let name = opcode.name();
            assert!(client.send(&request).is_empty(), "{name} is answered before it is stored");
            let seen = (read(&client.harness, key), metadata(&client.harness, key));
            assert_eq!(seen, before, "{name} is visible before it is stored");
            let noop = RequestParts::new(Opcode::Noop);
            assert!(client.send(&noop).is_empty(), "{name} stays in order");
            client.harness.set_flushes(true);
            let answers = replies(&client.harness.feed(&[]));
            let opcodes: Vec<u8> = answers.iter().map(|answer| answer.opcode).collect();
            let is_silent = opcode.is_quiet() && opcode != Opcode::Gatq;
            let expected = if is_silent { vec![] } else { vec![opcode as u8] };
            assert_eq!(opcodes, [expected, vec![Opcode::Noop as u8]].concat(), "{name}");
            assert!(answers.iter().all(|answer| answer.status == Status::Success), "{name}");
            let after = (read(&client.harness, key), metadata(&client.harness, key));
            assert_ne!(after, before, "{name} took effect");
        }
    }
}

#[test]
fn a_late_quiet_write_is_reported() {
    let mut client = Client::modern();
    raise(&mut client.harness);
    let quiet = RequestParts { extras: &SET_EXTRAS, value: b"6", ..about(Opcode::Setq, b"k") };
    assert!(client.send(&quiet).is_empty());
    // Later requests do not overtake a quiet write, so a client sees its failure in order.
    assert!(client.send(&about(Opcode::Get, b"k")).is_empty());
    let answers = replies(&client.harness.advance_ms(TIMEOUT_MS));
    assert_eq!((answers[0].opcode, answers[0].status), (0x11, Status::SyncWriteAmbiguous));
    assert_eq!((answers[1].opcode, &answers[1].value[..]), (0, &b"5"[..]));
}

#[test]
fn a_lower_level_is_raised_and_a_higher_one_is_kept() {
    let mut framing = Vec::new();
    encode_durability(DurabilityLevel::Majority, None, &mut framing);
    let mut client = Client::modern();
    raise(&mut client.harness);
    let set = RequestParts { framing: &framing, extras: &SET_EXTRAS, ..about(Opcode::Set, b"k") };
    assert!(client.send(&set).is_empty(), "majority is memory on one node");
    client.harness.set_flushes(true);
    assert_eq!(replies(&client.harness.feed(&[]))[0].status, Status::Success);
    client.harness.set_flushes(false);
    client.harness.bucket().set_durability_min(DurabilityMin::Majority);
    assert_eq!(client.ask(&set).status, Status::Success, "so is the minimum");
    framing.clear();
    encode_durability(DurabilityLevel::PersistToMajority, None, &mut framing);
    let set = RequestParts { framing: &framing, extras: &SET_EXTRAS, ..about(Opcode::Set, b"k") };
    assert!(client.send(&set).is_empty(), "a minimum lowers nothing");
}

#[test]
fn versions_with_metadata_are_not_raised() {
    let mut client = Client::modern();
    raise(&mut client.harness);
    let meta = about(Opcode::SetWithMeta, b"k");
    let meta = RequestParts { extras: &META_EXTRAS, value: b"6", ..meta };
    assert_eq!(client.ask(&meta).status, Status::Success);
    assert_eq!(read(&client.harness, b"k").as_deref(), Some("6"));
    let mut extras = META_EXTRAS;
    extras[15] += 1;
    let quiet = RequestParts { opcode: Opcode::SetqWithMeta, extras: &extras, ..meta };
    assert!(client.send(&quiet).is_empty());
    assert_eq!(client.ask(&RequestParts::new(Opcode::Noop)).status, Status::Success);
}

#[test]
fn memcached_gatk_repeats_its_key_after_a_wait() {
    let mut client = Client::legacy();
    raise(&mut client.harness);
    let gatk = RequestParts { extras: &[0, 0, 0, 9], ..about(Opcode::IoctlGet, b"k") };
    assert!(client.send(&gatk).is_empty());
    client.harness.set_flushes(true);
    let answer = replies(&client.harness.feed(&[])).remove(0);
    assert_eq!((&answer.key[..], &answer.value[..]), (&b"k"[..], &b"5"[..]));
}

/// Commands of the text protocol that write, their answers, and `j` or `k` or `new` afterwards.
const TEXT: [(&str, &str, &str, Option<&str>); 21] = [
    ("set k 0 0 1\r\n6\r\n", "STORED\r\n", "k", Some("6")),
    ("set k 0 0 1 noreply\r\n6\r\n", "", "k", Some("6")),
    ("add new 0 0 1\r\n6\r\n", "STORED\r\n", "new", Some("6")),
    ("replace k 0 0 1\r\n6\r\n", "STORED\r\n", "k", Some("6")),
    ("append k 0 0 1\r\n6\r\n", "STORED\r\n", "k", Some("56")),
    ("prepend k 0 0 1 noreply\r\n6\r\n", "", "k", Some("65")),
    ("incr k 2\r\n", "7\r\n", "k", Some("7")),
    ("decr k 2 noreply\r\n", "", "k", Some("3")),
    ("touch k 100\r\n", "TOUCHED\r\n", "k", Some("5")),
    ("gat 100 k\r\n", "VALUE k 7 1\r\n5\r\nEND\r\n", "k", Some("5")),
    ("delete k\r\n", "DELETED\r\n", "k", None),
    ("delete k noreply\r\n", "", "k", None),
    ("ms k 1 s\r\n6\r\n", "HD s1\r\n", "k", Some("6")),
    ("ms k 1 q\r\n6\r\n", "", "k", Some("6")),
    ("ms k 1 MA s\r\n6\r\n", "HD s2\r\n", "k", Some("56")),
    ("ms new 1 MA N0\r\n6\r\n", "HD\r\n", "new", Some("6")),
    ("ms k 1 E1000\r\n6\r\n", "HD\r\n", "k", Some("6")),
    ("ma k v T30 t\r\n", "VA 1 t30\r\n6\r\n", "k", Some("6")),
    ("mg k v T30\r\n", "VA 1\r\n5\r\n", "k", Some("5")),
    ("mg new v N30 t\r\n", "VA 0 t30 W\r\n\r\n", "new", Some("")),
    ("md k I\r\n", "HD\r\n", "k", Some("5")),
];

// Compat (memcached's text protocol): Durability
#[test]
fn text_writes_wait_in_a_bucket_that_raises_them() {
    for (command, answer, key, after) in TEXT {
        let mut client = ConnectionHarness::new();
        raise(&mut client);
        let before = (read(&client, key.as_bytes()), metadata(&client, key.as_bytes()));
        expect(&mut client, command, "");
        let seen = (read(&client, key.as_bytes()), metadata(&client, key.as_bytes()));
        assert_eq!(seen, before, "{command} is visible before it is stored");
        expect(&mut client, "mn\r\n", "");
        client.set_flushes(true);
        expect(&mut client, "", &format!("{answer}MN\r\n"));
        assert_eq!(read(&client, key.as_bytes()).as_deref(), after, "{command}");
        assert_ne!(metadata(&client, key.as_bytes()), before.1, "{command} took effect");
    }
}

// Compat (memcached's text protocol): Durability
#[test]
fn a_late_text_write_fails() {
    for (command, answer) in [
        ("set k 0 0 1\r\n6\r\n", format!("{AMBIGUOUS}\r\n")),
        ("set k 0 0 1 noreply\r\n6\r\n", String::new()),
        ("ms k 1 q\r\n6\r\n", format!("{AMBIGUOUS}\r\n")),
        // The keys after a failed one are not answered.
        ("gat 100 k j k\r\n", format!("{AMBIGUOUS}\r\n")),
    ] {
        let mut client = ConnectionHarness::new();
        raise(&mut client);
        expect(&mut client, command, "");
        let output = String::from_utf8(client.advance_ms(TIMEOUT_MS)).expect("text");
        assert_eq!(output, answer, "{command}");
        expect(&mut client, "mn\r\n", "MN\r\n");
    }
}

#[test]
fn text_reads_do_not_wait() {
    let mut client = ConnectionHarness::new();
    raise(&mut client);
    expect(&mut client, "get k x\r\nmg k v\r\n", "VALUE k 7 1\r\n5\r\nEND\r\nVA 1\r\n5\r\n");
    let large = "x".repeat(100_000);
    client.set_flushes(true);
    assert_eq!(
        say(&mut client, &format!("set k 0 0 {}\r\n{large}\r\n", large.len())),
        "STORED\r\n"
    );
    let answer = format!("VALUE k 0 {}\r\n{large}\r\nEND\r\n", large.len());
    assert_eq!(say(&mut client, "gat 100 k\r\n"), answer);
}

// Compat (Differences): Durability with replicas
#[test]
fn a_raised_write_without_its_copies_is_impossible() {
    let mut client = Client::modern();
    raise(&mut client.harness);
    client.harness.bucket().set_commits_by_copies(true);
    client.harness.bucket().set_durability_min(DurabilityMin::Majority);
    assert_eq!(client.set(b"k", b"6").status, Status::DurabilityImpossible);
    assert_eq!(client.get(b"k").value, b"5");
    let mut text = client.harness.beside();
    let answer = say(&mut text, "ms k 1\r\n6\r\nmg k T9\r\n");
    assert_eq!(answer.matches("SERVER_ERROR fewer copies").count(), 2, "{answer}");
}
