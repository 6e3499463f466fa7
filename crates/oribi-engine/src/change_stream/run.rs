//! Documents that a stream shows in a row.
//!
//! Owns: the run, and how a stream passes over it. A reader that sends many changes takes runs, and
//! asks [`ChangeStream::next`] for what is between them: markers, events, the first change of a
//! backfill, and ends. Readers of one scan get the same records by reference, so what a reader
//! makes of a part of the backfill, such as its messages, can serve the others too:
//! [`Run::made_once`].

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;

use oribi_storage::Record;
use oribi_types::CollectionId;

use super::ChangeStream;
use super::source::{Batch, Reading, Source};
use super::step::ChangedDocument;
use crate::backfill::Chunk;
use crate::item::ItemRef;
use crate::record;

/// See the module text.
pub struct Run<'a> {
    content: Content<'a>,
    range: Range<usize>,
}

enum Content<'a> {
    Part(&'a Arc<Chunk>),
    Queued(&'a [ItemRef]),
}

impl Run<'_> {
    /// Where its changes are in their part of the backfill, or of the queue.
    pub fn range(&self) -> Range<usize> {
        self.range.clone()
    }

    /// Number of changes of the part.
    pub fn part_len(&self) -> usize {
        match &self.content {
            Content::Part(chunk) => chunk.len(),
            Content::Queued(items) => items.len(),
        }
    }

    /// A change of the part, in the run or not; `None` for an event.
    pub fn document(&self, index: usize) -> Option<ChangedDocument<'_>> {
        let (record, item) = match &self.content {
            Content::Part(chunk) => (chunk.record(index)?, chunk.item(index)),
            Content::Queued(items) => {
                Batch::load_ahead(items, index + 1);
                let item = items.get(index)?;
                (record::of(item), Some(item))
            }
        };
        is_document(&record).then_some(ChangedDocument { record, item })
    }

    /// What `make` returns for a part of a backfill, with its bytes of memory. It is called by the
    /// first stream of the scan that asks, and the others get the same. `None` if that is of
    /// another type, if there is no other stream, or the part is in memory anyway.
    pub fn made_once<T: Any + Send + Sync>(
        &self,
        make: impl FnOnce() -> (T, usize),
    ) -> Option<Arc<T>> {
        match &self.content {
            Content::Part(chunk) => chunk.kept(make),
            Content::Queued(_) => None,
        }
    }
}

impl ChangeStream {
    /// The documents that come next, `changes_max` at most. They stay next until
    /// [`ChangeStream::pass_run`]. `None` when [`ChangeStream::next`] has to be asked.
    pub fn next_run(&self, changes_max: usize) -> Option<Run<'_>> {
        if self.is_over || self.ending.is_some() || !self.is_current() {
            return None;
        }
        let run = match &self.source {
            Source::Backfill(reading) => self.run_of_part(reading, changes_max),
            // Its items are not looked at before their turn: that would wait for each to be loaded.
            Source::Memory(Some(Batch { marker: None, has_event: false, items, .. })) => {
                let items = items.as_slice();
                Some(Run {
                    content: Content::Queued(items),
                    range: 0..items.len().min(changes_max),
                })
            }
            Source::Memory(_) => None,
        };
        run.filter(|run| !run.range.is_empty())
    }

    fn run_of_part<'a>(&self, reading: &'a Reading, changes_max: usize) -> Option<Run<'a>> {
        let Reading { chunk: Some(chunk), passed: None, announced: Some(_), at, .. } = reading
        else {
            return None;
        };
        let manifest = self.bucket.core().collections().in_force().load();
        let end = chunk.len().min(at.saturating_add(changes_max));
        let is_behind = |index| chunk.record(index).is_some_and(|it| it.seqno > self.read_to);
        // Seqnos ascend, so one look decides about records of one collection.
        let shows_all = chunk.collection().is_some_and(|collection| {
            collection != CollectionId::SYSTEM
                && !manifest.has_dropped(collection)
                && self.filter.shows_all_of(collection, &manifest)
                && is_behind(*at)
        });
        let is_shown = |index: &usize| {
            chunk.record(*index).is_some_and(|record| {
                record.seqno > self.read_to
                    && is_document(&record)
                    && !manifest.has_dropped(record.key.collection)
                    && self.filter.shows(&record, &manifest)
            })
        };
        let changes = match shows_all {
            true => end - *at,
            false => (*at..end).take_while(is_shown).count(),
        };
        Some(Run { content: Content::Part(chunk), range: *at..*at + changes })
    }

    /// Notes that the first changes of the run, at most as many as it has, were sent.
    pub fn pass_run(&mut self, changes: usize) {
        let last = match &mut self.source {
            Source::Backfill(reading) => {
                reading.at += changes;
                self.progress.backfill_sent += changes as u64;
                reading.current().map(|(record, _)| record.seqno)
            }
            Source::Memory(Some(batch)) => {
                self.progress.memory_sent += changes as u64;
                batch.pass(changes)
            }
            Source::Memory(None) => None,
        };
        self.read_to = last.unwrap_or(self.read_to);
        self.progress.last_sent = self.read_to;
        self.finish_batch();
    }

    /// True when everything was sent that the queue had when it was last read, in a run. The sink
    /// is not called for what comes next, so the reader asks again by itself, or now until
    /// [`ChangeStream::next`] is idle. Until then the queue keeps what was read.
    pub fn has_caught_up(&self) -> bool {
        let is_between = matches!(self.source, Source::Memory(None)) && self.ending.is_none();
        is_between && self.has_caught_up && !self.is_over && !self.is_at_its_end()
    }
}

/// True for a document or its tombstone.
pub(super) fn is_document(record: &Record<'_>) -> bool {
    record.key.collection != CollectionId::SYSTEM
}
