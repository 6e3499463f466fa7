//! Statements with and without indexes, over documents in memory.

#![allow(clippy::unwrap_used)]

mod support;

use std::sync::Arc;

use oribi_query::{QueryRequest, Service};
use support::{MemoryDatastore, MemoryKeyspace, run};

struct Stage {
    service: Service,
    store: MemoryDatastore,
    documents: Arc<MemoryKeyspace>,
}

/// Numbers of a linear congruential generator.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % bound
    }

    fn document(&mut self) -> String {
        let kinds = ["\"hotel\"", "\"airport\"", "\"ha_nau\"", "null", "7", "[1,2]"];
        let kind = kinds[self.below(6) as usize];
        let stars = match self.below(8) {
            0 => "null".to_owned(),
            1 => "\"five\"".to_owned(),
            2 => "2.5".to_owned(),
            _ => self.below(6).to_string(),
        };
        let tags: Vec<String> =
            (0..self.below(4)).map(|_| format!("\"t{}\"", self.below(5))).collect();
        let visits: Vec<String> = (0..self.below(3))
            .map(|_| format!("{{\"guest\":\"u{}\",\"n\":{}}}", self.below(4), self.below(5)))
            .collect();
        let mut fields = vec![
            format!("\"stars\":{stars}"),
            format!("\"city\":{{\"name\":\"c{}\"}}", self.below(9)),
        ];
        if self.below(5) > 0 {
            fields.push(format!("\"type\":{kind}"));
        }
        if self.below(6) > 0 {
            fields.push(format!("\"tags\":[{}]", tags.join(",")));
        }
        if self.below(6) > 0 {
            fields.push(format!("\"visits\":[{}]", visits.join(",")));
        }
        fields.push(format!("\"open\":{}", self.below(2) == 0));
        format!("{{{}}}", fields.join(","))
    }
}

const INDEXES: [&str; 10] = [
    "CREATE INDEX by_type ON d(type, stars DESC)",
    "CREATE INDEX by_stars ON d(stars)",
    "CREATE INDEX by_city ON d(city.name, META().id)",
    "CREATE INDEX by_tag ON d(DISTINCT ARRAY t FOR t IN tags END, type)",
    "CREATE INDEX by_visit ON d(ALL ARRAY v.guest FOR v IN visits WHEN v.n > 1 END)",
    "CREATE INDEX by_flat ON d(DISTINCT ARRAY FLATTEN_KEYS(v.guest, v.n) FOR v IN visits END)",
    "CREATE INDEX open_only ON d(LOWER(city.name) DESC) WHERE open = TRUE AND stars > 2",
    "CREATE INDEX any_tags ON d(tags INCLUDE MISSING DESC)",
    "CREATE INDEX by_key ON d(META().id)",
    "CREATE INDEX by_object ON d(city)",
];

/// Statements, and the index that EXPLAIN has to name.
const STATEMENTS: [(&str, &str); 40] = [
    ("SELECT META().id FROM d WHERE type = 'hotel'", "by_type"),
    ("SELECT META().id FROM d WHERE type = 'hotel' AND stars > 2", "by_type"),
    ("SELECT META().id FROM d WHERE type IN ['hotel', 7, null, 'no'] AND stars <= 3", "by_type"),
    ("SELECT META().id FROM d WHERE type LIKE 'h%'", "by_type"),
    ("SELECT META().id FROM d WHERE type LIKE 'ha\\\\_%'", "by_type"),
    ("SELECT META().id FROM d WHERE type IS NULL", "by_type"),
    ("SELECT META().id FROM d WHERE type = [1, 2]", "by_type"),
    ("SELECT META().id FROM d WHERE stars BETWEEN 1 AND 2.5", "by_stars"),
    ("SELECT META().id FROM d WHERE stars > 3", "by_stars"),
    ("SELECT META().id FROM d WHERE 3 >= stars", "by_stars"),
    ("SELECT META().id FROM d WHERE stars < 'five' AND stars >= 2", "by_stars"),
    ("SELECT META().id FROM d WHERE stars IS NOT MISSING", "by_stars"),
    ("SELECT META().id FROM d WHERE stars IS NOT NULL", "by_stars"),
    ("SELECT META().id FROM d WHERE stars = 1 OR stars = 4", "by_stars"),
    ("SELECT META().id FROM d WHERE stars = 1 OR type = 'hotel' OR stars = 1.0", "by_type"),
    ("SELECT META().id FROM d WHERE type = 'hotel' OR open", "PrimaryScan"),
    ("SELECT META().id FROM d WHERE city.name = 'c3'", "by_city"),
    ("SELECT META().id FROM d WHERE city = {'name': 'c3'}", "by_object"),
    ("SELECT META().id FROM d WHERE ANY t IN tags SATISFIES t = 't1' END", "by_tag"),
    ("SELECT META().id FROM d WHERE ANY x IN tags SATISFIES x IN ['t1', 't3'] END", "by_tag"),
    ("SELECT META().id FROM d WHERE ANY t IN tags SATISFIES t > 't1' AND t < 't4' END", "by_tag"),
    ("SELECT META().id FROM d WHERE 't2' IN tags AND type = 'hotel'", "by_tag"),
    (
        "SELECT META().id FROM d WHERE ANY v IN visits SATISFIES v.n > 2 AND v.guest = 'u1' END",
        "by_",
    ),
    ("SELECT META().id FROM d WHERE ANY v IN visits SATISFIES v.guest = 'u1' END", "by_flat"),
    (
        "SELECT META().id FROM d WHERE ANY AND EVERY v IN visits SATISFIES v.guest = 'u2' END",
        "by_flat",
    ),
    ("SELECT META().id FROM d WHERE EVERY v IN visits SATISFIES v.guest = 'u1' END", "PrimaryScan"),
    (
        "SELECT META().id FROM d WHERE LOWER(city.name) > 'c2' AND open = TRUE AND stars > 2",
        "open_only",
    ),
    ("SELECT META().id FROM d WHERE LOWER(city.name) = 'c2' AND open = TRUE AND stars = 4", "open"),
    ("SELECT META().id FROM d WHERE LOWER(city.name) > 'c2' AND open = TRUE", "PrimaryScan"),
    ("SELECT META().id FROM d USE INDEX (by_stars) WHERE type = 'hotel' AND stars = 1", "by_stars"),
    ("SELECT META().id FROM d WHERE tags > ['t1']", "any_tags"),
    ("SELECT type, COUNT(*) AS n FROM d WHERE stars >= 1 GROUP BY type", "by_stars"),
    (
        "SELECT META(a).id, META(b).id AS o FROM d a JOIN d b ON b.stars = a.stars AND b.open",
        "by_st",
    ),
    (
        "SELECT META(a).id, META(b).id AS o FROM d a LEFT JOIN d b ON b.city.name = a.tags[0]",
        "by_city",
    ),
    ("SELECT META(a).id, META(b).id AS o FROM d a NEST d b ON b.stars = a.stars", "by_stars"),
    (
        "SELECT META().id FROM d WHERE stars IN (SELECT RAW e.stars FROM d e WHERE e.type = 7)",
        "PrimaryScan",
    ),
    (
        "SELECT a.stars, (SELECT RAW META(b).id FROM d b WHERE b.stars = a.stars) FROM d a",
        "Primary",
    ),
    ("SELECT META().id FROM d WHERE stars = null", "by_stars"),
    ("SELECT META().id FROM d WHERE META().id LIKE 'k1%' AND stars = 2", "by_"),
    ("SELECT META().id FROM d WHERE type IS MISSING", "PrimaryScan"),
];

const ORDERED: [(&str, &str); 6] = [
    ("SELECT stars FROM d WHERE stars > 1 ORDER BY stars LIMIT 7", "\"order\":\"forward\""),
    ("SELECT stars FROM d WHERE stars > 1 ORDER BY stars DESC OFFSET 3 LIMIT 9", "reverse"),
    ("SELECT stars FROM d WHERE type = 'hotel' ORDER BY stars DESC", "forward"),
    ("SELECT stars FROM d WHERE type = 'hotel' ORDER BY type, stars", "reverse"),
    ("SELECT RAW META().id FROM d WHERE city.name = 'c1' ORDER BY META().id", "forward"),
    ("SELECT stars, type FROM d WHERE stars > 1 ORDER BY stars, type", "sort_terms"),
];

impl Stage {
    fn new(seed: u64) -> Stage {
        let store = MemoryDatastore::default();
        let documents = store.add("d");
        let mut numbers = Numbers(seed);
        for key in 0..150 {
            documents.put(&format!("k{key}"), &numbers.document());
        }
        Stage { service: Service::new(), store, documents }
    }

    fn rows(&self, statement: &str) -> Vec<String> {
        let request = QueryRequest::of(statement);
        let (outcome, rows) = run(&self.service, &self.store, &request);
        assert!(outcome.errors.is_empty(), "{statement}: {:?}", outcome.errors);
        rows.rows
    }

    fn sorted(&self, statement: &str) -> Vec<String> {
        let mut rows = self.rows(statement);
        rows.sort();
        rows
    }

    fn create_indexes(&self) {
        INDEXES.iter().for_each(|create| drop(self.rows(create)));
    }

    fn change(&self, numbers: &mut Numbers) {
        let key = format!("k{}", numbers.below(170));
        match numbers.below(5) {
            0 => self.documents.remove(&key),
            _ => self.documents.put(&key, &numbers.document()),
        }
    }
}

#[test]
fn statements_have_the_same_rows_by_index() {
    for seed in 0..3 {
        let (with, without) = (Stage::new(seed), Stage::new(seed));
        with.create_indexes();
        let mut numbers = (Numbers(seed + 10), Numbers(seed + 10));
        for _ in 0..3 {
            for (statement, _) in STATEMENTS {
                assert_eq!(with.sorted(statement), without.sorted(statement), "{statement}");
            }
            for (statement, _) in ORDERED {
                assert_eq!(with.rows(statement), without.rows(statement), "{statement}");
            }
            for _ in 0..60 {
                with.change(&mut numbers.0);
                without.change(&mut numbers.1);
            }
        }
    }
}

#[test]
fn explain_names_the_index() {
    let stage = Stage::new(1);
    stage.create_indexes();
    for (statement, part) in STATEMENTS.iter().chain(&ORDERED) {
        let plan = stage.rows(&format!("EXPLAIN {statement}")).concat();
        assert!(plan.contains(part), "{statement}: {plan}");
        assert_eq!(plan.contains("\"IndexScan3\""), !part.starts_with("Primary"), "{statement}");
    }
}

#[test]
fn explain_shows_spans_and_filters() {
    let stage = Stage::new(1);
    stage.create_indexes();
    let plan = stage
        .rows("EXPLAIN SELECT 1 FROM d WHERE type = $t AND stars > 2 ORDER BY open LIMIT 3")
        .concat();
    for part in [
        "\"equals\":\"$t\"",
        "\"index_key\":\"`type`\"",
        "\"above\":\"2\",\"index_key\":\"`stars`\"",
        "\"condition\":\"(((`d`.`type`) = $t) and (2 < (`d`.`stars`)))\"",
        "\"expr\":\"(`d`.`open`)\",\"order\":\"asc\"",
        "\"#operator\":\"Limit\",\"expr\":\"3\"",
    ] {
        assert!(plan.contains(part), "{part}: {plan}");
    }
}

#[test]
fn update_does_not_meet_its_own_changes() {
    let stage = Stage::new(2);
    stage.create_indexes();
    let before = stage.rows("SELECT RAW stars FROM d WHERE stars >= 1 AND stars < 100").len();
    let update = "UPDATE d SET stars = stars + 1 WHERE stars >= 1 AND stars < 100";
    let request = QueryRequest::of(update);
    let (outcome, _) = run(&stage.service, &stage.store, &request);
    assert_eq!(outcome.metrics.mutation_count as usize, before);
    let deleted = stage.rows("DELETE FROM d WHERE stars >= 2 AND stars < 101 RETURNING stars");
    assert_eq!(deleted.len(), before);
    assert!(stage.rows("SELECT 1 FROM d WHERE stars >= 2 AND stars < 101").is_empty());
}

#[test]
fn stale_entries_leave_with_scans_and_sweeps() {
    let stage = Stage::new(3);
    stage.rows("CREATE INDEX by_n ON d(n)");
    for round in 0..40 {
        for key in 0..100 {
            stage.documents.put(&format!("k{key}"), &format!("{{\"n\":{round}}}"));
        }
    }
    let index = stage.documents.index("by_n");
    assert_eq!(index.entry_count(), 4_000);
    assert!(stage.rows("SELECT 1 FROM d WHERE n = 3").is_empty());
    assert_eq!(index.entry_count(), 3_900);
    assert!(index.needs_sweep());
    index.sweep(&*stage.documents, &|| false);
    assert_eq!(index.entry_count(), 100);
    assert!(!index.needs_sweep());
    assert_eq!(stage.rows("SELECT RAW 1 FROM d WHERE n = 39").len(), 100);
}

#[test]
fn definition_without_an_index_is_refused() {
    let stage = Stage::new(1);
    for create in [
        "CREATE INDEX i ON d(RANDOM())",
        "CREATE INDEX i ON d(ARRAY_LENGTH((SELECT RAW 1)))",
        "CREATE INDEX i ON d(DISTINCT tags, DISTINCT visits)",
        "CREATE INDEX i ON d(a) WHERE b = NOW_STR()",
    ] {
        let (outcome, _) = run(&stage.service, &stage.store, &QueryRequest::of(create));
        assert_eq!(outcome.errors[0].code, 5010, "{create}");
    }
}
