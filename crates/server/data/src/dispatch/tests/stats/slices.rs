//! A STAT is answered in slices: bounded, in order, and the same as in one piece.

use oribi_protocol::frame::{DecodedFrame, decode};
use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::RequestParts;
use oribi_protocol::status::Status;
use proptest::prelude::*;

use super::{create, group, refusal, with_collections};
use crate::dispatch::stats::produce_in_slices;
use crate::dispatch::tests::{Client, about, bytes, replies};
use crate::limits::{OUTPUT_FLUSH_BYTES, STAT_SLICE_BYTES};

/// One entry, and the rest of a step.
const OVERSHOOT: usize = 16 * 1024;

fn stat(group: &str) -> Vec<u8> {
    bytes(&RequestParts { key: group.as_bytes(), opaque: 99, ..RequestParts::new(Opcode::Stat) })
}

/// A client of a bucket with so many collections that `collections-details` takes several slices.
fn crowded(collections: usize) -> Client {
    let client = with_collections();
    for index in 0..collections {
        create(&client, "many", &format!("collection-{index}"), None);
    }
    client
}

// Invariant: A long STAT is sent in slices, one a turn.
#[test]
fn queued_requests_wait_for_bounded_slices() {
    let mut client = crowded(200);
    let mut input = stat("collections-details");
    input.extend(bytes(&RequestParts { opaque: 100, ..RequestParts::new(Opcode::Noop) }));
    let (mut answered, mut slices, mut may_continue) = (Vec::new(), 0, true);
    while may_continue {
        let (slice, more) = client.harness.turn(&std::mem::take(&mut input));
        assert!(slice.len() <= STAT_SLICE_BYTES + OVERSHOOT, "{}", slice.len());
        answered.extend(slice);
        (slices, may_continue) = (slices + 1, more);
    }
    let all = replies(&answered);
    assert_eq!(all.len(), 1 + 2 * 201 + 4 * (4 + 9 * 201) + 2);
    assert!(slices >= answered.len() / (STAT_SLICE_BYTES + OVERSHOOT), "{slices}");
    let (noop, entries) = all.split_last().unwrap();
    assert_eq!((noop.opcode, noop.opaque), (Opcode::Noop as u8, 100));
    assert!(entries.iter().all(|entry| entry.opaque == 99 && entry.status == Status::Success));
    let end = entries.iter().position(|entry| entry.key.is_empty());
    assert_eq!(end, Some(entries.len() - 1));
}

#[test]
fn client_that_never_reads_holds_a_bounded_output() {
    let mut client = crowded(200);
    let requests = [stat("collections-details"), stat("vbucket-details")].concat();
    let pending = client.harness.feed_unread(&requests);
    let limit = OUTPUT_FLUSH_BYTES + STAT_SLICE_BYTES + OVERSHOOT;
    assert!((OUTPUT_FLUSH_BYTES..=limit).contains(&pending), "{pending}");
    client.harness.advance_ms(61_000);
    let reason = client.harness.close_reason();
    assert_eq!(reason, Some(crate::connection::close_reason::CloseReason::SendDeadline));
}

#[test]
fn deleted_bucket_ends_the_stat() {
    let mut client = crowded(200);
    let (first, may_continue) = client.harness.turn(&stat("collections-details"));
    assert!(may_continue && !first.is_empty());
    client.harness.server().buckets.delete("default").unwrap();
    let rest = replies(&client.harness.feed(&[]));
    assert_eq!((rest.len(), rest[0].status), (1, Status::NoBucket));
    let noop = client.ask(&RequestParts::new(Opcode::Noop));
    assert_eq!(noop.status, Status::Success);
    assert_eq!(client.ask(&about(Opcode::Get, b"\0k")).status, Status::NoBucket);
}

#[test]
fn deleting_the_bucket_ends_a_running_stat() {
    let mut client = Client::modern();
    let (none, may_continue) = client.harness.turn(&stat("memory"));
    assert!(none.is_empty() && may_continue);
    client.harness.server().buckets.delete("default").unwrap();
    let rest = replies(&client.harness.feed(&[]));
    assert_eq!((rest.len(), rest[0].status), (1, Status::NoBucket));
}

#[test]
fn full_queue_of_the_blocking_thread_refuses_the_stat() {
    let mut client = Client::modern();
    client.harness.set_refuses_jobs(true);
    for name in ["", "collections", "timings"] {
        assert_eq!(refusal(&mut client, name), Status::Etmpfail, "{name:?}");
    }
    assert_eq!(group(&mut client, "vbucket").len(), 4, "what needs no job goes on");
    client.harness.set_refuses_jobs(false);
    assert!(!group(&mut client, "").is_empty());
}

/// The entries in a sequence of slices, without the parts that may differ between two runs.
fn names(mut output: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut names = Vec::new();
    while let Ok(DecodedFrame::Complete { frame, consumed }) = decode(output) {
        names.push((frame.key.to_vec(), frame.value.to_vec()));
        output = &output[consumed..];
    }
    assert!(output.is_empty(), "whole frames only");
    names
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn sum_of_slices_equals_one_piece(slice_bytes in 1_usize..4_000, collections in 0_usize..12) {
        let mut client = crowded(collections);
        for index in 0..50 {
            client.set(format!("\0key{index}").as_bytes(), b"v");
        }
        for name in [
            "collections-details", "scopes-details", "collections", "scopes", "checkpoint",
            "vbucket-details", "vbucket-seqno", "failovers", "hash", "timings",
        ] {
            let (server, bucket) = (client.harness.server(), client.harness.bucket());
            let whole = produce_in_slices(server, bucket, name, usize::MAX);
            let sliced = produce_in_slices(server, bucket, name, slice_bytes);
            prop_assert_eq!(whole.len(), 1, "one slice for {}", name);
            prop_assert_eq!(names(&sliced.concat()), names(&whole[0]), "{}", name);
            prop_assert!(!names(&whole[0]).is_empty());
        }
    }
}
