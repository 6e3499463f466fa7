//! Framing extras, and writes that wait for the store.

use oribi_protocol::frame_info::{encode_durability, encode_preserve_expiry};
use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::RequestParts;
use oribi_protocol::response::MutationTokenExtras;
use oribi_protocol::status::Status;
use oribi_types::DurabilityLevel;

use super::{Client, SET_EXTRAS, about, bytes, counter_extras, replies, set_extras};
use crate::buckets::DurabilityMin;

fn durable(level: DurabilityLevel, timeout_ms: Option<u16>) -> Vec<u8> {
    let mut framing = Vec::new();
    encode_durability(level, timeout_ms, &mut framing);
    framing
}

fn to_disk() -> Vec<u8> {
    durable(DurabilityLevel::PersistToMajority, None)
}

fn set<'a>(framing: &'a [u8], key: &'a [u8]) -> RequestParts<'a> {
    RequestParts { framing, extras: &SET_EXTRAS, value: b"v", ..about(Opcode::Set, key) }
}

/// Every feature except unordered execution.
const ORDERED: [u16; 8] = [4, 7, 8, 0x0b, 0x0c, 0x10, 0x11, 0x14];

// Compat (Differences): Durability on one node
#[test]
fn each_durable_write_is_answered_after_its_commit() {
    let mut client = Client::modern();
    let framing = to_disk();
    let counter = counter_extras(1, 10, 0);
    let reply = client.ask(&set(&framing, b"k"));
    assert_eq!((reply.status, reply.extras.len()), (Status::Success, 16));
    let token = MutationTokenExtras::decode(&reply.extras).unwrap();
    let vbid = about(Opcode::Get, b"k").vbid;
    let stats = client.harness.bucket().bucket().vbucket(vbid).unwrap().stats();
    assert!(stats.persisted_seqno >= token.seqno);
    let count =
        RequestParts { framing: &framing, extras: &counter, ..about(Opcode::Increment, b"n") };
    let reply = client.ask(&count);
    assert_eq!((reply.value, reply.extras.len()), (10_u64.to_be_bytes().to_vec(), 16));
    let append = RequestParts { framing: &framing, value: b"w", ..about(Opcode::Append, b"k") };
    assert_eq!(client.ask(&append).status, Status::Success);
    let gat = RequestParts { framing: &framing, extras: &[0; 4], ..about(Opcode::Gat, b"k") };
    assert_eq!(client.ask(&gat).value, b"vw");
    let touch = RequestParts { opcode: Opcode::Touch, ..gat };
    assert!(client.ask(&touch).extras.is_empty());
    let delete = RequestParts { framing: &framing, ..about(Opcode::Delete, b"k") };
    assert_eq!(client.ask(&delete).extras.len(), 16);
}

// Compat (Differences): Durability on one node
#[test]
fn majority_of_one_node_is_memory() {
    let mut client = Client::modern();
    client.harness.set_flushes(false);
    let framing = durable(DurabilityLevel::Majority, Some(5_000));
    assert_eq!(client.ask(&set(&framing, b"k")).status, Status::Success);
}

// Compat (Differences): UnorderedExecution
#[test]
fn unordered_connection_goes_on_while_a_write_waits() {
    let mut client = Client::modern();
    client.harness.set_flushes(false);
    let framing = to_disk();
    assert!(client.send(&RequestParts { opaque: 77, ..set(&framing, b"k") }).is_empty());
    assert_eq!(
        client.get(b"k").status,
        Status::KeyEnoent,
        "it is not visible before it is durable"
    );
    let noop = RequestParts { opaque: 78, ..RequestParts::new(Opcode::Noop) };
    assert!(client.send(&noop).is_empty(), "what may not be reordered waits");
    client.harness.set_flushes(true);
    let all = replies(&client.harness.feed(&[]));
    let order: Vec<u32> = all.iter().map(|reply| reply.opaque).collect();
    assert_eq!(order, [77, 78]);
    assert_eq!((all[0].opcode, all[0].status), (Opcode::Set as u8, Status::Success));
    assert_ne!(all[0].cas, 0);
}

/// Statuses of every kind of request for `k`, while a durable write of it waits.
fn statuses_beside_a_pending_write(client: &mut Client) -> Vec<(Opcode, Status)> {
    let counter = counter_extras(1, 10, 0);
    let plain = |opcode: Opcode| about(opcode, b"k");
    let requests = [
        RequestParts { extras: &SET_EXTRAS, value: b"x", ..plain(Opcode::Set) },
        RequestParts { extras: &SET_EXTRAS, value: b"x", ..plain(Opcode::Add) },
        RequestParts { extras: &SET_EXTRAS, value: b"x", ..plain(Opcode::Replace) },
        RequestParts { value: b"x", ..plain(Opcode::Append) },
        RequestParts { value: b"x", ..plain(Opcode::Prepend) },
        plain(Opcode::Delete),
        RequestParts { extras: &counter, ..plain(Opcode::Increment) },
        RequestParts { extras: &[0; 4], ..plain(Opcode::Touch) },
        RequestParts { extras: &[0; 4], ..plain(Opcode::Gat) },
        RequestParts { extras: &[0; 4], ..plain(Opcode::GetLocked) },
        RequestParts { cas: 1, ..plain(Opcode::UnlockKey) },
        plain(Opcode::Get),
    ];
    requests.iter().map(|request| (request.opcode, client.ask(request).status)).collect()
}

// Compat (Differences): Durability on one node
#[test]
fn other_writes_are_refused_while_one_is_pending() {
    let mut client = Client::modern();
    let framing = to_disk();
    assert_eq!(
        client.ask(&RequestParts { framing: &[], ..set(&[], b"k") }).status,
        Status::Success
    );
    client.harness.set_flushes(false);
    let delete = RequestParts { framing: &framing, ..about(Opcode::Delete, b"k") };
    assert!(client.send(&delete).is_empty());
    for (opcode, status) in statuses_beside_a_pending_write(&mut client) {
        let expected = match opcode {
            Opcode::Get => Status::Success,
            _ => Status::SyncWriteInProgress,
        };
        assert_eq!(status, expected, "{}", opcode.name());
    }
    assert_eq!(client.get(b"k").value, b"v", "the committed version");
    client.harness.set_flushes(true);
    let all = replies(&client.harness.feed(&[]));
    assert_eq!(all.iter().map(|reply| reply.status).collect::<Vec<_>>(), [Status::Success]);
    assert_eq!(client.get(b"k").status, Status::KeyEnoent);
}

#[test]
fn a_pending_first_write_is_a_miss_to_others() {
    let mut client = Client::modern();
    client.harness.set_flushes(false);
    let framing = to_disk();
    assert!(client.send(&set(&framing, b"k")).is_empty());
    for (opcode, status) in statuses_beside_a_pending_write(&mut client) {
        let expected = match opcode {
            Opcode::Get | Opcode::Replace => Status::KeyEnoent,
            _ => Status::SyncWriteInProgress,
        };
        assert_eq!(status, expected, "{}", opcode.name());
    }
    client.harness.set_flushes(true);
    assert_eq!(replies(&client.harness.feed(&[])).len(), 1);
    assert_eq!(client.get(b"k").value, b"v");
}

#[test]
fn a_write_that_timed_out_stays_pending() {
    let mut client = Client::modern();
    client.harness.set_flushes(false);
    let framing = durable(DurabilityLevel::PersistToMajority, Some(2_000));
    client.send(&set(&framing, b"k"));
    let all = replies(&client.harness.advance_ms(2_100));
    assert_eq!(all[0].status, Status::SyncWriteAmbiguous);
    assert_eq!(client.get(b"k").status, Status::KeyEnoent);
    assert_eq!(client.ask(&set(&[], b"k")).status, Status::SyncWriteInProgress);
    client.harness.set_flushes(true);
    client.harness.bucket().bucket().flush_step().unwrap();
    assert!(client.harness.feed(&[]).is_empty());
    assert_eq!(client.get(b"k").value, b"v", "the store has decided");
}

#[test]
fn ordered_connection_waits() {
    let mut client = Client::with_features(&ORDERED);
    client.harness.set_flushes(false);
    let framing = to_disk();
    assert!(client.send(&set(&framing, b"k")).is_empty());
    assert!(client.send(&about(Opcode::Get, b"k")).is_empty());
    client.harness.set_flushes(true);
    let all = replies(&client.harness.feed(&[]));
    assert_eq!(all.iter().map(|reply| reply.opcode).collect::<Vec<_>>(), [1, 0]);
}

#[test]
fn barrier_waits_for_parked_writes() {
    let mut client = Client::modern();
    client.harness.set_flushes(false);
    let framing = to_disk();
    client.send(&set(&framing, b"k"));
    let get = RequestParts { framing: &[0x00], ..about(Opcode::Get, b"k") };
    assert!(client.send(&get).is_empty());
    client.harness.set_flushes(true);
    assert_eq!(replies(&client.harness.feed(&[])).len(), 2);
}

#[test]
fn a_slow_durable_write_is_ambiguous_answered_once() {
    let mut client = Client::modern();
    client.harness.set_flushes(false);
    let framing = durable(DurabilityLevel::MajorityAndPersistOnMaster, Some(2_000));
    client.send(&RequestParts { opaque: 5, ..set(&framing, b"k") });
    assert!(client.harness.advance_ms(1_000).is_empty());
    let all = replies(&client.harness.advance_ms(1_100));
    assert_eq!((all[0].opaque, all[0].status), (5, Status::SyncWriteAmbiguous));
    let body = String::from_utf8_lossy(&all[0].value);
    assert!(body.contains("before the timeout"), "{body}");
    client.harness.set_flushes(true);
    client.harness.bucket().bucket().flush_step().unwrap();
    assert!(client.harness.feed(&[]).is_empty());
    assert_eq!(client.ask(&set(&to_disk(), b"k")).status, Status::Success);
}

#[test]
fn malformed_framing_extras() {
    let mut client = Client::modern();
    for (framing, status) in [
        (&[0x11][..], Status::Einval),
        (&[0x11, 0x04], Status::DurabilityInvalidLevel),
        (&[0x13, 0x01, 0, 0], Status::DurabilityInvalidLevel),
        (&[0x13, 0x01, 0xff, 0xff], Status::DurabilityInvalidLevel),
        (&[0x12, 0x01, 0], Status::Einval),
        (&[0x11, 0x01, 0x11, 0x09], Status::DurabilityInvalidLevel),
        (&[0x41, b'x'], Status::UnknownFrameInfo),
        (&[0xf0], Status::Einval),
        (&[0x22, 0, 1], Status::Einval),
    ] {
        assert_eq!(client.ask(&set(framing, b"k")).status, status, "{framing:?}");
    }
    let framing = to_disk();
    let quiet = RequestParts { opcode: Opcode::Setq, ..set(&framing, b"k") };
    assert_eq!(client.ask(&quiet).status, Status::Einval);
    let get = RequestParts { framing: &framing, ..about(Opcode::Get, b"k") };
    assert_eq!(client.ask(&get).status, Status::Einval);
}

/// Regression 18: libcouchbase asks for framing extras and durability only in the HELLO of later
/// connections. The server refused every durable write on its first one. The features tell clients
/// what the server knows; they gate no request.
#[test]
fn framing_extras_need_no_feature() {
    let features: [&[u16]; 4] = [&[], &[7], &[7, 0x10], &[4, 7, 8, 0x0b, 0x0e, 0x11, 0x14]];
    for features in features {
        let mut client = Client::with_features(features);
        for framing in [&[0x11, 0x01][..], &[0x50], &[0x00], &[0x50, 0x11, 0x03], &to_disk()] {
            let reply = client.ask(&set(framing, b"k"));
            assert_eq!(reply.status, Status::Success, "{framing:?} after {features:?}");
        }
    }
    let mut without_hello = Client::legacy();
    assert_eq!(without_hello.ask(&set(&[0x11, 0x01], b"k")).status, Status::Success);
}

// Compat (Differences): Framing extras
/// SDKs of the C++ core append the durability frame again at each retry, for example behind a lock.
#[test]
fn of_repeated_frames_the_first_counts() {
    let mut client = Client::modern();
    client.harness.set_flushes(false);
    let majority = [0x11, 0x01, 0x11, 0x03, 0x13, 0x03, 0, 100];
    assert_eq!(client.ask(&set(&majority, b"k")).status, Status::Success, "it does not wait");
    let persist = [0x11, 0x03, 0x11, 0x01, 0x50, 0x50, 0x00, 0x00];
    assert!(client.send(&set(&persist, b"k")).is_empty(), "it waits");
    client.harness.set_flushes(true);
    assert_eq!(replies(&client.harness.feed(&[]))[0].status, Status::Success);
}

#[test]
fn a_request_waiting_for_parked_writes_counts_once() {
    let mut client = Client::modern();
    client.harness.set_flushes(false);
    let before = client.harness.server().diagnostics.counters.totals().cmd_total;
    client.send(&set(&to_disk(), b"k"));
    let noop = bytes(&RequestParts::new(Opcode::Noop));
    for _ in 0..3 {
        assert!(client.harness.feed(&[]).is_empty());
    }
    assert!(client.harness.feed(&noop).is_empty());
    let counted = || client.harness.server().diagnostics.counters.totals().cmd_total - before;
    assert_eq!(counted(), 1, "the NOOP is not served yet");
    client.harness.set_flushes(true);
    assert_eq!(replies(&client.harness.feed(&[])).len(), 2);
    assert_eq!(client.harness.server().diagnostics.counters.totals().cmd_total - before, 2);
}

/// The answer to a touch without effect waits for the current version.
#[test]
fn a_durable_touch_waits_for_the_present_version() {
    let mut client = Client::modern();
    client.harness.set_flushes(false);
    let first = client.set(b"k", b"v");
    let framing = to_disk();
    let touch = RequestParts { framing: &framing, extras: &[0; 4], ..about(Opcode::Touch, b"k") };
    assert!(client.send(&touch).is_empty());
    client.harness.set_flushes(true);
    let reply = replies(&client.harness.feed(&[])).remove(0);
    assert_eq!((reply.status, reply.cas), (Status::Success, first.cas));
    assert_eq!(client.ask(&touch).cas, first.cas);
}

#[test]
fn preserve_expiry_keeps_the_old_one() {
    let mut client = Client::modern();
    let extras = set_extras(0, 10);
    client.ask(&RequestParts { extras: &extras, value: b"1", ..about(Opcode::Set, b"k") });
    let mut framing = Vec::new();
    encode_preserve_expiry(&mut framing);
    assert_eq!(client.ask(&set(&framing, b"k")).status, Status::Success);
    let add = RequestParts { opcode: Opcode::Add, ..set(&framing, b"new") };
    assert_eq!(client.ask(&add).status, Status::NotSupported);
    client.harness.advance_ms(11_000);
    assert_eq!(client.get(b"k").status, Status::KeyEnoent);
}

// A bulk load into a bucket with a minimum durability got temporary failures.
#[test]
fn excess_durable_writes_wait_unapplied() {
    for framing in [&to_disk()[..], &[]] {
        let mut client = Client::modern();
        client.harness.bucket().set_durability_min(DurabilityMin::PersistToMajority);
        client.harness.set_flushes(false);
        let mut input = Vec::new();
        for index in 0..crate::limits::PARKED_MAX {
            input.extend(bytes(&set(framing, format!("k{index}").as_bytes())));
        }
        input.extend(bytes(&set(framing, b"one more")));
        assert!(client.harness.feed(&input).is_empty());
        let mut other = Client { harness: client.harness.beside() };
        assert_eq!(other.get(b"one more").status, Status::KeyEnoent);
        client.harness.set_flushes(true);
        let answers = replies(&client.harness.feed(&[]));
        assert_eq!(answers.len(), crate::limits::PARKED_MAX + 1);
        assert!(answers.iter().all(|answer| answer.status == Status::Success));
        assert_eq!(other.get(b"one more").status, Status::Success);
    }
}

// A connection kept documents for answers that nothing counted.
#[test]
fn parked_documents_are_counted() {
    let mut client = Client::modern();
    let value = vec![b'x'; 100_000];
    assert_eq!(client.set(b"k", &value).status, Status::Success);
    client.harness.set_flushes(false);
    client.harness.bucket().set_durability_min(DurabilityMin::PersistToMajority);
    let held = |client: &Client| client.harness.server().connections.buffer_bytes();
    let before = held(&client);
    let touch = RequestParts { extras: &[0, 0, 0, 9], ..about(Opcode::Gat, b"k") };
    assert!(client.send(&touch).is_empty());
    let parked = held(&client) - before;
    assert!((100_000..110_000).contains(&parked), "{parked}");
    client.harness.set_flushes(true);
    assert_eq!(replies(&client.harness.feed(&[]))[0].value, value);
    assert!(held(&client) < before + 1024);
}
