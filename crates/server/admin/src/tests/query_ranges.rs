//! Conditions on `META().id`: which documents they read, and that the rows are those of a scan.

use oribi_types::policy::EvictionPolicy;
use oribi_types::{CollectionId, DocKey, Vbid};
use serde_json::Value;

use super::Fixture;
use crate::limits::NARROW_RANGE_KEYS;

impl Fixture {
    /// Records that were read from the store of the bucket.
    fn records_read(&self) -> u64 {
        let handle = self.server.as_ref().unwrap().context().buckets.get("default").unwrap();
        handle.bucket().stats().store.records_read
    }

    fn keys(&self, condition: &str) -> Vec<String> {
        let statement = format!("SELECT RAW META().id FROM `default` WHERE {condition}");
        let answer = self.statement(&statement);
        assert_eq!(answer["status"], "success", "{statement}: {answer}");
        let mut keys: Vec<String> = serde_json::from_value(answer["results"].clone()).unwrap();
        keys.sort_unstable();
        keys
    }
}

#[test]
fn narrow_ranges_read_no_other_documents() {
    let fixture = Fixture::development();
    let insert = "INSERT INTO `default` (KEY k, VALUE {'n': n}) SELECT 'd' || LPAD(TO_STRING(n), \
                  4, '0') AS k, n FROM ARRAY_RANGE(0, 3000) AS n";
    fixture.define(insert);
    fixture.define("DELETE FROM `default` USE KEYS 'd0015'");
    let before = fixture.records_read();
    for (condition, expected) in [
        ("META().id = 'd0007' AND n = 7", vec!["d0007"]),
        ("META().id IN ['d0007', 'none', 'd2999', 'd0015']", vec!["d0007", "d2999"]),
        ("META().id >= 'd0014' AND META().id < 'd0017'", vec!["d0014", "d0016"]),
        ("META().id > 'd0014' AND META().id <= 'd0017'", vec!["d0016", "d0017"]),
        ("META().id BETWEEN 'd2998' AND 'e' AND n > 0", vec!["d2998", "d2999"]),
        ("META().id LIKE 'd100%' AND n < 1002", vec!["d1000", "d1001"]),
        ("META().id LIKE 'none%'", vec![]),
    ] {
        assert_eq!(fixture.keys(condition), expected, "{condition}");
    }
    assert_eq!(fixture.records_read(), before, "documents were read from the store");
    // Wider ranges are scanned.
    let wide = fixture.keys("META().id >= 'd0500'");
    assert_eq!(wide.len(), 2_500);
    assert!(wide.len() > NARROW_RANGE_KEYS && fixture.records_read() > before);
}

/// The policy of a bucket can change while it is open.
#[test]
fn ranges_find_documents_that_left_memory() {
    let fixture = Fixture::development();
    fixture.define("UPSERT INTO `default` VALUES ('a1', 1), VALUES ('a2', 2)");
    let handle = fixture.server.as_ref().unwrap().context().buckets.get("default").unwrap();
    let bucket = handle.bucket();
    bucket.flush_step().unwrap();
    let key = DocKey { collection: CollectionId::DEFAULT, key: b"a1" };
    for policy in [EvictionPolicy::Full, EvictionPolicy::Value] {
        assert!(bucket.set_eviction(policy));
        let vbids = 0..bucket.vbuckets().len() as u16;
        let evicted = vbids.filter(|vbid| bucket.evict(Vbid(*vbid), key)).count();
        assert_eq!(evicted, usize::from(policy == EvictionPolicy::Full));
        assert_eq!(fixture.keys("META().id LIKE 'a%'"), ["a1", "a2"], "{policy:?}");
    }
}

/// A statement sees the documents as they were when it began, so it ends.
#[test]
fn a_narrow_range_leaves_out_its_own_documents() {
    let fixture = Fixture::development();
    fixture.define("UPSERT INTO `default` VALUES ('a1', 1), VALUES ('a2', 2)");
    fixture.define(
        "INSERT INTO `default` (KEY k || 'x', VALUE v) SELECT META(d).id AS k, d AS v \
         FROM `default` AS d WHERE META(d).id LIKE 'a%'",
    );
    assert_eq!(fixture.keys("META().id LIKE 'a%'"), ["a1", "a1x", "a2", "a2x"]);
}

#[test]
fn a_range_uses_an_index_of_keys() {
    let fixture = Fixture::development();
    fixture.define("UPSERT INTO `default` VALUES ('a1', 1), VALUES ('b1', 2)");
    fixture.define("CREATE INDEX by_key ON `default`(META().id)");
    let statement = "EXPLAIN SELECT RAW META().id FROM `default` WHERE META().id LIKE 'a%'";
    let plan: Value = fixture.statement(statement)["results"][0].clone();
    assert!(plan.to_string().contains("IndexScan3"), "{plan}");
    assert_eq!(fixture.keys("META().id LIKE 'a%'"), ["a1"]);
}
