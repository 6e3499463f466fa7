//! What statements hold of the connections' memory, and who has to give it back.

use std::time::{Duration, Instant};

use oribi_types::CollectionId;
use serde_json::{Value, json};

use super::changes::wait_until;
use super::{ADMIN, Answer, Fixture};
use crate::limits::STATEMENTS_MAX;

/// Codes of statements that end for memory, while they read documents or write rows.
const MEMORY_CODES: [u64; 2] = [5500, 12008];

impl Fixture {
    fn run_statement(&self, statement: &str) -> Answer {
        self.service(ADMIN, &json!({ "statement": statement }))
    }

    /// The results of a statement that succeeds.
    #[track_caller]
    fn results(&self, statement: &str) -> Value {
        let answer = self.run_statement(statement).json();
        assert_eq!(answer["status"], "success", "{statement}: {answer}");
        answer["results"].clone()
    }

    /// Begins a statement and leaves its answer unread.
    fn begin(&self, statement: &str) -> std::net::TcpStream {
        self.connect("POST", "/query/service", ADMIN, &format!("statement={statement}"))
    }

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
        let context = bucket.bucket().context(oribi_system::clock::wall_clock());
        let stored = bucket.bucket().vbucket(vbid).unwrap().store(&context, key, &request);
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
        |condition: &str| format!("SELECT RAW SUM(LENGTH(d.t)) FROM `default` d {condition}");
    let conditions = [
        r#"USE KEYS "plain""#,
        r#"USE KEYS "packed""#,
        r#"WHERE META(d).id >= "pl" AND META(d).id < "pm""#,
        r#"WHERE META(d).id >= "pa" AND META(d).id < "pb""#,
    ];
    for condition in conditions {
        assert_eq!(fixture.results(&statement(condition)), json!([BYTES]), "{condition}");
    }
    wait_until(|| fixture.reserved_bytes() == 0, "nothing stays reserved");
    let memory = &fixture.server.as_ref().unwrap().context().connections.memory;
    let all_but = |bytes| memory.hold(memory.reservable_bytes() - bytes).expect("nothing is held");
    let others = all_but(BYTES - 1);
    std::thread::scope(|scope| {
        let asked = conditions.map(|condition| {
            let fixture = &fixture;
            scope.spawn(move || (condition, fixture.run_statement(&statement(condition))))
        });
        for answer in asked {
            let (condition, answer) = answer.join().unwrap();
            let code = answer.json()["errors"][0]["code"].as_u64().unwrap_or(0);
            assert!(MEMORY_CODES.contains(&code), "{condition}: {}", answer.body);
            // One of them has the turn, and the others wait for it.
            let whys =
                ["the memory for connections is in use", "other clients wait for the memory"];
            let says = whys.iter().any(|why| answer.body.contains(why));
            assert!(says, "{condition}: {}", answer.body);
        }
    });
    assert_eq!(fixture.results(&statement(r#"USE KEYS "small""#)), json!([1]));
    drop(others);
    wait_until(|| fixture.reserved_bytes() == 0, "all memory is given back");
}

/// A statement that reads keys and metadata needs no memory for bodies.
#[test]
fn keys_are_read_without_bodies() {
    const BYTES: usize = 3 << 20;
    let fixture = Fixture::development();
    let document = json!({"t": "a".repeat(BYTES)}).to_string();
    fixture.put("plain", document.as_bytes());
    fixture.put_compressed("packed", document.as_bytes());
    fixture.put("small", b"{\"t\":\"a\"}");
    let memory = &fixture.server.as_ref().unwrap().context().connections.memory;
    let others = memory.hold(memory.reservable_bytes() - BYTES + 1).expect("nothing is held");
    for (statement, results) in [
        ("SELECT RAW COUNT(*) FROM `default`", json!([3])),
        (
            "SELECT RAW META().id FROM `default` WHERE META().id LIKE \"p%\" ORDER BY META().id",
            json!(["packed", "plain"]),
        ),
        ("SELECT RAW MAX(META(d).id) FROM `default` d", json!(["small"])),
        ("DELETE FROM `default` WHERE META().id > \"pb\" AND META().id < \"s\"", json!([])),
        ("SELECT RAW COUNT(*) FROM `default` d WHERE META(d).id >= \"p\"", json!([2])),
    ] {
        assert_eq!(fixture.results(statement), results, "{statement}");
    }
    let bodies = fixture.run_statement("SELECT RAW LENGTH(t) FROM `default` d").json();
    assert_eq!(bodies["errors"][0]["code"], 12008, "{bodies}");
    drop(others);
}

/// More than any connection can have is refused at once, and says what is needed.
#[test]
fn a_row_for_which_there_can_be_no_memory_is_refused() {
    let fixture = Fixture::development();
    // What a server without quotas could reserve: 24 MiB.
    fixture.server.as_ref().unwrap().context().connections.memory.set_quotas(0);
    let row = r#"SELECT REPEAT("x", 13000000) AS a, REPEAT("x", 13000000) AS b"#;
    let answer = fixture.run_statement(row);
    assert_eq!(answer.status, 200, "its head is sent: {}", answer.body);
    let answer = answer.json();
    assert_eq!(answer["errors"][0]["code"], 5500, "{answer}");
    let msg = answer["errors"][0]["msg"].as_str().unwrap();
    assert!(msg.contains("a row needs "), "{msg}");
}

/// A client that does not read rows of large documents loses its statement to one that does.
#[test]
fn stalled_readers_of_large_rows_are_ended() {
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
    let all = "SELECT RAW d FROM `default` d";
    let unread: Vec<_> = (0..STATEMENTS_MAX - 1).map(|_| fixture.begin(all)).collect();
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
                fixture.run_statement(r#"SELECT RAW d FROM `default` d USE KEYS "large2""#);
            let answer = answer.json();
            if answer["status"] == "success" {
                let rows = answer["results"].as_array().unwrap();
                lengths = rows.iter().map(|row| row["t"].as_str().unwrap().len()).collect();
            }
            !lengths.is_empty()
        },
        "one that reads gets its row",
    );
    assert_eq!(lengths, [BYTES]);
    drop((unread, others));
    wait_until(|| fixture.reserved_bytes() == 0, "all memory is given back");
}

/// Rows of six million bytes each, without an end and without large documents.
const LARGE_ROWS: &str = r#"SELECT RAW REPEAT("x", 6000000) FROM ARRAY_RANGE(0, 1000000) a"#;

/// One row of six million bytes.
const ONE_LARGE_ROW: &str = r#"SELECT RAW REPEAT("x", 6000000)"#;

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
            let answer = self.run_statement(statement);
            if answer.body.contains("\"status\":\"success\"") {
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
fn unread_rows_make_room_for_others() {
    const BYTES: usize = 3 << 20;
    let fixture = Fixture::development();
    fixture.put("large", json!({"t": "a".repeat(BYTES)}).to_string().as_bytes());
    let memory = &fixture.server.as_ref().unwrap().context().connections.memory;
    // One row is with the kernel, one with hyper, one behind it; then the statement waits for its
    // client with a fourth, or for memory.
    for rows in [4, 3] {
        let left = rows * ROW_BYTES + ROW_BYTES / 3;
        for reads in [ONE_LARGE_ROW, "SELECT RAW d FROM `default` d"] {
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
    let unread = fixture.begin(r#"SELECT REPEAT("x", 12000000) AS a, REPEAT("x", 12000000) AS b"#);
    let row = before + 4 * ROW_BYTES as u64..before + 5 * ROW_BYTES as u64;
    wait_until(|| row.contains(&fixture.reserved_bytes()), "a row waits for its client");
    let more = memory.hold(ROW_BYTES).expect("there is room for one");
    fixture.has_its_row(ONE_LARGE_ROW, "one that reads");
    drop((unread, others, more));
    wait_until(|| fixture.reserved_bytes() == 0, "all memory is given back");
}
