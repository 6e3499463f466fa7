//! Documents that a stream shows in a row.
//!
//! Owns: the run, and how a stream passes over it. A reader that sends many changes takes runs, and
//! asks [`VbucketDcpStream::next`] for what is between them: markers, events, the first change of a
//! backfill, and ends. Readers of one scan get the same records by reference, so what a reader
//! makes of a part of the backfill, such as its messages, can serve the others too:
//! [`BackfillPart::made_once`]. Items of the queue are read where they are, without counting a
//! reference, and their memory is loaded some items ahead.

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;

use oribi_storage::Record;
use oribi_types::{CollectionId, Seqno};

use super::VbucketDcpStream;
use super::filter::FilterState;
use super::source::{BackfillReader, SnapshotBatch, StreamSource, document_of};
use super::step::ChangedDocument;
use crate::backfill::BackfillChunk;
use crate::checkpoint::{BatchGuard, ITEMS_AHEAD};
use crate::item::ItemRef;
use crate::prefetch::{load_line, load_lines};
use crate::record;

/// The item that is sent after this many others is being loaded: as long as a miss takes, with a
/// copy of half a kibibyte for each. Of a long one only the first bytes are loaded; the processor
/// loads the rest when it sees them being copied. Headers, which tell how long an item is, are
/// loaded earlier.
const SENT_AHEAD: usize = 4;
const SENT_AHEAD_BYTES_MAX: usize = 1024;
const HEADERS_AHEAD: usize = SENT_AHEAD + ITEMS_AHEAD;
const _: () = assert!(SENT_AHEAD < HEADERS_AHEAD, "a header is loaded before its value");

/// See the module text.
pub struct StreamRun<'a> {
    content: Content<'a>,
}

enum Content<'a> {
    Part(BackfillPart<'a>),
    Queued(QueuedRun<'a>),
}

/// A run of a backfill.
pub struct BackfillPart<'a> {
    chunk: &'a Arc<BackfillChunk>,
    range: Range<usize>,
}

/// A run of the queue.
struct QueuedRun<'a> {
    items: BatchGuard<'a>,
    filter: &'a FilterState,
    behind: Seqno,
    changes_max: usize,
}

impl StreamRun<'_> {
    /// Its documents: one at least.
    pub fn documents(&self) -> impl Iterator<Item = ChangedDocument<'_>> {
        let (mut part, mut queued) = match &self.content {
            Content::Part(part) => (Some(part.documents()), None),
            Content::Queued(queued) => (None, Some(queued.documents())),
        };
        std::iter::from_fn(move || match &mut queued {
            Some(queued) => queued.next(),
            None => part.as_mut()?.next(),
        })
    }

    /// Where it is in a part of a backfill; `None` if it is of the queue.
    pub fn part(&self) -> Option<&BackfillPart<'_>> {
        match &self.content {
            Content::Part(part) => Some(part),
            Content::Queued(_) => None,
        }
    }
}

impl BackfillPart<'_> {
    /// Where the changes of the run are in their part.
    pub fn range(&self) -> Range<usize> {
        self.range.clone()
    }

    /// Number of changes of the whole part.
    pub fn whole_len(&self) -> usize {
        self.chunk.len()
    }

    /// A change of the part, in the run or not; `None` for an event.
    pub fn document(&self, index: usize) -> Option<ChangedDocument<'_>> {
        document_of(self.chunk, index).filter(|document| is_document(&document.record))
    }

    fn documents(&self) -> impl Iterator<Item = ChangedDocument<'_>> {
        self.range().map_while(|index| self.document(index))
    }

    /// The result of `make` for the part, with its bytes of memory. `make` is called by the first
    /// stream of the scan that asks, and the others get the same. `None` if that is of another
    /// type, if there is no other stream, or the part is in memory anyway.
    pub fn made_once<T: Any + Send + Sync>(
        &self,
        make: impl FnOnce() -> (T, usize),
    ) -> Option<Arc<T>> {
        self.chunk.kept(make)
    }
}

impl QueuedRun<'_> {
    fn documents(&self) -> impl Iterator<Item = ChangedDocument<'_>> {
        let items = || self.items.items_after(self.behind);
        let (mut headers, mut values) = (items(), items());
        headers.by_ref().take(HEADERS_AHEAD).for_each(|item| load_line(item.address()));
        values.by_ref().take(SENT_AHEAD).for_each(load_item);
        let shown = items().filter_map(move |item| {
            headers.next().into_iter().for_each(|next| load_line(next.address()));
            values.next().into_iter().for_each(load_item);
            let record = record::of(item);
            let is_shown = self.filter.shows(&record);
            is_shown.then_some(ChangedDocument { record, item: Some(item), copied: None })
        });
        shown.take(self.changes_max)
    }
}

impl VbucketDcpStream {
    /// The documents that come next, `changes_max` at most. They stay next until
    /// [`VbucketDcpStream::pass_run`]. `None` when [`VbucketDcpStream::next`] has to be asked.
    pub fn next_run(&self, changes_max: usize) -> Option<StreamRun<'_>> {
        if self.is_over || self.ending.is_some() || !self.is_current() || changes_max == 0 {
            return None;
        }
        let content = match &self.source {
            StreamSource::Backfill(reading) => {
                Content::Part(self.run_of_part(reading, changes_max)?)
            }
            StreamSource::Memory(Some(SnapshotBatch {
                marker: None,
                is_event: false,
                read,
                at,
                last,
                ..
            })) if at < last => {
                let (items, filter, behind) = (read.hold()?, &self.filter, *at);
                Content::Queued(QueuedRun { items, filter, behind, changes_max })
            }
            StreamSource::Memory(_) => return None,
        };
        Some(StreamRun { content })
    }

    fn run_of_part<'a>(
        &self,
        reading: &'a BackfillReader,
        changes_max: usize,
    ) -> Option<BackfillPart<'a>> {
        debug_assert!(changes_max > 0, "a run has a change");
        let BackfillReader { chunk: Some(chunk), passed: None, announced: Some(_), at, .. } =
            reading
        else {
            return None;
        };
        let manifest = self.bucket.core().collections().in_force().load();
        let end = chunk.len().min(at.saturating_add(changes_max));
        let is_behind = |index| chunk.record(index).is_some_and(|it| it.seqno > self.read_to);
        // Seqnos ascend, so one look decides about records of one collection.
        let shows_all = chunk.collection().is_some_and(|collection| {
            collection != CollectionId::SYSTEM
                && collection != CollectionId::PREPARES
                && !manifest.has_dropped(collection)
                && self.filter.shows_all_of(collection)
                && is_behind(*at)
        });
        let is_shown = |index: &usize| {
            chunk.record(*index).is_some_and(|record| {
                record.seqno > self.read_to
                    && is_document(&record)
                    && record.key.collection != CollectionId::PREPARES
                    && !manifest.has_dropped(record.key.collection)
                    && self.filter.shows(&record)
            })
        };
        let changes = match shows_all {
            true => end - *at,
            false => (*at..end).take_while(is_shown).count(),
        };
        debug_assert!(*at + changes <= chunk.len(), "a run ends inside its part");
        debug_assert!(changes <= changes_max, "a run has at most the requested changes");
        (changes > 0).then_some(BackfillPart { chunk, range: *at..*at + changes })
    }

    /// Notes that the first `changes` of the run were sent, one at least. `last` is the seqno of
    /// the last of them.
    pub fn pass_run(&mut self, changes: usize, last: Seqno) {
        assert!(last >= self.read_to, "seqnos of a stream ascend");
        debug_assert!(changes > 0, "a run has one change at least");
        match &mut self.source {
            StreamSource::Backfill(reading) => {
                reading.at += changes;
                self.progress.backfill_sent += changes as u64;
                let sent = reading.current();
                debug_assert!(
                    sent.is_some_and(|sent| sent.record.seqno == last),
                    "the last of the run"
                );
                reading.release_passed();
            }
            StreamSource::Memory(Some(batch)) => {
                debug_assert!(
                    batch.at < last && last <= batch.last,
                    "a run is inside its snapshot"
                );
                (batch.at, batch.current) = (last, None);
                self.progress.memory_sent += changes as u64;
            }
            StreamSource::Memory(None) => {}
        }
        self.read_to = last;
        self.progress.last_sent = last;
        self.finish_batch();
    }

    /// True when the stream has sent, in a run, everything that the queue had at the last read. The
    /// sink is not called for later changes, so the reader polls by itself, or now until
    /// [`VbucketDcpStream::next`] is idle. Until then the queue keeps the changes of the run.
    pub fn has_caught_up(&self) -> bool {
        let is_between = matches!(self.source, StreamSource::Memory(None)) && self.ending.is_none();
        is_between && self.has_caught_up && !self.is_over && !self.is_at_its_end()
    }
}

/// True for a document or its tombstone.
pub(super) fn is_document(record: &Record<'_>) -> bool {
    record.key.collection != CollectionId::SYSTEM
}

fn load_item(item: &ItemRef) {
    load_lines(item.address(), item.block_bytes().min(SENT_AHEAD_BYTES_MAX));
}
