//! Events of scopes and collections in a vbucket's history, and those still missing there.
//!
//! Owns: the difference between a history and a manifest, as system events in the order that
//! readers expect: collections that went, scopes that came, collections that came or were changed,
//! scopes that went. Only the last event shows the new manifest's uid, because a reader knows that
//! manifest completely only with it. A change of the manifest and the reconciliation of a history
//! are the same difference.

use std::collections::{BTreeMap, BTreeSet};

use oribi_types::{CollectionId, ManifestUid, ScopeId, Seqno};

use super::{BucketManifest, CollectionDefinition, ScopeDefinition};
use crate::system_event::{ManifestEvent, ManifestEventKind};

/// Content of the events so far.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct AnnouncedEvents {
    /// Highest uid that was shown.
    uid: ManifestUid,
    scopes: BTreeSet<ScopeId>,
    /// Scope, and longest life of documents.
    collections: BTreeMap<CollectionId, (ScopeId, Option<u32>)>,
}

impl AnnouncedEvents {
    /// The events of a history that has all of a manifest.
    pub(crate) fn all_of(manifest: &BucketManifest) -> AnnouncedEvents {
        let collections = manifest.scopes().iter().flat_map(|scope| {
            let known = scope.collections.iter().filter(|one| is_announced(one));
            known.map(|one| (one.id, (scope.id, one.max_ttl_s)))
        });
        let scopes = manifest.scopes().iter().map(|scope| scope.id);
        AnnouncedEvents {
            uid: manifest.uid(),
            scopes: scopes.filter(|id| *id != ScopeId(0)).collect(),
            collections: collections.collect(),
        }
    }

    /// Takes in an event, the last one of its collection or scope.
    pub(crate) fn add(&mut self, event: &ManifestEvent<'_>) {
        self.uid = self.uid.max(event.manifest_uid);
        match (event.kind.is_end(), event.collection) {
            (false, Some(collection)) => {
                self.collections.insert(collection, (event.scope, event.max_ttl_s));
            }
            (false, None) => _ = self.scopes.insert(event.scope),
            (true, Some(collection)) => _ = self.collections.remove(&collection),
            (true, None) => _ = self.scopes.remove(&event.scope),
        }
    }

    /// The events that lead from here to `manifest`; seqnos are not assigned yet. A collection that
    /// is neither in the manifest nor dropped belongs to a newer one, and stays.
    pub(crate) fn missing<'m>(&self, manifest: &'m BucketManifest) -> Vec<ManifestEvent<'m>> {
        let mut events = Vec::new();
        let event = |kind, scope, collection| ManifestEvent {
            seqno: Seqno(0),
            kind,
            manifest_uid: self.uid,
            scope,
            collection,
            max_ttl_s: None,
            name: "",
        };
        for (id, (scope, _)) in &self.collections {
            if manifest.has_dropped(*id) {
                events.push(event(ManifestEventKind::CollectionEnd, *scope, Some(*id)));
            }
        }
        let is_new =
            |scope: &&ScopeDefinition| scope.id != ScopeId(0) && !self.scopes.contains(&scope.id);
        for scope in manifest.scopes().iter().filter(is_new) {
            let begin = event(ManifestEventKind::ScopeBegin, scope.id, None);
            events.push(ManifestEvent { name: &scope.name, ..begin });
        }
        for scope in manifest.scopes() {
            for one in scope.collections.iter().filter(|one| is_announced(one)) {
                let kind = match self.collections.get(&one.id) {
                    None => ManifestEventKind::CollectionBegin,
                    Some((_, max_ttl_s)) if *max_ttl_s != one.max_ttl_s => {
                        ManifestEventKind::CollectionChanged
                    }
                    Some(_) => continue,
                };
                let (name, max_ttl_s) = (one.name.as_str(), one.max_ttl_s);
                events.push(ManifestEvent {
                    name,
                    max_ttl_s,
                    ..event(kind, scope.id, Some(one.id))
                });
            }
        }
        for id in self.scopes.iter().filter(|id| manifest.has_dropped_scope(**id)) {
            events.push(event(ManifestEventKind::ScopeEnd, *id, None));
        }
        if let Some(last) = events.last_mut() {
            last.manifest_uid = manifest.uid();
        }
        events
    }
}

/// The default collection was always there.
fn is_announced(collection: &CollectionDefinition) -> bool {
    collection.id != CollectionId::DEFAULT
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collections::ManifestChange;
    use crate::collections::ManifestChange::{
        CreateCollection, CreateScope, DropCollection, DropScope, SetMaxTtl,
    };

    fn applied(manifest: &BucketManifest, changes: &[ManifestChange]) -> BucketManifest {
        let step = |before: BucketManifest, change| {
            before.apply(change).expect("a change that is allowed")
        };
        changes.iter().fold(manifest.clone(), step)
    }

    fn create(scope: &str, name: &str) -> ManifestChange {
        CreateCollection { scope: scope.into(), name: name.into(), max_ttl_s: None }
    }

    fn shown(events: &[ManifestEvent<'_>]) -> Vec<(ManifestEventKind, u32, u64)> {
        let id =
            |event: &ManifestEvent<'_>| event.collection.map_or(event.scope.0, |found| found.0);
        events.iter().map(|event| (event.kind, id(event), event.manifest_uid.0)).collect()
    }

    #[test]
    fn manifest_changes_are_ordered_the_last_has_the_uid() {
        let before = applied(
            &BucketManifest::initial(),
            &[CreateScope { name: "a".into() }, create("a", "x"), create("_default", "y")],
        );
        let after = applied(
            &before,
            &[
                DropScope { name: "a".into() },
                CreateScope { name: "b".into() },
                create("b", "z"),
                SetMaxTtl { scope: "_default".into(), name: "y".into(), max_ttl_s: Some(5) },
            ],
        );
        let missing = AnnouncedEvents::all_of(&before).missing(&after);
        use ManifestEventKind::{
            CollectionBegin, CollectionChanged, CollectionEnd, ScopeBegin, ScopeEnd,
        };
        let expected = [
            (CollectionEnd, 8, 3),
            (ScopeBegin, 9, 3),
            (CollectionChanged, 9, 3),
            (CollectionBegin, 10, 3),
            (ScopeEnd, 8, 7),
        ];
        assert_eq!(shown(&missing), expected);
        assert_eq!((missing[3].name, missing[2].max_ttl_s), ("z", Some(5)));
    }

    #[test]
    fn a_completed_history_has_no_gap() {
        let after = applied(
            &BucketManifest::initial(),
            &[CreateScope { name: "a".into() }, create("a", "x"), create("a", "y")],
        );
        let later = applied(
            &after,
            &[DropCollection { scope: "a".into(), name: "x".into() }, create("a", "x")],
        );
        let mut announced = AnnouncedEvents::default();
        for manifest in [&after, &later] {
            announced.missing(manifest).iter().for_each(|event| announced.add(event));
            assert_eq!(announced, AnnouncedEvents::all_of(manifest));
            assert!(announced.missing(manifest).is_empty());
        }
        // A node without the later manifest keeps the collections that only that manifest has.
        let ended = announced.missing(&after);
        assert!(ended.iter().all(|event| !event.kind.is_end()), "{ended:?}");
    }
}
