//! Bringing versions back from the store into a vbucket's memory.
//!
//! Owns: the state that a fetch notes before it reads, and the rules of installing its result. A
//! value is installed if its evicted version is still there. Under an absent key the document or
//! its stored tombstone is installed. If the store has neither, the fetch installs a marker of
//! absence: a tombstone with seqno 0, which the operation finds when it runs again.
//!
//! The result may be stale: the key may have been written, flushed and evicted again since. Every
//! version that leaves the table raises `max_removed_seqno`; if that is above the seqno at which
//! the read began, the store is read again.

use oribi_types::{Cas, DocKey, RevSeqno, Seqno};

use super::VBucket;
use super::context::Context;
use super::table::VbucketTable;
use crate::checkpoint::StreamWaker;
use crate::hash_table::{GroupMemory, KeyHash};
use crate::item::{ItemFields, ItemRef, NewItem};

/// How the install of a record ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum InstallOutcome {
    /// The operation can be tried again.
    Done,
    /// The record is stale; the store has to be read again.
    Overtaken,
    /// The store does not have the version that memory has evicted.
    Differs,
}

/// State of the vbucket when a read of the store began.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FetchBegun {
    high_seqno: Seqno,
    incarnation: u64,
}

impl VBucket {
    /// The argument for [`VBucket::install`], or `None` when nothing has to be read for `key`.
    pub(crate) fn begin_fetch(&self, key: DocKey<'_>) -> Option<FetchBegun> {
        let table = self.table.lock();
        // Nothing is installed before ownership begins: it begins with an empty table.
        if !self.is_serving() && !self.is_replica() {
            return None;
        }
        let hash = self.table.seed().hash(key);
        let is_missing = match table.index.get(hash, key) {
            // A dense value that is damaged is in the store as well.
            Some(item) => item.is_in_store_only() || item.is_dense() && item.to_plain().is_err(),
            None => self.may_be_in_store_only(&table),
        };
        let incarnation = self.incarnation();
        // A pending version enters the table later than its seqno says.
        let visible = |high: Seqno| table.pending.before(hash).map_or(high, |at| at.min(high));
        is_missing.then(|| FetchBegun { high_seqno: visible(self.high_seqno()), incarnation })
    }

    /// True when a read of the document would need a fetch first. Only a hint, for asking ahead.
    pub fn needs_fetch(&self, context: &Context<'_>, key: DocKey<'_>) -> bool {
        let table = self.table.lock();
        let now_s = context.now.unix_s();
        match table.index.get(self.table.seed().hash(key), key) {
            Some(item) => item.is_in_store_only() && item.is_live(now_s),
            None => {
                let is_uncertain = self.is_absence_uncertain();
                drop(table);
                is_uncertain && context.memory.may_be_stored(self.id, key)
            }
        }
    }

    /// Installs what a fetch that began at `begun` read under `key`; `None` when the store has
    /// nothing.
    pub(crate) fn install(
        &self,
        context: &Context<'_>,
        key: DocKey<'_>,
        begun: FetchBegun,
        fetched: Option<ItemRef>,
    ) -> InstallOutcome {
        let hash = self.table.seed().hash(key);
        let item = fetched.unwrap_or_else(|| absence_marker(key));
        debug_assert!(item.has_key(key), "the store returns the record of the key");
        let garbage = {
            let mut table = self.table.lock();
            if self.incarnation() != begun.incarnation || !context.knows(key.collection) {
                return InstallOutcome::Done;
            }
            if table.pending.has_version(hash, item.seqno()) {
                let (garbage, streams) = self.commit_stored(&mut table, hash);
                drop(table);
                drop((garbage, item));
                streams.iter().for_each(StreamWaker::wake);
                self.report_memory(context);
                return InstallOutcome::Done;
            }
            let begun = begun.high_seqno;
            match table.index.locate(hash, key) {
                Some(place) => {
                    let current = table.index.at(place).filter(|current| current.is_evicted());
                    let Some(current) = current else { return InstallOutcome::Done };
                    let is_same = current.seqno() == item.seqno() && current.cas() == item.cas();
                    if !is_same || item.is_deleted() {
                        let is_newer = current.seqno() > begun;
                        return if is_newer {
                            InstallOutcome::Overtaken
                        } else {
                            InstallOutcome::Differs
                        };
                    }
                    debug_assert!(!item.is_evicted(), "a fetch brings the value");
                    (Some(table.substitute(hash, place, item)), Vec::new())
                }
                None if !self.may_be_in_store_only(&table) => return InstallOutcome::Done,
                None if table.max_removed_seqno() > begun => return InstallOutcome::Overtaken,
                // All documents are in the table, so this one has been deleted since.
                None if !item.is_deleted() && !self.is_absence_uncertain() => {
                    return InstallOutcome::Overtaken;
                }
                None => (None, self.install_absent(&mut table, hash, item)),
            }
        };
        drop(garbage);
        self.report_memory(context);
        InstallOutcome::Done
    }

    fn install_absent(
        &self,
        table: &mut VbucketTable,
        hash: KeyHash,
        item: ItemRef,
    ) -> Vec<GroupMemory> {
        table.install(hash, item, self.is_loading());
        table.index.take_retired()
    }
}

/// Says that the store has neither a document nor a tombstone under a key.
fn absence_marker(key: DocKey<'_>) -> ItemRef {
    let fields = ItemFields { deleted: true, ..ItemFields::default() };
    let mut new = NewItem::new(key, fields, &[]);
    new.set_version(Cas(0), Seqno(0), RevSeqno(0));
    debug_assert!(is_absence_marker(new.as_item()), "a marker of absence is a tombstone");
    new.publish()
}

/// True for what [`absence_marker`] makes.
pub(super) fn is_absence_marker(item: &ItemRef) -> bool {
    item.is_deleted() && item.seqno() == Seqno(0)
}
