//! A table of documents, wherever they are.
//!
//! It owns the columns of such a table, what of a statement's conditions the source of the
//! documents is told, and the cells. A source knows only keys, collections, vbuckets and stored
//! values. Invariants: the source is asked for values only when a statement looks at them; a
//! document's parts are decoded once, and lent to SQLite from the source's own memory where they
//! are stored as SQL shows them.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::Result;
use oribi_types::{CollectionId, Datatype, Vbid};
use rusqlite::types::ValueRef;

use crate::columns::{
    BODY, BODY_BYTES, CAS, COLLECTION, COLUMNS, DATATYPE, EXPIRY, FLAGS, ID, JSON, REV, SEQNO,
    VBUCKET, XATTRS,
};
use crate::document_cells::{
    Attributes, Content, inflated_bytes, is_json, json_of_xattrs, parts_of,
};
use crate::key_filter::KeyFilter;
use crate::source::{
    Argument, Column, Condition, Conditions, Operator, RowStream, ScanRequest, TableSource,
};

/// Share of a table that a condition on keys leaves to read, as a planner's guess.
const RANGE_SHARE: f64 = 0.25;

/// What a statement needs of a source.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DocumentScan {
    /// Which keys.
    pub keys: KeyFilter,
    /// Only documents of these collections, if the statement names some.
    pub collections: Option<BTreeSet<CollectionId>>,
    /// Only documents of these vbuckets, if the statement names some.
    pub vbuckets: Option<BTreeSet<Vbid>>,
    /// Without it all but key, collection and vbucket may be left out.
    pub needs_figures: bool,
    /// Without it values may be left out.
    pub needs_value: bool,
    /// Without it numbers of versions and expiries may be left out.
    pub needs_meta: bool,
    /// Without it places in the history may be left out.
    pub needs_seqno: bool,
    /// With it attributes precede the value of documents that have some.
    pub needs_xattrs: bool,
}

/// A document as it is stored.
#[derive(Clone, Copy, Debug)]
pub struct StoredDocument<'a> {
    /// Its vbucket.
    pub vbid: Vbid,
    /// Its collection.
    pub collection: CollectionId,
    /// Its key.
    pub key: &'a [u8],
    /// CAS.
    pub cas: u64,
    /// Place in the vbucket's history.
    pub seqno: u64,
    /// Number of its version; `None` where the source does not know it.
    pub rev: Option<u64>,
    /// Flags that the writer set.
    pub flags: u32,
    /// UNIX seconds; 0 for none.
    pub expiry: u32,
    /// What the value is.
    pub datatype: Datatype,
    /// Attributes, if the datatype has their bit, and the body.
    pub value: &'a [u8],
}

/// Documents one after the other.
pub trait DocumentStream {
    /// Goes to the next document; false at the end. The first call goes to the first one.
    ///
    /// # Errors
    /// What the user is told when there is no going on.
    fn advance(&mut self) -> Result<bool>;

    /// The current document; `None` before the first and behind the last one.
    fn document(&self) -> Option<StoredDocument<'_>>;

    /// Asked before so many bytes are made of the current document, to be kept beside it until the
    /// next one.
    ///
    /// # Errors
    /// What the user is told when there is no memory for them.
    fn make_room(&mut self, bytes: usize) -> Result<()> {
        let _ = bytes;
        Ok(())
    }
}

/// Something that has documents.
pub trait DocumentSource: Send + Sync {
    /// How many there are, about.
    fn documents(&self) -> u64;

    /// Which attributes the user may see.
    fn attributes(&self) -> Attributes {
        Attributes::All
    }

    /// Starts a scan, which shows documents that live: no tombstones, no expired ones.
    ///
    /// # Errors
    /// What the user is told when it cannot start.
    fn scan(&self, scan: DocumentScan) -> Result<Box<dyn DocumentStream>>;
}

/// See the module text.
pub struct DocumentTable {
    source: Arc<dyn DocumentSource>,
    columns: Vec<Column>,
}

impl DocumentTable {
    /// The table of these documents.
    pub fn new(source: Arc<dyn DocumentSource>) -> DocumentTable {
        let columns = COLUMNS.iter().enumerate().map(|(at, (name, declared))| Column {
            name: (*name).to_owned(),
            declared,
            takes: match at {
                VBUCKET | COLLECTION | ID => Conditions::Comparisons,
                _ => Conditions::Nullness,
            },
        });
        DocumentTable { columns: columns.collect(), source }
    }
}

impl TableSource for DocumentTable {
    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn identity(&self) -> &[usize] {
        &[VBUCKET, COLLECTION, ID]
    }

    fn rows(&self) -> u64 {
        // Zero stands for "unknown", and an empty bucket is not.
        self.source.documents().max(1)
    }

    fn share_read(&self, conditions: &[(usize, Operator)]) -> f64 {
        let on = |column| conditions.iter().filter(move |(on, _)| *on == column);
        let is_fixed = |column| {
            on(column).any(|(_, operator)| matches!(operator, Operator::Equal | Operator::In))
        };
        if is_fixed(ID) {
            return 0.0;
        }
        let of_keys = if on(ID).next().is_some() { RANGE_SHARE } else { 1.0 };
        let of_places = if is_fixed(VBUCKET) || is_fixed(COLLECTION) { RANGE_SHARE } else { 1.0 };
        of_keys * of_places
    }

    fn scan(&self, request: &ScanRequest) -> Result<Box<dyn RowStream>> {
        let on = |column| request.conditions.iter().filter(move |one| one.column == column);
        let needs = |columns: &[usize]| columns.iter().any(|one| request.columns.contains(one));
        let scan = DocumentScan {
            keys: KeyFilter::of(on(ID)),
            collections: numbers(on(COLLECTION))
                .map(|numbers| numbers.into_iter().filter_map(collection_of).collect()),
            vbuckets: numbers(on(VBUCKET))
                .map(|numbers| numbers.into_iter().filter_map(vbucket_of).collect()),
            needs_figures: request
                .columns
                .iter()
                .any(|column| ![VBUCKET, COLLECTION, ID].contains(column)),
            needs_value: needs(&[XATTRS, JSON, BODY, BODY_BYTES]),
            needs_meta: needs(&[REV, EXPIRY]),
            needs_seqno: needs(&[SEQNO]),
            needs_xattrs: needs(&[XATTRS]),
        };
        Ok(Box::new(DocumentRows {
            stream: self.source.scan(scan)?,
            needs_body: needs(&[JSON, BODY]),
            needs_xattrs: needs(&[XATTRS]),
            attributes: self.source.attributes(),
            shown: Shown::default(),
        }))
    }
}

fn collection_of(number: i64) -> Option<CollectionId> {
    u32::try_from(number).ok().map(CollectionId)
}

fn vbucket_of(number: i64) -> Option<Vbid> {
    u16::try_from(number).ok().map(Vbid)
}

/// The numbers that the conditions leave, if they name some. Others are SQLite's to check.
fn numbers<'a>(conditions: impl Iterator<Item = &'a Condition>) -> Option<BTreeSet<i64>> {
    let mut left: Option<BTreeSet<i64>> = None;
    for condition in conditions {
        if !matches!(condition.operator, Operator::Equal | Operator::In) {
            continue;
        }
        let values = condition.values.iter().filter(|value| **value != Argument::Null);
        let numbers = values.map(|value| match value {
            Argument::Integer(number) => Some(*number),
            _ => None,
        });
        let Some(numbers) = numbers.collect::<Option<BTreeSet<i64>>>() else { continue };
        left = Some(match left {
            Some(left) => left.intersection(&numbers).copied().collect(),
            None => numbers,
        });
    }
    left
}

struct DocumentRows {
    stream: Box<dyn DocumentStream>,
    needs_body: bool,
    needs_xattrs: bool,
    attributes: Attributes,
    shown: Shown,
}

/// What of the current document is not shown as it is stored.
#[derive(Default)]
struct Shown {
    /// The stored body is JSON as it is.
    is_json: bool,
    content: Option<Content>,
    xattrs: Option<Vec<u8>>,
}

impl RowStream for DocumentRows {
    fn advance(&mut self) -> Result<bool> {
        // Before there is memory of another document.
        self.shown = Shown::default();
        if !self.stream.advance()? {
            return Ok(false);
        }
        if !self.needs_body && !self.needs_xattrs {
            return Ok(true);
        }
        let Some(document) = self.stream.document() else { return Ok(false) };
        let bytes = self.bytes_beside(document);
        if bytes > 0 {
            self.stream.make_room(bytes)?;
        }
        let Some(document) = self.stream.document() else { return Ok(false) };
        let datatype = document.datatype;
        let (block, body) = parts_of(datatype, document.value);
        if self.needs_xattrs && datatype.contains(Datatype::XATTR) {
            self.shown.xattrs = json_of_xattrs(block, self.attributes);
        }
        if self.needs_body {
            match datatype.contains(Datatype::SNAPPY) {
                // What cannot be inflated is shown as it is.
                true => self.shown.content = Content::inflated(datatype, body),
                false => self.shown.is_json = is_json(datatype, body),
            }
        }
        Ok(true)
    }

    fn cell(&self, column: usize) -> Result<ValueRef<'_>> {
        let Some(document) = self.stream.document() else { return Ok(ValueRef::Null) };
        let number = |number: u64| ValueRef::Integer(number.cast_signed());
        Ok(match column {
            VBUCKET => number(document.vbid.0.into()),
            COLLECTION => number(document.collection.0.into()),
            ID => ValueRef::Text(document.key),
            CAS => number(document.cas),
            SEQNO => number(document.seqno),
            REV => document.rev.map_or(ValueRef::Null, number),
            FLAGS => number(document.flags.into()),
            EXPIRY => number(document.expiry.into()),
            DATATYPE => number(document.datatype.0.into()),
            BODY_BYTES => number(parts_of(document.datatype, document.value).1.len() as u64),
            XATTRS => self.shown.xattrs.as_deref().map_or(ValueRef::Null, ValueRef::Text),
            JSON | BODY => self.body(column, document),
            _ => ValueRef::Null,
        })
    }
}

impl DocumentRows {
    /// Bytes of what is not shown as it is stored, at most.
    fn bytes_beside(&self, document: StoredDocument<'_>) -> usize {
        let (block, body) = parts_of(document.datatype, document.value);
        let of_body = match self.needs_body && document.datatype.contains(Datatype::SNAPPY) {
            true => inflated_bytes(body).unwrap_or(0),
            false => 0,
        };
        // A vector that grows may be twice as long as what it has.
        let of_xattrs = if self.needs_xattrs { 2 * block.len() } else { 0 };
        of_body + of_xattrs
    }

    fn body<'a>(&'a self, column: usize, document: StoredDocument<'a>) -> ValueRef<'a> {
        if !self.needs_body {
            return ValueRef::Null;
        }
        match (column, &self.shown.content) {
            (JSON, Some(Content::Json(json))) => ValueRef::Text(json),
            (BODY, Some(Content::Body(body))) => ValueRef::Blob(body),
            (_, Some(_)) => ValueRef::Null,
            (JSON, None) if self.shown.is_json => {
                ValueRef::Text(parts_of(document.datatype, document.value).1)
            }
            (BODY, None) if !self.shown.is_json => {
                ValueRef::Blob(parts_of(document.datatype, document.value).1)
            }
            _ => ValueRef::Null,
        }
    }
}

#[cfg(test)]
mod tests;
