//! The side of a stream that reads recent mutations from the queue.
//!
//! Owns: the snapshot that is being sent. One read of the queue is one snapshot. Its marker ends at
//! the last change that the filter shows, so nothing is sent for a read that shows nothing. The
//! rest of a snapshot may leave the queue when memory is short. Then the stream continues as if it
//! were new, from what it has sent.

use oribi_types::{Seqno, Timestamp};

use super::VbucketDcpStream;
use super::filter::Visibility;
use super::run::is_document;
use super::source::{SnapshotBatch, StreamSource, StreamTurn};
use super::step::{SnapshotSource, StreamEndReason, StreamMarker};
use crate::checkpoint::StreamBatch;
use crate::item::ItemRef;
use crate::record;
use crate::vbucket::StreamRead;

impl VbucketDcpStream {
    pub(super) fn turn_memory(&mut self) -> StreamTurn {
        let StreamSource::Memory(Some(batch)) = &mut self.source else { return self.read_queue() };
        if batch.is_sent() {
            self.finish_batch();
            return StreamTurn::Again;
        }
        let SnapshotBatch { marker, read, at, last, is_event, current, .. } = batch;
        let Some(held) = read.hold() else {
            // Memory recovery took the cursor, and the rest of the snapshot has left with it.
            self.set_source(StreamSource::Memory(None));
            return StreamTurn::Again;
        };
        if let Some(marker) = marker.take() {
            return StreamTurn::Marker(marker);
        }
        let is_shown = |item: &&ItemRef| *is_event || self.filter.shows(&record::of(item));
        let Some(item) = held.items_after(*at).find(is_shown) else {
            debug_assert!(false, "the last change of a snapshot is shown");
            *at = *last;
            return StreamTurn::Again;
        };
        *at = item.seqno();
        debug_assert!(self.read_to < *at, "seqnos of a stream ascend");
        debug_assert!(*at <= *last, "a snapshot ends with the last change that is shown");
        *current = Some(item.clone());
        self.read_to = *at;
        self.progress.last_sent = *at;
        self.progress.memory_sent += 1;
        StreamTurn::Change
    }

    /// Notes that all of the snapshot was sent, if so. The last step of
    /// [`VbucketDcpStream::next`] stays until its next call.
    pub(super) fn finish_batch(&mut self) {
        let StreamSource::Memory(Some(batch)) = &self.source else { return };
        if !batch.is_sent() {
            return;
        }
        let (end, is_rest, is_last) = (batch.read.end(), batch.read.is_rest(), batch.is_last);
        debug_assert!(batch.last <= end, "a snapshot shows what it has read");
        self.pass_whole(end);
        self.has_caught_up = is_rest;
        if is_last {
            self.ending = Some(StreamEndReason::FilterEmpty);
        }
        self.set_source(StreamSource::Memory(None));
    }

    /// Notes that the reader has everything up to `end`.
    pub(super) fn pass_whole(&mut self, end: Seqno) {
        self.read_to = self.read_to.max(end);
        self.whole_to = self.read_to;
        assert!(self.whole_to >= end, "the reader has the whole state at the end of a snapshot");
    }

    fn read_queue(&mut self) -> StreamTurn {
        // The rest of a snapshot that was cut short comes first, although the end is inside of it.
        if self.is_at_its_end() && self.whole_to >= self.read_to {
            return self.end(StreamEndReason::Ok);
        }
        let context = self.bucket.core().context(Timestamp::default());
        let read = match self.cursor {
            Some(cursor) => self.vbucket().read_stream(&context, cursor),
            None => StreamRead::Dropped,
        };
        match read {
            StreamRead::Batch(batch) => self.load(batch),
            StreamRead::Idle => return StreamTurn::Idle,
            StreamRead::Dropped => {
                self.progress.cursors_dropped += u64::from(self.cursor.is_some());
                self.cursor = None;
                self.register();
            }
            StreamRead::Ended => return self.end(StreamEndReason::StateChanged),
        }
        StreamTurn::Again
    }

    /// Begins a snapshot after the changes of it that a backfill has sent.
    fn load(&mut self, read: StreamBatch) {
        self.has_caught_up = false;
        self.filter.adopt(&self.bucket.core().collections().in_force().load());
        // Its checkpoint may have left already; the next read finds that the cursor has, too.
        let Some(held) = read.hold() else { return };
        let at = read.from().max(self.read_to);
        let first = held.items_after(at).next().map(record::of);
        let event = first.filter(|record| !is_document(record));
        let (is_event, mut is_last) = (event.is_some(), false);
        let last = match event {
            Some(record) => {
                let shown = self.filter.pass(&record);
                is_last = shown == Visibility::Last;
                (shown != Visibility::No).then_some(record.seqno)
            }
            None => {
                let is_shown = |item: &&ItemRef| self.filter.shows(&record::of(item));
                held.items_down_after(at).find(is_shown).map(|item| item.seqno())
            }
        };
        let Some(last) = last else {
            self.pass_whole(read.end());
            return;
        };
        // The filter has taken note of an event, so it must not be lost.
        let kept = held.items_after(at).next().filter(|_| is_event).cloned();
        assert!(at < last && last <= read.end(), "the last change is one of the snapshot");
        debug_assert!(self.whole_to <= last, "a snapshot begins before its end");
        let marker = StreamMarker {
            // A reader that goes back to it gets what the snapshot leaves out, and the rest of one
            // that was cut short.
            start: self.whole_to,
            end: last,
            source: SnapshotSource::Memory,
            is_checkpoint: self.progress.markers == 0 || read.begins_checkpoint(),
            purge_seqno: self.vbucket().purge_seqno(),
        };
        drop(held);
        let read = match kept {
            Some(event) => read.keeping(event),
            None => read,
        };
        self.bucket.core().memory().copied_for_streams(read.copied_bytes());
        debug_assert!(marker.start <= marker.end, "a snapshot begins before its end");
        let (marker, current) = (Some(marker), None);
        let batch = SnapshotBatch { marker, read, at, last, is_event, is_last, current };
        self.set_source(StreamSource::Memory(Some(batch)));
    }
}
