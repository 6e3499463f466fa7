//! Scopes and collections over HTTP, as the client libraries' collection managers call it.
//!
//! Owns: the wording of each error, which those managers match by regular expression, and the
//! parsing of `maxTTL`. Invariant: a change that was answered with a uid is durable and in force.
//! Caller: `routes`; the engine makes the changes.

use std::sync::Arc;

use hyper::StatusCode;
use oribi_auth::Identity;
use oribi_engine::ManifestUpdateError;
use oribi_engine::collections::{
    BucketManifest, CollectionDefinition, ManifestChange, ManifestError, ScopeDefinition,
};
use serde_json::{Value, json};

use super::blocking::{blocking, failed};
use super::message::{
    FormFields, HttpRejection, HttpReply, bucket_not_found, error, field_error, json_reply,
};
use super::state::AdminState;
use oribi_server::admin_api::rights::Rights;

/// The manifest, limited to what the user may see. A client that has changed it through another
/// node sees the change.
pub(crate) async fn manifest(
    state: &Arc<AdminState>,
    bucket: &str,
    identity: &Arc<Identity>,
) -> HttpReply {
    let Some(handle) = state.server.buckets.get(bucket) else {
        return bucket_not_found();
    };
    if let Some(node) = state.server.cluster.node_of(&handle) {
        let (node, shared) = (Arc::clone(node), Arc::clone(&handle));
        if let Err(reply) = blocking(move || node.refresh_manifest(&*shared)).await {
            return *reply;
        }
    }
    let mut rights = Rights::of(identity, bucket);
    json_reply(&manifest_json(&rights.visible(handle.bucket().manifest())))
}

/// A manifest in the shape of this interface, where every collection has every field. `maxTTL` is 0
/// for "the bucket's value" and -1 for "no limit"; [`BucketManifest::to_json`] distinguishes these
/// by leaving the field out.
fn manifest_json(manifest: &BucketManifest) -> Value {
    let collection_json = |collection: &CollectionDefinition| {
        let max_ttl_s = match collection.max_ttl_s {
            None => 0,
            Some(0) => -1,
            Some(seconds) => i64::from(seconds),
        };
        json!({
            "name": collection.name,
            "uid": format!("{:x}", collection.id.0),
            "maxTTL": max_ttl_s,
            "history": false,
        })
    };
    let scope_json = |scope: &ScopeDefinition| {
        let collections: Vec<Value> = scope.collections.iter().map(collection_json).collect();
        json!({
            "name": scope.name,
            "uid": format!("{:x}", scope.id.0),
            "collections": collections,
        })
    };
    let scopes: Vec<Value> = manifest.scopes().iter().map(scope_json).collect();
    json!({ "uid": manifest.uid().to_string(), "scopes": scopes })
}

pub(crate) async fn create_scope(
    state: &Arc<AdminState>,
    bucket: &str,
    form: &FormFields,
) -> HttpReply {
    let name = form.get("name").unwrap_or_default().to_owned();
    apply(state, bucket, ManifestChange::CreateScope { name }).await
}

/// Removes a scope with its collections and their documents.
pub(crate) async fn drop_scope(state: &Arc<AdminState>, bucket: &str, scope: &str) -> HttpReply {
    apply(state, bucket, ManifestChange::DropScope { name: scope.to_owned() }).await
}

pub(crate) async fn create_collection(
    state: &Arc<AdminState>,
    bucket: &str,
    scope: &str,
    form: &FormFields,
) -> HttpReply {
    let name = form.get("name").unwrap_or_default().to_owned();
    let change = check_history(form).and_then(|()| max_ttl_s(form)).map(|max_ttl_s| {
        ManifestChange::CreateCollection { scope: scope.to_owned(), name, max_ttl_s }
    });
    match change {
        Ok(change) => apply(state, bucket, change).await,
        Err(reply) => *reply,
    }
}

/// Changes a collection's maximum TTL; a form without it changes nothing.
pub(crate) async fn change_collection(
    state: &Arc<AdminState>,
    bucket: &str,
    scope: &str,
    collection: &str,
    form: &FormFields,
) -> HttpReply {
    let (scope, name) = (scope.to_owned(), collection.to_owned());
    let change = check_history(form)
        .and_then(|()| match form.get("maxTTL") {
            Some(_) => max_ttl_s(form),
            None => Ok(current_max_ttl_s(state, bucket, &scope, &name)),
        })
        .map(|max_ttl_s| ManifestChange::SetMaxTtl { scope, name, max_ttl_s });
    match change {
        Ok(change) => apply(state, bucket, change).await,
        Err(reply) => *reply,
    }
}

/// Removes a collection and its documents.
pub(crate) async fn drop_collection(
    state: &Arc<AdminState>,
    bucket: &str,
    scope: &str,
    collection: &str,
) -> HttpReply {
    let (scope, name) = (scope.to_owned(), collection.to_owned());
    apply(state, bucket, ManifestChange::DropCollection { scope, name }).await
}

/// Reports whether a manifest version is in force. On one node that is so as soon as it exists.
pub(crate) fn ensure_manifest(state: &AdminState, bucket: &str, uid: &str) -> HttpReply {
    let Some(handle) = state.server.buckets.get(bucket) else {
        return bucket_not_found();
    };
    match u64::from_str_radix(uid, 16) {
        Err(_) => field_error("uid", "The manifest uid must be hexadecimal"),
        Ok(uid) if handle.bucket().manifest().uid().0 >= uid => json_reply(&json!({})),
        Ok(_) => error(StatusCode::GATEWAY_TIMEOUT, "The manifest is not known here"),
    }
}

async fn apply(state: &Arc<AdminState>, bucket: &str, change: ManifestChange) -> HttpReply {
    let Some(handle) = state.server.buckets.get(bucket) else {
        return bucket_not_found();
    };
    let (server, applied) = (Arc::clone(&state.server), change.clone());
    let outcome = blocking(move || server.cluster.update_manifest(&handle, &applied));
    match outcome.await {
        Ok(Ok(manifest)) => {
            let uid = manifest.uid().to_string();
            tracing::info!(bucket, uid, ?change, "changed the collections manifest");
            json_reply(&json!({ "uid": uid }))
        }
        Ok(Err(ManifestUpdateError::Change(refusal))) => refused(&change, &refusal),
        Ok(Err(failure @ ManifestUpdateError::Store(_))) => {
            failed("store the collections manifest", &failure)
        }
        Err(reply) => *reply,
    }
}

fn refused(change: &ManifestChange, refusal: &ManifestError) -> HttpReply {
    let (scope, collection) = match change {
        ManifestChange::CreateScope { name } | ManifestChange::DropScope { name } => {
            (name.as_str(), "")
        }
        ManifestChange::CreateCollection { scope, name, .. }
        | ManifestChange::DropCollection { scope, name }
        | ManifestChange::SetMaxTtl { scope, name, .. } => (scope.as_str(), name.as_str()),
    };
    let of_collection = format!("Collection with name {collection:?} in scope {scope:?}");
    let of_scope = format!("Scope with name {scope:?}");
    let bad = |message: String| error(StatusCode::BAD_REQUEST, &message);
    let missing = |message: String| error(StatusCode::NOT_FOUND, &message);
    match refusal {
        ManifestError::InvalidName => field_error(
            "name",
            "A name has 1 to 251 characters of A-Z, a-z, 0-9, _, - and %, and does not begin with \
             _ or %",
        ),
        ManifestError::ScopeExists => bad(format!("{of_scope} already exists")),
        ManifestError::CollectionExists => bad(format!("{of_collection} already exists")),
        ManifestError::UnknownScope => missing(format!("{of_scope} is not found")),
        ManifestError::UnknownCollection => missing(format!("{of_collection} is not found")),
        ManifestError::TooMany => {
            bad("Maximum number of scopes or collections has been reached".to_owned())
        }
        ManifestError::Reserved => bad("_default cannot be dropped".to_owned()),
        ManifestError::Corrupt(detail) => failed("change the collections manifest", detail),
    }
}

fn current_max_ttl_s(
    state: &AdminState,
    bucket: &str,
    scope: &str,
    collection: &str,
) -> Option<u32> {
    let manifest = state.server.buckets.get(bucket)?.bucket().manifest();
    let id = manifest.collection_id(scope, collection).ok()?;
    manifest.collection(id)?.max_ttl_s
}

/// `maxTTL` in seconds: nothing or 0 for "not set", -1 for "no limit, whatever the bucket says".
fn max_ttl_s(form: &FormFields) -> Result<Option<u32>, HttpRejection> {
    match form.number("maxTTL")? {
        None | Some(0) => Ok(None),
        Some(-1) => Ok(Some(0)),
        Some(seconds) => u32::try_from(seconds)
            .ok()
            .filter(|seconds| *seconds <= i32::MAX as u32)
            .map(Some)
            .ok_or_else(|| {
                field_error("maxTTL", "The value must be between -1 and 2147483647").into()
            }),
    }
}

/// The server keeps no history of changes per collection.
fn check_history(form: &FormFields) -> Result<(), HttpRejection> {
    match form.flag("history")? {
        Some(true) => Err(field_error("history", "Not allowed on this type of bucket").into()),
        Some(false) | None => Ok(()),
    }
}
