//! The side of a stream that reads recent mutations from the queue.
//!
//! Owns: the snapshot that is being sent. One read of the queue is one snapshot. Its marker ends at
//! the last change that the filter shows, so nothing is sent for a read that shows nothing.

use oribi_types::{Seqno, Timestamp};

use super::ChangeStream;
use super::filter::Shown;
use super::run::is_document;
use super::source::{Batch, Source, Turn};
use crate::change_stream::step::{EndReason, SnapshotMarker, SnapshotSource};
use crate::checkpoint::StreamBatch;
use crate::planted::{self, Bug};
use crate::record;
use crate::vbucket::StreamRead;

impl ChangeStream {
    pub(super) fn turn_memory(&mut self) -> Turn {
        let Source::Memory(Some(batch)) = &mut self.source else { return self.read_queue() };
        if let Some(marker) = batch.marker.take() {
            return Turn::Marker(marker);
        }
        if let Some(item) = batch.advance() {
            self.read_to = item.seqno();
            self.progress.last_sent = self.read_to;
            self.progress.memory_sent += 1;
            return Turn::Change;
        }
        self.finish_batch();
        Turn::Again
    }

    /// Notes that all of the snapshot was sent, if so.
    pub(super) fn finish_batch(&mut self) {
        let Source::Memory(Some(batch)) = &self.source else { return };
        if batch.marker.is_some() || !batch.items.as_slice().is_empty() {
            return;
        }
        self.read_to = batch.end;
        self.has_caught_up = batch.is_rest;
        if batch.is_last {
            self.ending = Some(EndReason::FilterEmpty);
        }
        self.source = Source::Memory(None);
    }

    fn read_queue(&mut self) -> Turn {
        if self.is_at_its_end() {
            return self.end(EndReason::Ok);
        }
        let context = self.bucket.core().context(Timestamp::default());
        let read = match self.cursor {
            Some(cursor) => self.vbucket().read_stream(&context, cursor),
            None => StreamRead::Dropped,
        };
        match read {
            StreamRead::Batch(batch) => self.load(batch),
            StreamRead::Idle => return Turn::Idle,
            StreamRead::Dropped => {
                self.progress.cursors_dropped += u64::from(self.cursor.is_some());
                self.cursor = None;
                if planted::has(Bug::ForgetsWhatADroppedCursorHeld) {
                    self.read_to = self.vbucket().high_seqno();
                }
                self.register();
            }
            StreamRead::Ended => return self.end(EndReason::StateChanged),
        }
        Turn::Again
    }

    /// Picks what the filter shows of a snapshot, behind what a backfill has sent of it already.
    fn load(&mut self, read: StreamBatch) {
        let manifest = self.bucket.core().collections().in_force().load();
        let is_rest = read.is_rest();
        self.has_caught_up = false;
        let (read_to, mut is_last, mut has_event) = (self.read_to, false, false);
        let (end, begins_checkpoint) = (read.end().max(read_to), read.begins_checkpoint());
        // Taking the references has brought the headers into the processor's cache.
        let mut items = read.into_items();
        items.retain(|item| {
            let is_sent = item.seqno() <= read_to && !planted::has(Bug::RepeatsWhatABackfillSent);
            if is_sent || is_last {
                return false;
            }
            let record = record::of(item);
            has_event |= !is_document(&record);
            let shown = self.filter.pass(&record, &manifest);
            is_last = shown == Shown::Last;
            shown != Shown::No
        });
        let Some(last) = items.last() else {
            self.read_to = end;
            return;
        };
        Batch::load_first(&items);
        let is_first = self.progress.markers == 0;
        let ahead = u64::from(planted::has(Bug::AnnouncesTooMuch));
        let marker = SnapshotMarker {
            // A reader that has to go back to it gets what the snapshot has left out.
            start: if is_first { self.opening.snapshot.0 } else { self.read_to },
            end: Seqno(last.seqno().0 + ahead),
            source: SnapshotSource::Memory,
            is_checkpoint: is_first || begins_checkpoint,
            purge_seqno: self.vbucket().purge_seqno(),
        };
        let items = items.into_iter();
        let marker = Some(marker);
        let batch = Batch { marker, items, has_event, current: None, end, is_rest, is_last };
        self.source = Source::Memory(Some(batch));
    }
}
