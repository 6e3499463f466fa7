//! Reads documents by the entries of indexes.
//!
//! An entry is a candidate: its document is read as it is now, once in a scan, whatever entry led
//! to it, and the conditions are checked on it. So a document whose keys change while the scan
//! runs is neither lost nor read twice. In an ordered scan a document waits for the place of its
//! current keys; if that place has passed, the document was changed after the scan began, and it
//! comes at once.

use std::collections::{BTreeMap, HashSet};

use bytes::Bytes;

use crate::datastore::QueryDocument;
use crate::entries::encoding::append;
use crate::entries::sorted::EntryRange;
use crate::entries::value_range::ValueRange;
use crate::error::Result;
use crate::plan::KeyspacePlan;
use crate::plan::{IndexScanPlan, KeyTerm};
use crate::runtime::{Runtime, SlotFrame};
use crate::value::{QueryValue, Text};

use super::flow::Flow;

/// Ranges of one scan. Longer lists of IN are left to the filter.
const RANGES_MAX: usize = 10_000;

type EachDocument<'e> = dyn FnMut(QueryDocument, &mut SlotFrame) -> Result<Flow> + 'e;

/// Calls `each` for the documents of all scans.
pub fn documents(
    plan: &KeyspacePlan,
    scans: &[IndexScanPlan],
    rt: &Runtime<'_>,
    frame: &mut SlotFrame,
    each: &mut EachDocument<'_>,
) -> Result<Flow> {
    debug_assert!(!scans.is_empty(), "an access by index has a scan");
    let is_unordered = |scan: &IndexScanPlan| scan.ordered.is_none();
    debug_assert!(scans.len() == 1 || scans.iter().all(is_unordered), "one scan gives an order");
    rt.catch_up(rt.keyspace(&plan.keyspace)?)?;
    let mut seen = match scans {
        [scan] if scan.is_point() => None,
        _ => Some(HashSet::new()),
    };
    let mut flow = Flow::More;
    for scan in scans {
        flow = match scan.ordered {
            Some(reverse) => ordered(plan, scan, reverse, rt, frame, each)?,
            None => unordered(plan, scan, &mut seen, rt, frame, each)?,
        };
        if flow == Flow::Stop {
            break;
        }
    }
    // The inner side of a join is read for each row.
    let kept = seen.iter().flatten().map(|key| kept_bytes(key)).sum();
    rt.give_back(kept);
    Ok(flow)
}

/// Bytes of a key in a set.
fn kept_bytes(key: &[u8]) -> usize {
    key.len() + 64
}

fn unordered(
    plan: &KeyspacePlan,
    scan: &IndexScanPlan,
    seen: &mut Option<HashSet<Box<[u8]>>>,
    rt: &Runtime<'_>,
    frame: &mut SlotFrame,
    each: &mut EachDocument<'_>,
) -> Result<Flow> {
    let (keyspace, index) = (rt.keyspace(&plan.keyspace)?, rt.index(&scan.index)?);
    let snapshot = index.snapshot(ranges(scan, rt, frame)?)?;
    let mut flow = Flow::More;
    snapshot.each(false, &mut |entry| -> Result<bool> {
        rt.turn()?;
        if let Some(seen) = seen {
            let key = entry.document_key();
            if seen.contains(key) {
                return Ok(true);
            }
            rt.keep(kept_bytes(key))?;
            seen.insert(key.into());
        }
        if let Some((document, _)) = index.read(entry, keyspace)? {
            flow = each(document, frame)?;
        }
        Ok(flow == Flow::More)
    })?;
    Ok(flow)
}

/// The state of a scan in order: documents that came already, and those whose place is ahead.
struct OrderedScan<'s> {
    plan: &'s KeyspacePlan,
    reverse: bool,
    seen: HashSet<Bytes>,
    ahead: BTreeMap<Vec<u8>, Bytes>,
    kept: usize,
}

fn ordered(
    plan: &KeyspacePlan,
    scan: &IndexScanPlan,
    reverse: bool,
    rt: &Runtime<'_>,
    frame: &mut SlotFrame,
    each: &mut EachDocument<'_>,
) -> Result<Flow> {
    let (keyspace, index) = (rt.keyspace(&plan.keyspace)?, rt.index(&scan.index)?);
    let snapshot = index.snapshot(ranges(scan, rt, frame)?)?;
    let (seen, ahead) = (HashSet::new(), BTreeMap::new());
    let mut state = OrderedScan { plan, reverse, seen, ahead, kept: 0 };
    let mut flow = Flow::More;
    snapshot.each(reverse, &mut |entry| -> Result<bool> {
        rt.turn()?;
        flow = state.pass_until(Some(entry.bytes), rt, frame, each)?;
        if flow == Flow::Stop || state.seen.contains(entry.document_key()) {
            return Ok(flow == Flow::More);
        }
        let Some((document, encoded)) = index.read(entry, keyspace)? else {
            return Ok(true);
        };
        let Some(encoded) = encoded.first() else { return Ok(true) };
        let place = [&encoded[..], &document.key].concat();
        if place != entry.bytes && (place < entry.bytes.to_vec()) == reverse {
            let bytes = place.len() + kept_bytes(&document.key);
            rt.keep(bytes)?;
            state.kept += bytes;
            state.ahead.insert(place, document.key);
            return Ok(true);
        }
        flow = state.pass(document, rt, frame, each)?;
        Ok(flow == Flow::More)
    })?;
    if flow == Flow::More {
        flow = state.pass_until(None, rt, frame, each)?;
    }
    debug_assert!(flow == Flow::Stop || state.ahead.is_empty(), "every document has come");
    rt.give_back(state.kept);
    Ok(flow)
}

impl OrderedScan<'_> {
    fn pass(
        &mut self,
        document: QueryDocument,
        rt: &Runtime<'_>,
        frame: &mut SlotFrame,
        each: &mut EachDocument<'_>,
    ) -> Result<Flow> {
        rt.keep(kept_bytes(&document.key))?;
        self.kept += kept_bytes(&document.key);
        self.seen.insert(document.key.clone());
        each(document, frame)
    }

    /// Passes the documents whose place is before an entry, or all of them.
    fn pass_until(
        &mut self,
        entry: Option<&[u8]>,
        rt: &Runtime<'_>,
        frame: &mut SlotFrame,
        each: &mut EachDocument<'_>,
    ) -> Result<Flow> {
        loop {
            let next = match self.reverse {
                true => self.ahead.last_entry(),
                false => self.ahead.first_entry(),
            };
            let Some(next) = next else { return Ok(Flow::More) };
            let is_due = entry.is_none_or(|entry| match self.reverse {
                true => &next.key()[..] > entry,
                false => &next.key()[..] < entry,
            });
            if !is_due {
                return Ok(Flow::More);
            }
            let key = next.remove();
            if self.seen.contains(&key) {
                continue;
            }
            if let Some(document) = rt.keyspace(&self.plan.keyspace)?.get(&key)?
                && self.pass(document, rt, frame, each)? == Flow::Stop
            {
                return Ok(Flow::Stop);
            }
        }
    }
}

/// The ranges of entries with every document that meets the conditions, in their order.
fn ranges(
    scan: &IndexScanPlan,
    rt: &Runtime<'_>,
    frame: &mut SlotFrame,
) -> Result<Vec<EntryRange>> {
    let keys = &scan.keys;
    let mut prefixes = vec![Vec::new()];
    let mut fixed = 0;
    for (term, component) in scan.prefix.iter().zip(keys.components()) {
        let values = match term {
            KeyTerm::Equal(value) => vec![rt.eval(value, frame)?],
            KeyTerm::In(list) => rt.eval(list, frame)?.elements().unwrap_or_default().to_vec(),
            _ => vec![QueryValue::Null],
        };
        // Nothing equals missing or null.
        let is_wanted = |value: &&QueryValue| value.is_valued() || matches!(term, KeyTerm::IsNull);
        let mut encoded: Vec<Vec<u8>> = Vec::with_capacity(values.len());
        for value in values.iter().filter(is_wanted) {
            let mut bytes = Vec::new();
            append(value, component.key.descending, &mut bytes);
            encoded.push(bytes);
        }
        encoded.sort_unstable();
        encoded.dedup();
        if prefixes.len().saturating_mul(encoded.len()) > RANGES_MAX {
            break;
        }
        let longer = |prefix: &Vec<u8>| {
            let prefix = prefix.clone();
            encoded.iter().map(move |bytes| [&prefix[..], bytes].concat()).collect::<Vec<_>>()
        };
        prefixes = prefixes.iter().flat_map(longer).collect();
        fixed += 1;
    }
    debug_assert!(prefixes.len() <= RANGES_MAX, "a scan has few ranges");
    debug_assert!(prefixes.is_sorted(), "ranges are in the order of their values");
    let mut range = ValueRange::all();
    let mut descending = false;
    if fixed == scan.prefix.len() && !scan.range.is_empty() {
        descending = keys.components().nth(fixed).is_some_and(|next| next.key.descending);
        for term in &scan.range {
            match value_range(term, rt, frame)? {
                Some(other) => range.intersect(other),
                None => return Ok(Vec::new()),
            }
        }
    }
    Ok(prefixes.iter().map(|prefix| range.entries(prefix, descending)).collect())
}

/// The values that a term allows; none if it holds for no value.
fn value_range(
    term: &KeyTerm,
    rt: &Runtime<'_>,
    frame: &mut SlotFrame,
) -> Result<Option<ValueRange>> {
    let value = match term.value() {
        Some(value) => rt.eval(value, frame)?,
        None => QueryValue::Null,
    };
    if term.value().is_some() && !value.is_valued() {
        return Ok(None);
    }
    Ok(Some(match term {
        KeyTerm::Equal(_) => ValueRange::point(&value),
        KeyTerm::In(_) | KeyTerm::IsValued => ValueRange::valued(),
        KeyTerm::IsNull => ValueRange::point(&QueryValue::Null),
        KeyTerm::IsNotMissing => ValueRange::not_missing(),
        KeyTerm::Above { inclusive, .. } => ValueRange::above(&value, *inclusive),
        KeyTerm::Below { inclusive, .. } => ValueRange::below(&value, *inclusive),
        KeyTerm::Like(_) => {
            let QueryValue::Str(pattern) = &value else { return Ok(None) };
            ValueRange::texts(&rt.like(pattern, &Text::from("\\"))?.prefix())
        }
    }))
}
