//! Scopes and collections of one bucket: an immutable manifest and the changes that lead to the
//! next.
//!
//! Owns: names, ids and their rules, the JSON that clients read and the JSON that the store keeps.
//! Invariants: `_default._default` (ids 0 and 0) is always there; ids 1 to 7 are never given out;
//! an id that was given out once is never given to another scope or collection, because a client
//! may continue using it for minutes; every change raises the uid by exactly one. Callers: the data
//! path asks [`BucketManifest::contains`] for each request; collection look-ups and the admin HTTP
//! ask for names; `Bucket::update_manifest` applies changes and swaps snapshots. It does not know
//! documents: the flusher purges those of a dropped collection.

mod announced;
mod change;
mod error;
mod following;
mod in_force;
mod json;
mod name;
#[cfg(test)]
mod tests;

use oribi_types::{CollectionId, ManifestUid, ScopeId};

pub(crate) use announced::AnnouncedEvents;
pub use change::ManifestChange;
pub use error::{LookupError, ManifestError};
pub(crate) use in_force::CollectionsInForce;
pub use name::DEFAULT_NAME;

/// Most scopes in a bucket, `_default` included. The number is the one that Couchbase's cluster
/// manager enforces, so that tools written for it meet the same edge.
pub const SCOPES_MAX: usize = 1200;

/// Most collections in a bucket over all scopes, `_default` included.
pub const COLLECTIONS_MAX: usize = 1200;

/// Ids below this are reserved by the protocol; 0 is `_default`.
const FIRST_USER_ID: u32 = 8;
const _: () =
    assert!(CollectionId::SYSTEM.0 < FIRST_USER_ID, "reserved collection ids are not assigned");
const _: () = assert!(CollectionId::DEFAULT.0 < FIRST_USER_ID);
const _: () = assert!(COLLECTIONS_MAX >= 1 && SCOPES_MAX >= 1, "the default ones are counted");

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CollectionDefinition {
    /// Id that clients put before each key.
    pub id: CollectionId,
    /// Name, unique within its scope.
    pub name: String,
    /// Longest life of a document in seconds; `Some(0)` says explicitly that there is no limit.
    pub max_ttl_s: Option<u32>,
}

/// A named group of collections.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScopeDefinition {
    /// Id as clients see it in the manifest.
    pub id: ScopeId,
    /// Name, unique within the bucket.
    pub name: String,
    /// In order of creation.
    pub collections: Vec<CollectionDefinition>,
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
pub struct BucketManifest {
    uid: ManifestUid,
    scopes: Vec<ScopeDefinition>,
    next_scope_id: u32,
    next_collection_id: u32,
    /// Every collection in order of id, for `contains` and `collection`.
    positions: Vec<Position>,
}

impl BucketManifest {
    /// The manifest of a new bucket: uid 0, and `_default._default` only.
    pub fn initial() -> BucketManifest {
        let collection = CollectionDefinition {
            id: CollectionId::DEFAULT,
            name: DEFAULT_NAME.into(),
            max_ttl_s: None,
        };
        let scope = ScopeDefinition {
            id: ScopeId(0),
            name: DEFAULT_NAME.into(),
            collections: vec![collection],
        };
        BucketManifest::assemble(ManifestUid(0), vec![scope], FIRST_USER_ID, FIRST_USER_ID)
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

    /// True when records of the collection are stored: documents while it exists, system events,
    /// and prepares.
    #[inline]
    pub(crate) fn keeps(&self, id: CollectionId) -> bool {
        id == CollectionId::SYSTEM || id == CollectionId::PREPARES || self.contains(id)
    }

    /// True when there was a collection with this id and there never will be again. One that is
    /// neither here nor dropped belongs to a newer manifest.
    pub fn has_dropped(&self, id: CollectionId) -> bool {
        (FIRST_USER_ID..self.next_collection_id).contains(&id.0) && !self.contains(id)
    }

    /// The same of a scope.
    pub(crate) fn has_dropped_scope(&self, id: ScopeId) -> bool {
        let is_here = || self.scopes.iter().any(|scope| scope.id == id);
        (FIRST_USER_ID..self.next_scope_id).contains(&id.0) && !is_here()
    }

    /// True when there was never another scope or collection than the default ones.
    pub(crate) fn is_untouched(&self) -> bool {
        self.uid == ManifestUid(0)
    }

    /// The collection with this id.
    pub fn collection(&self, id: CollectionId) -> Option<&CollectionDefinition> {
        let position = self.position(id)?;
        debug_assert_eq!(
            self.scopes[position.scope].collections[position.collection].id, id,
            "a position is its collection's"
        );
        Some(&self.scopes[position.scope].collections[position.collection])
    }

    /// The scope that holds the collection with this id.
    pub fn scope_of(&self, id: CollectionId) -> Option<&ScopeDefinition> {
        Some(&self.scopes[self.position(id)?.scope])
    }

    /// All scopes in order of creation, `_default` first.
    pub fn scopes(&self) -> &[ScopeDefinition] {
        &self.scopes
    }

    /// The part of the manifest that a user with few rights may see. `_default._default` may be
    /// missing there, so ask such a manifest with [`BucketManifest::collection`], not
    /// [`BucketManifest::contains`].
    pub fn restricted(
        &self,
        sees_scope: impl Fn(&ScopeDefinition) -> bool,
        sees_collection: impl Fn(&ScopeDefinition, &CollectionDefinition) -> bool,
    ) -> BucketManifest {
        let seen = self.scopes.iter().filter(|scope| sees_scope(scope)).map(|scope| {
            let collections = scope.collections.iter();
            let collections = collections.filter(|one| sees_collection(scope, one)).cloned();
            ScopeDefinition {
                id: scope.id,
                name: scope.name.clone(),
                collections: collections.collect(),
            }
        });
        BucketManifest::assemble(
            self.uid,
            seen.collect(),
            self.next_scope_id,
            self.next_collection_id,
        )
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

    fn lookup_scope(&self, scope: &str) -> Result<&ScopeDefinition, LookupError> {
        let scope = name::for_lookup(scope)?;
        let found = self.scopes.iter().find(|candidate| candidate.name == scope);
        found.ok_or(LookupError::UnknownScope)
    }

    fn position(&self, id: CollectionId) -> Option<Position> {
        let at = self.positions.binary_search_by_key(&id, |position| position.id).ok()?;
        debug_assert!(self.positions[at].scope < self.scopes.len(), "a collection is in a scope");
        Some(self.positions[at])
    }

    /// Builds a snapshot and its index. The caller has checked names and the uniqueness of ids.
    fn assemble(
        uid: ManifestUid,
        scopes: Vec<ScopeDefinition>,
        next_scope_id: u32,
        next_collection_id: u32,
    ) -> BucketManifest {
        assert!(scopes.len() <= SCOPES_MAX, "a manifest is within its limit of scopes");
        let first_free = next_scope_id.min(next_collection_id);
        assert!(first_free >= FIRST_USER_ID, "reserved ids are never assigned");
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
        assert!(
            positions.len() <= COLLECTIONS_MAX,
            "a manifest is within its limit of collections"
        );
        debug_assert!(positions.is_sorted_by(|left, right| left.id < right.id), "ids are unique");
        BucketManifest { uid, scopes, next_scope_id, next_collection_id, positions }
    }
}
