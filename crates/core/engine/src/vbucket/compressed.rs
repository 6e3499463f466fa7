//! The form in which values are stored: as received, compressed or inflated.
//!
//! Owns: the bucket's mode, applied to each value before it is stored, and the checks of compressed
//! values from clients. No lock is held here. A plain value in a bucket that does not compress
//! costs the tests of two bytes. Called by the operations.

use oribi_types::{Datatype, DocKey};

use super::context::Context;
use crate::attributes::datatype_with;
use crate::compression::{
    CompressionMode, InflateError, inflated_bytes, with_compressed, with_inflated,
};
use crate::datatype;
use crate::item::{ItemFields, ItemRef, NewItem};
use crate::outcome::{MutationOutcome, OperationRejection, StoreRequest};

impl From<InflateError> for MutationOutcome {
    fn from(unusable: InflateError) -> MutationOutcome {
        match unusable {
            InflateError::Corrupt => MutationOutcome::Corrupt,
            InflateError::TooLarge => MutationOutcome::TooLarge,
        }
    }
}

/// The block of a store request whose value fits the limit as it came.
#[inline]
pub(super) fn stored_form(
    context: &Context<'_>,
    key: DocKey<'_>,
    fields: ItemFields,
    request: &StoreRequest<'_>,
) -> Result<NewItem, InflateError> {
    let mode = context.compression.get();
    if request.is_compressed {
        return compressed_form(context, key, fields, request.value);
    }
    let fields = ItemFields { datatype: datatype::detect(request.value), ..fields };
    if mode == CompressionMode::Active
        && let Some(new) = smaller(key, fields, &[], request.value)
    {
        return Ok(new);
    }
    Ok(NewItem::new(key, fields, &[request.value]))
}

/// The block of a store request whose value was received into it.
#[inline]
pub(super) fn received_form(
    context: &Context<'_>,
    new: NewItem,
    request: &StoreRequest<'_>,
) -> Result<NewItem, InflateError> {
    if !request.is_compressed {
        let datatype = datatype::detect(new.as_item().value());
        let new = new.with_datatype(datatype);
        return Ok(body_compressed(context, new, request.preserve_expiry));
    }
    let item = new.as_item();
    if is_kept_compressed(context, item.value())? {
        let json = with_inflated(item.value(), context.value_bytes_max, datatype::detect)?;
        return Ok(new.with_datatype(Datatype(json.0 | Datatype::SNAPPY.0)));
    }
    let fields = fields_of(item, request.preserve_expiry);
    compressed_form(context, item.key(), fields, item.value())
}

/// The block of a value that was received compressed.
#[cold]
fn compressed_form(
    context: &Context<'_>,
    key: DocKey<'_>,
    fields: ItemFields,
    value: &[u8],
) -> Result<NewItem, InflateError> {
    let keeps = is_kept_compressed(context, value)?;
    with_inflated(value, context.value_bytes_max, |plain| {
        let json = datatype::detect(plain);
        let snappy = if keeps { Datatype::SNAPPY.0 } else { 0 };
        let fields = ItemFields { datatype: Datatype(json.0 | snappy), ..fields };
        NewItem::new(key, fields, &[if keeps { value } else { plain }])
    })
}

/// False in mode off, and for a value that is shorter when inflated.
fn is_kept_compressed(context: &Context<'_>, value: &[u8]) -> Result<bool, InflateError> {
    let plain_bytes = inflated_bytes(value, context.value_bytes_max)?;
    Ok(context.compression.get() != CompressionMode::Off && value.len() < plain_bytes)
}

/// The same version with its body compressed, if the bucket compresses and it pays. `keeps_expiry`
/// when an expiry is still to be set.
#[inline]
pub(super) fn body_compressed(context: &Context<'_>, new: NewItem, keeps_expiry: bool) -> NewItem {
    if context.compression.get() != CompressionMode::Active {
        return new;
    }
    let item = new.as_item();
    if item.is_compressed() || item.is_deleted() {
        return new;
    }
    smaller(item.key(), fields_of(item, keeps_expiry), item.attributes(), item.body())
        .unwrap_or(new)
}

fn smaller(key: DocKey<'_>, fields: ItemFields, attributes: &[u8], body: &[u8]) -> Option<NewItem> {
    let snappy = Datatype(fields.datatype.0 | Datatype::SNAPPY.0);
    let fields = ItemFields { datatype: datatype_with(attributes, snappy), ..fields };
    with_compressed(body, |compressed| {
        debug_assert!(compressed.len() < body.len(), "a compressed body is shorter");
        NewItem::new(key, fields, &[attributes, compressed])
    })
}

fn fields_of(item: &ItemRef, keeps_expiry: bool) -> ItemFields {
    ItemFields {
        flags: item.flags(),
        expiry: item.expiry(),
        datatype: item.datatype(),
        keeps_expiry,
        ..ItemFields::default()
    }
}

/// The body of a stored version, inflated. Stored values were checked; a damaged one is answered
/// like a document that cannot be read from disk.
pub(super) fn plain_body<'a>(
    item: &'a ItemRef,
    scratch: &'a mut Vec<u8>,
) -> Result<&'a [u8], OperationRejection> {
    item.plain_body(scratch).map_err(|_| OperationRejection::TemporaryFailure)
}
