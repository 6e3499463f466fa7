//! An index of the documents of one keyspace.
//!
//! The feed of the store inserts entries for new versions; nothing removes those of old ones. An
//! entry is a candidate: a scan reads the document, and an entry that is not among the document's
//! keys is removed there. So an index needs no way back from documents to entries, and a changed
//! document costs one insertion. `sweep` removes stale entries that no scan meets, when more than
//! half of the entries may be stale.
//!
//! A document whose keys take too much work is rejected, and the index is not complete then: its
//! owner has to take it out of use.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::datastore::{IndexDefinition, IndexedDocument, Keyspace, KeyspaceIndex, QueryDocument};
use crate::entries::block::IndexEntry;
use crate::entries::memory::EntryMemory;
use crate::entries::sorted::{EntryRange, IndexEntries, IndexSnapshot};
use crate::error::{QueryError, Result};
use crate::memory_budget::MemoryBudget;
use crate::plan::IndexKeys;

use super::encoded_keys::{
    DocumentLimit, EvaluationLimits, IndexableDocument, InsertRejection, encoded_keys,
};

/// Code of an index that a statement cannot use now.
const NOT_USABLE: u32 = 12015;

/// Fewer stale entries are no reason for a sweep.
const STALE_MIN: usize = 1_024;

/// More stale entries than there are, without an overflow when some are added.
const STALE_ALL: usize = usize::MAX / 2;

const _: () = assert!(STALE_MIN < STALE_ALL);

/// See the module text.
pub struct DocumentIndex {
    definition: IndexDefinition,
    keys: Arc<IndexKeys>,
    entries: IndexEntries,
    memory: Arc<EntryMemory>,
    /// Entries that changes may have made stale, less those removed.
    stale: AtomicUsize,
    is_cancelled: AtomicBool,
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
        let (stale, is_cancelled) = (AtomicUsize::new(0), AtomicBool::new(false));
        Ok(DocumentIndex { definition, keys, entries, memory, stale, is_cancelled })
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
    /// After an error the document may lack entries: the index is complete once the same call
    /// succeeds, and has to be cleared if it never does.
    pub fn insert(
        &self,
        document: &IndexableDocument<'_>,
        replaces: bool,
    ) -> std::result::Result<(), InsertRejection> {
        let encoded = self.keys_of(document, self.memory.budget(), Some(&self.is_cancelled))?;
        let inserted = if encoded.is_empty() {
            usize::from(replaces)
        } else {
            let inserted = self.entries.insert(&encoded, document.key());
            inserted.map_err(|_| InsertRejection::Full)?
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

    fn keys_of(
        &self,
        document: &IndexableDocument<'_>,
        memory: &dyn MemoryBudget,
        cancelled: Option<&AtomicBool>,
    ) -> std::result::Result<Vec<Vec<u8>>, InsertRejection> {
        let limits = EvaluationLimits { memory, cancelled };
        encoded_keys(&self.keys, &self.definition.keyspace, document, &limits)
    }

    /// Ends insertions, also one under way. Statements still read entries.
    pub fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::Relaxed);
    }

    /// Removes all entries and gives back their memory.
    pub fn clear(&self) {
        self.entries.clear();
        self.stale.store(0, Ordering::Relaxed);
    }

    /// Lets the next question for a sweep be answered with yes.
    pub fn request_sweep(&self) {
        self.stale.store(STALE_ALL, Ordering::Relaxed);
    }

    /// Whether some entries may be stale.
    pub fn may_have_stale(&self) -> bool {
        self.stale.load(Ordering::Relaxed) > 0
    }

    /// Whether more than half of the entries may be stale.
    pub fn needs_sweep(&self) -> bool {
        let stale = self.stale.load(Ordering::Relaxed);
        stale > STALE_MIN && stale > self.entries.len() / 2
    }

    /// Reads the document of every entry and removes stale entries, until `stop` says so.
    pub fn sweep(&self, keyspace: &dyn Keyspace, stop: &dyn Fn() -> bool) {
        let mut from = Vec::new();
        while !stop() {
            match self.sweep_block(&from, keyspace, &|| false) {
                Some(next) => {
                    debug_assert!(next > from, "a sweep goes forward");
                    from = next;
                }
                None => break,
            }
        }
    }

    /// Reads the documents of some hundred entries from `from` on and removes stale entries. An
    /// entry whose document cannot be read stays. Answers where the next ones begin; none after the
    /// last. A sweep begins with no bytes. `is_over`, asked after each entry, ends it earlier.
    pub fn sweep_block(
        &self,
        from: &[u8],
        keyspace: &dyn Keyspace,
        is_over: &dyn Fn() -> bool,
    ) -> Option<Vec<u8>> {
        if from.is_empty() {
            self.stale.store(0, Ordering::Relaxed);
        }
        let block = self.entries.block_at(from);
        for (bytes, key_length) in &block.entries {
            let _ = self.read_entry(IndexEntry::new(bytes, *key_length), keyspace);
            if is_over() {
                // The first bytes after this entry.
                return Some([bytes, &[0][..]].concat());
            }
        }
        block.next
    }

    /// The encoded keys of a document's entries.
    pub fn entries_of(&self, document: &QueryDocument) -> Vec<Vec<u8>> {
        self.keys_of(&document.into(), &DocumentLimit, None).unwrap_or_default()
    }

    /// All entries as they are now, stale ones among them: encoded keys and the document's key.
    pub fn all_entries(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut all = Vec::new();
        let visited: std::result::Result<(), std::convert::Infallible> =
            self.entries.snapshot(vec![EntryRange::default()]).each(false, &mut |entry| {
                all.push((entry.encoded().to_vec(), entry.document_key().to_vec()));
                Ok(true)
            });
        match visited {
            Ok(()) => all,
            Err(never) => match never {},
        }
    }

    /// The compiled keys, of a type that only the planner knows.
    pub fn compiled_keys(&self) -> Arc<dyn Any + Send + Sync> {
        self.keys.clone()
    }

    /// The entries of ranges as they are now.
    pub fn entries_in(&self, ranges: Vec<EntryRange>) -> IndexSnapshot {
        self.entries.snapshot(ranges)
    }

    /// The document of an entry as it is now. A stale entry is removed. An error with `retry` if
    /// the keys of the document cannot be computed now.
    pub fn read_entry(
        &self,
        entry: IndexEntry<'_>,
        keyspace: &dyn Keyspace,
    ) -> Result<Option<IndexedDocument>> {
        let stamp = self.entries.stamp(entry.document_key());
        let document = keyspace.get(entry.document_key())?;
        let encoded = document
            .as_ref()
            .map(|document| self.keys_of(&document.into(), &DocumentLimit, None))
            .transpose();
        let encoded = encoded.map_err(|rejection| self.unreadable(rejection))?;
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

impl DocumentIndex {
    fn unreadable(&self, rejection: InsertRejection) -> Box<QueryError> {
        let why = match rejection {
            InsertRejection::Full | InsertRejection::Cancelled => "memory is short",
            InsertRejection::TooCostly => "they take too much work or memory",
        };
        let name = &self.definition.name;
        let msg = format!(
            "The keys of a document in the index {name} cannot be computed now, because {why}; run \
             the statement again"
        );
        let mut error = QueryError::datastore(NOT_USABLE, msg);
        error.retry = true;
        error
    }
}

impl KeyspaceIndex for DocumentIndex {
    fn definition(&self) -> &IndexDefinition {
        &self.definition
    }

    fn keys(&self) -> Arc<dyn Any + Send + Sync> {
        self.compiled_keys()
    }

    fn snapshot(&self, ranges: Vec<EntryRange>) -> Result<IndexSnapshot> {
        Ok(self.entries_in(ranges))
    }

    fn read(
        &self,
        entry: IndexEntry<'_>,
        keyspace: &dyn Keyspace,
    ) -> Result<Option<IndexedDocument>> {
        self.read_entry(entry, keyspace)
    }
}
