//! How the manifest of a node that has copies follows the events of their actives.
//!
//! Owns: the manifest after one event. The cluster shares manifests as well, and a node installs
//! and stores the shared one before it opens a stream: then each event is the next change, or known
//! already. The uid of an event may be lower than that of the manifest in force, because only the
//! last event of a change shows the new one. So existence decides: an id below the next one that is
//! not here was dropped, and stays dropped.

use super::{BucketManifest, CollectionDefinition, ManifestError, SCOPES_MAX, ScopeDefinition};
use super::{COLLECTIONS_MAX, name::check_user_name};
use crate::system_event::{ManifestEvent, ManifestEventKind};

impl BucketManifest {
    /// The manifest after an event, or `None` when it says nothing new.
    ///
    /// # Errors
    /// The event contradicts the manifest: a name is taken or no name, or the scope is unknown.
    pub(crate) fn following(
        &self,
        event: &ManifestEvent<'_>,
    ) -> Result<Option<BucketManifest>, ManifestError> {
        let mut after = self.clone();
        match (event.kind, event.collection) {
            (ManifestEventKind::ScopeBegin, _) => after.follow_scope(event)?,
            (ManifestEventKind::ScopeEnd, _) => {
                after.scopes.retain(|scope| scope.id != event.scope || scope.id.0 == 0);
                after.next_scope_id = after_id(after.next_scope_id, event.scope.0)?;
            }
            (_, None) => return Ok(None),
            (ManifestEventKind::CollectionEnd, Some(id)) => {
                for scope in &mut after.scopes {
                    scope.collections.retain(|one| one.id != id || id.0 == 0);
                }
                after.next_collection_id = after_id(after.next_collection_id, id.0)?;
            }
            (_, Some(id)) if self.has_dropped(id) => {}
            (_, Some(id)) => {
                let definition = CollectionDefinition {
                    id,
                    name: event.name.to_owned(),
                    max_ttl_s: event.max_ttl_s,
                };
                after.follow_collection(event, definition)?;
            }
        }
        after.uid = after.uid.max(event.manifest_uid);
        assert!(after.next_scope_id >= self.next_scope_id, "scope ids ascend");
        assert!(after.next_collection_id >= self.next_collection_id, "collection ids ascend");
        if after == *self {
            return Ok(None);
        }
        let BucketManifest { uid, scopes, next_scope_id, next_collection_id, .. } = after;
        Ok(Some(BucketManifest::assemble(uid, scopes, next_scope_id, next_collection_id)))
    }

    fn follow_scope(&mut self, event: &ManifestEvent<'_>) -> Result<(), ManifestError> {
        let is_known = self.scopes.iter().any(|scope| scope.id == event.scope);
        if is_known || self.has_dropped_scope(event.scope) {
            return Ok(());
        }
        check_user_name(event.name)?;
        if self.scopes.iter().any(|scope| scope.name == event.name) {
            return Err(ManifestError::ScopeExists);
        }
        if self.scopes.len() >= SCOPES_MAX {
            return Err(ManifestError::TooMany);
        }
        self.next_scope_id = after_id(self.next_scope_id, event.scope.0)?;
        let (id, name) = (event.scope, event.name.to_owned());
        self.scopes.push(ScopeDefinition { id, name, collections: Vec::new() });
        assert!(self.next_scope_id > event.scope.0, "a new scope gets another id");
        Ok(())
    }

    fn follow_collection(
        &mut self,
        event: &ManifestEvent<'_>,
        definition: CollectionDefinition,
    ) -> Result<(), ManifestError> {
        let count: usize = self.scopes.iter().map(|scope| scope.collections.len()).sum();
        let next_collection_id = after_id(self.next_collection_id, definition.id.0);
        let is_dropped = self.has_dropped_scope(event.scope);
        let scope = self.scopes.iter_mut().find(|scope| scope.id == event.scope);
        let Some(scope) = scope else {
            // The scope goes with its collections, whose ends may be left out of a history.
            return match is_dropped {
                true => {
                    self.next_collection_id = next_collection_id?;
                    Ok(())
                }
                false => Err(ManifestError::UnknownScope),
            };
        };
        if let Some(known) = scope.collections.iter_mut().find(|known| known.id == definition.id) {
            if event.manifest_uid >= self.uid {
                known.max_ttl_s = definition.max_ttl_s;
            }
            return Ok(());
        }
        if definition.id.0 == 0 {
            return Ok(());
        }
        check_user_name(&definition.name)?;
        if scope.collections.iter().any(|known| known.name == definition.name) {
            return Err(ManifestError::CollectionExists);
        }
        if count >= COLLECTIONS_MAX {
            return Err(ManifestError::TooMany);
        }
        scope.collections.push(definition);
        debug_assert!(count < COLLECTIONS_MAX, "a manifest is within its limit of collections");
        self.next_collection_id = next_collection_id?;
        Ok(())
    }
}

/// The next id to give out once `used` is known. Reserved ids move nothing.
fn after_id(next: u32, used: u32) -> Result<u32, ManifestError> {
    Ok(next.max(used.checked_add(1).ok_or(ManifestError::TooMany)?))
}
