//! Tests the transitions between waits: late completions, timers that carry over, and misuse.

use super::*;

const REQUEST: RequestId = RequestId { opcode: 1, opaque: 7 };

fn in_wait(wait: HeadWait) -> Pending {
    let mut pending = Pending::default();
    pending.wait_at_head(wait);
    pending
}

#[test]
fn late_completions_change_nothing() {
    let mut pending = in_wait(HeadWait::Fetch);
    assert!(!pending.end_head_wait(|wait| wait == HeadWait::Bucket));
    assert!(!pending.time_out_memory(1000, 1) && pending.end_job().is_none());
    pending.end_deferred_wait();
    assert!(pending.end_answer().is_none());
    assert_eq!(pending.head_wait(), Some(HeadWait::Fetch));
    assert!(pending.end_head_wait(|wait| wait == HeadWait::Fetch) && pending.is_nothing());
}

#[test]
fn memory_timeout_is_reported_once() {
    let mut pending = in_wait(HeadWait::Memory { since_ms: 10 });
    assert!(pending.is_waiting() && !pending.time_out_memory(110, 100));
    assert!(pending.time_out_memory(111, 100) && !pending.is_waiting());
    assert!(pending.take_memory_timeout() && !pending.take_memory_timeout());
    assert!(pending.is_nothing());
}

#[test]
fn a_served_request_ends_the_memory_timeout() {
    let mut pending = in_wait(HeadWait::Memory { since_ms: 0 });
    assert!(pending.time_out_memory(1000, 100));
    pending.head_served(1000);
    assert!(!pending.take_memory_timeout() && pending.is_nothing());
}

#[test]
fn other_waits_do_not_extend_the_wait_for_a_bucket() {
    let mut pending = Pending::default();
    assert!(pending.wait_for_bucket(10, 100));
    assert!(pending.end_head_wait(|wait| wait == HeadWait::Bucket) && !pending.is_waiting());
    pending.wait_at_head(HeadWait::Fetch);
    assert!(pending.end_head_wait(|wait| wait == HeadWait::Fetch));
    assert!(!pending.wait_for_bucket(111, 100) && pending.is_nothing());
    assert!(pending.wait_for_bucket(112, 100), "the next request waits anew");
    pending.head_served(200);
    pending.end_head_wait(|_| true);
    assert!(pending.wait_for_bucket(300, 100));
}

#[test]
fn a_job_ends_with_its_request() {
    let mut pending = Pending::default();
    pending.wait_for_job(REQUEST);
    assert!(pending.is_waiting() && !pending.is_answering());
    assert_eq!(pending.end_job(), Some(REQUEST));
    assert!(pending.is_nothing() && pending.end_job().is_none());
}

#[test]
#[should_panic(expected = "a connection that waits starts no job")]
fn two_jobs_at_a_time_are_a_bug() {
    let mut pending = Pending::default();
    pending.wait_for_job(REQUEST);
    pending.wait_for_job(REQUEST);
}

#[test]
#[should_panic(expected = "a request waits only when it could be served")]
fn a_second_wait_at_the_head_is_a_bug() {
    in_wait(HeadWait::Drain).wait_at_head(HeadWait::Fetch);
}
