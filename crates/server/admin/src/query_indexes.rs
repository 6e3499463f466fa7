//! Indexes of all buckets: definitions, entries, and the feeds that keep entries up to date.
//!
//! Owns: which indexes exist and what follows from a change of their definitions. The parts:
//! [`definition_file`] keeps definitions; [`fed_index`] is one index with its state, and its memory
//! is [`index_reservation`]'s; [`consumer`] is the thread of a bucket, which drives [`index_feed`];
//! [`feed_group`] has its streams, woken through a [`ready_set`]; [`feed_progress`] is how far they
//! are; [`sweep_reader`] and [`large_documents`] are what the feed has of the server.
//!
//! Invariants: a change is durable before it is in force; the entries of an index are rebuilt when
//! the server starts, while statements scan; no worker runs any of this. Callers: `query_store`,
//! which has checked the rights, and the admin's runtime, which calls [`QueryIndexes::tend`].

mod consumer;
mod definition_file;
mod fed_index;
mod feed_group;
mod feed_progress;
mod index_feed;
mod index_reservation;
mod large_documents;
mod ready_set;
mod sweep_reader;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use oribi_query::{
    Consistency, DocumentIndex, IndexChange, IndexDefinition, KeyspaceIndex, KeyspaceName,
    QueryError, Result,
};
use oribi_server::admin_api::memory::ConnectionMemory;
use oribi_server::buckets::BucketHandle;
use oribi_server::server_context::ServerContext;
use oribi_types::{CollectionId, Seqno, Vbid};
use parking_lot::Mutex;

use crate::mutation_tokens;
use consumer::FeedConsumer;
use definition_file::{StoredIndex, change_in, keyspaces_of, read, write};
use fed_index::FedIndex;
use index_reservation::IndexReservation;

/// Interval between two looks while a statement waits.
pub(crate) const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Code of an index that could not be built.
const NOT_BUILT: u32 = 5000;

/// The indexes of one bucket.
struct BucketIndexes {
    bucket: Weak<BucketHandle>,
    stored: Vec<StoredIndex>,
    /// Those with entries, by id, and those that cannot have any.
    built: HashMap<String, std::result::Result<Arc<FedIndex>, BuildRejection>>,
    consumer: Option<Arc<FeedConsumer>>,
}

/// Why an index has no entries.
#[derive(Clone)]
struct BuildRejection {
    reason: String,
    /// It may be built later as it is.
    may_retry: bool,
}

/// See the module text.
#[derive(Default)]
pub(crate) struct QueryIndexes {
    /// Indexes of each bucket, by its uuid.
    buckets: Mutex<HashMap<String, BucketIndexes>>,
    /// Number of changes of definitions, which prepared plans compare.
    changes: AtomicU64,
    is_stopping: AtomicBool,
}

/// Figures of a bucket's indexes.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct IndexFigures {
    /// Indexes by state: deferred, building, online, offline.
    pub by_state: [u64; 4],
    pub entries: u64,
    /// Changes that online indexes do not have yet.
    pub lag: u64,
    /// Changes that the feed has read.
    pub mutations: u64,
}

/// The names of states, in the order of [`IndexFigures::by_state`].
pub(crate) const INDEX_STATES: [&str; 4] = ["deferred", "building", "online", "offline"];

impl QueryIndexes {
    /// The definitions in collections that exist, with their present states.
    pub fn list(
        &self,
        handle: &Arc<BucketHandle>,
        memory: &Arc<ConnectionMemory>,
    ) -> Result<Vec<IndexDefinition>> {
        let mut buckets = self.buckets.lock();
        let indexes = self.loaded(&mut buckets, handle, memory)?;
        if indexes.stored.is_empty() {
            return Ok(Vec::new());
        }
        let names = keyspaces_of(handle);
        let shown = |stored: &StoredIndex| {
            let mut definition = stored.definition(names.get(&stored.collection)?.clone());
            if let Some(built) = indexes.built.get(&stored.id) {
                let (state, reason) = match built {
                    Ok(index) => index.shown_state(),
                    Err(rejection) => ("offline", Some(rejection.reason.clone())),
                };
                (definition.state, definition.reason) = (state.to_owned(), reason);
                definition.size = built.as_ref().ok().map(|index| index.size());
            }
            Some(definition)
        };
        Ok(indexes.stored.iter().filter_map(shown).collect())
    }

    /// The indexes of a collection that statements may use now.
    pub fn usable(
        &self,
        handle: &Arc<BucketHandle>,
        collection: CollectionId,
    ) -> Vec<Arc<dyn KeyspaceIndex>> {
        let buckets = self.buckets.lock();
        let Some(indexes) = buckets.get(&handle.bucket().config().uuid) else { return Vec::new() };
        // In the order of their creation.
        let built = indexes.stored.iter().filter_map(|stored| indexes.built.get(&stored.id));
        let usable = built
            .filter_map(|built| built.as_ref().ok())
            .filter(|index| index.collection == collection && index.is_usable());
        usable.map(|index| Arc::clone(index) as Arc<dyn KeyspaceIndex>).collect()
    }

    /// Applies a change in a collection. Durable when it returns.
    pub fn apply(
        &self,
        handle: &Arc<BucketHandle>,
        memory: &Arc<ConnectionMemory>,
        collection: CollectionId,
        change: IndexChange,
    ) -> Result<()> {
        let mut buckets = self.buckets.lock();
        // Asked under the lock, which `stop` takes after it has said so.
        if self.is_stopping.load(Ordering::Acquire) {
            return Err(QueryError::datastore(NOT_BUILT, "The server stops"));
        }
        let indexes = self.loaded(&mut buckets, handle, memory)?;
        let names = keyspaces_of(handle);
        let mut next = indexes.stored.clone();
        next.retain(|index| names.contains_key(&index.collection));
        // An index that is offline is built again.
        if let IndexChange::Build { names, .. } = &change {
            let named =
                next.iter().filter(|index| names.iter().any(|name| index.is(collection, name)));
            let ids: Vec<String> = named.map(|index| index.id.clone()).collect();
            indexes.built.retain(|id, built| {
                let is_offline = built.as_ref().map_or(true, |index| index.is_offline());
                !(is_offline && ids.contains(id))
            });
        }
        change_in(&mut next, collection, change)?;
        write(handle, &next)?;
        indexes.stored = next;
        self.changes.fetch_add(1, Ordering::Relaxed);
        indexes.build(handle, memory);
        Ok(())
    }

    /// Waits until an index is built, if it is being built. `check` ends the wait.
    pub fn wait_until_built(
        &self,
        handle: &Arc<BucketHandle>,
        (collection, name): (CollectionId, &str),
        check: &dyn Fn() -> Result<()>,
    ) -> Result<()> {
        let found = {
            let buckets = self.buckets.lock();
            buckets.get(&handle.bucket().config().uuid).and_then(|indexes| {
                let stored = indexes.stored.iter().find(|one| one.is(collection, name))?;
                let consumer = indexes.consumer.clone();
                Some((indexes.built.get(&stored.id)?.clone(), consumer))
            })
        };
        let (index, consumer) = match found {
            None => return Ok(()),
            Some((Err(rejection), _)) => return Err(not_built(name, &rejection.reason)),
            Some((Ok(index), consumer)) => (index, consumer),
        };
        loop {
            match index.shown_state() {
                ("building", _) => {}
                ("offline", reason) => {
                    return Err(not_built(name, reason.as_deref().unwrap_or_default()));
                }
                _ => return Ok(()),
            }
            check()?;
            match &consumer {
                Some(consumer) => consumer.progress.wait_for_turn(LOOK_INTERVAL),
                None => return Ok(()),
            }
        }
    }

    /// Waits until the indexes of a bucket have all documents and the changes that `consistency`
    /// names. `check` ends the wait.
    pub fn catch_up(
        &self,
        handle: &Arc<BucketHandle>,
        consistency: &Consistency,
        check: &dyn Fn() -> Result<()>,
    ) -> Result<()> {
        let consumer = {
            let buckets = self.buckets.lock();
            let indexes = buckets.get(&handle.bucket().config().uuid);
            indexes.and_then(|indexes| indexes.consumer.clone())
        };
        let Some(consumer) = consumer else { return Ok(()) };
        let progress = &consumer.progress;
        let bucket = handle.bucket();
        let wanted = || -> Result<Vec<(Vbid, Seqno)>> {
            Ok(match consistency {
                Consistency::NotBounded => Vec::new(),
                Consistency::RequestPlus => {
                    bucket.vbuckets().iter().map(|one| (one.id(), one.high_seqno())).collect()
                }
                Consistency::AtPlus(text) => mutation_tokens::wanted(text, handle)?,
            })
        };
        let (mut settled, mut seqnos) = (None, Vec::new());
        loop {
            // Another history may have lower seqnos, or lack a write of a token.
            let now_settled = bucket.settled_ownership_changes();
            if now_settled.is_none() || now_settled != settled {
                (settled, seqnos) = (now_settled, wanted()?);
            }
            if progress.has_all(&seqnos) {
                return Ok(());
            }
            if !consumer.is_feeding() {
                // The indexes were dropped; their scans find out.
                return Ok(());
            }
            check()?;
            progress.wait_for_turn(LOOK_INTERVAL);
        }
    }

    /// Loads the definitions of buckets that have come, forgets buckets and collections that have
    /// gone, and builds indexes that were refused memory or a thread.
    pub fn tend(&self, server: &ServerContext) {
        for handle in server.buckets.list() {
            let mut buckets = self.buckets.lock();
            // Statements report a file that cannot be read.
            if !self.is_stopping.load(Ordering::Acquire)
                && let Ok(indexes) = self.loaded(&mut buckets, &handle, &server.connections.memory)
            {
                indexes.build(&handle, &server.connections.memory);
                indexes.retry(&handle);
            }
        }
        self.forget_deleted();
    }

    fn forget_deleted(&self) {
        let is_gone = |indexes: &BucketIndexes| {
            indexes.bucket.upgrade().is_none_or(|handle| handle.is_deleted())
        };
        let gone: Vec<BucketIndexes> = {
            let mut buckets = self.buckets.lock();
            let ids: Vec<String> = buckets
                .iter()
                .filter(|(_, indexes)| is_gone(indexes))
                .map(|(id, _)| id.clone())
                .collect();
            ids.iter().filter_map(|id| buckets.remove(id)).collect()
        };
        for indexes in gone {
            indexes.end("its bucket was deleted");
        }
    }

    /// Ends the feeds of all buckets, when the server stops.
    pub fn stop(&self) {
        self.is_stopping.store(true, Ordering::Release);
        let all: Vec<BucketIndexes> = self.buckets.lock().drain().map(|(_, one)| one).collect();
        for indexes in all {
            indexes.end("the server stops");
        }
    }

    /// Changes with every change of a definition or a state.
    pub fn version(&self) -> u64 {
        self.changes.load(Ordering::Relaxed).wrapping_add(feed_progress::transitions())
    }

    /// Figures of a bucket's indexes; none if it has no definitions.
    pub fn figures(&self, handle: &BucketHandle) -> Option<IndexFigures> {
        let buckets = self.buckets.lock();
        let indexes = buckets.get(&handle.bucket().config().uuid)?;
        if indexes.stored.is_empty() {
            return None;
        }
        let mut figures = IndexFigures::default();
        for stored in &indexes.stored {
            let state = match indexes.built.get(&stored.id) {
                None => stored.state.as_str(),
                Some(Ok(index)) => {
                    figures.entries += index.entries.entry_count() as u64;
                    index.shown_state().0
                }
                Some(Err(_)) => "offline",
            };
            if let Some(at) = INDEX_STATES.iter().position(|name| *name == state) {
                figures.by_state[at] += 1;
            }
        }
        if let Some(consumer) = &indexes.consumer {
            figures.mutations = consumer.progress.mutations.load(Ordering::Relaxed);
            figures.lag = if consumer.is_feeding() { consumer.progress.lag() } else { 0 };
        }
        debug_assert!(
            figures.by_state.iter().sum::<u64>() <= indexes.stored.len() as u64,
            "an index has one state"
        );
        Some(figures)
    }

    /// The indexes of a bucket, whose definitions are read at the first use.
    fn loaded<'b>(
        &self,
        buckets: &'b mut HashMap<String, BucketIndexes>,
        handle: &Arc<BucketHandle>,
        memory: &Arc<ConnectionMemory>,
    ) -> Result<&'b mut BucketIndexes> {
        let uuid = &handle.bucket().config().uuid;
        if !buckets.contains_key(uuid) {
            let mut indexes = BucketIndexes {
                bucket: Arc::downgrade(handle),
                stored: read(handle)?,
                built: HashMap::new(),
                consumer: None,
            };
            if !self.is_stopping.load(Ordering::Acquire) {
                indexes.build(handle, memory);
            }
            self.changes.fetch_add(1, Ordering::Relaxed);
            buckets.insert(uuid.clone(), indexes);
        }
        Ok(buckets.get_mut(uuid).expect("inserted when it was missing"))
    }
}

fn not_built(name: &str, reason: &str) -> Box<QueryError> {
    let msg = format!("The index {name} was created and is offline: {reason}");
    QueryError::datastore(NOT_BUILT, msg)
}

impl BucketIndexes {
    /// Begins to build defined indexes that memory lacks, and ends those that the definitions no
    /// longer have.
    fn build(&mut self, handle: &Arc<BucketHandle>, memory: &Arc<ConnectionMemory>) {
        let manifest = handle.bucket().manifest();
        let is_wanted = |stored: &&StoredIndex| {
            stored.has_entries() && manifest.contains(CollectionId(stored.collection))
        };
        let wanted: Vec<&StoredIndex> = self.stored.iter().filter(is_wanted).collect();
        let gone = self.built.extract_if(|id, _| !wanted.iter().any(|stored| stored.id == *id));
        for index in gone.filter_map(|(_, built)| built.ok()) {
            let has_collection = manifest.contains(index.collection);
            index.end(if has_collection { "it was dropped" } else { "its collection was dropped" });
            if let Some(consumer) = &self.consumer {
                consumer.remove(index);
            }
        }
        let missing: Vec<&&StoredIndex> =
            wanted.iter().filter(|stored| !self.built.contains_key(&stored.id)).collect();
        if missing.is_empty() {
            return;
        }
        let consumer = self
            .consumer
            .get_or_insert_with(|| FeedConsumer::new(Arc::clone(handle), Arc::clone(memory)));
        let names = keyspaces_of(handle);
        for stored in missing {
            let Some(name) = names.get(&stored.collection) else { continue };
            let built = begin_build(handle, consumer, stored, name);
            if let Err(BuildRejection { reason, .. }) = &built {
                let (bucket, index) = (handle.name(), stored.name.as_str());
                let (collection, state) = (stored.collection, "offline");
                tracing::warn!(bucket, collection, index, state, reason, "an index has no entries");
            }
            self.built.insert(stored.id.clone(), built);
        }
        debug_assert!(
            self.built.keys().all(|id| self.stored.iter().any(|stored| stored.id == *id)),
            "entries are of a definition"
        );
    }

    /// Begins to build the indexes that were refused memory or a thread.
    fn retry(&mut self, handle: &Arc<BucketHandle>) {
        let BucketIndexes { stored, built, consumer: Some(consumer), .. } = self else { return };
        let names = keyspaces_of(handle);
        for (id, rejected) in built.iter_mut() {
            let may_retry = rejected.as_ref().is_err_and(|rejection| rejection.may_retry);
            if may_retry
                && let Some(stored) = stored.iter().find(|stored| stored.id == *id)
                && let Some(name) = names.get(&stored.collection)
            {
                *rejected = begin_build(handle, consumer, stored, name);
            }
        }
    }

    /// Ends the feed and all entries.
    fn end(self, reason: &str) {
        // The feed may be at work on a large document.
        self.built.values().flatten().for_each(|index| index.entries.cancel());
        if let Some(consumer) = &self.consumer {
            consumer.stop();
        }
        self.built.into_values().flatten().for_each(|index| index.end(reason));
    }
}

/// An index whose entries are being made, or why it can have none.
fn begin_build(
    handle: &Arc<BucketHandle>,
    consumer: &Arc<FeedConsumer>,
    stored: &StoredIndex,
    name: &KeyspaceName,
) -> std::result::Result<Arc<FedIndex>, BuildRejection> {
    let definition = stored.definition(name.clone());
    let Some(memory) = IndexReservation::new(handle.bucket(), &definition) else {
        let reason = "the bucket has no memory for it now; it is built when there is some: raise \
                      the quota or drop indexes";
        return Err(BuildRejection { reason: reason.to_owned(), may_retry: true });
    };
    let entries = DocumentIndex::new(definition, Arc::new(memory))
        .map_err(|error| BuildRejection { reason: error.msg.clone(), may_retry: false })?;
    let collection = CollectionId(stored.collection);
    let index = Arc::new(FedIndex::new(collection, entries, Arc::clone(&consumer.progress)));
    consumer.add(Arc::clone(&index)).map_err(|error| {
        let reason = format!("the system has no thread for it now ({error}); it is built then");
        BuildRejection { reason, may_retry: true }
    })?;
    Ok(index)
}
