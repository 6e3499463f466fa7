//! One index that a feed builds and keeps up to date, and its state.
//!
//! Owns: the entries, and the transitions between states, each with a line in the log. Invariant:
//! entries are removed as a whole only after the state says that statements may not use them.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use oribi_query::{
    DocumentIndex, EntryRange, IndexDefinition, IndexEntry, IndexSize, IndexSnapshot,
    IndexedDocument, Keyspace, KeyspaceIndex, QueryError, Result,
};
use oribi_types::CollectionId;
use parking_lot::Mutex;

use super::feed_progress::{FeedProgress, note_transition};

/// Code of an index that a statement cannot use now.
const NOT_USABLE: u32 = 12015;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum BuildState {
    /// Some documents may lack entries.
    Building,
    /// Every document had its entries once; the feed follows the changes.
    Online,
    /// It has no entries, for this reason.
    Offline(String),
    Dropped,
}

impl BuildState {
    fn name(&self) -> &'static str {
        match self {
            BuildState::Building => "building",
            BuildState::Online => "online",
            BuildState::Offline(_) => "offline",
            BuildState::Dropped => "dropped",
        }
    }
}

/// See the module text.
pub(super) struct FedIndex {
    pub collection: CollectionId,
    pub entries: DocumentIndex,
    state: Mutex<BuildState>,
    progress: Arc<FeedProgress>,
    /// How much of the documents it has while it is built, in percent.
    percent: AtomicU8,
}

impl std::fmt::Debug for FedIndex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("FedIndex").field(&self.entries).finish()
    }
}

impl FedIndex {
    pub fn new(
        collection: CollectionId,
        entries: DocumentIndex,
        progress: Arc<FeedProgress>,
    ) -> FedIndex {
        let index = FedIndex {
            collection,
            entries,
            state: Mutex::new(BuildState::Building),
            progress,
            percent: AtomicU8::new(0),
        };
        index.log(&BuildState::Building, "its documents are read");
        index
    }

    pub fn definition(&self) -> &IndexDefinition {
        self.entries.definition()
    }

    /// The state as catalogs show it, with the reason of `offline`.
    pub fn shown_state(&self) -> (&'static str, Option<String>) {
        match &*self.state.lock() {
            // Some vbuckets are fed again from the beginning.
            BuildState::Online if !self.progress.is_complete() => ("building", None),
            BuildState::Offline(reason) => ("offline", Some(reason.clone())),
            state => (state.name(), None),
        }
    }

    /// Notes how much of the documents it has, in percent.
    pub fn set_percent(&self, percent: u8) {
        debug_assert!(percent <= 100, "a share is a part of the whole");
        self.percent.store(percent, Ordering::Relaxed);
    }

    /// What it has now.
    pub fn size(&self) -> IndexSize {
        let progress = match self.shown_state().0 {
            "online" => 100,
            "building" => self.percent.load(Ordering::Relaxed),
            _ => 0,
        };
        let (entries, bytes) = (self.entries.entry_count(), self.entries.byte_count());
        IndexSize { entries: entries as u64, bytes: bytes as u64, progress }
    }

    pub fn is_offline(&self) -> bool {
        matches!(*self.state.lock(), BuildState::Offline(_))
    }

    /// Whether statements may use the entries now.
    pub fn is_usable(&self) -> bool {
        *self.state.lock() == BuildState::Online && self.progress.is_complete()
    }

    /// Statements use it from now on.
    pub fn go_online(&self) {
        let entries = self.entries.entry_count();
        self.change(BuildState::Online, &format!("it has {entries} entries"));
    }

    /// Statements use it no longer, and its entries are removed.
    pub fn go_offline(&self, reason: String) {
        self.change(BuildState::Offline(reason.clone()), &reason);
        debug_assert!(!self.is_usable(), "no statement reads an index that loses its entries");
        self.entries.clear();
    }

    /// The same for an index whose definition was dropped.
    pub fn end(&self, reason: &str) {
        self.entries.cancel();
        self.change(BuildState::Dropped, reason);
        debug_assert!(*self.state.lock() == BuildState::Dropped, "an index ends for good");
        self.entries.clear();
    }

    fn change(&self, next: BuildState, reason: &str) {
        let mut state = self.state.lock();
        if *state == BuildState::Dropped || *state == next {
            return;
        }
        *state = next.clone();
        drop(state);
        note_transition();
        self.log(&next, reason);
    }

    fn log(&self, state: &BuildState, reason: &str) {
        let definition = self.definition();
        let (index, state) = (definition.name.as_str(), state.name());
        let bucket = definition.keyspace.bucket.as_str();
        let collection = self.collection.0;
        match state {
            "offline" => {
                tracing::warn!(
                    bucket,
                    collection,
                    index,
                    state,
                    reason,
                    "an index changed its state"
                );
            }
            _ => tracing::info!(
                bucket,
                collection,
                index,
                state,
                reason,
                "an index changed its state"
            ),
        }
    }
}

impl KeyspaceIndex for FedIndex {
    fn definition(&self) -> &IndexDefinition {
        self.entries.definition()
    }

    fn keys(&self) -> Arc<dyn Any + Send + Sync> {
        self.entries.compiled_keys()
    }

    fn snapshot(&self, ranges: Vec<EntryRange>) -> Result<IndexSnapshot> {
        let snapshot = self.entries.entries_in(ranges);
        // Asked afterwards: whatever removes entries as a whole has changed this first.
        if self.is_usable() {
            return Ok(snapshot);
        }
        let name = &self.definition().name;
        let msg = format!(
            "The index {name} was dropped, or is built again, since the statement began; run the \
             statement again"
        );
        let mut error = QueryError::datastore(NOT_USABLE, msg);
        error.retry = true;
        Err(error)
    }

    fn read(
        &self,
        entry: IndexEntry<'_>,
        keyspace: &dyn Keyspace,
    ) -> Result<Option<IndexedDocument>> {
        self.entries.read_entry(entry, keyspace)
    }
}
