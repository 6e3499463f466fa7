//! Collections by name: ids that were looked up, and the list of all.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use oribi_types::{CollectionId, ManifestUid, ScopeId};
use serde::Deserialize;

use crate::error::MalformedResponse;

/// A collection whose id was looked up. Clones share the id, which is refreshed when it turns
/// stale.
#[derive(Clone, Debug)]
pub struct Collection(Arc<NamedId>);

#[derive(Debug)]
struct NamedId {
    /// `scope.collection`.
    path: String,
    id: AtomicU32,
}

impl Collection {
    pub(crate) fn new(path: &str, id: CollectionId) -> Collection {
        Collection(Arc::new(NamedId { path: path.to_owned(), id: AtomicU32::new(id.0) }))
    }

    /// Its path, `scope.collection`.
    pub fn path(&self) -> &str {
        &self.0.path
    }

    /// Its id.
    pub fn id(&self) -> CollectionId {
        CollectionId(self.0.id.load(Ordering::Relaxed))
    }

    /// Takes the id that was looked up anew; false when it is the same.
    pub(crate) fn renew(&self, id: CollectionId) -> bool {
        self.0.id.swap(id.0, Ordering::Relaxed) != id.0
    }
}

/// All scopes and collections of a bucket.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct CollectionsManifest {
    /// Version; a larger one is newer.
    pub uid: ManifestUid,
    /// Scopes in the server's order.
    pub scopes: Vec<ManifestScope>,
}

/// A scope in a manifest.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ManifestScope {
    /// Name.
    pub name: String,
    /// Id.
    pub id: ScopeId,
    /// Collections in the server's order.
    pub collections: Vec<ManifestCollection>,
}

/// A collection in a manifest.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ManifestCollection {
    /// Name.
    pub name: String,
    /// Id.
    pub id: CollectionId,
    /// Longest life of a document in seconds, if it is limited.
    pub max_ttl_s: Option<u32>,
}

impl CollectionsManifest {
    /// Parses the document that servers answer COLLECTIONS_GET_MANIFEST with.
    pub fn parse(json: &[u8]) -> Result<CollectionsManifest, MalformedResponse> {
        let document: ManifestJson = serde_json::from_slice(json)
            .map_err(|error| MalformedResponse::new(format!("collections manifest: {error}")))?;
        let scopes = document.scopes.into_iter().map(ScopeJson::decode);
        Ok(CollectionsManifest {
            uid: ManifestUid(hexadecimal(&document.uid)?),
            scopes: scopes.collect::<Result<_, _>>()?,
        })
    }

    /// The id of a collection by its path, which may lack the default scope.
    pub(crate) fn id_of(&self, path: &str) -> Option<CollectionId> {
        let (scope, collection) = path.split_once('.').unwrap_or(("_default", path));
        let scope = self.scopes.iter().find(|known| known.name == scope)?;
        let found = scope.collections.iter().find(|known| known.name == collection);
        found.map(|collection| collection.id)
    }
}

#[derive(Deserialize)]
struct ManifestJson {
    uid: String,
    scopes: Vec<ScopeJson>,
}

#[derive(Deserialize)]
struct ScopeJson {
    name: String,
    uid: String,
    collections: Vec<CollectionJson>,
}

#[derive(Deserialize)]
struct CollectionJson {
    name: String,
    uid: String,
    #[serde(rename = "maxTTL")]
    max_ttl: Option<i64>,
}

impl ScopeJson {
    fn decode(self) -> Result<ManifestScope, MalformedResponse> {
        let collections = self.collections.into_iter().map(CollectionJson::decode);
        Ok(ManifestScope {
            name: self.name,
            id: ScopeId(short(hexadecimal(&self.uid)?)?),
            collections: collections.collect::<Result<_, _>>()?,
        })
    }
}

impl CollectionJson {
    fn decode(self) -> Result<ManifestCollection, MalformedResponse> {
        // Servers write -1 for "not even the bucket's limit" and 0 for "the bucket's".
        let max_ttl_s = self.max_ttl.and_then(|ttl| u32::try_from(ttl).ok());
        let id = CollectionId(short(hexadecimal(&self.uid)?)?);
        Ok(ManifestCollection { name: self.name, id, max_ttl_s: max_ttl_s.filter(|ttl| *ttl > 0) })
    }
}

fn hexadecimal(text: &str) -> Result<u64, MalformedResponse> {
    u64::from_str_radix(text, 16)
        .map_err(|_| MalformedResponse::new("an id that is no hexadecimal number"))
}

fn short(id: u64) -> Result<u32, MalformedResponse> {
    u32::try_from(id).map_err(|_| MalformedResponse::new("a collection or scope id over 32 bits"))
}

#[cfg(test)]
mod tests {
    //! Manifests that servers send, and that none should.

    use super::*;

    #[test]
    fn parses_scopes_and_collections() {
        let json = br#"{"uid":"1f","scopes":[
            {"name":"_default","uid":"0","collections":[{"name":"_default","uid":"0"}]},
            {"name":"shop","uid":"8","collections":[{"name":"carts","uid":"a","maxTTL":60,"history":true},
                                                    {"name":"kept","uid":"b","maxTTL":-1}]}]}"#;
        let manifest = CollectionsManifest::parse(json).unwrap();
        assert_eq!(manifest.uid, ManifestUid(0x1f));
        let [_, shop] = &manifest.scopes[..] else { panic!("two scopes") };
        assert_eq!((shop.name.as_str(), shop.id), ("shop", ScopeId(8)));
        let collections: Vec<_> =
            shop.collections.iter().map(|c| (c.name.as_str(), c.id.0, c.max_ttl_s)).collect();
        assert_eq!(collections, [("carts", 10, Some(60)), ("kept", 11, None)]);
    }

    #[test]
    fn refuses_what_is_no_manifest() {
        let long_id = r#"{"uid":"0","scopes":[{"name":"a","uid":"100000000","collections":[]}]}"#;
        for json in ["", "[]", r#"{"uid":"x","scopes":[]}"#, r#"{"uid":7,"scopes":[]}"#, long_id] {
            CollectionsManifest::parse(json.as_bytes()).expect_err("refused");
        }
    }
}
