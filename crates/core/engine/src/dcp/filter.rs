//! Part of a vbucket's history that a stream shows.
//!
//! Owns: the filter as it stands at a seqno. A scope's filter grows by the collections that are
//! created in it, and every filter shrinks by those that are dropped. Because events are part of
//! the history, the stream itself carries the news. The filter excludes documents of a dropped
//! collection: after its end, and in a backfill everywhere.

use oribi_storage::Record;
use oribi_types::{CollectionId, ManifestUid, ScopeId};

use super::request::StreamFilter;
use crate::backfill::CollectionSet;
use crate::collections::BucketManifest;
use crate::system_event::{ManifestEvent, ManifestEventKind};

/// Whether a change is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Visibility {
    No,
    Yes,
    /// It is, and nothing will ever be after it.
    Last,
}

/// A filter, and the collections that it lets through now.
pub(super) enum FilterState {
    Default,
    All { gone: Vec<CollectionId> },
    Scope(ScopeFilter),
    Collections(Vec<CollectionId>),
}

/// The collections of a scope.
pub(super) struct ScopeFilter {
    scope: ScopeId,
    collections: Vec<CollectionId>,
    gone: Vec<CollectionId>,
    /// The last manifest of which it has taken the collections.
    manifest_uid: Option<ManifestUid>,
}

impl ScopeFilter {
    fn adopt(&mut self, manifest: &BucketManifest) {
        if self.manifest_uid.replace(manifest.uid()) == Some(manifest.uid()) {
            return;
        }
        let found = manifest.scopes().iter().filter(|scope| scope.id == self.scope);
        for id in found.flat_map(|scope| &scope.collections).map(|collection| collection.id) {
            if !self.collections.contains(&id) {
                self.collections.push(id);
            }
        }
    }
}

impl FilterState {
    pub(super) fn new(filter: &StreamFilter, manifest: &BucketManifest) -> FilterState {
        match filter {
            StreamFilter::Default => FilterState::Default,
            StreamFilter::All => FilterState::All { gone: vec![CollectionId::PREPARES] },
            StreamFilter::Replica => FilterState::All { gone: Vec::new() },
            StreamFilter::Scope(scope) => {
                let (collections, gone) = (Vec::new(), Vec::new());
                let mut filter =
                    ScopeFilter { scope: *scope, collections, gone, manifest_uid: None };
                filter.adopt(manifest);
                FilterState::Scope(filter)
            }
            StreamFilter::Collections(ids) => FilterState::Collections(ids.clone()),
        }
    }

    /// Collections of which it may show anything.
    pub(super) fn wanted(&self) -> CollectionSet {
        match self {
            FilterState::Default => CollectionSet::Only(vec![CollectionId::DEFAULT]),
            FilterState::All { .. } | FilterState::Scope(_) => CollectionSet::All,
            FilterState::Collections(ids) => {
                let mut wanted = ids.clone();
                wanted.push(CollectionId::SYSTEM);
                wanted.sort_unstable();
                debug_assert!(wanted.last().is_some(), "events are wanted with their collections");
                CollectionSet::Only(wanted)
            }
        }
    }

    /// True for a reader that knows neither collections nor what comes with them.
    pub(super) fn is_legacy(&self) -> bool {
        matches!(self, FilterState::Default)
    }

    /// True when nothing was asked for.
    pub(super) fn is_empty(&self) -> bool {
        matches!(self, FilterState::Collections(ids) if ids.is_empty())
    }

    /// Takes note of a manifest that is in force. The creation of a collection may have been passed
    /// before its manifest was; its documents come later.
    pub(super) fn adopt(&mut self, manifest: &BucketManifest) {
        if let FilterState::Scope(filter) = self {
            filter.adopt(manifest);
        }
    }

    /// Decides about the next change of the history.
    pub(super) fn pass(&mut self, record: &Record<'_>) -> Visibility {
        if record.key.collection == CollectionId::SYSTEM {
            let event = ManifestEvent::decode(record.seqno, record.value);
            return event.map_or(Visibility::No, |event| self.pass_event(&event));
        }
        if self.shows(record) { Visibility::Yes } else { Visibility::No }
    }

    /// True when it shows this version of a document, or tombstone.
    pub(super) fn shows(&self, record: &Record<'_>) -> bool {
        self.shows_all_of(record.key.collection)
    }

    /// True when it shows every version of every document of the collection, and every tombstone.
    pub(super) fn shows_all_of(&self, collection: CollectionId) -> bool {
        match self {
            FilterState::Default => collection == CollectionId::DEFAULT,
            FilterState::All { gone } => !gone.contains(&collection),
            FilterState::Scope(ScopeFilter { collections, gone, .. }) => {
                collections.contains(&collection) && !gone.contains(&collection)
            }
            FilterState::Collections(ids) => ids.contains(&collection),
        }
    }

    fn pass_event(&mut self, event: &ManifestEvent<'_>) -> Visibility {
        let ends = event.kind == ManifestEventKind::CollectionEnd;
        match self {
            FilterState::Default => Visibility::No,
            FilterState::All { gone } => {
                if ends {
                    gone.extend(event.collection);
                }
                Visibility::Yes
            }
            FilterState::Scope(filter) if event.scope != filter.scope => Visibility::No,
            FilterState::Scope(ScopeFilter { collections, gone, .. }) => match event.kind {
                ManifestEventKind::ScopeEnd => Visibility::Last,
                ManifestEventKind::CollectionEnd => {
                    gone.extend(event.collection);
                    Visibility::Yes
                }
                ManifestEventKind::CollectionBegin | ManifestEventKind::CollectionChanged => {
                    collections.extend(event.collection);
                    Visibility::Yes
                }
                ManifestEventKind::ScopeBegin => Visibility::Yes,
            },
            FilterState::Collections(ids) => {
                let Some(collection) = event.collection.filter(|id| ids.contains(id)) else {
                    return Visibility::No;
                };
                if ends {
                    ids.retain(|id| *id != collection);
                    debug_assert!(!ids.contains(&collection), "a collection ends once in a stream");
                }
                if ids.is_empty() { Visibility::Last } else { Visibility::Yes }
            }
        }
    }
}
