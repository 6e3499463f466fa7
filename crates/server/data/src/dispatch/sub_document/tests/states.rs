//! The meaning of a mutation's document flags for each state of a document.
//!
//! [`TABLE`] is the specification: each row is a set of flags, each column a state. Every
//! combination of flags outside it contradicts itself. The table holds wherever the document is: in
//! memory, in the store as well, or evicted.

mod model;

use std::sync::Arc;

use oribi_engine::EvictionPolicy;
use oribi_protocol::opcode::Opcode::{self, *};
use oribi_protocol::request::RequestParts;
use oribi_protocol::status::Status;
use oribi_storage::MemoryStore;
use oribi_types::{CollectionId, DocKey};

use crate::dispatch::tests::{Client, HandlerReply, MODERN, about};
use crate::harness::ConnectionHarness;

const MKDOC: u8 = 0x01;
const ADD: u8 = 0x02;
const ACCESS_DELETED: u8 = 0x04;
const CREATE_AS_DELETED: u8 = 0x08;
const REVIVE: u8 = 0x10;

const MAKE_PARENTS: u8 = 0x01;
const XATTR: u8 = 0x04;

/// The effect of a mutation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum MutationEffect {
    Change,
    /// Makes a document that keeps nothing of the previous version.
    Make,
    /// Makes a tombstone that keeps nothing of the previous version.
    Stage,
    /// Changes the attributes of the tombstone.
    Amend,
    /// Makes a document from the tombstone, whose attributes stay.
    Revive,
    /// Finds no version that it may see.
    Miss,
    /// Finds a version that it may not replace.
    Exist,
    /// Finds a document where it wants a tombstone.
    Alive,
}

use MutationEffect::{Alive, Amend, Change, Exist, Make, Miss, Revive, Stage};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Live,
    Expired,
    /// A tombstone with the attribute that its deletion left.
    Deleted,
    /// A tombstone made by `CREATE_AS_DELETED`.
    Staged,
    /// A tombstone without attributes.
    Bare,
    Absent,
}

const STATES: [State; 6] =
    [State::Live, State::Expired, State::Deleted, State::Staged, State::Bare, State::Absent];

#[rustfmt::skip]
const TABLE: [(u8, [MutationEffect; 6]); 14] = [
    //                                           live    expired deleted staged  bare    absent
    (0,                                          [Change, Miss,   Miss,   Miss,   Miss,   Miss]),
    (MKDOC,                                      [Change, Make,   Make,   Make,   Make,   Make]),
    (ADD,                                        [Exist,  Make,   Make,   Make,   Make,   Make]),
    (ACCESS_DELETED,                             [Change, Amend,  Amend,  Amend,  Amend,  Miss]),
    (ACCESS_DELETED | MKDOC,                     [Change, Amend,  Amend,  Amend,  Amend,  Make]),
    (ACCESS_DELETED | ADD,                       [Exist,  Exist,  Exist,  Exist,  Exist,  Make]),
    (CREATE_AS_DELETED,                          [Change, Miss,   Miss,   Miss,   Miss,   Miss]),
    (CREATE_AS_DELETED | MKDOC,                  [Change, Stage,  Stage,  Stage,  Stage,  Stage]),
    (CREATE_AS_DELETED | ADD,                    [Exist,  Exist,  Exist,  Exist,  Exist,  Stage]),
    (CREATE_AS_DELETED | ACCESS_DELETED,         [Change, Amend,  Amend,  Amend,  Amend,  Miss]),
    (CREATE_AS_DELETED | ACCESS_DELETED | MKDOC, [Change, Amend,  Amend,  Amend,  Amend,  Stage]),
    (CREATE_AS_DELETED | ACCESS_DELETED | ADD,   [Exist,  Exist,  Exist,  Exist,  Exist,  Stage]),
    (REVIVE | ACCESS_DELETED,                    [Alive,  Revive, Revive, Revive, Revive, Miss]),
    (REVIVE | ACCESS_DELETED | MKDOC,            [Alive,  Revive, Revive, Revive, Revive, Make]),
];

/// The place of a document or its tombstone before the request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    Memory,
    /// Also in the store; tombstones only there.
    Stored,
    /// The value only in the store.
    Evicted,
    /// Key and value only in the store.
    EvictedWhole,
}

/// One spec: opcode, path flags, path, value.
type Spec<'a> = (Opcode, u8, &'a str, &'a str);

fn mutate(
    client: &mut Client,
    key: &str,
    extras: &[u8],
    cas: u64,
    specs: &[Spec<'_>],
) -> HandlerReply {
    let mut list = Vec::new();
    for (opcode, flags, path, value) in specs {
        list.extend_from_slice(&[*opcode as u8, *flags]);
        list.extend_from_slice(&(path.len() as u16).to_be_bytes());
        list.extend_from_slice(&(value.len() as u32).to_be_bytes());
        list.extend_from_slice(path.as_bytes());
        list.extend_from_slice(value.as_bytes());
    }
    let parts = about(SubdocMultiMutation, key.as_bytes());
    client.ask(&RequestParts { extras, cas, value: &list, ..parts })
}

/// An attribute of a document or a tombstone.
fn attribute(client: &mut Client, key: &str, path: &str) -> Option<String> {
    let extras = [&(path.len() as u16).to_be_bytes()[..], &[XATTR, ACCESS_DELETED]].concat();
    let parts = about(SubdocGet, key.as_bytes());
    let reply = client.ask(&RequestParts { extras: &extras, value: path.as_bytes(), ..parts });
    match reply.status {
        Status::Success | Status::SubdocSuccessDeleted => {
            Some(String::from_utf8(reply.value).unwrap())
        }
        Status::SubdocPathEnoent | Status::KeyEnoent => None,
        status => panic!("{key}: {path}: {status:?}"),
    }
}

const BODY: &str = r#"{"n":1,"long":"long enough to be worth an eviction, as short values stay"}"#;
const FLAGS: u32 = 0x0102_0304;

/// Brings a document into a state; an expired one gets there after two seconds.
fn prepare(client: &mut Client, key: &str, state: State) {
    let make = |client: &mut Client, expiry: u32, doc_flags: u8, specs: &[Spec<'_>]| {
        let extras = [&expiry.to_be_bytes()[..], &FLAGS.to_be_bytes(), &[doc_flags]].concat();
        mutate(client, key, &extras, 0, specs).status
    };
    let kept = (SubdocDictUpsert, XATTR | MAKE_PARENTS, "_kept.x", "1");
    let body = (Set, 0, "", BODY);
    let is_deleted = matches!(state, State::Deleted | State::Bare);
    match state {
        State::Absent => return,
        State::Staged => {
            let flags = ADD | ACCESS_DELETED | CREATE_AS_DELETED;
            let specs = [kept, (SubdocDictUpsert, XATTR, "user", "1")];
            assert_eq!(make(client, 0, flags, &specs), Status::SubdocSuccessDeleted);
        }
        State::Bare => assert_eq!(make(client, 0, ADD, &[body]), Status::Success),
        State::Live | State::Expired | State::Deleted => {
            let expiry = u32::from(state == State::Expired);
            assert_eq!(make(client, expiry, ADD, &[kept, body]), Status::Success);
        }
    }
    if is_deleted {
        assert_eq!(client.ask(&about(Delete, key.as_bytes())).status, Status::Success);
    }
}

fn client_in(place: Place) -> Client {
    let eviction = match place {
        Place::EvictedWhole => EvictionPolicy::Full,
        _ => EvictionPolicy::Value,
    };
    let store = Arc::new(MemoryStore::new());
    Client::on(ConnectionHarness::evicting(store, eviction, 16), &MODERN)
}

/// Moves all prepared documents to their place.
fn settle(client: &mut Client, place: Place, cases: &[(String, u8, State)]) {
    client.harness.advance_ms(2_000);
    if place == Place::Memory {
        return;
    }
    let bucket = client.harness.bucket().bucket();
    bucket.flush_step().unwrap();
    if place == Place::Stored {
        return;
    }
    for (key, _, state) in cases {
        let parts = about(Get, key.as_bytes());
        let key = DocKey { collection: CollectionId::DEFAULT, key: parts.key };
        let is_gone = bucket.evict(parts.vbid, key);
        assert!(is_gone || *state != State::Live, "a clean document can be evicted");
    }
}

fn expected(flags: u8, state: State) -> Option<MutationEffect> {
    let (_, row) = TABLE.iter().find(|(listed, _)| *listed == flags)?;
    let column = STATES.iter().position(|one| *one == state);
    Some(row[column.expect("every state is a column")])
}

/// Sends one mutation and compares the whole visible result.
fn check(client: &mut Client, place: Place, (key, flags, state): &(String, u8, State), body: bool) {
    let what = format!("flags {flags:#04x}, {state:?}, {place:?}, body: {body}");
    let spec: Spec<'_> = match body {
        true => (SubdocDictUpsert, 0, "new", "1"),
        false => (SubdocDictUpsert, XATTR, "_new", "1"),
    };
    let reply = mutate(client, key, &[*flags], 0, &[spec]);
    let Some(does) = expected(*flags, *state) else {
        return assert_eq!(reply.status, Status::Einval, "{what}");
    };
    let is_tombstone = matches!(does, Stage | Amend);
    let status = match does {
        Change | Make | Revive => Status::Success,
        Stage | Amend if body => Status::SubdocDeletedDocumentCantHaveValue,
        Stage | Amend => Status::SubdocSuccessDeleted,
        Miss => Status::KeyEnoent,
        Exist => Status::KeyEexists,
        Alive => Status::SubdocCanOnlyReviveDeletedDocuments,
    };
    assert_eq!(reply.status, status, "{what}");
    let is_done = matches!(status, Status::Success | Status::SubdocSuccessDeleted);
    let was_live = *state == State::Live;
    let found = client.get(key.as_bytes());
    let is_live = if is_done { !is_tombstone } else { was_live };
    assert_eq!(found.status == Status::Success, is_live, "{what}");
    if is_live {
        let old = if was_live { BODY.trim_end_matches('}') } else { "{" };
        let new = match (is_done && body, was_live) {
            (true, true) => r#","new":1"#,
            (true, false) => r#""new":1"#,
            (false, _) => "",
        };
        assert_eq!(String::from_utf8(found.value).unwrap(), format!("{old}{new}}}"), "{what}");
        let flags = match does {
            Make => 0,
            // A deletion forgets the flags.
            Revive if *state != State::Staged => 0,
            _ => FLAGS,
        };
        assert_eq!(found.extras, flags.to_be_bytes(), "{what}");
    }
    let new = attribute(client, key, "_new");
    assert_eq!(new.is_some(), is_done && !body, "{what}");
    // Eviction of an expired document loses its attributes.
    if *state != State::Expired || matches!(place, Place::Memory | Place::Stored) {
        let had = !matches!(state, State::Bare | State::Absent);
        let keeps = had && !(is_done && matches!(does, Make | Stage));
        assert_eq!(attribute(client, key, "_kept.x").is_some(), keeps, "{what}");
    }
}

// Compat (Key-value): sub-document
#[test]
fn document_flags_and_states() {
    for place in [Place::Memory, Place::Stored, Place::Evicted, Place::EvictedWhole] {
        let mut client = client_in(place);
        for body in [false, true] {
            let all = (0..0x20).flat_map(|flags| STATES.map(|state| (flags, state)));
            let cases: Vec<(String, u8, State)> = all
                .map(|(flags, state)| (format!("{flags}-{state:?}-{body}"), flags, state))
                .collect();
            for (key, _, state) in &cases {
                prepare(&mut client, key, *state);
            }
            settle(&mut client, place, &cases);
            for case in &cases {
                check(&mut client, place, case, body);
            }
        }
    }
}

#[test]
fn a_cas_is_of_what_the_flags_let_see() {
    const NEW: Spec<'_> = (SubdocDictUpsert, XATTR, "_new", "1");
    let mut client = client_in(Place::Memory);
    prepare(&mut client, "staged", State::Staged);
    let cas = mutate(&mut client, "staged", &[ACCESS_DELETED], 0, &[NEW]).cas;
    // A transaction uses this to overwrite the insert of another one.
    let take_over = [CREATE_AS_DELETED | ACCESS_DELETED];
    let wrong = mutate(&mut client, "staged", &take_over, cas + 1, &[NEW]);
    assert_eq!(wrong.status, Status::KeyEexists);
    let unseen = mutate(&mut client, "staged", &[MKDOC], cas, &[NEW]);
    assert_eq!(unseen.status, Status::KeyEnoent);
    let added = mutate(&mut client, "staged", &[ADD], cas, &[NEW]);
    assert_eq!(added.status, Status::Einval, "what is added has no version yet");
    let taken = mutate(&mut client, "staged", &take_over, cas, &[NEW]);
    assert_eq!(taken.status, Status::SubdocSuccessDeleted);
    let late = mutate(&mut client, "staged", &take_over, cas, &[NEW]);
    assert_eq!(late.status, Status::KeyEexists);
    let absent = mutate(&mut client, "absent", &take_over, cas, &[NEW]);
    assert_eq!(absent.status, Status::KeyEnoent);
}

// Compat (Sub-document operations): Extras may carry user flags after the expiry
#[test]
fn user_flags_are_those_of_the_document() {
    let mut client = client_in(Place::Memory);
    let flags_of = |client: &mut Client, key: &str| client.get(key.as_bytes()).extras;
    let given = [9, 8, 7, 6];
    let body = [(SubdocDictUpsert, 0, "a", "1")];
    let extras = |doc_flags: &[u8]| [&[0; 4][..], &given, doc_flags].concat();
    // A created and a changed document take the request's flags; without flags they keep theirs.
    let made = mutate(&mut client, "list", &extras(&[ADD]), 0, &body);
    assert_eq!(made.status, Status::Success);
    assert_eq!(flags_of(&mut client, "list"), given);
    assert_eq!(mutate(&mut client, "list", &[0, 0, 0, 0], 0, &body).status, Status::Success);
    assert_eq!(flags_of(&mut client, "list"), given);
    client.set(b"old", b"{}");
    assert_eq!(mutate(&mut client, "old", &extras(&[]), 0, &body).status, Status::Success);
    assert_eq!(flags_of(&mut client, "old"), given);
    // A single path also has them, between expiry and document flags.
    for (key, doc_flags) in [("old", &[][..]), ("one", &[MKDOC])] {
        let flags = [1, 2, 3, key.len() as u8];
        let extras = [&[0, 1, 0][..], &[0xee, 0x6b, 0x28, 0], &flags, doc_flags].concat();
        let parts = about(SubdocDictUpsert, key.as_bytes());
        let done = client.ask(&RequestParts { extras: &extras, value: b"b2", ..parts });
        assert_eq!(done.status, Status::Success, "{key}");
        assert_eq!(flags_of(&mut client, key), flags, "{key}");
        let meta = client.ask(&about(GetMeta, key.as_bytes()));
        assert_eq!(meta.extras[8..12], [0xee, 0x6b, 0x28, 0], "{key}: the expiry");
    }
    // A committed document has the staged ones.
    prepare(&mut client, "staged", State::Staged);
    assert_eq!(client.ask(&about(GetMeta, b"staged")).extras[4..8], FLAGS.to_be_bytes());
    let commit = mutate(&mut client, "staged", &extras(&[ACCESS_DELETED | REVIVE]), 0, &body);
    assert_eq!(commit.status, Status::Success);
    assert_eq!(flags_of(&mut client, "staged"), given);
}
