//! The manifest as JSON: the shape that clients read, and the same plus id counters for the store.
//!
//! Owns: both shapes and every check that a manifest from outside has to pass. Invariant: whatever
//! text comes in, the answer is a manifest that keeps the module's invariants or
//! `ManifestError::Corrupt`, never a panic. Unknown members are refused: a property that this
//! version does not implement must not disappear silently.

use std::collections::HashSet;

use oribi_types::{CollectionId, ManifestUid, ScopeId};
use serde::{Deserialize, Serialize};

use super::name::check_user_name;
use super::{
    BucketManifest, COLLECTIONS_MAX, CollectionDefinition, DEFAULT_NAME, FIRST_USER_ID,
    ManifestError, SCOPES_MAX, ScopeDefinition,
};

/// The document that `GET_COLLECTIONS_MANIFEST` and the admin HTTP answer. Uids are hexadecimal
/// text without prefix. The counters are present only in what the store keeps.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ManifestDocument {
    uid: String,
    scopes: Vec<ScopeDocument>,
    #[serde(rename = "nextScopeUid", skip_serializing_if = "Option::is_none")]
    next_scope_uid: Option<String>,
    #[serde(rename = "nextCollectionUid", skip_serializing_if = "Option::is_none")]
    next_collection_uid: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScopeDocument {
    name: String,
    uid: String,
    collections: Vec<CollectionDocument>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CollectionDocument {
    name: String,
    uid: String,
    #[serde(rename = "maxTTL", skip_serializing_if = "Option::is_none")]
    max_ttl_s: Option<u32>,
}

impl BucketManifest {
    /// JSON in the shape that clients expect.
    pub fn to_json(&self) -> String {
        to_text(&self.document())
    }

    /// Reads what [`BucketManifest::to_json`] wrote. The id counters continue above the
    /// highest id seen.
    pub fn from_json(text: &str) -> Result<BucketManifest, ManifestError> {
        let document = parse(text)?;
        if document.next_scope_uid.is_some() || document.next_collection_uid.is_some() {
            return Err(corrupt("id counters do not belong in a client's manifest"));
        }
        read(document)
    }

    /// JSON for the store: the same with the id counters, so that no id is ever given out twice.
    pub fn to_stored_json(&self) -> String {
        let mut document = self.document();
        document.next_scope_uid = Some(hex(self.next_scope_id.into()));
        document.next_collection_uid = Some(hex(self.next_collection_id.into()));
        to_text(&document)
    }

    /// [`BucketManifest::from_stored_json`] of bytes that may not be text at all.
    pub fn from_stored_bytes(bytes: &[u8]) -> Result<BucketManifest, ManifestError> {
        let text = std::str::from_utf8(bytes);
        BucketManifest::from_stored_json(
            text.map_err(|_| ManifestError::Corrupt("not UTF-8".to_owned()))?,
        )
    }

    /// Reads what [`BucketManifest::to_stored_json`] wrote.
    pub fn from_stored_json(text: &str) -> Result<BucketManifest, ManifestError> {
        let document = parse(text)?;
        if document.next_scope_uid.is_none() || document.next_collection_uid.is_none() {
            return Err(corrupt("id counters are missing"));
        }
        read(document)
    }

    fn document(&self) -> ManifestDocument {
        let collection_document = |collection: &CollectionDefinition| CollectionDocument {
            name: collection.name.clone(),
            uid: hex(collection.id.0.into()),
            max_ttl_s: collection.max_ttl_s,
        };
        let scope_document = |scope: &ScopeDefinition| ScopeDocument {
            name: scope.name.clone(),
            uid: hex(scope.id.0.into()),
            collections: scope.collections.iter().map(collection_document).collect(),
        };
        ManifestDocument {
            uid: hex(self.uid().0),
            scopes: self.scopes().iter().map(scope_document).collect(),
            next_scope_uid: None,
            next_collection_uid: None,
        }
    }
}

fn hex(number: u64) -> String {
    format!("{number:x}")
}

fn to_text(document: &ManifestDocument) -> String {
    serde_json::to_string(document).expect("a tree of strings and numbers always serialises")
}

fn corrupt(what: impl Into<String>) -> ManifestError {
    ManifestError::Corrupt(what.into())
}

fn parse(text: &str) -> Result<ManifestDocument, ManifestError> {
    serde_json::from_str(text).map_err(|error| corrupt(error.to_string()))
}

/// Digits only: `from_str_radix` alone would accept a sign.
fn uid_from_hex(text: &str) -> Result<u64, ManifestError> {
    let is_hex = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = is_hex.then(|| u64::from_str_radix(text, 16).ok()).flatten();
    number.ok_or_else(|| corrupt("a uid is not a hexadecimal number of at most 64 bits"))
}

fn id_from_hex(text: &str) -> Result<u32, ManifestError> {
    u32::try_from(uid_from_hex(text)?).map_err(|_| corrupt("an id has more than 32 bits"))
}

fn read(document: ManifestDocument) -> Result<BucketManifest, ManifestError> {
    if document.scopes.len() > SCOPES_MAX {
        return Err(ManifestError::TooMany);
    }
    let mut seen = SeenNames::default();
    let mut scopes = Vec::with_capacity(document.scopes.len());
    for scope in document.scopes {
        scopes.push(read_scope(scope, &mut seen)?);
    }
    if seen.collection_ids.len() > COLLECTIONS_MAX {
        return Err(ManifestError::TooMany);
    }
    if !seen.scope_ids.contains(&0) || !seen.collection_ids.contains(&0) {
        return Err(corrupt("_default is missing"));
    }
    let uid = ManifestUid(uid_from_hex(&document.uid)?);
    let next_scope_id = next_id(document.next_scope_uid, &seen.scope_ids)?;
    let next_collection_id = next_id(document.next_collection_uid, &seen.collection_ids)?;
    Ok(BucketManifest::assemble(uid, scopes, next_scope_id, next_collection_id))
}

/// Ids and names met so far, to refuse the second of each.
#[derive(Default)]
struct SeenNames {
    scope_ids: HashSet<u32>,
    scope_names: HashSet<String>,
    collection_ids: HashSet<u32>,
}

fn read_scope(
    document: ScopeDocument,
    seen: &mut SeenNames,
) -> Result<ScopeDefinition, ManifestError> {
    let id = id_from_hex(&document.uid)?;
    check_identity(id, &document.name)?;
    if !seen.scope_ids.insert(id) || !seen.scope_names.insert(document.name.clone()) {
        return Err(corrupt("a scope appears twice"));
    }
    let mut names = HashSet::new();
    let mut collections = Vec::with_capacity(document.collections.len());
    for collection in document.collections {
        let collection_id = id_from_hex(&collection.uid)?;
        check_identity(collection_id, &collection.name)?;
        if collection_id == 0 && id != 0 {
            return Err(corrupt("the default collection is outside the default scope"));
        }
        if !seen.collection_ids.insert(collection_id) || !names.insert(collection.name.clone()) {
            return Err(corrupt("a collection appears twice"));
        }
        let (id, name) = (CollectionId(collection_id), collection.name);
        collections.push(CollectionDefinition { id, name, max_ttl_s: collection.max_ttl_s });
    }
    Ok(ScopeDefinition { id: ScopeId(id), name: document.name, collections })
}

/// Id 0 and the name `_default` belong together; everything else has a user's name and id.
fn check_identity(id: u32, name: &str) -> Result<(), ManifestError> {
    match (id, name == DEFAULT_NAME) {
        (0, true) => Ok(()),
        (FIRST_USER_ID.., false) => check_user_name(name).map_err(|_| corrupt("invalid name")),
        _ => Err(corrupt("an id and a name do not belong together")),
    }
}

/// The counter as stored, or one above the highest id. A counter that would give out an id in use
/// is corrupt.
fn next_id(stored: Option<String>, ids: &HashSet<u32>) -> Result<u32, ManifestError> {
    let highest = ids.iter().copied().max().unwrap_or(0);
    let lowest_free = highest.saturating_add(1).max(FIRST_USER_ID);
    debug_assert!(lowest_free > highest || highest == u32::MAX, "a free id is not in use");
    let Some(stored) = stored else { return Ok(lowest_free) };
    match id_from_hex(&stored)? {
        next if next >= lowest_free => Ok(next),
        _ => Err(corrupt("an id counter is behind the ids in use")),
    }
}
