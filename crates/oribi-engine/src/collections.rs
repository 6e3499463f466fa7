//! Scopes and collections of one bucket: an immutable manifest and the changes that lead to the next.
//!
//! Owns: names, ids and their rules, the JSON that clients read and the JSON that the store keeps.
//! Invariants: `_default._default` (ids 0 and 0) is always there; ids 1 to 7 are never given out;
//! an id that was given out once is never given to another scope or collection, because a client
//! may go on using it for minutes; every change raises the uid by exactly one.
//! Callers: the data path asks [`Manifest::contains`] for each request; collection look-ups and the
//! admin HTTP ask for names; `Bucket::update_manifest` applies changes and swaps snapshots.
//! It does not know documents: purging those of a dropped collection is the bucket's work.

mod change;
mod json;
mod name;
#[cfg(test)]
mod tests;

use oribi_types::{CollectionId, ManifestUid, ScopeId};

pub use change::ManifestChange;

/// Name of the scope and of the collection that always exist.
pub const DEFAULT_NAME: &str = "_default";

/// Most scopes in a bucket, `_default` included. The number is the one that Couchbase's cluster
/// manager enforces, so that tools written for it meet the same edge.
pub const SCOPES_MAX: usize = 1200;

/// Most collections in a bucket over all scopes, `_default` included.
pub const COLLECTIONS_MAX: usize = 1200;

/// Ids below this are reserved by the protocol; 0 is `_default`.
const FIRST_USER_ID: u32 = 8;

/// A named collection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Collection {
    /// Id that clients put before each key.
    pub id: CollectionId,
    /// Name, unique within its scope.
    pub name: String,
    /// Longest life of a document in seconds; `Some(0)` says explicitly that there is no limit.
    pub max_ttl_s: Option<u32>,
}

/// A named group of collections.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scope {
    /// Id as clients see it in the manifest.
    pub id: ScopeId,
    /// Name, unique within the bucket.
    pub name: String,
    /// In order of creation.
    pub collections: Vec<Collection>,
}

/// Why a name could not be turned into an id.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LookupError {
    /// No scope has this name.
    #[error("unknown scope")]
    UnknownScope,
    /// The scope has no collection of this name.
    #[error("unknown collection")]
    UnknownCollection,
    /// The name could never exist: wrong length or characters.
    #[error("invalid scope or collection name")]
    InvalidName,
}

/// Why a change was refused or a manifest could not be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ManifestError {
    /// Not 1 to 251 characters of `A-Za-z0-9_-%`, or it starts with `_` or `%`.
    #[error("a name has 1 to 251 characters of A-Z a-z 0-9 _ - % and does not start with _ or %")]
    InvalidName,
    /// The scope is there already.
    #[error("scope exists already")]
    ScopeExists,
    /// The collection is there already.
    #[error("collection exists already")]
    CollectionExists,
    /// There is no such scope.
    #[error("unknown scope")]
    UnknownScope,
    /// The scope has no such collection.
    #[error("unknown collection")]
    UnknownCollection,
    /// The bucket has as many scopes or collections as it may have, or no id is left.
    #[error("too many scopes or collections")]
    TooMany,
    /// `_default` cannot be dropped.
    #[error("_default cannot be dropped")]
    Reserved,
    /// Not a manifest; the text says what is wrong with it.
    #[error("corrupt manifest: {0}")]
    Corrupt(String),
}

/// Where a collection stands in the tree of scopes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Position {
    id: CollectionId,
    scope: usize,
    collection: usize,
}

/// All scopes and collections of a bucket at one uid. Shared as a snapshot and never modified.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Manifest {
    uid: ManifestUid,
    scopes: Vec<Scope>,
    next_scope_id: u32,
    next_collection_id: u32,
    /// Every collection in order of id, for `contains` and `collection`.
    positions: Vec<Position>,
}

impl Manifest {
    /// What a new bucket has: uid 0, and `_default._default` only.
    pub fn initial() -> Manifest {
        let collection =
            Collection { id: CollectionId::DEFAULT, name: DEFAULT_NAME.into(), max_ttl_s: None };
        let scope =
            Scope { id: ScopeId(0), name: DEFAULT_NAME.into(), collections: vec![collection] };
        Manifest::assemble(ManifestUid(0), vec![scope], FIRST_USER_ID, FIRST_USER_ID)
    }

    /// Version of this manifest.
    pub fn uid(&self) -> ManifestUid {
        self.uid
    }

    /// True when documents may live in the collection. Asked for every request.
    #[inline]
    pub fn contains(&self, id: CollectionId) -> bool {
        id == CollectionId::DEFAULT || self.position(id).is_some()
    }

    /// True when there was a collection with this id and there never will be again. One that is neither here nor dropped
    /// belongs to a newer manifest.
    pub fn has_dropped(&self, id: CollectionId) -> bool {
        (FIRST_USER_ID..self.next_collection_id).contains(&id.0) && !self.contains(id)
    }

    /// The collection with this id.
    pub fn collection(&self, id: CollectionId) -> Option<&Collection> {
        let position = self.position(id)?;
        Some(&self.scopes[position.scope].collections[position.collection])
    }

    /// The scope that holds the collection with this id.
    pub fn scope_of(&self, id: CollectionId) -> Option<&Scope> {
        Some(&self.scopes[self.position(id)?.scope])
    }

    /// All scopes in order of creation, `_default` first.
    pub fn scopes(&self) -> &[Scope] {
        &self.scopes
    }

    /// What is left of the manifest for somebody who may not know of all of it. `_default._default` may be
    /// missing there, so ask such a manifest with [`Manifest::collection`], not [`Manifest::contains`].
    pub fn restricted(
        &self,
        sees_scope: impl Fn(&Scope) -> bool,
        sees_collection: impl Fn(&Scope, &Collection) -> bool,
    ) -> Manifest {
        let seen = self.scopes.iter().filter(|scope| sees_scope(scope)).map(|scope| {
            let collections = scope.collections.iter();
            let collections = collections.filter(|one| sees_collection(scope, one)).cloned();
            Scope { id: scope.id, name: scope.name.clone(), collections: collections.collect() }
        });
        Manifest::assemble(self.uid, seen.collect(), self.next_scope_id, self.next_collection_id)
    }

    /// Id of `scope.collection`. An empty name stands for `_default`, as in the protocol's paths.
    pub fn collection_id(
        &self,
        scope: &str,
        collection: &str,
    ) -> Result<CollectionId, LookupError> {
        let collection = name::for_lookup(collection)?;
        let scope = self.lookup_scope(scope)?;
        let found = scope.collections.iter().find(|candidate| candidate.name == collection);
        found.map(|found| found.id).ok_or(LookupError::UnknownCollection)
    }

    /// Id of a scope. An empty name stands for `_default`.
    pub fn scope_id(&self, scope: &str) -> Result<ScopeId, LookupError> {
        self.lookup_scope(scope).map(|scope| scope.id)
    }

    fn lookup_scope(&self, scope: &str) -> Result<&Scope, LookupError> {
        let scope = name::for_lookup(scope)?;
        let found = self.scopes.iter().find(|candidate| candidate.name == scope);
        found.ok_or(LookupError::UnknownScope)
    }

    fn position(&self, id: CollectionId) -> Option<Position> {
        let at = self.positions.binary_search_by_key(&id, |position| position.id).ok()?;
        Some(self.positions[at])
    }

    /// Builds a snapshot and its index. The caller has checked names and the uniqueness of ids.
    fn assemble(
        uid: ManifestUid,
        scopes: Vec<Scope>,
        next_scope_id: u32,
        next_collection_id: u32,
    ) -> Manifest {
        let mut positions = Vec::new();
        for (scope_at, scope) in scopes.iter().enumerate() {
            let places = scope.collections.iter().enumerate();
            positions.extend(places.map(|(collection_at, collection)| Position {
                id: collection.id,
                scope: scope_at,
                collection: collection_at,
            }));
        }
        positions.sort_unstable_by_key(|position| position.id);
        Manifest { uid, scopes, next_scope_id, next_collection_id, positions }
    }
}
