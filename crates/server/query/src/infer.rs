//! INFER: what the documents of a keyspace look like.
//!
//! Owns: the sample and its flavors. The answer is one row, an array with a JSON
//! schema for each flavor: documents with similar fields, by the greatest similarity of the names
//! and types at their top level. [`schema`] has the schema of a flavor,
//! [`options`] the options of a statement.
//!
//! The sample is drawn at random from the first documents of a scan, which reads keys alone.
//! Vbuckets divide keys by their hashes, so those documents are no special ones. Kept values are
//! reserved in the statement's memory, and a flavor has a bounded number of fields.

mod options;
mod schema;

use bytes::Bytes;

use crate::ast::statement::Infer;
use crate::compile::Compiler;
use crate::context::QueryContext;
use crate::datastore::{KeyRange, Keyspace};
use crate::error::Result;
use crate::exec::from::document_value;
use crate::indexes::constant;
use crate::limits::INFER_FLAVORS_MAX;
use crate::runtime::Runtime;
use crate::scan_hints::ScanHints;
use crate::value::{Object, QueryValue, Text};
use options::InferOptions;
use schema::ValueShape;

/// Documents from which one of the sample is drawn.
const DOCUMENTS_A_SAMPLE: u64 = 20;

/// Bytes of a key in the sample apart from its text.
const KEY_BYTES: usize = 48;

/// Documents with similar fields.
struct Flavor {
    shape: ValueShape,
    keys: ValueShape,
}

/// The row of the answer.
pub fn run(infer: &Infer, context: &QueryContext, rt: &Runtime<'_>) -> Result<QueryValue> {
    let turn = || rt.turn();
    let name = Compiler::new(rt.store, context, &turn).full_name(&infer.keyspace)?;
    let keyspace = rt.store.keyspace(&name)?;
    let options = match &infer.options {
        Some(options) => InferOptions::of(&constant(options, context, rt)?)?,
        None => InferOptions::of(&QueryValue::from(Object::default()))?,
    };
    let mut flavors: Vec<Flavor> = Vec::new();
    for key in sample(&*keyspace, &options, rt)? {
        // It may have been removed since.
        let Some(document) = keyspace.get(&key)? else { continue };
        rt.work(document.value.len())?;
        let value = document_value(&document);
        let mut one = Flavor { shape: ValueShape::default(), keys: ValueShape::default() };
        one.shape.add(&value, &options, rt)?;
        let position = nearest(&flavors, &one.shape, &options);
        let flavor = match position {
            Some(position) => &mut flavors[position],
            None => {
                flavors.push(Flavor { shape: ValueShape::default(), keys: ValueShape::default() });
                let last = flavors.len() - 1;
                &mut flavors[last]
            }
        };
        flavor.shape.add(&value, &options, rt)?;
        flavor.keys.add(&QueryValue::Str(Text::from_bytes(key)), &options, rt)?;
    }
    assert!(flavors.len() <= INFER_FLAVORS_MAX, "a keyspace has few flavors");
    flavors.sort_by_key(|flavor| std::cmp::Reverse(flavor.shape.count()));
    let schemas: Vec<QueryValue> =
        flavors.iter().map(|flavor| flavor.shape.schema(&flavor.keys)).collect();
    Ok(QueryValue::from(schemas))
}

/// The keys of a random sample.
fn sample(keyspace: &dyn Keyspace, options: &InferOptions, rt: &Runtime<'_>) -> Result<Vec<Bytes>> {
    let most = options.sample_size as u64 * DOCUMENTS_A_SAMPLE;
    let mut keys: Vec<Bytes> = Vec::new();
    let (mut seen, mut failure) = (0, None);
    // The same sample of the same documents each time.
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut visit = |document: crate::datastore::QueryDocument| {
        seen += 1;
        let is_kept = match keys.len() < options.sample_size {
            true => {
                let kept = rt.keep(KEY_BYTES + document.key.len());
                failure = kept.and_then(|()| rt.turn()).err();
                keys.push(document.key);
                failure.is_none()
            }
            false => {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                if let Some(key) = keys.get_mut(((random >> 33) % seen) as usize) {
                    *key = document.key;
                }
                failure = rt.turn().err();
                failure.is_none()
            }
        };
        match is_kept && seen < most {
            true => std::ops::ControlFlow::Continue(()),
            false => std::ops::ControlFlow::Break(()),
        }
    };
    if options.sample_size > 0 {
        let without_bodies = ScanHints { conditions: Vec::new(), fields: Some(Vec::new()) };
        keyspace.scan_hinted(&KeyRange::default(), &without_bodies, &mut visit)?;
    }
    assert!(keys.len() <= options.sample_size, "a sample has the size asked for at most");
    failure.map_or(Ok(keys), Err)
}

/// The flavor that a document belongs to; none if it begins another.
fn nearest(flavors: &[Flavor], shape: &ValueShape, options: &InferOptions) -> Option<usize> {
    let similar = flavors.iter().map(|flavor| flavor.shape.similarity(shape)).enumerate();
    let (at, similarity) = similar.max_by(|left, right| left.1.total_cmp(&right.1))?;
    let is_full = flavors.len() >= INFER_FLAVORS_MAX;
    (similarity >= options.similarity || is_full).then_some(at)
}
