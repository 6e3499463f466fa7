//! The changes that an administrator makes to a manifest.
//!
//! Owns: [`ManifestChange`] and the step from one manifest to the next. Invariant: a refused change
//! has no effect, because the step works on a copy. Changes are rare and a manifest is small, so
//! the copy is cheap.

use oribi_types::{CollectionId, ManifestUid, ScopeId};

use super::name::check_user_name;
use super::{
    BucketManifest, COLLECTIONS_MAX, CollectionDefinition, DEFAULT_NAME, FIRST_USER_ID,
    ManifestError, SCOPES_MAX, ScopeDefinition,
};

/// One change, by names as an administrator gives them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ManifestChange {
    /// Adds an empty scope.
    CreateScope {
        /// Name of the new scope.
        name: String,
    },
    /// Removes a scope with all its collections.
    DropScope {
        /// Name of the scope.
        name: String,
    },
    /// Adds a collection to a scope.
    CreateCollection {
        /// Name of the existing scope.
        scope: String,
        /// Name of the new collection.
        name: String,
        /// Longest life of its documents in seconds.
        max_ttl_s: Option<u32>,
    },
    DropCollection {
        /// Name of the scope.
        scope: String,
        /// Name of the collection.
        name: String,
    },
    /// Sets or clears the longest life of a collection's documents.
    SetMaxTtl {
        /// Name of the scope.
        scope: String,
        /// Name of the collection.
        name: String,
        /// Longest life in seconds.
        max_ttl_s: Option<u32>,
    },
}

impl BucketManifest {
    /// The manifest after `change`, with the next uid.
    pub fn apply(&self, change: &ManifestChange) -> Result<BucketManifest, ManifestError> {
        let mut draft = Draft {
            scopes: self.scopes.clone(),
            next_scope_id: self.next_scope_id,
            next_collection_id: self.next_collection_id,
        };
        match change {
            ManifestChange::CreateScope { name } => draft.create_scope(name)?,
            ManifestChange::DropScope { name } => draft.drop_scope(name)?,
            ManifestChange::CreateCollection { scope, name, max_ttl_s } => {
                draft.create_collection(scope, name, *max_ttl_s)?;
            }
            ManifestChange::DropCollection { scope, name } => draft.drop_collection(scope, name)?,
            ManifestChange::SetMaxTtl { scope, name, max_ttl_s } => {
                draft.set_max_ttl(scope, name, *max_ttl_s)?;
            }
        }
        assert!(draft.next_scope_id >= self.next_scope_id, "scope ids ascend");
        assert!(draft.next_collection_id >= self.next_collection_id, "collection ids ascend");
        assert!(draft.scopes.iter().any(|scope| scope.id == ScopeId(0)), "the default scope stays");
        let uid = ManifestUid(self.uid.0.checked_add(1).ok_or(ManifestError::TooMany)?);
        Ok(BucketManifest::assemble(
            uid,
            draft.scopes,
            draft.next_scope_id,
            draft.next_collection_id,
        ))
    }
}

/// A copy of a manifest's content while it is being changed.
struct Draft {
    scopes: Vec<ScopeDefinition>,
    next_scope_id: u32,
    next_collection_id: u32,
}

impl Draft {
    fn create_scope(&mut self, name: &str) -> Result<(), ManifestError> {
        if self.scopes.iter().any(|scope| scope.name == name) {
            return Err(ManifestError::ScopeExists);
        }
        check_user_name(name)?;
        if self.scopes.len() >= SCOPES_MAX {
            return Err(ManifestError::TooMany);
        }
        let id = ScopeId(take_id(&mut self.next_scope_id)?);
        self.scopes.push(ScopeDefinition { id, name: name.into(), collections: Vec::new() });
        assert!(self.scopes.len() <= SCOPES_MAX, "a manifest is within its limit of scopes");
        Ok(())
    }

    fn drop_scope(&mut self, name: &str) -> Result<(), ManifestError> {
        if name == DEFAULT_NAME {
            return Err(ManifestError::Reserved);
        }
        let at = self.scopes.iter().position(|scope| scope.name == name);
        self.scopes.remove(at.ok_or(ManifestError::UnknownScope)?);
        debug_assert!(self.scopes.iter().all(|scope| scope.name != name), "scope names are unique");
        Ok(())
    }

    fn create_collection(
        &mut self,
        scope: &str,
        name: &str,
        max_ttl_s: Option<u32>,
    ) -> Result<(), ManifestError> {
        let count: usize = self.scopes.iter().map(|scope| scope.collections.len()).sum();
        let scope = find_scope(&mut self.scopes, scope)?;
        if scope.collections.iter().any(|collection| collection.name == name) {
            return Err(ManifestError::CollectionExists);
        }
        check_user_name(name)?;
        if count >= COLLECTIONS_MAX {
            return Err(ManifestError::TooMany);
        }
        let id = CollectionId(take_id(&mut self.next_collection_id)?);
        scope.collections.push(CollectionDefinition { id, name: name.into(), max_ttl_s });
        Ok(())
    }

    fn drop_collection(&mut self, scope: &str, name: &str) -> Result<(), ManifestError> {
        if name == DEFAULT_NAME {
            return Err(ManifestError::Reserved);
        }
        let scope = find_scope(&mut self.scopes, scope)?;
        let at = scope.collections.iter().position(|collection| collection.name == name);
        scope.collections.remove(at.ok_or(ManifestError::UnknownCollection)?);
        debug_assert!(
            scope.collections.iter().all(|collection| collection.name != name),
            "names are unique in a scope"
        );
        Ok(())
    }

    fn set_max_ttl(
        &mut self,
        scope: &str,
        name: &str,
        max_ttl_s: Option<u32>,
    ) -> Result<(), ManifestError> {
        let scope = find_scope(&mut self.scopes, scope)?;
        let found = scope.collections.iter_mut().find(|collection| collection.name == name);
        found.ok_or(ManifestError::UnknownCollection)?.max_ttl_s = max_ttl_s;
        Ok(())
    }
}

fn find_scope<'a>(
    scopes: &'a mut [ScopeDefinition],
    name: &str,
) -> Result<&'a mut ScopeDefinition, ManifestError> {
    scopes.iter_mut().find(|scope| scope.name == name).ok_or(ManifestError::UnknownScope)
}

/// Hands out the next id. The counter stops before it could wrap around to an id in use.
fn take_id(next: &mut u32) -> Result<u32, ManifestError> {
    let id = *next;
    debug_assert!(id >= FIRST_USER_ID, "reserved ids are never assigned");
    *next = id.checked_add(1).ok_or(ManifestError::TooMany)?;
    Ok(id)
}
