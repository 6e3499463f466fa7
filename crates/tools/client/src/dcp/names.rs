//! Names of collections and scopes, by the ids that changes carry.
//!
//! They come from the manifest that the stream began with, and from the events in it. Names of what
//! was dropped are kept: changes made before may still come.

use std::collections::HashMap;
use std::sync::Arc;

use oribi_protocol::dcp::system_event::EventChange;
use oribi_types::{CollectionId, ScopeId};

use super::event::CollectionNames;
use crate::collection::CollectionsManifest;

/// See the module text.
#[derive(Debug)]
pub(super) struct CollectionNameCache {
    scopes: HashMap<ScopeId, Arc<str>>,
    collections: HashMap<CollectionId, Arc<CollectionNames>>,
}

impl CollectionNameCache {
    /// Only what every bucket has.
    pub fn new() -> CollectionNameCache {
        let mut names = CollectionNameCache { scopes: HashMap::new(), collections: HashMap::new() };
        names.scopes.insert(ScopeId(0), "_default".into());
        names.add(ScopeId(0), CollectionId::DEFAULT, "_default".into());
        names
    }

    /// Adds those of a manifest.
    pub fn learn(&mut self, manifest: &CollectionsManifest) {
        for scope in &manifest.scopes {
            self.scopes.insert(scope.id, (&*scope.name).into());
            for collection in &scope.collections {
                self.add(scope.id, collection.id, (&*collection.name).into());
            }
        }
    }

    /// Adds that of an event.
    pub fn learn_from(&mut self, scope: ScopeId, change: &EventChange<'_>) {
        let text = |name: &[u8]| String::from_utf8_lossy(name).into();
        match *change {
            EventChange::ScopeBegin { name } => drop(self.scopes.insert(scope, text(name))),
            EventChange::CollectionBegin { collection, name, .. } => {
                self.add(scope, collection, text(name));
            }
            EventChange::CollectionEnd { .. } | EventChange::ScopeEnd => {}
        }
    }

    /// A scope's name.
    pub fn scope(&self, id: ScopeId) -> Option<&Arc<str>> {
        self.scopes.get(&id)
    }

    /// A collection's name.
    pub fn collection(&self, id: CollectionId) -> Option<&Arc<CollectionNames>> {
        self.collections.get(&id)
    }

    fn add(&mut self, scope: ScopeId, id: CollectionId, collection: Arc<str>) {
        if let Some(scope) = self.scopes.get(&scope) {
            let path = CollectionNames { scope: scope.clone(), collection };
            self.collections.insert(id, Arc::new(path));
        }
    }
}
