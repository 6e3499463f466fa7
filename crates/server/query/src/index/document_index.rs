//! An index of the documents of one keyspace.
//!
//! The feed of the store inserts what documents have become; nothing removes what they were. An
//! entry is a candidate: a scan reads the document, and an entry that is not among the document's
//! keys is removed there. So an index needs no way back from documents to entries, and a changed
//! document costs one insertion. `sweep` removes stale entries that no scan meets, when more than
//! half of the entries may be stale.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::datastore::{IndexDefinition, IndexedDocument, Keyspace, KeyspaceIndex, QueryDocument};
use crate::entries::block::IndexEntry;
use crate::entries::memory::EntryMemory;
use crate::entries::sorted::{EntryRange, IndexEntries, IndexFull, IndexSnapshot};
use crate::error::Result;
use crate::memory_budget::MemoryBudget;
use crate::plan::IndexKeys;

use super::encoded_keys::encoded_keys;

/// Fewer stale entries are no reason for a sweep.
const STALE_MIN: usize = 1_024;

/// See the module text.
pub struct DocumentIndex {
    definition: IndexDefinition,
    keys: Arc<IndexKeys>,
    entries: IndexEntries,
    memory: Arc<EntryMemory>,
    /// Entries that changes may have made stale, less those removed.
    stale: AtomicUsize,
}

impl std::fmt::Debug for DocumentIndex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("DocumentIndex").field(&self.definition.name).finish()
    }
}

impl DocumentIndex {
    /// An empty index. A definition that no index can have is 5010.
    pub fn new(
        definition: IndexDefinition,
        memory: Arc<dyn MemoryBudget + Send + Sync>,
    ) -> Result<DocumentIndex> {
        let keys = Arc::new(IndexKeys::compile(&definition)?);
        let memory = EntryMemory::new(memory);
        let entries = IndexEntries::new(memory.clone());
        Ok(DocumentIndex { definition, keys, entries, memory, stale: AtomicUsize::new(0) })
    }

    /// The number of entries, stale ones among them.
    pub fn entry_count(&self) -> usize {
        self.entries.len()
    }

    /// The bytes of all entries as they are allocated.
    pub fn byte_count(&self) -> usize {
        self.memory.used()
    }

    /// Inserts the entries of a document. `replaces` says that the document may have had others.
    /// After an error the index is not complete and has to be cleared.
    pub fn insert(
        &self,
        document: &QueryDocument,
        replaces: bool,
    ) -> std::result::Result<(), IndexFull> {
        let encoded = encoded_keys(&self.keys, &self.definition.keyspace, document);
        let inserted = if encoded.is_empty() {
            usize::from(replaces)
        } else {
            self.entries.insert(&encoded, &document.key)?
        };
        if replaces && inserted > 0 {
            self.stale.fetch_add(inserted, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Counts the entries of a document that was removed.
    pub fn note_removal(&self) {
        self.stale.fetch_add(1, Ordering::Relaxed);
    }

    /// Removes all entries and gives back their memory.
    pub fn clear(&self) {
        self.entries.clear();
        self.stale.store(0, Ordering::Relaxed);
    }

    /// Whether more than half of the entries may be stale.
    pub fn needs_sweep(&self) -> bool {
        let stale = self.stale.load(Ordering::Relaxed);
        stale > STALE_MIN && stale > self.entries.len() / 2
    }

    /// Reads the document of every entry and removes stale entries, until `stop` says so.
    pub fn sweep(&self, keyspace: &dyn Keyspace, stop: &dyn Fn() -> bool) -> Result<()> {
        self.stale.store(0, Ordering::Relaxed);
        let snapshot = self.snapshot(vec![EntryRange::default()]);
        snapshot.each(false, &mut |entry| {
            if stop() {
                return Ok(false);
            }
            self.read(entry, keyspace)?;
            Ok(true)
        })
    }
}

impl KeyspaceIndex for DocumentIndex {
    fn definition(&self) -> &IndexDefinition {
        &self.definition
    }

    fn keys(&self) -> Arc<dyn Any + Send + Sync> {
        self.keys.clone()
    }

    fn snapshot(&self, ranges: Vec<EntryRange>) -> IndexSnapshot {
        self.entries.snapshot(ranges)
    }

    fn read(
        &self,
        entry: IndexEntry<'_>,
        keyspace: &dyn Keyspace,
    ) -> Result<Option<IndexedDocument>> {
        let stamp = self.entries.stamp(entry.document_key());
        let document = keyspace.get(entry.document_key())?;
        let encoded = document
            .as_ref()
            .map(|document| encoded_keys(&self.keys, &self.definition.keyspace, document));
        let is_current = |encoded: &Vec<Vec<u8>>| {
            encoded.binary_search_by(|one| (**one).cmp(entry.encoded())).is_ok()
        };
        if !encoded.as_ref().is_some_and(is_current) && self.entries.remove(entry, stamp) {
            let less = |stale: usize| Some(stale.saturating_sub(1));
            let _ = self.stale.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        }
        Ok(document.zip(encoded))
    }
}
