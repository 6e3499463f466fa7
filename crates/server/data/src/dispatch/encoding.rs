//! Encodes replies and failures, and appends them to a connection's output.
//!
//! Owns: layouts that depend on what the client negotiated: the datatype bits it sees, the form of
//! a failure's reason, and whether a body is sent as stored or inflated, copied or pinned.
//!
//! Invariants: only errors that are logged or name a manifest allocate; the JSON bit appears only
//! if the client negotiated it. [`super::answer`] decides what to answer and calls this.

use std::sync::Arc;

use oribi_engine::compression::{InflateError, Inflater, inflate_into};
use oribi_engine::{AppliedMutation, Item, ItemRef};
use oribi_protocol::feature::Feature;
use oribi_protocol::limits::{GATHER_VALUE_BYTES_MIN, VALUE_BYTES_MAX};
use oribi_protocol::opcode::Opcode;
use oribi_protocol::response::{
    MutationTokenExtras, ResponseParts, write_response, write_response_head,
};
use oribi_protocol::status::Status;
use oribi_protocol::sub_document::{LOOKUP_HEAD_BYTES, write_lookup_head};
use oribi_types::{Cas, Datatype, ManifestUid};

use super::outcome::{PathValues, SampledDocument};
use crate::connection::features::Features;
use crate::connection::parked::Answer;
use crate::connection::send_buffer::{PinnedValue, SendBuffer};
use crate::diagnostics::rejection_log::Reference;
use crate::dispatch::status;

/// Appends a document: flags as extras, the key field of `parts`, and the value. Small values are
/// copied, large ones pinned.
#[inline(always)]
pub(super) fn write_document(
    out: &mut SendBuffer,
    features: Features,
    parts: &ResponseParts<'_>,
    item: &ItemRef,
    cas: Cas,
) {
    let is_inflated = item.is_compressed() && !features.has(Feature::Snappy);
    if !is_inflated && item.value_bytes() < GATHER_VALUE_BYTES_MIN {
        return write_copied(out, features, parts, item, cas);
    }
    let flags = item.flags().to_be_bytes();
    let datatype = features.datatype_shown(item.datatype());
    let parts = ResponseParts { cas: cas.0, datatype, extras: &flags, ..*parts };
    if is_inflated {
        return write_inflated(out, features, &parts, item);
    }
    let value = item.body();
    write_response_head(out.tail(), &parts, value.len());
    if value.len() >= GATHER_VALUE_BYTES_MIN {
        out.pin(PinnedValue::Item(item.clone()));
    } else {
        out.tail().extend_from_slice(value);
    }
}

/// Appends a document whose body is copied as it is.
#[inline(always)]
pub(super) fn write_copied(
    out: &mut SendBuffer,
    features: Features,
    parts: &ResponseParts<'_>,
    item: &Item,
    cas: Cas,
) {
    let flags = item.flags().to_be_bytes();
    let datatype = features.datatype_shown(item.datatype());
    let value = item.body();
    let parts = ResponseParts { cas: cas.0, datatype, extras: &flags, value, ..*parts };
    write_response(out.tail(), &parts);
}

/// Appends a document whose body is compressed, for a client that does not read compressed bodies.
#[cold]
fn write_inflated(
    out: &mut SendBuffer,
    features: Features,
    parts: &ResponseParts<'_>,
    item: &ItemRef,
) {
    let bytes = item.plain_body_bytes();
    if bytes.is_ok_and(|bytes| bytes < GATHER_VALUE_BYTES_MIN) {
        // The body goes after its head, where any other would have been copied to.
        let begin = out.tail().len();
        write_response_head(out.tail(), parts, bytes.unwrap_or(0));
        if inflate_into(item.body(), GATHER_VALUE_BYTES_MIN, out.tail()).is_ok() {
            return;
        }
        out.tail().truncate(begin);
    } else if let Ok(inflating) = inflating_of(item) {
        write_response_head(out.tail(), parts, inflating.total_bytes());
        return out.pin(PinnedValue::Inflating(item.clone(), Box::new(inflating)));
    }
    // The stored body was checked when it was stored. Now it is damaged, like a document that
    // cannot be read from disk.
    let failed =
        ResponseParts { datatype: 0, cas: 0, extras: &[], status: Status::Etmpfail, ..*parts };
    write_failure(out, features, &failed, None);
}

/// The body of a document, inflated as it is sent. The first piece is made at once, so a body that
/// is damaged at its beginning still gets an error answer.
pub(super) fn inflating_of(item: &ItemRef) -> Result<Inflater, InflateError> {
    let mut inflating = Inflater::new(item.body(), VALUE_BYTES_MAX)?;
    inflating.make(item.body(), 0)?;
    debug_assert!(
        inflating.total_bytes() == 0 || !inflating.ready(0).is_empty(),
        "the first piece is ready"
    );
    Ok(inflating)
}

/// Appends a document chosen at random, with its attributes if requested.
pub(super) fn write_sampled(
    out: &mut SendBuffer,
    features: Features,
    parts: &ResponseParts<'_>,
    sampled: &SampledDocument,
) {
    let SampledDocument { key, item, cas, with_attributes } = sampled;
    let parts = ResponseParts { key, ..*parts };
    let Some(value) = with_attributes else {
        return write_document(out, features, &parts, item, *cas);
    };
    debug_assert!(!value.is_empty(), "attributes that are shown have bytes");
    let shown = features.datatype_shown(item.datatype()) & !Datatype::SNAPPY.0;
    let datatype = shown | Datatype::XATTR.0;
    let flags = item.flags().to_be_bytes();
    let parts = ResponseParts { cas: cas.0, datatype, extras: &flags, value, ..parts };
    write_response(out.tail(), &parts);
}

/// Appends the values found at paths: parts of the item, copied when small and pinned when large,
/// and values made for the answer.
pub(super) fn write_found(
    out: &mut SendBuffer,
    features: Features,
    parts: &ResponseParts<'_>,
    found: &PathValues,
) {
    debug_assert!(found.is_list || found.values.len() <= 1, "one path has one value");
    let head_bytes = if found.is_list { LOOKUP_HEAD_BYTES } else { 0 };
    let bytes: usize =
        found.values.iter().map(|value| head_bytes + (value.end - value.begin) as usize).sum();
    let datatype = features.datatype_shown(found.datatype);
    let parts = ResponseParts { cas: found.cas.0, datatype, ..*parts };
    debug_assert!(
        bytes <= oribi_protocol::limits::FRAME_BYTES_MAX,
        "values of an answer fit into a frame"
    );
    write_response_head(out.tail(), &parts, bytes);
    for value in &found.values {
        let bytes = (value.end - value.begin) as usize;
        let place = value.begin as usize..value.end as usize;
        debug_assert!(
            place.end <= if value.is_in_item { found.item.value().len() } else { found.made.len() },
            "a value is inside its bytes"
        );
        if found.is_list {
            write_lookup_head(out.tail(), value.status, bytes);
        }
        if value.is_in_item && bytes >= GATHER_VALUE_BYTES_MIN {
            out.pin(PinnedValue::Part(found.item.clone(), value.begin..value.end));
        } else if value.is_in_item {
            out.tail().extend_from_slice(&found.item.value()[place]);
        } else {
            out.tail().extend_from_slice(&found.made[place]);
        }
    }
}

/// Appends a JSON document of the server, pinned when large.
pub(super) fn write_json(
    out: &mut SendBuffer,
    features: Features,
    parts: &ResponseParts<'_>,
    json: &Arc<str>,
) {
    let parts = ResponseParts { datatype: features.datatype_shown(Datatype::JSON), ..*parts };
    write_response_head(out.tail(), &parts, json.len());
    if json.len() >= GATHER_VALUE_BYTES_MIN {
        out.pin(PinnedValue::Document(Arc::clone(json)));
    } else {
        out.tail().extend_from_slice(json.as_bytes());
    }
}

/// Appends the answer to a write that has reached its durability level. `parts` is an empty answer.
pub(super) fn write_written(
    out: &mut SendBuffer,
    features: Features,
    mut parts: ResponseParts<'_>,
    answer: &Answer,
) {
    match answer {
        Answer::Document(item) => {
            let key = if repeats_key(parts.opcode) { item.key().key } else { &[] };
            write_document(out, features, &ResponseParts { key, ..parts }, item, item.cas());
        }
        Answer::Touched(mutation) => {
            write_response(out.tail(), &ResponseParts { cas: mutation.cas.0, ..parts });
        }
        Answer::Mutation(mutation) => write_mutation(out, features, &parts, mutation),
        Answer::Counter { mutation, value } => {
            let digits = value.to_be_bytes();
            write_mutation(out, features, &ResponseParts { value: &digits, ..parts }, mutation);
        }
        Answer::SubDocument { mutation, status, value, datatype } => {
            (parts.status, parts.datatype) = (*status, features.datatype_shown(*datatype));
            write_mutation(out, features, &ResponseParts { value, ..parts }, mutation);
        }
    }
}

/// True for memcached's GATK and GATKQ, whose answers have the key. Clients that say HELLO know
/// their codes as others, which answer no document.
pub(super) fn repeats_key(opcode: u8) -> bool {
    opcode == Opcode::IoctlGet as u8 || opcode == Opcode::IoctlSet as u8
}

/// Appends the answer to a write with its CAS, and with vbucket uuid and seqno if the client
/// negotiated them.
#[inline(always)]
pub(super) fn write_mutation(
    out: &mut SendBuffer,
    features: Features,
    parts: &ResponseParts<'_>,
    mutation: &AppliedMutation,
) {
    let token = MutationTokenExtras { vb_uuid: mutation.vb_uuid, seqno: mutation.seqno }.encode();
    let extras: &[u8] = if features.has(Feature::MutationSeqno) { &token } else { &[] };
    write_response(out.tail(), &ResponseParts { cas: mutation.cas.0, extras, ..*parts });
}

/// True for clients that read a failure's reason from JSON in the answer.
pub(super) fn reads_contexts(features: Features) -> bool {
    features.has(Feature::XError) && features.has(Feature::Json)
}

/// Appends an answer to a failed request. The reason follows where the client reads it: as JSON, or
/// in memcached's words. `parts` is the answer without the reason. This allocates nothing.
#[cold]
pub(super) fn write_failure(
    out: &mut SendBuffer,
    features: Features,
    parts: &ResponseParts<'_>,
    context: Option<&str>,
) {
    const BEGIN: &[u8] = br#"{"error":{"context":""#;
    const END: &[u8] = br#""}}"#;
    debug_assert!(parts.status != Status::Success, "a failure has its status");
    if !features.is_negotiated() {
        let text = plain_text(parts.status, context);
        return write_response(out.tail(), &ResponseParts { value: text.as_bytes(), ..*parts });
    }
    let Some(context) = context.filter(|_| reads_contexts(features)) else {
        return write_response(out.tail(), parts);
    };
    debug_assert!(context.bytes().all(|byte| matches!(byte, b' '..=b'~') && byte != b'"'));
    let parts = ResponseParts { datatype: Datatype::JSON.0, ..*parts };
    write_response_head(out.tail(), &parts, BEGIN.len() + context.len() + END.len());
    for piece in [BEGIN, context.as_bytes(), END] {
        out.tail().extend_from_slice(piece);
    }
}

/// The text that a client without HELLO shows to its users: memcached's words if there are any,
/// because the client supports them; else the reason.
pub(super) fn plain_text(status: Status, context: Option<&str>) -> &str {
    let words = status::memcached_text(status);
    let text = match status {
        // The name of the missing right says more than memcached's words.
        Status::AuthError => context.or(words),
        _ => words.or(context),
    };
    text.unwrap_or_else(|| status.description())
}

/// Appends a failure that names a manifest or its place in the log, for a client that reads this.
#[cold]
pub(super) fn write_error_body(
    out: &mut SendBuffer,
    features: Features,
    parts: &ResponseParts<'_>,
    (manifest, context, reference): (Option<ManifestUid>, &str, Option<Reference>),
) {
    let mut error = serde_json::Map::new();
    error.insert("context".to_owned(), context.into());
    if let Some(reference) = reference {
        error.insert("ref".to_owned(), reference.to_string().into());
    }
    let mut body = serde_json::Map::new();
    body.insert("error".to_owned(), error.into());
    if let Some(uid) = manifest {
        body.insert("manifest_uid".to_owned(), uid.to_string().into());
    }
    let value = serde_json::to_vec(&body).expect("a map of strings always serialises");
    let datatype = features.datatype_shown(Datatype::JSON);
    write_response(out.tail(), &ResponseParts { datatype, value: &value, ..*parts });
}
