//! The collections manifest and the look-up of ids by name.

use oribi_engine::collections::{DEFAULT_NAME, LookupError, Manifest};
use oribi_protocol::response::{CollectionIdExtras, ResponseParts};
use oribi_protocol::status::Status;
use oribi_types::CollectionId;
use std::sync::Arc;

use super::exchange::Exchange;

/// CollectionsGetManifest.
pub(super) fn get_manifest(x: &mut Exchange<'_>) {
    let json: Arc<str> = Arc::from(visible(x).to_json());
    x.send_document(Status::Success, &json);
}

/// CollectionsGetId: `scope.collection` in the value (or, by older clients, in the key). A part that
/// is left out means the default one.
pub(super) fn get_collection_id(x: &mut Exchange<'_>) {
    let Some(path) = path(x) else { return x.fail(Status::Einval) };
    let (scope, collection) = path.split_once('.').unwrap_or((DEFAULT_NAME, path));
    if collection.contains('.') {
        return x.fail_with(Status::Einval, "a path is a scope, a dot and a collection");
    }
    let manifest = visible(x);
    let found = manifest.collection_id(or_default(scope), or_default(collection));
    answer(x, manifest.uid(), found);
}

/// CollectionsGetScopeId: a scope's name; anything after a dot is ignored.
pub(super) fn get_scope_id(x: &mut Exchange<'_>) {
    let Some(path) = path(x) else { return x.fail(Status::Einval) };
    let scope = path.split('.').next().unwrap_or_default();
    let manifest = visible(x);
    let found = manifest.scope_id(or_default(scope)).map(|scope| CollectionId(scope.0));
    answer(x, manifest.uid(), found);
}

/// What the user may see of the bucket's manifest.
fn visible(x: &mut Exchange<'_>) -> Arc<Manifest> {
    let manifest = x.bucket().bucket().manifest();
    x.state.rights.visible(manifest)
}

fn path<'a>(x: &Exchange<'a>) -> Option<&'a str> {
    let bytes = match (x.frame.key, x.frame.value) {
        ([], value) => value,
        (key, []) => key,
        _ => return None,
    };
    std::str::from_utf8(bytes).ok()
}

fn or_default(name: &str) -> &str {
    if name.is_empty() { DEFAULT_NAME } else { name }
}

fn answer(
    x: &mut Exchange<'_>,
    manifest_uid: oribi_types::ManifestUid,
    found: Result<CollectionId, LookupError>,
) {
    match found {
        Ok(collection) => {
            let extras = CollectionIdExtras { manifest_uid, collection }.encode();
            let parts = ResponseParts { extras: &extras, ..x.parts(Status::Success) };
            x.send(&parts);
        }
        Err(LookupError::UnknownScope) => x.unknown(Status::UnknownScope),
        Err(LookupError::UnknownCollection) => x.unknown(Status::UnknownCollection),
        Err(LookupError::InvalidName) => {
            x.fail_with(Status::Einval, "no scope or collection can have this name");
        }
    }
}
