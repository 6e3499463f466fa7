//! Locked documents: every operation's answer, with and without extended errors, and how a lock
//! ends.

use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::RequestParts;
use oribi_protocol::status::Status;
use oribi_types::{CollectionId, DocKey};

use super::{Client, MODERN, SET_EXTRAS, about, counter_extras};

const LOCKED_CAS: u64 = u64::MAX;

fn lock(client: &mut Client, key: &[u8], seconds: u32) -> super::HandlerReply {
    let extras = seconds.to_be_bytes();
    client.ask(&RequestParts { extras: &extras, ..about(Opcode::GetLocked, key) })
}

fn unlock(client: &mut Client, key: &[u8], cas: u64) -> Status {
    client.ask(&RequestParts { cas, ..about(Opcode::UnlockKey, key) }).status
}

fn old_client() -> Client {
    let codes: Vec<u16> = MODERN.into_iter().filter(|code| *code != 7).collect();
    Client::with_features(&codes)
}

/// Every kind of request that a lock blocks, and the answer to a client without extended errors.
fn writes<'a>(path: &'a [u8], counter: &'a [u8]) -> Vec<(RequestParts<'a>, Status)> {
    let about = |opcode| about(opcode, b"k");
    let store = |opcode| RequestParts { extras: &SET_EXTRAS, value: b"{\"a\":2}", ..about(opcode) };
    vec![
        (store(Opcode::Set), Status::KeyEexists),
        (store(Opcode::Replace), Status::KeyEexists),
        (RequestParts { value: b" ", ..about(Opcode::Append) }, Status::KeyEexists),
        (RequestParts { value: b" ", ..about(Opcode::Prepend) }, Status::KeyEexists),
        (about(Opcode::Delete), Status::Etmpfail),
        (RequestParts { extras: counter, ..about(Opcode::Increment) }, Status::KeyEexists),
        (RequestParts { extras: &[0; 4], ..about(Opcode::Touch) }, Status::KeyEexists),
        (RequestParts { extras: &[0; 4], ..about(Opcode::Gat) }, Status::KeyEexists),
        (
            RequestParts { extras: &[0, 1, 0], value: path, ..about(Opcode::SubdocDictUpsert) },
            Status::KeyEexists,
        ),
        (about(Opcode::GetLocked), Status::Etmpfail),
    ]
}

#[test]
fn every_write_to_a_locked_document_is_refused() {
    let counter = counter_extras(1, 1, 0);
    for (mut client, is_old) in [(Client::modern(), false), (old_client(), true)] {
        client.set(b"k", b"{\"a\":1}");
        let locked = client.ask(&about(Opcode::GetLocked, b"k"));
        assert_eq!((locked.status, &locked.value[..]), (Status::Success, &b"{\"a\":1}"[..]));
        for (request, of_old) in writes(b"a3", &counter) {
            for cas in [0, locked.cas + 1] {
                let names_one =
                    !matches!(request.opcode, Opcode::Touch | Opcode::Gat | Opcode::GetLocked);
                let request = RequestParts { cas: if names_one { cas } else { 0 }, ..request };
                let expected = if is_old { of_old } else { Status::Locked };
                assert_eq!(client.ask(&request).status, expected, "{:?}", request.opcode);
            }
        }
        let add = RequestParts { extras: &SET_EXTRAS, ..about(Opcode::Add, b"k") };
        assert_eq!(client.ask(&add).status, Status::KeyEexists);
        let wrong = if is_old { Status::Etmpfail } else { Status::Locked };
        assert_eq!(unlock(&mut client, b"k", 1), wrong);
        assert_eq!(client.get(b"k").value, b"{\"a\":1}", "nothing has come through");
    }
}

// Compat (Key-value): GET_LOCKED, UNLOCK
#[test]
fn the_lock_cas_unlocks_every_cas_write() {
    let counter = counter_extras(1, 1, 0);
    for (request, _) in writes(b"a3", &counter) {
        if matches!(request.opcode, Opcode::Touch | Opcode::Gat | Opcode::GetLocked) {
            continue;
        }
        let mut client = Client::modern();
        let value = if request.opcode == Opcode::Increment { &b"1"[..] } else { b"{\"a\":1}" };
        let stored = client.set(b"k", value);
        let locked = client.ask(&about(Opcode::GetLocked, b"k"));
        assert!(locked.cas > stored.cas && locked.cas != LOCKED_CAS);
        let written = client.ask(&RequestParts { cas: locked.cas, ..request });
        assert_eq!(written.status, Status::Success, "{:?}", request.opcode);
        assert!(written.cas > locked.cas, "{:?}", request.opcode);
        if request.opcode != Opcode::Delete {
            assert_eq!(client.get(b"k").cas, written.cas, "{:?} ends the lock", request.opcode);
            assert_eq!(unlock(&mut client, b"k", locked.cas), Status::NotLocked);
        }
        assert_eq!(client.set(b"k", b"free").status, Status::Success);
    }
}

#[test]
fn readers_see_a_locked_document_without_its_cas() {
    let mut client = Client::modern();
    let stored = client.set(b"k", b"{\"a\":1}");
    let locked = client.ask(&about(Opcode::GetLocked, b"k"));
    assert_eq!(locked.extras, [0, 0, 0, 7]);
    let path = RequestParts { extras: &[0, 1, 0], value: b"a", ..about(Opcode::SubdocGet, b"k") };
    let reads =
        [about(Opcode::Get, b"k"), about(Opcode::Getk, b"k"), about(Opcode::GetMeta, b"k"), path];
    for read in &reads {
        let reply = client.ask(read);
        assert_eq!((reply.status, reply.cas), (Status::Success, LOCKED_CAS), "{:?}", read.opcode);
    }
    let guess = RequestParts {
        extras: &SET_EXTRAS,
        value: b"x",
        cas: LOCKED_CAS,
        ..about(Opcode::Set, b"k")
    };
    assert_eq!(client.ask(&guess).status, Status::Locked);
    assert_eq!(unlock(&mut client, b"k", locked.cas), Status::Success);
    for read in &reads {
        assert_eq!(client.ask(read).cas, stored.cas, "{:?}", read.opcode);
    }
}

// Compat (Key-value): GET_LOCKED, UNLOCK
#[test]
fn a_lock_lasts_as_long_as_was_asked_and_allowed() {
    // Requested and actual seconds: more than 30 s means 15 s.
    for (asked_s, lasts_s) in [(0_u32, 15_u64), (1, 1), (30, 30), (31, 15), (u32::MAX, 15)] {
        let mut client = Client::modern();
        client.set(b"k", b"v");
        assert_eq!(lock(&mut client, b"k", asked_s).status, Status::Success);
        client.harness.advance_ms(lasts_s * 1000 - 1);
        assert_eq!(client.set(b"k", b"w").status, Status::Locked, "{asked_s}");
        client.harness.advance_ms(1);
        assert_eq!(client.set(b"k", b"w").status, Status::Success, "{asked_s}");
    }
}

#[test]
fn the_lock_cas_writes_after_the_timeout_if_unraced() {
    let mut client = Client::modern();
    client.set(b"k", b"v");
    let locked = lock(&mut client, b"k", 1);
    client.harness.advance_ms(5_000);
    assert_eq!(unlock(&mut client, b"k", locked.cas), Status::NotLocked);
    let late = RequestParts {
        extras: &SET_EXTRAS,
        value: b"w",
        cas: locked.cas,
        ..about(Opcode::Replace, b"k")
    };
    assert_eq!(client.ask(&late).status, Status::Success);
    let locked = lock(&mut client, b"k", 1);
    client.harness.advance_ms(5_000);
    client.set(b"k", b"somebody else's");
    let late = RequestParts { cas: locked.cas, ..late };
    assert_eq!(client.ask(&late).status, Status::KeyEexists);
}

#[test]
fn unlock_and_lock_of_what_is_not_there() {
    let mut client = Client::modern();
    assert_eq!(unlock(&mut client, b"k", 1), Status::KeyEnoent);
    assert_eq!(unlock(&mut client, b"k", 0), Status::Einval);
    assert_eq!(client.ask(&about(Opcode::GetLocked, b"k")).status, Status::KeyEnoent);
    client.set(b"k", b"v");
    assert_eq!(unlock(&mut client, b"k", 1), Status::NotLocked);
    let mut old = old_client();
    old.set(b"k", b"v");
    assert_eq!(unlock(&mut old, b"k", 1), Status::Etmpfail);
    let stats = client.send(&RequestParts::new(Opcode::Stat));
    let value = |name: &[u8]| stats.iter().find(|reply| reply.key == name).unwrap().value.clone();
    assert_eq!((value(b"cmd_lock"), value(b"unlock_errors")), (b"1".to_vec(), b"1".to_vec()));
    assert_eq!(value(b"lock_errors"), b"0");
}

// Invariant: A lock (GETL) belongs to one version: a new version ends the lock, eviction does not.
#[test]
fn a_lock_survives_eviction_and_ends_with_its_item() {
    let mut client = Client::modern();
    client.store(Opcode::Set, b"k", &[b'v'; 100]);
    let locked = lock(&mut client, b"k", 20);
    let (bucket, vbid) = (client.harness.bucket().clone(), about(Opcode::Get, b"k").vbid);
    bucket.bucket().flush_step().unwrap();
    assert!(bucket.bucket().evict(vbid, DocKey { collection: CollectionId::DEFAULT, key: b"k" }));
    assert_eq!(client.set(b"k", b"w").status, Status::Locked);
    assert_eq!(client.get(b"k").cas, LOCKED_CAS, "after it was fetched");
    assert_eq!(unlock(&mut client, b"k", locked.cas), Status::Success);
    // An expired document has no lock, because no client can see it.
    let expiring = super::set_extras(0, 2);
    client.ask(&RequestParts { extras: &expiring, value: b"v", ..about(Opcode::Set, b"e") });
    assert_eq!(lock(&mut client, b"e", 20).status, Status::Success);
    client.harness.advance_ms(3_000);
    assert_eq!(client.get(b"e").status, Status::KeyEnoent);
    assert_eq!(client.store(Opcode::Add, b"e", b"new").status, Status::Success);
}
