//! What a scan tells a keyspace that can filter where documents are.

#![allow(clippy::unwrap_used)]

mod support;

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

use oribi_query::{
    Datastore, DocumentMutation, FieldOperator, FieldValue, IndexChange, IndexDefinition, KeyRange,
    Keyspace, KeyspaceName, QueryDocument, QueryRequest, Result, ScanHints, Service,
};
use support::MemoryDatastore;

/// Keeps the hints of the newest scan and applies none.
#[derive(Debug)]
struct HintedKeyspace {
    inner: Arc<dyn Keyspace>,
    newest: Arc<Mutex<Option<ScanHints>>>,
}

impl Keyspace for HintedKeyspace {
    fn name(&self) -> KeyspaceName {
        self.inner.name()
    }

    fn get(&self, key: &[u8]) -> Result<Option<QueryDocument>> {
        self.inner.get(key)
    }

    fn scan(
        &self,
        range: &KeyRange,
        visit: &mut dyn FnMut(QueryDocument) -> ControlFlow<()>,
    ) -> Result<()> {
        self.inner.scan(range, visit)
    }

    fn takes_hints(&self) -> bool {
        true
    }

    fn scan_hinted(
        &self,
        range: &KeyRange,
        hints: &ScanHints,
        visit: &mut dyn FnMut(QueryDocument) -> ControlFlow<()>,
    ) -> Result<()> {
        *self.newest.lock().unwrap() = Some(hints.clone());
        self.inner.scan(range, visit)
    }

    fn count(&self) -> Option<u64> {
        None
    }

    fn mutate(&self, mutation: DocumentMutation) -> Result<u64> {
        self.inner.mutate(mutation)
    }
}

struct HintedDatastore {
    inner: MemoryDatastore,
    newest: Arc<Mutex<Option<ScanHints>>>,
}

impl Datastore for HintedDatastore {
    fn keyspace(&self, name: &KeyspaceName) -> Result<Arc<dyn Keyspace>> {
        let inner = self.inner.keyspace(name)?;
        Ok(Arc::new(HintedKeyspace { inner, newest: Arc::clone(&self.newest) }))
    }

    fn keyspaces(&self) -> Result<Vec<KeyspaceName>> {
        self.inner.keyspaces()
    }

    fn indexes(&self) -> Result<Vec<IndexDefinition>> {
        self.inner.indexes()
    }

    fn change_indexes(&self, change: IndexChange) -> Result<()> {
        self.inner.change_indexes(change)
    }

    fn version(&self) -> u64 {
        0
    }
}

/// The hints of a statement's scan, and its rows.
fn hints(statement: &str) -> (ScanHints, Vec<String>) {
    let store = HintedDatastore { inner: MemoryDatastore::default(), newest: Arc::default() };
    let keyspace = store.inner.add("k");
    keyspace.put("a", r#"{"n":1,"s":"x","t":null}"#);
    keyspace.put("b", r#"{"n":2,"s":"y"}"#);
    let mut request = QueryRequest::of(statement);
    request.set_args(&["2"]).unwrap();
    let (outcome, rows) = support::run(&Service::new(), &store, &request);
    assert_eq!(outcome.errors, [], "{statement}");
    let hints = store.newest.lock().unwrap().take();
    (hints.unwrap(), rows.rows)
}

#[test]
fn fields_are_those_that_a_statement_reads() {
    let fields = |statement: &str| hints(statement).0.fields;
    let named = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect());
    for (statement, expected) in [
        ("SELECT COUNT(*) FROM k", named(&[])),
        ("SELECT META().id FROM k", named(&[])),
        ("SELECT META(k).`type` FROM k", None),
        ("SELECT n FROM k ORDER BY s", named(&["n", "s"])),
        ("SELECT a.n FROM k a WHERE a.t.u = 1 GROUP BY a.n", named(&["n", "t"])),
        ("SELECT (SELECT RAW a.s)[0] FROM k a", named(&["s"])),
        ("SELECT * FROM k", None),
        ("SELECT k.* FROM k", None),
        ("SELECT n, OBJECT_NAMES(k) FROM k", None),
        ("SELECT a.n, `S`i FROM k a", None),
    ] {
        assert_eq!(fields(statement), expected, "{statement}");
    }
}

#[test]
fn conditions_on_fields_reach_the_keyspace() {
    let (found, rows) = hints(
        "SELECT META().id FROM k WHERE n >= $1 AND 'z' > s AND n IN [2, 'a'] AND t IS NOT VALUED \
         AND LOWER(s) = 'y' AND s IS VALUED AND n + 1 = 3",
    );
    let conditions: Vec<(&str, FieldOperator, &[FieldValue])> =
        found.conditions.iter().map(|one| (&*one.field, one.operator, &*one.values)).collect();
    let text = |text: &str| FieldValue::Text(text.as_bytes().to_vec());
    assert_eq!(
        conditions,
        [
            ("n", FieldOperator::GreaterOrEqual, &[FieldValue::Int(2)][..]),
            ("s", FieldOperator::Less, &[text("z")][..]),
            ("n", FieldOperator::In, &[FieldValue::Int(2), text("a")][..]),
            ("s", FieldOperator::IsValued, &[][..]),
        ]
    );
    assert_eq!(rows, [r#"{"id":"b"}"#]);
    // A condition that need not hold is no hint.
    assert_eq!(hints("SELECT n FROM k WHERE n = 1 OR s = 'y'").0.conditions, []);
}
