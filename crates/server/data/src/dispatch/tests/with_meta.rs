//! Writes with metadata: extras, options, and a table of conflicts with their winners.

use oribi_engine::ConflictResolution;
use oribi_protocol::limits::VALUE_BYTES_MAX;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::RequestParts;
use oribi_protocol::status::Status;
use oribi_subdoc::limits::XATTR_BYTES_MAX;
use oribi_types::{CollectionId, DocKey};

use super::{Client, SET_EXTRAS, about};
use crate::harness::HARNESS_START_S;

const FORCE: u32 = 1;
const REGENERATE_CAS: u32 = 4;
const SKIP: u32 = 8;
const IS_EXPIRATION: u32 = 16;

/// Metadata of a version, smaller than this server would assign.
#[derive(Clone, Copy)]
struct Meta {
    flags: u32,
    expiry: u32,
    rev: u64,
    cas: u64,
}

const META: Meta = Meta { flags: 5, expiry: 0, rev: 10, cas: 1000 };

fn extras(meta: Meta, options: Option<u32>, metadata_bytes: Option<u16>) -> Vec<u8> {
    let mut extras = Vec::new();
    extras.extend(meta.flags.to_be_bytes());
    extras.extend(meta.expiry.to_be_bytes());
    extras.extend(meta.rev.to_be_bytes());
    extras.extend(meta.cas.to_be_bytes());
    extras.extend(options.into_iter().flat_map(u32::to_be_bytes));
    extras.extend(metadata_bytes.into_iter().flat_map(u16::to_be_bytes));
    extras
}

fn send(client: &mut Client, opcode: Opcode, value: &[u8], extras: &[u8]) -> super::HandlerReply {
    client.ask(&RequestParts { extras, value, ..about(opcode, b"k") })
}

fn set(client: &mut Client, meta: Meta) -> Status {
    send(client, Opcode::SetWithMeta, b"v", &extras(meta, None, None)).status
}

fn lww_client() -> Client {
    let client = Client::modern();
    client.harness.bucket().set_conflict_resolution(ConflictResolution::LastWriteWins);
    client
}

/// Deleted, flags, expiry, revision and CAS in the answer to GET_META.
fn meta(client: &mut Client) -> (u32, u32, u32, u64, u64) {
    let reply = client.ask(&RequestParts { extras: &[2], ..about(Opcode::GetMeta, b"k") });
    assert_eq!((reply.status, reply.extras.len()), (Status::Success, 21));
    let number = |at: usize| u32::from_be_bytes(reply.extras[at..at + 4].try_into().unwrap());
    let rev = u64::from_be_bytes(reply.extras[12..20].try_into().unwrap());
    (number(0), number(4), number(8), rev, reply.cas)
}

#[test]
fn the_next_version_continues_from_the_metadata() {
    let mut client = Client::modern();
    let given = Meta { expiry: HARNESS_START_S + 1000, ..META };
    let reply = send(&mut client, Opcode::SetWithMeta, b"{\"a\":1}", &extras(given, None, None));
    assert_eq!((reply.status, reply.cas, reply.extras.len()), (Status::Success, 1000, 16));
    assert_eq!(meta(&mut client), (0, 5, HARNESS_START_S + 1000, 10, 1000));
    let read = client.get(b"k");
    assert_eq!((&read.value[..], read.datatype, read.cas), (&b"{\"a\":1}"[..], 1, 1000));
    let next = client.set(b"k", b"own");
    assert!(next.cas > 1000);
    assert_eq!(meta(&mut client).3, 11);
    assert_eq!(set(&mut client, META), Status::KeyEexists, "an older revision");
}

// Compat (Writes with metadata): Extended metadata after the value is left out
#[test]
fn with_meta_extras_have_four_lengths() {
    for (at, (options, metadata_bytes)) in
        [(None, None), (None, Some(2)), (Some(0), None), (Some(0), Some(2))].into_iter().enumerate()
    {
        let mut client = Client::modern();
        let extras = extras(META, options, metadata_bytes);
        assert_eq!(extras.len(), 24 + 2 * at);
        assert_eq!(
            send(&mut client, Opcode::SetWithMeta, b"valueXY", &extras).status,
            Status::Success
        );
        let expected: &[u8] = if metadata_bytes.is_some() { b"value" } else { b"valueXY" };
        assert_eq!(client.get(b"k").value, expected);
    }
    let mut client = Client::modern();
    for bytes in [0, 8, 23, 25, 27, 29, 31] {
        let reply = send(&mut client, Opcode::SetWithMeta, b"v", &vec![1; bytes]);
        assert_eq!(reply.status, Status::Einval, "{bytes}");
    }
    let too_long = extras(META, None, Some(2));
    assert_eq!(send(&mut client, Opcode::SetWithMeta, b"v", &too_long).status, Status::Einval);
}

#[test]
fn scram_options_must_fit_mode_and_bucket() {
    // Options, and the answers to SET in a bucket that compares revisions and in one that compares
    // times.
    let (ok, bad) = (Status::Success, Status::Einval);
    let cases = [
        (0, ok, bad),
        (FORCE, bad, ok),
        (2, ok, bad),
        (FORCE | 2, bad, ok),
        (SKIP, ok, bad),
        (FORCE | SKIP, bad, ok),
        (REGENERATE_CAS, bad, bad),
        (REGENERATE_CAS | SKIP, ok, ok),
        (IS_EXPIRATION, bad, bad),
        (32, bad, bad),
    ];
    for (options, by_revision, by_time) in cases {
        for (mut client, expected) in [(Client::modern(), by_revision), (lww_client(), by_time)] {
            let extras = extras(META, Some(options), None);
            let reply = send(&mut client, Opcode::SetWithMeta, b"v", &extras);
            assert_eq!(reply.status, expected, "{options}");
        }
    }
    let mut client = Client::modern();
    let expiration = extras(META, Some(IS_EXPIRATION), None);
    assert_eq!(send(&mut client, Opcode::DelWithMeta, b"", &expiration).status, ok);
}

// Compat (Key-value): SET, ADD, DELETE with meta, quiet forms
#[test]
fn the_newer_version_wins() {
    // The request after META, and whether it wins by revision and by time.
    let cases = [
        (META, false, false),
        (Meta { rev: 11, ..META }, true, true),
        (Meta { rev: 9, ..META }, false, false),
        (Meta { cas: 1001, ..META }, true, true),
        (Meta { cas: 999, ..META }, false, false),
        (Meta { rev: 11, cas: 999, ..META }, true, false),
        (Meta { rev: 9, cas: 1001, ..META }, false, true),
        (Meta { flags: 6, ..META }, true, true),
        (Meta { flags: 4, ..META }, false, false),
        (Meta { expiry: u32::MAX, flags: 0, ..META }, true, true),
    ];
    for (later, by_revision, by_time) in cases {
        for (mut client, wins, options) in
            [(Client::modern(), by_revision, None), (lww_client(), by_time, Some(FORCE))]
        {
            let first = send(&mut client, Opcode::SetWithMeta, b"1", &extras(META, options, None));
            assert_eq!(first.status, Status::Success);
            let second =
                send(&mut client, Opcode::SetWithMeta, b"2", &extras(later, options, None));
            let expected = if wins { Status::Success } else { Status::KeyEexists };
            assert_eq!(second.status, expected, "{} {} {}", later.rev, later.cas, later.flags);
            assert_eq!(client.get(b"k").value, if wins { b"2" } else { b"1" });
        }
    }
}

#[test]
fn deletions_are_compared_even_if_evicted() {
    let mut client = Client::modern();
    let deleted = Meta { expiry: 77, ..META };
    let del = |meta| extras(meta, None, None);
    assert_eq!(send(&mut client, Opcode::DelWithMeta, b"", &del(deleted)).status, Status::Success);
    assert_eq!(meta(&mut client), (1, 5, 77, 10, 1000));
    assert_eq!(client.get(b"k").status, Status::KeyEnoent);
    for leaves_memory in [false, true] {
        if leaves_memory {
            client.harness.bucket().bucket().flush_step().unwrap();
        }
        assert_eq!(set(&mut client, Meta { rev: 9, ..META }), Status::KeyEexists);
        let lost = send(&mut client, Opcode::DelWithMeta, b"", &del(deleted));
        assert_eq!(lost.status, Status::KeyEexists);
        assert_eq!(meta(&mut client).3, 10, "{leaves_memory}");
    }
    assert_eq!(set(&mut client, Meta { rev: 11, ..META }), Status::Success);
    assert_eq!(client.get(b"k").value, b"v");
    let body = send(&mut client, Opcode::DelWithMeta, b"x", &del(Meta { rev: 12, ..META }));
    assert_eq!(body.status, Status::Einval, "a tombstone has no body");
}

#[test]
fn add_and_a_named_cas_look_at_what_is_there() {
    let mut client = Client::modern();
    let add = |rev| extras(Meta { rev, ..META }, None, None);
    assert_eq!(send(&mut client, Opcode::AddWithMeta, b"v", &add(10)).status, Status::Success);
    assert_eq!(send(&mut client, Opcode::AddWithMeta, b"v", &add(11)).status, Status::KeyEexists);
    let named = |cas| RequestParts { value: b"w", cas, ..about(Opcode::SetWithMeta, b"k") };
    let higher = add(11);
    let wrong = client.ask(&RequestParts { extras: &higher, ..named(999) });
    assert_eq!(wrong.status, Status::KeyEexists);
    let right = client.ask(&RequestParts { extras: &higher, ..named(1000) });
    assert_eq!(right.status, Status::Success);
    let locked = client.ask(&about(Opcode::GetLocked, b"k"));
    let higher = add(12);
    let blind = client.ask(&RequestParts { extras: &higher, ..named(0) });
    assert_eq!(blind.status, Status::Locked);
    let holder = client.ask(&RequestParts { extras: &higher, ..named(locked.cas) });
    assert_eq!(holder.status, Status::Success);
}

// Compat (Writes with metadata): A CAS ahead of the clock is kept
#[test]
fn a_cas_may_be_in_the_future_but_not_impossible() {
    let mut client = Client::modern();
    let before = client.set(b"k", b"v").cas;
    let fresh = extras(Meta { cas: 0, ..META }, Some(REGENERATE_CAS | SKIP), None);
    let reply = send(&mut client, Opcode::SetWithMeta, b"w", &fresh);
    assert_eq!(reply.status, Status::Success);
    assert!(reply.cas > before);
    for (cas, status) in [
        (0, Status::KeyEexists),
        (u64::MAX, Status::KeyEexists),
        (1 << 63, Status::CasValueInvalid),
    ] {
        assert_eq!(set(&mut client, Meta { rev: 100, cas, ..META }), status);
    }
    assert_eq!(set(&mut client, Meta { rev: 0, ..META }), Status::Einval);
    assert_eq!(set(&mut client, Meta { rev: 1 << 48, ..META }), Status::Einval);
    let future = (1 << 63) - 1;
    assert_eq!(set(&mut client, Meta { rev: 100, cas: future, ..META }), Status::Success);
    let next = client.set(b"k", b"x").cas;
    assert_eq!(next, future + 1, "the clock goes on from there");
}

#[test]
fn attributes_come_along_and_have_to_be_well_formed() {
    let mut client = Client::modern();
    let mut value = vec![0, 0, 0, 12, 0, 0, 0, 8];
    value.extend(b"_s\0null\0");
    value[3] = (value.len() - 4) as u8;
    value[7] = (value.len() - 8) as u8;
    value.extend(b"{\"a\":1}");
    let extras = extras(META, None, None);
    let request = RequestParts {
        extras: &extras,
        value: &value,
        datatype: 4,
        ..about(Opcode::SetWithMeta, b"k")
    };
    assert_eq!(client.ask(&request).status, Status::Success);
    assert_eq!(client.get(b"k").value, b"{\"a\":1}");
    let path = RequestParts { extras: &[0, 2, 4], value: b"_s", ..about(Opcode::SubdocGet, b"k") };
    assert_eq!(client.ask(&path).value, b"null");
    let broken = RequestParts { value: &value[..10], key: b"other", ..request };
    assert_eq!(client.ask(&broken).status, Status::XattrEinval);
    // A plain SET keeps them; a SET with metadata brings its own.
    client.ask(&RequestParts { extras: &SET_EXTRAS, value: b"v", ..about(Opcode::Set, b"k") });
    assert_eq!(client.ask(&path).value, b"null");
    assert_eq!(set(&mut client, Meta { rev: 100, ..META }), Status::Success);
    assert_eq!(client.ask(&path).status, Status::SubdocPathEnoent);
}

/// A block of attributes in the form that precedes a body.
fn block(pairs: &[(&str, &[u8])]) -> Vec<u8> {
    let mut block = vec![0; 4];
    for (key, value) in pairs {
        block.extend((key.len() as u32 + value.len() as u32 + 2).to_be_bytes());
        block.extend([key.as_bytes(), b"\0", value, b"\0"].concat());
    }
    let bytes = (block.len() as u32 - 4).to_be_bytes();
    block[..4].copy_from_slice(&bytes);
    block
}

fn send_typed(client: &mut Client, datatype: u8, value: &[u8]) -> Status {
    let extras = extras(META, Some(SKIP), None);
    let parts = about(Opcode::SetWithMeta, b"k");
    client.ask(&RequestParts { extras: &extras, value, datatype, ..parts }).status
}

const SNAPPY: u8 = 2;
const XATTR: u8 = 4;

// Compat (Writes with metadata): Attributes must be JSON under keys of at most 16 bytes
#[test]
fn attributes_are_what_a_document_may_have() {
    // Regression: the server checked only the lengths.
    let mut client = Client::modern();
    for (pairs, status) in [
        (&[("x", &b"1"[..]), ("_y", b"{}")][..], Status::Success),
        (&[("x", b"nope")], Status::XattrEinval),
        (&[("x", b"1"), ("x", b"2")], Status::XattrEinval),
        (&[("a_key_of_17_bytes", b"1")], Status::XattrEinval),
        (&[("$document", b"1")], Status::XattrEinval),
    ] {
        let value = [&block(pairs)[..], b"body"].concat();
        assert_eq!(send_typed(&mut client, XATTR, &value), status, "{pairs:?}");
    }
    assert_eq!(send_typed(&mut client, XATTR, b"\0\0\0\0{}"), Status::Success);
    let read = client.ask(&RequestParts { extras: &[2], ..about(Opcode::GetMeta, b"k") });
    assert_eq!(read.extras[20], 1, "an empty block is none");
    assert_eq!(client.get(b"k").value, b"{}");
}

#[test]
fn rejections_name_the_reason() {
    let mut client = Client::modern();
    let bad = block(&[("x", b"nope")]);
    let low = Meta { rev: 0, ..META };
    for (opcode, meta, datatype, value, why) in [
        (Opcode::SetWithMeta, META, XATTR, &bad[..], "attributes are JSON"),
        (Opcode::SetWithMeta, META, SNAPPY, b"x", "cannot be inflated"),
        (Opcode::SetWithMeta, low, 0, b"x", "revisions are"),
        (Opcode::SetWithMeta, Meta { cas: 0, ..META }, 0, b"x", "such a CAS"),
        (Opcode::DelWithMeta, META, 0, b"x", "no body"),
    ] {
        let extras = extras(meta, None, None);
        let parts = RequestParts { extras: &extras, value, datatype, ..about(opcode, b"k") };
        let reply = client.ask(&parts);
        let body: serde_json::Value = serde_json::from_slice(&reply.value).unwrap();
        let context = body["error"]["context"].as_str().unwrap();
        assert!(reply.status != Status::Success && context.contains(why), "{context}");
    }
}

// Compat (Writes with metadata): Attributes must be JSON under keys of at most 16 bytes
#[test]
fn attributes_and_body_have_a_limit_each() {
    // Regression: attributes and body shared one limit. Attributes could have 20 MiB, and a body of
    // 20 MiB could have no attributes.
    let mut client = Client::modern();
    let body = vec![b'x'; VALUE_BYTES_MAX];
    // A block has 4 bytes more than a pair. A pair has 7 bytes more than a key of one byte and its
    // value.
    let string = |bytes: usize| format!("\"{}\"", "y".repeat(bytes - 2)).into_bytes();
    let largest = block(&[("x", &string(XATTR_BYTES_MAX - 11))]);
    let too_large = block(&[("x", &string(XATTR_BYTES_MAX - 10))]);
    assert_eq!(largest.len(), XATTR_BYTES_MAX);
    let compressed = |value: &[u8]| snap::raw::Encoder::new().compress_vec(value).unwrap();
    for (attributes, body, status) in [
        (&largest, &body[..], Status::Success),
        (&too_large, b"", Status::E2big),
        (&block(&[]), &[&body[..], b"x"].concat(), Status::E2big),
    ] {
        let value = [&attributes[..], body].concat();
        assert_eq!(send_typed(&mut client, XATTR, &value), status);
        assert_eq!(send_typed(&mut client, XATTR | SNAPPY, &compressed(&value)), status);
    }
    assert!(client.get(b"k").value == body);
    // Regression: a value too long after inflation was "invalid".
    let over = vec![b'x'; VALUE_BYTES_MAX + XATTR_BYTES_MAX + 1];
    assert_eq!(send_typed(&mut client, SNAPPY, &compressed(&over)), Status::E2big);
    assert_eq!(send_typed(&mut client, SNAPPY, b"no stream"), Status::Einval);
}

#[test]
fn system_xattrs_need_the_right_to_write_them() {
    let owner = Client::modern();
    for (role, status) in [
        ("meta:default", Status::Eaccess),
        ("meta+system-xattr-write:default", Status::Success),
        ("meta+system-xattr-write:default/_default/_default", Status::Success),
    ] {
        let mut client = owner.beside(&[role]);
        assert_eq!(send_typed(&mut client, XATTR, &block(&[("_sys", b"1")])), status, "{role}");
        assert_eq!(send_typed(&mut client, XATTR, &block(&[("user", b"1")])), Status::Success);
    }
}

#[test]
fn quiet_forms_speak_only_of_failure() {
    let mut client = Client::modern();
    let send = |client: &mut Client, opcode, rev, value: &'static [u8]| {
        let extras = extras(Meta { rev, ..META }, None, None);
        let answers = client.send(&RequestParts { extras: &extras, value, ..about(opcode, b"k") });
        answers.first().map(|reply| reply.status)
    };
    assert_eq!(send(&mut client, Opcode::SetqWithMeta, 10, b"v"), None);
    assert_eq!(send(&mut client, Opcode::SetqWithMeta, 10, b"v"), Some(Status::KeyEexists));
    assert_eq!(send(&mut client, Opcode::AddqWithMeta, 11, b"v"), Some(Status::KeyEexists));
    assert_eq!(send(&mut client, Opcode::DelqWithMeta, 11, b""), None);
    let key = DocKey { collection: CollectionId::DEFAULT, key: b"k" };
    let vbid = about(Opcode::Get, b"k").vbid;
    client.harness.bucket().bucket().flush_step().unwrap();
    let stored = client.harness.bucket().bucket().key_on_disk(vbid, key).unwrap().unwrap();
    assert_eq!((stored.is_deleted, stored.rev_seqno.0, stored.cas.0), (true, 11, 1000));
}
