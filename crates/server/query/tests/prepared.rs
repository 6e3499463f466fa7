//! Prepared statements whose keyspaces and indexes change between their runs.

#![allow(clippy::unwrap_used)]

mod support;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use oribi_query::{QueryRequest, Service};
use support::{MemoryDatastore, MemoryKeyspace, run};

struct Stage {
    service: Service,
    store: MemoryDatastore,
    documents: Arc<MemoryKeyspace>,
}

impl Stage {
    /// Ten documents, and the prepared statement `p`.
    fn new(statement: &str) -> Stage {
        let store = MemoryDatastore::default();
        let documents = store.add("d");
        for n in 0..10 {
            documents.put(&format!("k{n}"), &format!("{{\"n\":{n},\"g\":{}}}", n % 2));
        }
        let stage = Stage { service: Service::new(), store, documents };
        stage.rows(&format!("PREPARE p AS {statement}"));
        stage
    }

    fn rows(&self, statement: &str) -> Vec<String> {
        let (outcome, rows) = run(&self.service, &self.store, &QueryRequest::of(statement));
        assert!(outcome.errors.is_empty(), "{statement}: {:?}", outcome.errors);
        rows.rows
    }

    fn execute(&self) -> Vec<String> {
        self.rows("EXECUTE p")
    }

    /// The rows of an execution, and the number of scans of all documents that it took.
    fn execute_counted(&self) -> (Vec<String>, usize) {
        let before = self.documents.scans.load(Relaxed);
        let rows = self.execute();
        (rows, self.documents.scans.load(Relaxed) - before)
    }

    fn plannings(&self) -> usize {
        self.documents.index_lists.load(Relaxed)
    }
}

const FILTERED: &str = "SELECT RAW n FROM d WHERE n > 7 ORDER BY n";

#[test]
fn a_prepared_plan_is_compiled_once() {
    let stage = Stage::new(FILTERED);
    let planned = stage.plannings();
    assert_eq!(stage.execute(), ["8", "9"]);
    stage.documents.put("k10", "{\"n\":10}");
    assert_eq!(stage.execute(), ["8", "9", "10"]);
    assert_eq!(stage.plannings(), planned);
    // Any change of the metadata ends the plan.
    stage.store.add("other");
    assert_eq!(stage.execute(), ["8", "9", "10"]);
    assert_eq!(stage.plannings(), planned + 1);
}

#[test]
fn a_prepared_plan_follows_its_indexes() {
    let stage = Stage::new(FILTERED);
    let expected = vec!["8".to_owned(), "9".to_owned()];
    assert_eq!(stage.execute_counted(), (expected.clone(), 1));
    stage.rows("CREATE INDEX by_n ON d(n)");
    assert_eq!(stage.execute_counted(), (expected.clone(), 0));
    assert_eq!(stage.execute_counted(), (expected.clone(), 0));
    stage.rows("DROP INDEX by_n ON d");
    assert_eq!(stage.execute_counted(), (expected.clone(), 1));
    // The same name with other keys.
    stage.rows("CREATE INDEX by_n ON d(g)");
    assert_eq!(stage.execute_counted(), (expected.clone(), 1));
    stage.rows("CREATE INDEX by_value ON d(n DESC)");
    assert_eq!(stage.execute_counted(), (expected.clone(), 0));
    stage.rows("DROP INDEX by_n ON d");
    assert_eq!(stage.execute_counted(), (expected, 0));
}

#[test]
fn an_index_that_leaves_unannounced_is_noticed() {
    let stage = Stage::new(FILTERED);
    stage.rows("CREATE INDEX by_n ON d(n)");
    assert_eq!(stage.execute(), ["8", "9"]);
    // Without a new version: a state changes while the plan is bound.
    stage.documents.remove_index("by_n");
    assert_eq!(stage.execute_counted(), (vec!["8".to_owned(), "9".to_owned()], 1));
}

#[test]
fn a_prepared_plan_does_not_keep_a_dropped_index() {
    let stage = Stage::new(FILTERED);
    stage.rows("CREATE INDEX by_n ON d(n)");
    stage.execute();
    let index = Arc::downgrade(&stage.documents.index("by_n"));
    stage.rows("DROP INDEX by_n ON d");
    assert!(index.upgrade().is_none());
}

#[test]
fn a_prepared_plan_reads_the_keyspace_of_then() {
    for statement in [FILTERED, "UPDATE d SET seen = TRUE WHERE n > 7 RETURNING RAW n"] {
        let mut stage = Stage::new(statement);
        assert_eq!(stage.execute().len(), 2);
        stage.store.remove("d");
        let (outcome, _) = run(&stage.service, &stage.store, &QueryRequest::of("EXECUTE p"));
        assert_eq!(outcome.errors[0].code, 12003);
        stage.documents = stage.store.add("d");
        assert_eq!(stage.execute(), Vec::<String>::new());
        stage.documents.put("new", "{\"n\":8.5}");
        assert_eq!(stage.execute(), ["8.5"]);
    }
}

#[test]
fn each_run_has_its_own_parameters_and_clock() {
    let stage = Stage::new("SELECT RAW [n, $low, CLOCK_MILLIS() > 0] FROM d WHERE n >= $low");
    for (low, expected) in [("9", "[9,9,true]"), ("9.0", "[9,9,true]")] {
        let rows = stage.rows(&format!("EXECUTE p USING {{\"low\": {low}}}"));
        assert_eq!(rows, [expected]);
    }
    let rows = stage.rows("EXECUTE p USING {\"low\": (SELECT RAW MAX(d.n) FROM d)[0]}");
    assert_eq!(rows, ["[9,9,true]"]);
}
