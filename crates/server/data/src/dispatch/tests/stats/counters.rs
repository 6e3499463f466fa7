//! Counters and timings in STAT.

use std::sync::Arc;

use oribi_auth::UserStore;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::RequestParts;
use oribi_protocol::status::Status;
use oribi_storage::{FaultPlan, FaultStore, MemoryStore, StoreFault};
use serde_json::{Value, json};

use super::{entries, group};
use crate::diagnostics::counters::timings::SAMPLE_EVERY;
use crate::dispatch::tests::{Client, MODERN, SET_EXTRAS, about, bytes, counter_extras, outside};
use crate::harness::ConnectionHarness;

fn count(client: &mut Client, opcode: Opcode, key: &[u8], creates: bool) {
    let extras = counter_extras(1, 0, if creates { 0 } else { u32::MAX });
    client.ask(&RequestParts { extras: &extras, ..about(opcode, key) });
}

#[test]
fn outcomes_have_their_counters() {
    let mut client = Client::modern();
    let cas = client.set(b"k", b"v").cas;
    let with_cas =
        |cas| RequestParts { cas, extras: &SET_EXTRAS, value: b"w", ..about(Opcode::Set, b"k") };
    let missing = RequestParts { key: b"none", ..with_cas(cas) };
    client.ask(&with_cas(cas + 1));
    client.ask(&with_cas(cas));
    client.ask(&RequestParts { vbid: about(Opcode::Set, b"none").vbid, ..missing });
    count(&mut client, Opcode::Increment, b"n", true);
    count(&mut client, Opcode::Decrement, b"n", true);
    count(&mut client, Opcode::Increment, b"absent", false);
    count(&mut client, Opcode::Decrement, b"absent", false);
    client.ask(&RequestParts { extras: &[0; 4], ..about(Opcode::Touch, b"k") });
    client.ask(&RequestParts { extras: &[0; 4], ..about(Opcode::Touch, b"absent") });
    client.ask(&RequestParts { extras: &[0; 4], ..about(Opcode::Gat, b"k") });
    client.ask(&about(Opcode::Delete, b"k"));
    client.ask(&about(Opcode::Delete, b"k"));
    let stats = group(&mut client, "");
    for (name, value) in [
        ("cas_hits", "1"),
        ("cas_badval", "1"),
        ("cas_misses", "1"),
        ("incr_hits", "1"),
        ("incr_misses", "1"),
        ("decr_hits", "1"),
        ("decr_misses", "1"),
        ("cmd_touch", "3"),
        ("touch_hits", "2"),
        ("touch_misses", "1"),
        ("get_hits", "1"),
        ("delete_hits", "1"),
        ("delete_misses", "1"),
        ("auth_cmds", "1"),
        ("auth_errors", "0"),
    ] {
        assert_eq!(stats[name], value, "{name}");
    }
}

#[test]
fn sums_over_all_buckets_keep_those_of_a_deleted_one() {
    let mut client = Client::modern();
    client.set(b"k", b"v");
    client.get(b"k");
    let before = client.harness.server().buckets.operation_totals();
    assert_eq!((before.cmd_get, before.cmd_set), (1, 1));
    client.harness.server().buckets.delete("default").unwrap();
    assert_eq!(client.harness.server().buckets.operation_totals(), before);
}

#[test]
fn refusals_are_counted_by_their_kind() {
    let plan = FaultPlan::none();
    let store = FaultStore::new(MemoryStore::new(), Arc::clone(&plan));
    let harness = ConnectionHarness::over(UserStore::development(), Arc::new(store));
    // Writes of memcached clients would wait instead.
    let mut client = Client::on(harness, &MODERN);
    client.set(b"k", b"v");
    plan.fail_from(plan.commits() + 1, StoreFault::BeforeCommit);
    let bucket = Arc::clone(client.harness.bucket());
    bucket.bucket().flush_step().unwrap_err();
    bucket.bucket().review_pressure();
    assert_eq!(client.set(b"k", b"w").status, Status::Etmpfail);
    client.send(&RequestParts { vbid: outside(), ..about(Opcode::Get, b"k") });
    let stats = group(&mut client, "");
    // A refused request is neither hit nor miss, and no write to the collection.
    for (name, value) in [
        ("cmd_set", "2"),
        ("cmd_get", "1"),
        ("get_misses", "0"),
        ("ep_oom_errors", "0"),
        ("ep_tmp_oom_errors", "1"),
        ("ep_degraded_mode", "true"),
        ("ep_item_commit_failed", "1"),
    ] {
        assert_eq!(stats[name], value, "{name}");
    }
    assert_eq!(group(&mut client, "collections-byid 0")["0x0:0x0:ops_store"], "1");
}

// Compat (Statistics): `timings`
/// The harness's clock takes a microsecond for each timed command.
#[test]
fn timings_are_sampled_histograms() {
    let mut client = Client::modern();
    let agent = RequestParts { key: b"oribi/1.0", ..RequestParts::new(Opcode::Hello) };
    client.ask(&RequestParts { value: &[0, 7, 0, 0x0b], ..agent });
    client.set(b"k", b"v");
    let gets = 10 * u64::from(SAMPLE_EVERY);
    client.harness.feed(&bytes(&about(Opcode::Get, b"k")).repeat(gets as usize));
    group(&mut client, "uuid");
    let timings = group(&mut client, "timings");
    let histogram: Value = serde_json::from_str(&timings["get_cmd"]).unwrap();
    let total = histogram["total"].as_u64().unwrap();
    assert!(total <= gets && total > gets - u64::from(SAMPLE_EVERY), "{total} of {gets}");
    assert_eq!(histogram["bucketsLow"], 1);
    assert_eq!(histogram["data"], json!([[1, total, 100.0]]));
    let stores: Value = serde_json::from_str(&timings["store_cmd"]).unwrap();
    assert_eq!(stores["total"], 1);
    let stats: Value = serde_json::from_str(&timings["get_stats_cmd"]).unwrap();
    assert_eq!(stats["total"], 1, "every STAT is timed; this one has not ended");
    for name in ["arith_cmd", "disk_commit", "storage_age", "item_alloc_sizes"] {
        let empty: Value = serde_json::from_str(&timings[name]).unwrap();
        assert_eq!((&empty["total"], &empty["data"]), (&0.into(), &Value::Array(vec![])), "{name}");
    }
    group(&mut client, "reset");
    let after: Value = serde_json::from_str(&group(&mut client, "timings")["get_cmd"]).unwrap();
    assert_eq!(after["total"], 0);
}

// Compat (Statistics): `timings`
#[test]
fn tools_get_one_entry_per_range() {
    let mut client = Client::modern();
    client.set(b"k", b"v");
    client.get(b"k");
    let timings = entries(&mut client, "timings");
    assert!(timings.contains(&("get_cmd_mean".to_owned(), "1".to_owned())), "{timings:?}");
    assert!(timings.contains(&("get_cmd_1,1".to_owned(), "1".to_owned())), "{timings:?}");
    assert!(timings.iter().all(|(name, _)| !name.starts_with("arith_cmd")));
}
