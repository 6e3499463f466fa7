//! A table over documents in memory: what the source is told, and the cells.

use std::collections::BTreeMap;
use std::sync::Mutex;

use rusqlite::types::Value;

use super::*;
use crate::database::{Database, Parameters, ResultColumn, RowSink};

/// Documents in memory; writes down what it was asked.
#[derive(Default)]
struct Fixed {
    documents: Vec<(u32, &'static str, Datatype, Vec<u8>)>,
    asked: Mutex<Vec<DocumentScan>>,
}

struct Walk {
    documents: Vec<(u32, &'static str, Datatype, Vec<u8>)>,
    at: Option<usize>,
}

impl DocumentStream for Walk {
    fn advance(&mut self) -> Result<bool> {
        self.at = Some(self.at.map_or(0, |at| at + 1));
        Ok(self.document().is_some())
    }

    fn document(&self) -> Option<StoredDocument<'_>> {
        let (collection, key, datatype, value) = self.documents.get(self.at?)?;
        let at = self.at? as u64;
        Some(StoredDocument {
            vbid: Vbid(7),
            collection: CollectionId(*collection),
            key: key.as_bytes(),
            cas: at + 100,
            seqno: at + 1,
            rev: at.is_multiple_of(2).then_some(1),
            flags: 3,
            expiry: 0,
            datatype: *datatype,
            value,
        })
    }
}

impl DocumentSource for Fixed {
    fn documents(&self) -> u64 {
        1_000_000
    }

    fn attributes(&self) -> Attributes {
        Attributes::OfUsers
    }

    fn scan(&self, scan: DocumentScan) -> Result<Box<dyn DocumentStream>> {
        let documents = self.documents.iter().filter(|one| scan.keys.contains(one.1.as_bytes()));
        let documents = documents.cloned().collect();
        self.asked.lock().unwrap().push(scan);
        Ok(Box::new(Walk { documents, at: None }))
    }
}

#[derive(Default)]
struct Rows(Vec<Vec<Value>>);

impl RowSink for Rows {
    fn begin(&mut self, _: Vec<ResultColumn>) -> Result<()> {
        Ok(())
    }

    fn row(&mut self, values: &[ValueRef<'_>]) -> Result<()> {
        self.0.push(values.iter().map(|value| Value::try_from(*value).unwrap()).collect());
        Ok(())
    }

    fn end(&mut self, _: bool) -> Result<()> {
        Ok(())
    }
}

fn fixed() -> Arc<Fixed> {
    let attributes = {
        let pair = |key: &str, value: &str| {
            let bytes = u32::try_from(key.len() + value.len() + 2).unwrap().to_be_bytes();
            [&bytes[..], key.as_bytes(), b"\0", value.as_bytes(), b"\0"].concat()
        };
        let pairs = [pair("_sync", "1"), pair("u", "2")].concat();
        [&u32::try_from(pairs.len()).unwrap().to_be_bytes()[..], &pairs, br#"{"n":3}"#].concat()
    };
    let packed = snap::raw::Encoder::new().compress_vec(br#"{"n":2}"#).unwrap();
    let with = |left: Datatype, right: Datatype| Datatype(left.0 | right.0);
    Arc::new(Fixed {
        documents: vec![
            (0, "a1", Datatype::JSON, br#"{"n":1}"#.to_vec()),
            (0, "a2", with(Datatype::JSON, Datatype::SNAPPY), packed),
            (8, "b1", with(Datatype::JSON, Datatype::XATTR), attributes),
            (8, "b2", Datatype::RAW, vec![0xff]),
        ],
        asked: Mutex::default(),
    })
}

fn run(source: &Arc<Fixed>, statement: &str) -> Vec<Vec<Value>> {
    let source: Arc<dyn DocumentSource> = source.clone();
    let table: Arc<dyn TableSource> = Arc::new(DocumentTable::new(source));
    let catalog = BTreeMap::from([("shop".to_owned(), table)]);
    let database = Database::open(Arc::new(catalog)).unwrap();
    let mut rows = Rows::default();
    database.run(statement, &Parameters::None, &mut rows).unwrap();
    rows.0
}

fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}

#[test]
fn documents_are_shown_however_they_are_stored() {
    let rows = run(&fixed(), "select id, json, body, xattrs, rev, body_bytes from shop");
    let (null, number) = (Value::Null, Value::Integer);
    assert_eq!(
        rows[0],
        [text("a1"), text(r#"{"n":1}"#), null.clone(), null.clone(), number(1), number(7)]
    );
    assert_eq!(
        rows[1][..5],
        [text("a2"), text(r#"{"n":2}"#), null.clone(), null.clone(), null.clone()]
    );
    // The user may not see attributes of the system.
    assert_eq!(rows[2][..4], [text("b1"), text(r#"{"n":3}"#), null.clone(), text(r#"{"u":2}"#)]);
    assert_eq!(rows[3][..4], [text("b2"), null.clone(), Value::Blob(vec![0xff]), null]);
    let sum = run(&fixed(), "select sum(json ->> 'n') from shop");
    assert_eq!(sum, [[number(6)]]);
}

#[test]
fn the_source_is_told_what_it_can_check() {
    let source = fixed();
    assert_eq!(run(&source, "select cas from shop where id = 'a2'"), [[Value::Integer(100)]]);
    let prefix = "select id from shop where id glob 'b*' and collection in (0, 8) and vbucket = 7";
    assert_eq!(run(&source, prefix).len(), 2);
    assert_eq!(run(&source, "select count(*) from shop"), [[Value::Integer(4)]]);
    let asked = source.asked.lock().unwrap();
    assert_eq!(asked[0].keys.points(), Some(vec![&b"a2"[..]]));
    assert!(!asked[0].needs_value && asked[0].needs_figures);
    assert!(!asked[1].needs_figures && !asked[2].needs_figures);
    assert!(asked[1].keys.contains(b"b9") && !asked[1].keys.contains(b"a1"));
    let collections = [CollectionId(0), CollectionId(8)].into_iter().collect();
    assert_eq!(asked[1].collections, Some(collections));
    assert_eq!(asked[1].vbuckets, Some([Vbid(7)].into_iter().collect()));
    assert!(asked[2].keys.is_open() && asked[2].collections.is_none());
}
