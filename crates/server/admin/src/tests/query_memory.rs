//! What statements of SQL hold of the connections' memory, and who has to give it back.

use std::time::{Duration, Instant};

use oribi_types::CollectionId;
use serde_json::json;

use super::changes::wait_until;
use super::query::rows_in;
use super::{ADMIN, Fixture};
use crate::limits::SQL_STATEMENTS_MAX;

impl Fixture {
    /// Puts a document that is longer once it is inflated.
    fn put_compressed(&self, key: &str, plain: &[u8]) {
        let value = snap::raw::Encoder::new().compress_vec(plain).unwrap();
        let server = self.server.as_ref().unwrap();
        let bucket = server.context().buckets.get("default").unwrap();
        let vbid = oribi_protocol::hash::vbucket_of(key.as_bytes(), bucket.vbuckets());
        let request = oribi_engine::StoreRequest {
            mode: oribi_engine::StoreCondition::Set,
            value: &value,
            is_compressed: true,
            flags: 0,
            expiry: 0,
            cas: oribi_types::Cas(0),
            preserve_expiry: false,
        };
        let key = oribi_types::DocKey { collection: CollectionId::DEFAULT, key: key.as_bytes() };
        let stored = bucket.bucket().store(vbid, key, &request, oribi_system::clock::wall_clock());
        assert!(matches!(stored, oribi_engine::MutationOutcome::Done(_)), "{stored:?}");
    }
}

/// Whether it is stored as it is, or expands, and whichever way it is found.
#[test]
fn large_documents_are_reserved_before_loading() {
    const BYTES: usize = 3 << 20;
    let fixture = Fixture::development();
    let document = json!({"t": "a".repeat(BYTES)}).to_string();
    fixture.put("plain", document.as_bytes());
    fixture.put_compressed("packed", document.as_bytes());
    fixture.put("small", b"{\"t\":\"a\"}");
    let statement =
        |condition: &str| format!("select sum(length(json)) from \"default\" where {condition}");
    let conditions =
        ["id = 'plain'", "id = 'packed'", "id >= 'pl' and id < 'pm'", "id >= 'pa' and id < 'pb'"];
    for condition in conditions {
        assert_eq!(fixture.rows(&statement(condition)), [json!([document.len()])], "{condition}");
    }
    wait_until(|| fixture.reserved_bytes() == 0, "nothing stays reserved");
    let memory = &fixture.server.as_ref().unwrap().context().connections.memory;
    let all_but = |bytes| memory.hold(memory.reservable_bytes() - bytes).expect("nothing is held");
    let others = all_but(BYTES - 1);
    std::thread::scope(|scope| {
        let asked = conditions.map(|condition| {
            let fixture = &fixture;
            scope.spawn(move || (condition, fixture.query_as(ADMIN, &statement(condition))))
        });
        for answer in asked {
            let (condition, answer) = answer.join().unwrap();
            assert_eq!(answer.status, 503, "{condition}: {}", answer.body);
            // One of them has the turn, and the others wait for it.
            let whys =
                ["the memory for connections is in use", "other clients wait for the memory"];
            let says = whys.iter().any(|why| answer.body.contains(why));
            assert!(says, "{condition}: {}", answer.body);
        }
    });
    assert_eq!(fixture.rows(&statement("id = 'small'")), [json!([9])], "small ones need little");
    drop(others);
    // The value alone is a copy, too, which SQLite's own heap does not have.
    let value = "select length(json ->> 't') from \"default\" where id = 'plain'";
    let others = all_but(BYTES + BYTES / 2);
    let answer = fixture.query_as(ADMIN, value);
    assert_eq!(answer.status, 503, "{}", answer.body);
    drop(others);
    assert_eq!(fixture.rows(value), [json!([BYTES])]);
    wait_until(|| fixture.reserved_bytes() == 0, "all memory is given back");
}

/// More than any connection can have is refused at once, and says what is needed.
#[test]
fn a_row_for_which_there_can_be_no_memory_is_refused() {
    let fixture = Fixture::development();
    // What a server without quotas could reserve: 24 MiB. SQLite's memory is that of all tests.
    fixture.server.as_ref().unwrap().context().connections.memory.set_quotas(0);
    let row = "select hex(zeroblob(6500000)), hex(zeroblob(6500000))";
    let answer = fixture.query_as(ADMIN, row);
    assert_eq!(answer.status, 200, "its columns are sent: {}", answer.body);
    assert!(answer.body.contains("a row needs "), "{}", answer.body);
    assert!(answer.body.contains("\"end\":\"error\""), "{}", answer.body);
}

/// A client that does not read rows of large documents loses its statement to one that does.
#[test]
fn who_does_not_read_large_rows_makes_room_for_others() {
    const BYTES: usize = 3 << 20;
    let fixture = Fixture::development();
    for number in 0..4 {
        let document = json!({"t": "a".repeat(BYTES)}).to_string();
        fixture.put_compressed(&format!("large{number}"), document.as_bytes());
    }
    let memory = &fixture.server.as_ref().unwrap().context().connections.memory;
    let most = memory.reservable_bytes();
    // Two documents with their rows fit in what is left.
    let others = memory.hold(most - 4 * BYTES - (1 << 20)).expect("nothing is held");
    let before = fixture.reserved_bytes();
    let all = "select json from \"default\"";
    let unread: Vec<_> = (0..SQL_STATEMENTS_MAX - 1).map(|_| fixture.begin(all)).collect();
    wait_until(
        || {
            assert!(fixture.reserved_bytes() <= most as u64);
            fixture.reserved_bytes() > before + BYTES as u64
        },
        "a statement has a large document",
    );
    let mut lengths = Vec::new();
    wait_until(
        || {
            let answer =
                fixture.query_as(ADMIN, "select json from \"default\" where id = 'large2'");
            if answer.status == 200 && answer.body.contains("\"end\":\"complete\"") {
                lengths = rows_in(&answer.body).iter().map(|row| row.to_string().len()).collect();
            }
            !lengths.is_empty()
        },
        "one that reads gets its row",
    );
    assert!(lengths[0] > BYTES);
    drop((unread, others));
    wait_until(|| fixture.reserved_bytes() == 0, "all memory is given back");
}

/// Rows of six million bytes each, without an end and without large documents.
const LARGE_ROWS: &str = "with recursive c(x) as (values (1) union all select x + 1 from c) \
                          select hex(zeroblob(3000000)), x from c";

/// Bytes of such a row.
const ROW_BYTES: usize = 6_000_000;

/// Who waits for memory that a client does not read away gets it long before this.
const ROOM_WITHIN: Duration = Duration::from_secs(30);

impl Fixture {
    /// Asks again while memory is short, which must end soon.
    #[track_caller]
    fn has_its_row(&self, statement: &str, what: &str) {
        let begun = Instant::now();
        loop {
            let answer = self.query_as(ADMIN, statement);
            if answer.status == 200 && answer.body.contains("\"end\":\"complete\"") {
                return;
            }
            let waited = begun.elapsed();
            assert!(waited < ROOM_WITHIN, "{what}, after {waited:?}: {}", answer.body);
        }
    }
}

// Invariant: While others wait for connection memory, a stalled HTTP client keeps none.
/// Whatever a statement waits for while its client does not read, and whatever the other one needs
/// memory for.
#[test]
fn rows_that_nobody_reads_make_room_for_others() {
    const BYTES: usize = 3 << 20;
    let fixture = Fixture::development();
    fixture.put("large", json!({"t": "a".repeat(BYTES)}).to_string().as_bytes());
    let memory = &fixture.server.as_ref().unwrap().context().connections.memory;
    // One row is with the kernel, one with hyper, one behind it; then the statement waits for its
    // client with a fourth, or for memory.
    for rows in [4, 3] {
        let left = rows * ROW_BYTES + ROW_BYTES / 3;
        for reads in ["select hex(zeroblob(3000000))", "select json from \"default\""] {
            let others = memory.hold(memory.reservable_bytes() - left).expect("nothing is held");
            let before = fixture.reserved_bytes();
            let unread = fixture.begin(LARGE_ROWS);
            wait_until(
                || fixture.reserved_bytes() > before + 2 * ROW_BYTES as u64,
                "rows wait for their client",
            );
            let begun = Instant::now();
            while fixture.reserved_bytes() + (BYTES as u64) < memory.reservable_bytes() as u64
                && begun.elapsed() < Duration::from_secs(1)
            {
                std::thread::yield_now();
            }
            fixture.has_its_row(reads, &format!("{rows} rows, {reads}"));
            drop((unread, others));
            wait_until(|| fixture.reserved_bytes() == 0, "all memory is given back");
        }
    }
}

// Invariant: While others wait for connection memory, a stalled HTTP client keeps none.
/// The rows of a statement that has ended are its client's to read as those of others are.
#[test]
fn the_last_row_makes_room_for_others() {
    let fixture = Fixture::development();
    let memory = &fixture.server.as_ref().unwrap().context().connections.memory;
    let others = memory.hold(memory.reservable_bytes() - 6 * ROW_BYTES).expect("nothing is held");
    let before = fixture.reserved_bytes();
    let unread = fixture.begin("select hex(zeroblob(6000000)), hex(zeroblob(6000000))");
    let row = before + 4 * ROW_BYTES as u64..before + 5 * ROW_BYTES as u64;
    wait_until(|| row.contains(&fixture.reserved_bytes()), "a row waits for its client");
    let more = memory.hold(ROW_BYTES).expect("there is room for one");
    fixture.has_its_row("select hex(zeroblob(3000000))", "one that reads");
    drop((unread, others, more));
    wait_until(|| fixture.reserved_bytes() == 0, "all memory is given back");
}
