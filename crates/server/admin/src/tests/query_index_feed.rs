//! Indexes that a server feeds: statements have the rows of a scan while documents are written,
//! deleted and expire, after a restart, and whatever becomes of the collection.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use oribi_engine::{Bucket, LockOutcome, MutationOutcome, StoreRequest, UnlockOutcome};
use oribi_protocol::hash::vbucket_of;
use oribi_system::clock::wall_clock;
use oribi_testkit::StopOnDrop;
use oribi_types::{Cas, CollectionId, DocKey};
use serde_json::{Value, json};

use super::Fixture;

/// Changes of each writer while a statement runs. Unpaced writers outrun the feed where the machine
/// is busy, and statements wait for all that was written before them.
const CHANGES_A_STATEMENT: u64 = 60;

const INDEXES: [&str; 5] = [
    "CREATE INDEX by_a ON `default`(a)",
    "CREATE INDEX by_b ON `default`(b DESC, a)",
    "CREATE INDEX by_tag ON `default`(DISTINCT ARRAY t FOR t IN tags END)",
    "CREATE INDEX open_only ON `default`(LOWER(name)) WHERE open = TRUE",
    "CREATE INDEX any_c ON `default`(c INCLUDE MISSING)",
];

/// Conditions, and the index by which the first form of each is read. The second form has the same
/// rows and no index.
const CONDITIONS: [(&str, &str, &str); 8] = [
    ("a = 2", "a + 0 = 2", "by_a"),
    ("a BETWEEN 1 AND 3", "a + 0 BETWEEN 1 AND 3", "by_a"),
    ("a IN [0, 4, null, 9]", "a + 0 IN [0, 4, null, 9]", "by_a"),
    ("b = 'b1' AND a > 1", "b || '' = 'b1' AND a + 0 > 1", "by_b"),
    ("b LIKE 'b%'", "b || '' LIKE 'b%'", "by_b"),
    ("ANY t IN tags SATISFIES t = 3 END", "ANY t IN tags SATISFIES t + 0 = 3 END", "by_tag"),
    (
        "open = TRUE AND LOWER(name) >= 'n2'",
        "(open = TRUE) = TRUE AND LOWER(name || '') >= 'n2'",
        "open_only",
    ),
    ("c IS NOT MISSING AND c < 2", "c + 0 < 2", "any_c"),
];

/// Documents that a test writes.
#[derive(Clone)]
struct Documents {
    bucket: Arc<Bucket>,
    seed: u64,
}

impl Documents {
    fn below(&mut self, bound: u64) -> u64 {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.seed >> 33) % bound
    }

    fn value(&mut self) -> String {
        let tags: Vec<String> = (0..self.below(4)).map(|_| self.below(6).to_string()).collect();
        let c = match self.below(3) {
            0 => String::new(),
            _ => format!(",\"c\":{}", self.below(4)),
        };
        format!(
            "{{\"a\":{},\"b\":\"b{}\",\"tags\":[{}],\"name\":\"N{}\",\"open\":{}{c}}}",
            self.below(6),
            self.below(3),
            tags.join(","),
            self.below(5),
            self.below(2) == 0,
        )
    }

    fn store(&self, key: &str, value: &str, expiry: u32) {
        let vbid = vbucket_of(key.as_bytes(), self.bucket.config().vbuckets);
        let key = DocKey { collection: CollectionId::DEFAULT, key: key.as_bytes() };
        let request = StoreRequest { expiry, ..StoreRequest::set(value.as_bytes()) };
        let context = self.bucket.context(wall_clock());
        let outcome = self.bucket.vbucket(vbid).unwrap().store(&context, key, &request);
        assert!(matches!(outcome, MutationOutcome::Done(_)), "{outcome:?}");
    }

    fn delete(&self, key: &str) {
        let vbid = vbucket_of(key.as_bytes(), self.bucket.config().vbuckets);
        let key = DocKey { collection: CollectionId::DEFAULT, key: key.as_bytes() };
        let context = self.bucket.context(wall_clock());
        let outcome = self.bucket.vbucket(vbid).unwrap().delete(&context, key, Cas(0));
        let is_done = matches!(outcome, MutationOutcome::Done(_) | MutationOutcome::NotFound);
        assert!(is_done, "{outcome:?}");
    }

    fn change(&mut self) {
        let key = format!("k{}", self.below(300));
        match self.below(5) {
            0 => self.delete(&key),
            _ => {
                let value = self.value();
                self.store(&key, &value, 0);
            }
        }
    }
}

impl Fixture {
    fn documents(&self, seed: u64) -> Documents {
        let handle = self.server.as_ref().unwrap().context().buckets.get("default").unwrap();
        Documents { bucket: Arc::clone(handle.bucket()), seed }
    }

    #[track_caller]
    fn rows(&self, statement: &str, consistency: &str) -> Value {
        let answer =
            self.service_json(&json!({ "statement": statement, "scan_consistency": consistency }));
        assert_eq!(answer["status"], "success", "{statement}: {answer}");
        answer["results"].clone()
    }

    #[track_caller]
    fn assert_indexed(&self, statement: &str, index: &str) {
        let plan = self.rows(&format!("EXPLAIN {statement}"), "not_bounded").to_string();
        assert!(plan.contains("IndexScan3") && plan.contains(index), "{statement}: {plan}");
    }

    /// Every condition has the same rows by index and by scan.
    #[track_caller]
    fn assert_scans_agree(&self) {
        for (indexed, scanned, index) in CONDITIONS {
            let of = |condition: &str| {
                format!(
                    "SELECT META().id, a, b FROM `default` WHERE {condition} ORDER BY META().id"
                )
            };
            self.assert_indexed(&of(indexed), index);
            let plan = self.rows(&format!("EXPLAIN {}", of(scanned)), "not_bounded").to_string();
            assert!(plan.contains("PrimaryScan"), "{scanned}: {plan}");
            let (by_index, by_scan) =
                (self.rows(&of(indexed), "request_plus"), self.rows(&of(scanned), "request_plus"));
            assert_eq!(by_index, by_scan, "{indexed}");
        }
    }
}

#[test]
fn statements_agree_by_index_under_writes() {
    let mut fixture = Fixture::start(|_| {}, true);
    let mut documents = fixture.documents(7);
    for number in 0..40 {
        documents.store(&format!("anchor{number}"), r#"{"a":2,"b":"b1","fixed":true}"#, 0);
    }
    (0..600).for_each(|_| documents.change());
    INDEXES.iter().for_each(|create| fixture.define(create));
    fixture.assert_scans_agree();
    let (stop, statements) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let _stopped = StopOnDrop(&stop);
        for seed in 0..2 {
            let (mut documents, stop, statements) = (fixture.documents(seed), &stop, &statements);
            scope.spawn(move || {
                let mut changes = 0;
                while !stop.load(Ordering::Relaxed) {
                    if changes < CHANGES_A_STATEMENT * statements.load(Ordering::Relaxed) {
                        documents.change();
                        changes += 1;
                    }
                    std::thread::yield_now();
                }
            });
        }
        for round in 0..12 {
            for consistency in ["not_bounded", "request_plus"] {
                statements.fetch_add(1, Ordering::Relaxed);
                let rows = fixture
                    .rows("SELECT META().id, a, fixed FROM `default` WHERE a = 2", consistency);
                let rows = rows.as_array().unwrap();
                assert!(rows.iter().all(|row| row["a"] == 2), "round {round}: {rows:?}");
                let fixed = rows.iter().filter(|row| row["fixed"] == true).count();
                assert_eq!(fixed, 40, "round {round}: documents that never changed");
                let mut ids: Vec<_> = rows.iter().map(|row| row["id"].as_str()).collect();
                ids.sort_unstable();
                ids.dedup();
                assert_eq!(ids.len(), rows.len(), "round {round}: a document comes once");
            }
            // A statement reads its own write by index with `request_plus`.
            let own = format!("{{\"a\":{}}}", 1_000 + round);
            documents.store("own", &own, 0);
            let statement =
                format!("SELECT RAW META().id FROM `default` WHERE a = {}", 1_000 + round);
            assert_eq!(fixture.rows(&statement, "request_plus"), json!(["own"]), "round {round}");
        }
    });
    fixture.assert_scans_agree();
    // It holds the bucket.
    drop(documents);
    fixture.restart();
    for name in ["by_a", "by_b", "by_tag", "open_only", "any_c"] {
        fixture.wait_for_state(name, "online");
    }
    fixture.assert_scans_agree();
    let flush = "/pools/default/buckets/default/controller/doFlush";
    assert_eq!(fixture.post(flush, "").status, 200);
    let rows =
        |fixture: &Fixture| fixture.rows("SELECT 1 FROM `default` WHERE a = 2", "request_plus");
    assert_eq!(rows(&fixture), json!([]));
    let mut documents = fixture.documents(9);
    (0..300).for_each(|_| documents.change());
    for name in ["by_a", "by_b", "by_tag", "open_only", "any_c"] {
        fixture.wait_for_state(name, "online");
    }
    fixture.assert_scans_agree();
}

#[test]
fn expired_documents_leave_the_index() {
    let fixture = Fixture::development();
    fixture.define("CREATE INDEX by_a ON `default`(a)");
    let documents = fixture.documents(1);
    let now_s = u32::try_from(wall_clock().unix_ns / 1_000_000_000).unwrap();
    (0..20).for_each(|key| documents.store(&format!("e{key}"), r#"{"a":1}"#, now_s + 2));
    documents.store("stays", r#"{"a":1}"#, 0);
    let statement = "SELECT RAW META().id FROM `default` WHERE a = 1";
    fixture.assert_indexed(statement, "by_a");
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let rows = fixture.rows(statement, "request_plus");
        if rows == json!(["stays"]) {
            break;
        }
        assert!(Instant::now() < deadline, "{rows}");
        std::thread::sleep(Duration::from_millis(50));
    }
    let metrics = fixture.get("/metrics").body;
    let entries = "oribi_bucket_index_entries{bucket=\"default\"} 1";
    assert!(metrics.contains(entries), "the scan has removed stale entries: {metrics}");
    assert!(metrics.contains("oribi_bucket_indexes{bucket=\"default\",state=\"online\"} 1"));
    let metadata = fixture.rows("SELECT RAW metadata FROM system:indexes", "not_bounded");
    assert_eq!((&metadata[0]["entries"], &metadata[0]["progress"]), (&json!(1), &json!(100)));
    assert!(metadata[0]["bytes"].as_u64() > Some(0), "{metadata}");
}

#[test]
fn dropped_indexes_return_their_memory() {
    let fixture = Fixture::development();
    let mut documents = fixture.documents(3);
    (0..2_000).for_each(|_| documents.change());
    let bytes = || documents.bucket.stats().memory.indexes_bytes;
    assert_eq!(bytes(), 0);
    fixture.define("CREATE INDEX by_a ON `default`(a)");
    assert!(bytes() > 0);
    fixture.define("DROP INDEX `default`.by_a");
    let scopes = "/pools/default/buckets/default/scopes/_default/collections";
    assert_eq!(fixture.post(scopes, "name=c").status, 200);
    fixture.define("INSERT INTO `default`._default.c VALUES ('k', {'a': 1})");
    fixture.define("CREATE INDEX by_a ON `default`._default.c(a)");
    let rows = fixture.rows("SELECT RAW a FROM `default`._default.c WHERE a = 1", "request_plus");
    assert_eq!(rows, json!([1]));
    assert_eq!(fixture.ask("DELETE", &format!("{scopes}/c"), super::ADMIN, "").status, 200);
    let deadline = Instant::now() + Duration::from_secs(60);
    while bytes() > 0 {
        assert!(Instant::now() < deadline, "{} bytes stay", bytes());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn scan_wait_bounds_the_wait_for_an_index() {
    let fixture = Fixture::development();
    fixture.define("CREATE INDEX by_a ON `default`(a)");
    let handle = fixture.server.as_ref().unwrap().context().buckets.get("default").unwrap();
    let vbucket = &handle.bucket().vbuckets()[1];
    // A write that will be made only after the statement.
    let token = json!([vbucket.high_seqno().0, vbucket.uuid().0.to_string()]);
    let ask = |token: &Value, wait: &str| {
        fixture.service_json(&json!({
            "statement": "SELECT 1 FROM `default` WHERE a = 1",
            "scan_consistency": "at_plus",
            "scan_vectors": { "default": { "1": token } },
            "scan_wait": wait,
        }))
    };
    assert_eq!(ask(&token, "20s")["results"], json!([]));
    let later = json!([vbucket.high_seqno().0 + 1, vbucket.uuid().0.to_string()]);
    assert_eq!(ask(&later, "100ms")["errors"][0]["code"], 12015);
}

#[test]
fn locked_documents_stay_in_an_index_on_their_cas() {
    let fixture = Fixture::development();
    fixture.define("CREATE INDEX by_cas ON `default`(META().cas)");
    let documents = fixture.documents(1);
    documents.store("k", r#"{"a":1}"#, 0);
    let scan = "SELECT RAW META().cas FROM `default`";
    let cas = fixture.rows(scan, "request_plus")[0].clone();
    let by_index = format!("SELECT RAW META().id FROM `default` WHERE META().cas = {cas}");
    fixture.assert_indexed(&by_index, "by_cas");
    let vbucket = documents.bucket.vbucket(vbucket_of(b"k", documents.bucket.config().vbuckets));
    let (vbucket, context) = (vbucket.unwrap(), documents.bucket.context(wall_clock()));
    let key = DocKey { collection: CollectionId::DEFAULT, key: b"k" };
    let lock = vbucket.get_and_lock(&context, key, 30);
    let LockOutcome::Done { cas: lock, .. } = lock else { panic!("{lock:?}") };
    for _ in 0..2 {
        assert_eq!(fixture.rows(&by_index, "request_plus"), json!(["k"]));
        assert_eq!(fixture.rows(&format!("{scan} USE KEYS 'k'"), "not_bounded"), json!([cas]));
        assert_eq!(fixture.rows(scan, "request_plus"), json!([cas]));
    }
    let update = fixture.statement("UPDATE `default` USE KEYS 'k' SET a = 2");
    assert!(update.to_string().contains("locked"), "{update}");
    let context = documents.bucket.context(wall_clock());
    assert_eq!(vbucket.unlock(&context, key, lock), UnlockOutcome::Done);
    assert_eq!(fixture.rows(&by_index, "request_plus"), json!(["k"]));
}

#[test]
fn a_refused_index_is_built_when_there_is_memory() {
    let fixture = Fixture::development();
    let documents = fixture.documents(1);
    documents.store("k", r#"{"a":1}"#, 0);
    let bucket = &documents.bucket;
    let bytes = bucket.indexes_bytes_max();
    assert!(bucket.reserve_for_index(bytes));
    let answer = fixture.statement("CREATE INDEX by_a ON `default`(a)");
    assert_eq!(answer["errors"][0]["code"], 5000, "{answer}");
    fixture.wait_for_state("by_a", "offline");
    bucket.release_from_index(bytes);
    fixture.wait_for_state("by_a", "online");
    fixture.assert_indexed("SELECT 1 FROM `default` WHERE a = 1", "by_a");
}

/// A vbucket of another node has no part of the answer here, so there is none.
#[test]
fn a_vbucket_that_moves_away_ends_an_index_scan() {
    const DOCUMENTS: usize = 400;
    let fixture = Fixture::development();
    let documents = fixture.documents(1);
    // Rows come in the order of keys, and this one is the last.
    (1..DOCUMENTS).for_each(|n| documents.store(&format!("k{n}"), r#"{"a":1}"#, 0));
    documents.store("z", r#"{"a":1}"#, 0);
    fixture.define("CREATE INDEX by_a ON `default`(a)");
    let statement = "SELECT RAW META().id || REPEAT('x', 100000) FROM `default` WHERE a = 1";
    fixture.assert_indexed(statement, "by_a");
    let form = format!("statement={statement}&scan_consistency=request_plus");
    let mut stream = fixture.connect("POST", "/query/service", super::ADMIN, &form);
    // More rows than sockets hold: the statement waits in the middle for its client.
    let mut text = vec![0; 1_000];
    stream.read_exact(&mut text).unwrap();
    documents.bucket.deactivate(vbucket_of(b"z", documents.bucket.config().vbuckets));
    stream.read_to_end(&mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let answer: Value = serde_json::from_str(&super::query_service::unchunked(head, body)).unwrap();
    let rows = answer["results"].as_array().unwrap().len();
    assert!((1..DOCUMENTS).contains(&rows), "{rows} rows");
    assert_eq!((&answer["errors"][0]["code"], &answer["status"]), (&json!(12008), &json!("fatal")));
}
