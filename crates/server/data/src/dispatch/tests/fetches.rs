//! Requests that need evicted documents: they wait, in order or overtaken, and are answered once.

use std::sync::Arc;

use oribi_engine::{EvictionPolicy, FetchOutcome};
use oribi_protocol::frame_info::encode_durability;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::RequestParts;
use oribi_protocol::status::Status;
use oribi_storage::{FaultPlan, FaultStore, MemoryStore};
use oribi_types::{CollectionId, DocKey, DurabilityLevel};
use proptest::prelude::*;

use super::{Client, HandlerReply, MODERN, SET_EXTRAS, about, bytes, replies};
use crate::connection::fetches::{BEHIND_HEAD, HEAD};
use crate::connection::parked::ParkToken;
use crate::harness::ConnectionHarness;
use crate::limits::{
    FETCH_AHEAD_MAX, FETCH_ATTEMPTS_MAX, FETCH_TIMEOUT_MS, PARKED_REQUESTS_MAX,
    RECEIVE_IN_PLACE_BYTES_MIN,
};

/// Every feature except unordered execution.
const ORDERED: [u16; 8] = [4, 7, 8, 0x0b, 0x0c, 0x10, 0x11, 0x14];

fn client_of(eviction: EvictionPolicy, codes: &[u16]) -> Client {
    Client::on(ConnectionHarness::evicting(Arc::new(MemoryStore::new()), eviction, 16), codes)
}

fn client(codes: &[u16]) -> Client {
    client_of(EvictionPolicy::Value, codes)
}

fn evict(client: &Client, key: &[u8]) {
    let vbid = about(Opcode::Get, key).vbid;
    let key = DocKey { collection: CollectionId::DEFAULT, key };
    assert!(client.harness.bucket().bucket().evict(vbid, key), "a clean item can be evicted");
}

/// The value of an evicted document: long enough to be worth an eviction.
fn value_of(key: &[u8]) -> Vec<u8> {
    key.repeat(50)
}

/// Stores documents, persists and evicts them, and turns the fetcher off.
fn evicted(client: &mut Client, keys: &[&[u8]]) {
    for key in keys {
        assert_eq!(client.set(key, &value_of(key)).status, Status::Success);
    }
    client.harness.bucket().bucket().flush_step().unwrap();
    keys.iter().for_each(|key| evict(client, key));
    client.harness.set_fetches(false);
}

fn fetched(client: &mut Client) -> Vec<HandlerReply> {
    client.harness.set_fetches(true);
    replies(&client.harness.feed(&[]))
}

fn opaques(replies: &[HandlerReply]) -> Vec<u32> {
    replies.iter().map(|reply| reply.opaque).collect()
}

fn get(opaque: u32, key: &[u8]) -> RequestParts<'_> {
    RequestParts { opaque, ..about(Opcode::Get, key) }
}

#[test]
fn ordered_requests_queue_after_a_fetch_counted_once() {
    for eviction in [EvictionPolicy::Value, EvictionPolicy::Full] {
        let mut client = client_of(eviction, &ORDERED);
        evicted(&mut client, &[b"cold"]);
        client.set(b"hot", b"hot");
        assert!(client.send(&get(1, b"cold")).is_empty());
        assert!(client.send(&get(2, b"hot")).is_empty());
        let before = client.harness.bucket().operations().totals();
        let all = fetched(&mut client);
        assert_eq!(opaques(&all), [1, 2]);
        assert_eq!((all[0].status, &all[0].value[..]), (Status::Success, &value_of(b"cold")[..]));
        let after = client.harness.bucket().operations().totals();
        assert_eq!(after.cmd_get, before.cmd_get + 1, "the first was counted when it came");
        assert_eq!((after.get_hits, after.get_misses), (before.get_hits + 2, before.get_misses));
    }
}

/// A fetch without a waiting request may belong to a deleted bucket, so it says nothing of the
/// selected one.
#[test]
fn a_stale_fetch_is_not_counted() {
    let mut client = client(&ORDERED);
    evicted(&mut client, &[b"cold"]);
    assert!(client.send(&get(1, b"cold")).is_empty());
    for position in [0, 1, HEAD, BEHIND_HEAD] {
        let stale = ParkToken { slot: 0, position, serial: u32::MAX };
        client.harness.end_fetch(stale, FetchOutcome::Failed);
        assert!(!client.harness.bucket().fetches_fail());
    }
    assert_eq!(opaques(&fetched(&mut client)), [1]);
    client.harness.set_fetches(false);
    evict(&client, b"cold");
    assert!(client.send(&get(2, b"cold")).is_empty());
    assert!(replies(&client.harness.advance_ms(FETCH_TIMEOUT_MS + 1)).len() == 1);
    assert!(!client.harness.bucket().fetches_fail(), "the connection gave up, not the store");
}

#[test]
fn a_pipeline_of_misses_costs_one_batch() {
    let mut client = client(&ORDERED);
    let names: Vec<String> = (0..FETCH_AHEAD_MAX).map(|n| format!("key-{n}")).collect();
    let keys: Vec<&[u8]> = names.iter().map(String::as_bytes).collect();
    evicted(&mut client, &keys);
    let input: Vec<u8> = keys.iter().flat_map(|key| bytes(&about(Opcode::Get, key))).collect();
    assert!(client.harness.feed(&input).is_empty());
    let bucket = Arc::clone(client.harness.bucket());
    assert_eq!(bucket.bucket().fetch_step(), keys.len(), "all of them at once");
    let all = replies(&client.harness.feed(&[]));
    assert!(
        all.iter()
            .map(|reply| &reply.value)
            .eq(&names.iter().map(|name| value_of(name.as_bytes())).collect::<Vec<_>>())
    );
}

#[test]
fn fetch_ahead_stops_at_another_kind_of_request() {
    let mut client = client(&ORDERED);
    evicted(&mut client, &[b"a", b"b"]);
    let noop = bytes(&RequestParts::new(Opcode::Noop));
    let input = [bytes(&about(Opcode::Get, b"a")), noop, bytes(&about(Opcode::Get, b"b"))];
    assert!(client.harness.feed(&input.concat()).is_empty());
    assert_eq!(client.harness.bucket().bucket().fetch_step(), 1);
    assert_eq!(fetched(&mut client).len(), 3);
}

// Compat (Differences): UnorderedExecution
#[test]
fn unordered_requests_overtake() {
    let mut client = client(&MODERN);
    evicted(&mut client, &[b"cold", b"counter"]);
    client.set(b"hot", b"hot");
    assert!(client.send(&get(1, b"cold")).is_empty());
    let append = RequestParts { value: b"!", opaque: 2, ..about(Opcode::Append, b"counter") };
    assert!(client.send(&append).is_empty());
    assert_eq!(opaques(&client.send(&get(3, b"hot"))), [3]);
    let noop = RequestParts { opaque: 4, ..RequestParts::new(Opcode::Noop) };
    assert!(client.send(&noop).is_empty(), "what may not be reordered waits");
    let all = fetched(&mut client);
    assert_eq!(opaques(&all), [1, 2, 4]);
    assert_eq!(all[0].value, value_of(b"cold"));
    assert_eq!(client.get(b"counter").value, [&value_of(b"counter")[..], b"!"].concat());
}

#[test]
fn a_barrier_waits_and_quiet_requests_keep_order() {
    let mut client = client(&MODERN);
    evicted(&mut client, &[b"a", b"b"]);
    client.set(b"hot", b"hot");
    assert!(client.send(&get(1, b"a")).is_empty());
    let barrier = RequestParts { framing: &[0x00], ..get(2, b"hot") };
    assert!(client.send(&barrier).is_empty());
    assert_eq!(opaques(&fetched(&mut client)), [1, 2]);
    client.harness.set_fetches(false);
    let quiet = RequestParts { opaque: 3, ..about(Opcode::Getq, b"b") };
    assert!(client.send(&quiet).is_empty());
    assert!(client.send(&get(4, b"hot")).is_empty());
    assert_eq!(opaques(&fetched(&mut client)), [3, 4]);
}

#[test]
fn too_many_parked_requests_wait_in_the_input() {
    let mut client = client(&MODERN);
    let names: Vec<String> = (0..PARKED_REQUESTS_MAX + 9).map(|n| format!("key-{n}")).collect();
    let keys: Vec<&[u8]> = names.iter().map(String::as_bytes).collect();
    evicted(&mut client, &keys);
    let input: Vec<u8> = keys.iter().flat_map(|key| bytes(&about(Opcode::Get, key))).collect();
    assert!(client.harness.feed(&input).is_empty());
    let all = fetched(&mut client);
    assert!(
        all.iter()
            .map(|reply| &reply.value)
            .eq(&names.iter().map(|name| value_of(name.as_bytes())).collect::<Vec<_>>())
    );
}

#[test]
fn a_durable_write_waits_for_fetch_and_commit() {
    for codes in [&MODERN[..], &ORDERED[..]] {
        let mut client = client(codes);
        evicted(&mut client, &[b"k"]);
        client.harness.set_flushes(false);
        let mut framing = Vec::new();
        encode_durability(DurabilityLevel::PersistToMajority, None, &mut framing);
        let append = RequestParts { framing: &framing, value: b"!", ..about(Opcode::Append, b"k") };
        assert!(client.send(&append).is_empty());
        assert!(fetched(&mut client).is_empty(), "it is done, and not persisted");
        let noop = RequestParts { opaque: 9, ..RequestParts::new(Opcode::Noop) };
        assert!(client.send(&noop).is_empty());
        client.harness.set_flushes(true);
        let all = replies(&client.harness.feed(&[]));
        assert_eq!((all.len(), all[0].status, all[1].opaque), (2, Status::Success, 9));
        assert_eq!(client.get(b"k").value, [&value_of(b"k")[..], b"!"].concat());
    }
}

#[test]
fn a_barrier_waits_for_parked_reads_and_writes() {
    let mut client = client(&MODERN);
    evicted(&mut client, &[b"cold"]);
    client.harness.set_flushes(false);
    let mut framing = Vec::new();
    encode_durability(DurabilityLevel::PersistToMajority, None, &mut framing);
    let set = RequestParts {
        framing: &framing,
        extras: &SET_EXTRAS,
        opaque: 1,
        ..about(Opcode::Set, b"k")
    };
    assert!(client.send(&set).is_empty() && client.send(&get(2, b"cold")).is_empty());
    let noop = RequestParts { opaque: 3, ..RequestParts::new(Opcode::Noop) };
    assert!(client.send(&noop).is_empty());
    assert_eq!(opaques(&fetched(&mut client)), [2]);
    client.harness.set_flushes(true);
    assert_eq!(opaques(&replies(&client.harness.feed(&[]))), [1, 3]);
}

// Compat (Differences): Unreadable documents
#[test]
fn a_store_that_cannot_be_read_is_a_temporary_failure() {
    let plan = FaultPlan::none();
    for codes in [&MODERN[..], &ORDERED[..]] {
        let store = FaultStore::new(MemoryStore::new(), Arc::clone(&plan));
        let harness = ConnectionHarness::evicting(Arc::new(store), EvictionPolicy::Value, 16);
        let mut client = Client::on(harness, codes);
        evicted(&mut client, &[b"a", b"b"]);
        client.harness.set_fetches(true);
        plan.fail_gets(true);
        assert_eq!(client.get(b"a").status, Status::Etmpfail);
        let append = RequestParts { value: b"!", ..about(Opcode::Append, b"b") };
        assert_eq!(client.ask(&append).status, Status::Etmpfail);
        assert_eq!(client.set(b"b", b"new").status, Status::Success, "it needs no value");
        plan.fail_gets(false);
        assert_eq!(client.get(b"a").value, value_of(b"a"));
    }
}

#[test]
fn an_endless_fetch_times_out_its_result_is_ignored() {
    for codes in [&MODERN[..], &ORDERED[..]] {
        let mut client = client(codes);
        evicted(&mut client, &[b"k"]);
        assert!(client.send(&get(1, b"k")).is_empty());
        assert!(client.harness.advance_ms(FETCH_TIMEOUT_MS - 1).is_empty());
        let all = replies(&client.harness.advance_ms(1));
        assert_eq!((opaques(&all), all[0].status), (vec![1], Status::Etmpfail));
        // The late completion arrives while another request waits.
        assert!(client.send(&get(2, b"k")).is_empty());
        let bucket = Arc::clone(client.harness.bucket());
        assert!(bucket.bucket().fetch_step() >= 1);
        assert_eq!(opaques(&replies(&client.harness.feed(&[]))), [2]);
    }
}

#[test]
fn repeated_eviction_ends_the_fetch() {
    for codes in [&MODERN[..], &ORDERED[..]] {
        let mut client = client(codes);
        evicted(&mut client, &[b"k"]);
        let mut answered = client.send(&get(1, b"k"));
        let bucket = Arc::clone(client.harness.bucket());
        let mut fetches = 0;
        while answered.is_empty() {
            assert_eq!(bucket.bucket().fetch_step(), 1, "it asks again each time");
            fetches += 1;
            evict(&client, b"k");
            answered = replies(&client.harness.feed(&[]));
        }
        assert_eq!(fetches, usize::from(FETCH_ATTEMPTS_MAX));
        assert_eq!((opaques(&answered), answered[0].status), (vec![1], Status::Etmpfail));
    }
}

#[test]
fn a_connection_that_ends_forgets_what_it_waits_for() {
    let mut client = client(&MODERN);
    evicted(&mut client, &[b"k"]);
    let bucket = Arc::clone(client.harness.bucket());
    assert!(client.send(&get(1, b"k")).is_empty());
    let beside = client.harness.beside();
    drop(client);
    assert_eq!(bucket.bucket().fetch_step(), 1);
    let mut other = Client::on(beside, &MODERN);
    assert_eq!(other.get(b"k").value, value_of(b"k"));
}

#[test]
fn a_value_received_in_place_waits_with_its_item() {
    for codes in [&MODERN[..], &ORDERED[..]] {
        let mut client = client_of(EvictionPolicy::Full, codes);
        evicted(&mut client, &[b"k"]);
        let large = vec![b'x'; RECEIVE_IN_PLACE_BYTES_MIN + 5];
        let add = RequestParts {
            extras: &SET_EXTRAS,
            value: &large,
            opaque: 1,
            ..about(Opcode::Add, b"k")
        };
        let replace = RequestParts { opaque: 2, ..add };
        let replace = RequestParts { opcode: Opcode::Replace, ..replace };
        let input = [bytes(&add), bytes(&replace)].concat();
        assert!(client.harness.feed(&input).is_empty());
        let all = fetched(&mut client);
        assert_eq!(opaques(&all), [1, 2]);
        assert_eq!((all[0].status, all[1].status), (Status::KeyEexists, Status::Success));
        assert_eq!(client.get(b"k").value, large);
    }
}

#[test]
fn an_evicted_key_is_described_from_the_store() {
    let mut client = client_of(EvictionPolicy::Full, &MODERN);
    evicted(&mut client, &[b"k"]);
    let vbid = about(Opcode::Get, b"k").vbid.0;
    for (group, entries) in [("key", 9), ("vkey", 10)] {
        let text = format!("{group} k {vbid}");
        let stat = RequestParts { key: text.as_bytes(), ..RequestParts::new(Opcode::Stat) };
        let all = client.send(&stat);
        assert_eq!(all.len(), entries + 1, "{all:?}");
        let resident = all.iter().find(|reply| reply.key == b"key_is_resident").unwrap();
        assert_eq!(resident.value, b"false");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    /// Every request is answered once, with its own key's value, whatever was evicted and in
    /// whatever order the fetches end.
    #[test]
    fn unordered_batches_are_answered_completely(
        rounds in prop::collection::vec(
            (prop::collection::vec((0..40_u8, any::<bool>(), any::<bool>()), 1..60), 1..400_usize),
            1..8,
        ),
        full in any::<bool>(),
    ) {
        let eviction = if full { EvictionPolicy::Full } else { EvictionPolicy::Value };
        let mut client = client_of(eviction, &MODERN);
        let mut expected: Vec<Option<Vec<u8>>> = vec![None; 40];
        for (round, (requests, piece)) in rounds.iter().enumerate() {
            client.harness.bucket().bucket().flush_step().unwrap();
            let mut seen = [false; 40];
            let (mut input, mut sent) = (Vec::new(), Vec::new());
            for (key, writes, evicts) in requests {
                // Requests about one document may overtake each other, so there is one of each.
                if std::mem::replace(&mut seen[usize::from(*key)], true) {
                    continue;
                }
                let name = format!("key-{key}");
                let about_get = about(Opcode::Get, name.as_bytes());
                if *evicts {
                    let key = DocKey { collection: CollectionId::DEFAULT, key: name.as_bytes() };
                    client.harness.bucket().bucket().evict(about_get.vbid, key);
                }
                let value = format!("{round}:{key}").repeat(30).into_bytes();
                let opaque = sent.len() as u32;
                let before = expected[usize::from(*key)].clone();
                if *writes {
                    // An append needs the current value; without one, the document is added.
                    let (opcode, extras) = match &before {
                        Some(_) => (Opcode::Append, &[][..]),
                        None => (Opcode::Add, &SET_EXTRAS[..]),
                    };
                    input.extend(bytes(&RequestParts {
                        opcode, extras, value: &value, opaque, ..about_get
                    }));
                    let joined = [before.unwrap_or_default(), value].concat();
                    expected[usize::from(*key)] = Some(joined);
                    sent.push(None);
                } else {
                    input.extend(bytes(&RequestParts { opaque, ..about_get }));
                    sent.push(Some(before));
                }
            }
            let mut answered = Vec::new();
            for piece in input.chunks(*piece) {
                answered.extend(replies(&client.harness.feed(piece)));
            }
            answered.sort_by_key(|reply| reply.opaque);
            prop_assert_eq!(opaques(&answered), (0..sent.len() as u32).collect::<Vec<_>>());
            for (reply, expected) in answered.iter().zip(sent) {
                match expected {
                    Some(None) => prop_assert_eq!(reply.status, Status::KeyEnoent),
                    Some(Some(value)) => prop_assert_eq!(&reply.value, &value),
                    None => prop_assert_eq!(reply.status, Status::Success),
                }
            }
        }
    }
}
