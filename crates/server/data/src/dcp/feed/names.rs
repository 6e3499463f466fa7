//! Names of scopes and collections by id, including those dropped since the feed began.

use std::collections::HashMap;
use std::sync::Arc;

use oribi_engine::collections::BucketManifest;
use oribi_engine::{ManifestEvent, ManifestEventKind};
use oribi_types::{CollectionId, ScopeId};

/// Names that the reader may see; they come from the manifest and from events.
#[derive(Debug)]
pub struct Names {
    scopes: HashMap<ScopeId, Arc<str>>,
    collections: HashMap<CollectionId, (Arc<str>, Arc<str>)>,
}

impl Names {
    pub fn new() -> Names {
        Names { scopes: HashMap::new(), collections: HashMap::new() }
    }

    /// Adds those of a manifest.
    pub fn learn(&mut self, manifest: &BucketManifest) {
        for scope in manifest.scopes() {
            let name: Arc<str> = scope.name.as_str().into();
            self.scopes.insert(scope.id, Arc::clone(&name));
            for one in &scope.collections {
                let path = (Arc::clone(&name), one.name.as_str().into());
                self.collections.insert(one.id, path);
            }
        }
    }

    /// Adds that of an event.
    pub fn learn_from(&mut self, event: &ManifestEvent<'_>) {
        match (event.kind, event.collection) {
            (ManifestEventKind::ScopeBegin, _) => {
                self.scopes.insert(event.scope, event.name.into());
            }
            (
                ManifestEventKind::CollectionBegin | ManifestEventKind::CollectionChanged,
                Some(collection),
            ) => {
                if let Some(scope) = self.scopes.get(&event.scope) {
                    let path = (Arc::clone(scope), event.name.into());
                    self.collections.insert(collection, path);
                }
            }
            _ => {}
        }
    }

    pub fn scope(&self, id: ScopeId) -> Option<&str> {
        self.scopes.get(&id).map(|name| &**name)
    }

    /// A collection's scope and name.
    pub fn collection(&self, id: CollectionId) -> Option<(&str, &str)> {
        self.collections.get(&id).map(|(scope, name)| (&**scope, &**name))
    }
}
