//! The collections manifest and the look-up of ids by name.

use std::sync::Arc;

use oribi_engine::collections::{BucketManifest, DEFAULT_NAME, LookupError};
use oribi_protocol::response::CollectionIdExtras;
use oribi_protocol::status::Status;
use oribi_types::{Cas, CollectionId, ManifestUid};
use smallvec::SmallVec;

use super::outcome::{HandlerReply, Outcome, Rejection};
use super::request::Request;

pub(super) fn get_manifest<'a>(req: &mut Request<'a>) -> Outcome<'a> {
    Ok(HandlerReply::Json(visible(req).to_json().into()))
}

/// CollectionsGetId: `scope.collection` in the value (or, by older clients, in the key). An empty
/// part means the default one, but the dot is required.
pub(super) fn get_collection_id<'a>(req: &mut Request<'a>) -> Outcome<'a> {
    const NO_PATH: Rejection =
        Rejection::Because(Status::Einval, "a path is a scope, a dot and a collection");
    let parts = path(req)?.split_once('.').filter(|(_, collection)| !collection.contains('.'));
    let (scope, collection) = parts.ok_or(NO_PATH)?;
    let manifest = visible(req);
    let found = manifest.collection_id(or_default(scope), or_default(collection));
    answer(manifest.uid(), found)
}

/// CollectionsGetScopeId: a scope's name; anything after a dot is ignored.
pub(super) fn get_scope_id<'a>(req: &mut Request<'a>) -> Outcome<'a> {
    let scope = path(req)?.split('.').next().unwrap_or_default();
    let manifest = visible(req);
    let found = manifest.scope_id(or_default(scope)).map(|scope| CollectionId(scope.0));
    answer(manifest.uid(), found)
}

/// The part of the bucket's manifest that the user may see.
fn visible(req: &mut Request<'_>) -> Arc<BucketManifest> {
    let manifest = req.bucket().manifest();
    req.state.user.rights_mut().visible(manifest)
}

fn path<'a>(req: &Request<'a>) -> Result<&'a str, Status> {
    let bytes = match (req.frame.key, req.frame.value) {
        ([], value) => value,
        (key, []) => key,
        _ => return Err(Status::Einval),
    };
    std::str::from_utf8(bytes).map_err(|_| Status::Einval)
}

fn or_default(name: &str) -> &str {
    if name.is_empty() { DEFAULT_NAME } else { name }
}

fn answer(manifest_uid: ManifestUid, found: Result<CollectionId, LookupError>) -> Outcome<'static> {
    const NO_NAME: Rejection =
        Rejection::Because(Status::Einval, "no scope or collection can have this name");
    let collection = found.map_err(|error| match error {
        LookupError::UnknownScope => Rejection::Unknown(Status::UnknownScope),
        LookupError::UnknownCollection => Rejection::Unknown(Status::UnknownCollection),
        LookupError::InvalidName => NO_NAME,
    })?;
    let extras = CollectionIdExtras { manifest_uid, collection }.encode();
    Ok(HandlerReply::Extras { cas: Cas(0), extras: SmallVec::from_slice(&extras) })
}
