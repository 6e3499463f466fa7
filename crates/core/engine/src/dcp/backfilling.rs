//! The side of a stream that reads from a backfill.
//!
//! Owns: the scan's snapshot as far as the stream has read it, and the retry after a scan drops the
//! stream or fails: the stream requests another scan from its position. The marker goes out with
//! the first change that the filter shows, so a snapshot that shows nothing is not announced.

use oribi_types::{CollectionId, Seqno};

use super::VbucketDcpStream;
use super::filter::Visibility;
use super::source::{BackfillReader, StreamSource, StreamTurn};
use crate::backfill::{BackfillSnapshot, FAILURES_MAX, InboxItem};
use crate::dcp::step::{SnapshotSource, StreamEndReason, StreamMarker};

impl VbucketDcpStream {
    /// Requests a backfill from the stream's position.
    pub(super) fn ask(&mut self) {
        self.progress.backfills += 1;
        debug_assert!(!self.is_over, "an ended stream requests nothing");
        let place = (self.vbid, self.opening.incarnation);
        let (wanted, waker) = (self.filter.wanted(), self.waker.clone());
        let inbox = self.bucket.backfiller().ask(place, self.read_to, wanted, waker);
        let reading = BackfillReader {
            inbox,
            from: self.read_to,
            snapshot: None,
            announced: None,
            chunk: None,
            at: 0,
            passed: None,
            is_last: false,
        };
        self.set_source(StreamSource::Backfill(reading));
    }

    pub(super) fn turn_backfill(&mut self) -> StreamTurn {
        let StreamSource::Backfill(reading) = &mut self.source else { return StreamTurn::Again };
        if reading.snapshot.is_none() {
            reading.snapshot = reading.inbox.snapshot();
            if let Some(snapshot) = reading.snapshot {
                if self.misses_tombstones(snapshot) {
                    return self.end(StreamEndReason::StateChanged);
                }
                self.opening.purge_seqno = snapshot.purge_seqno;
                return StreamTurn::Again;
            }
        }
        if reading.passed.is_some() {
            return self.send_passed();
        }
        if reading.chunk.is_some() {
            return self.pass_on();
        }
        match reading.inbox.take() {
            InboxItem::Chunk(chunk) => {
                // The scan may have begun since this turn looked for it; the next turn does again.
                debug_assert!(
                    reading.inbox.snapshot().is_some(),
                    "a snapshot is known before its records"
                );
                (reading.chunk, reading.at) = (Some(chunk), 0);
                self.progress.failures = 0;
            }
            InboxItem::Nothing => return StreamTurn::Idle,
            InboxItem::Complete => return self.complete(),
            InboxItem::LeftBehind => self.ask(),
            InboxItem::Failed => {
                self.progress.failures += 1;
                if self.progress.failures >= FAILURES_MAX {
                    return self.end(StreamEndReason::BackfillFailed);
                }
                self.ask();
            }
        }
        StreamTurn::Again
    }

    /// True when tombstones after the reader's position were purged since the reader got there.
    fn misses_tombstones(&self, snapshot: BackfillSnapshot) -> bool {
        let StreamSource::Backfill(reading) = &self.source else { return false };
        reading.from > Seqno(0)
            && reading.from < snapshot.purge_seqno
            && snapshot.purge_seqno > self.opening.purge_seqno
            && !self.opening.ignores_purged
    }

    /// Finds the next record of the chunk that is shown. Chunk and manifest are shared with other
    /// threads, so no reference to them is counted for a record.
    fn pass_on(&mut self) -> StreamTurn {
        let manifest = self.bucket.core().collections().in_force().load();
        self.filter.adopt(&manifest);
        let StreamSource::Backfill(reading) = &mut self.source else { return StreamTurn::Again };
        let high_completed = reading.snapshot.map_or(Seqno(0), |snapshot| snapshot.high_completed);
        let BackfillReader { chunk: Some(chunk), at, .. } = reading else {
            return StreamTurn::Again;
        };
        while let Some(record) = chunk.record(*at) {
            let is_dropped = manifest.has_dropped(record.key.collection);
            // The store keeps prepares that are completed; a copy must not take them for open. One
            // that is completed after the snapshot's end is a part of it.
            let is_completed = record.key.collection == CollectionId::PREPARES
                && !record.deleted
                && record.seqno <= high_completed;
            if record.seqno > self.read_to && !is_dropped && !is_completed {
                match self.filter.pass(&record) {
                    Visibility::No => {}
                    shown => {
                        debug_assert!(record.seqno > self.read_to, "seqnos of a stream ascend");
                        reading.passed = Some(record.seqno);
                        reading.is_last = shown == Visibility::Last;
                        return self.announce();
                    }
                }
                self.read_to = record.seqno;
            }
            *at += 1;
        }
        reading.chunk = None;
        StreamTurn::Again
    }

    /// The marker, unless it is sent.
    fn announce(&mut self) -> StreamTurn {
        let StreamSource::Backfill(reading) = &mut self.source else { return StreamTurn::Again };
        let Some(snapshot) = reading.snapshot else { return StreamTurn::Again };
        debug_assert!(reading.from <= snapshot.end, "a backfill ends at or after its start");
        if reading.announced.is_some() {
            return self.send_passed();
        }
        let end = match self.filter.is_legacy() {
            true => snapshot.default_end,
            false => snapshot.end,
        };
        reading.announced = Some(end);
        StreamTurn::Marker(StreamMarker {
            start: self.whole_to,
            end,
            source: SnapshotSource::Disk,
            is_checkpoint: true,
            purge_seqno: snapshot.purge_seqno,
        })
    }

    fn send_passed(&mut self) -> StreamTurn {
        let StreamSource::Backfill(reading) = &mut self.source else { return StreamTurn::Again };
        self.read_to = reading.passed.take().unwrap_or(self.read_to);
        debug_assert!(self.read_to > self.progress.last_sent, "seqnos of a stream ascend");
        debug_assert!(
            reading.announced.is_some(),
            "a snapshot is announced before its first change"
        );
        reading.at += 1;
        if reading.is_last {
            self.ending = Some(StreamEndReason::FilterEmpty);
        }
        self.progress.last_sent = self.read_to;
        self.progress.backfill_sent += 1;
        StreamTurn::Change
    }

    /// The snapshot is whole: the queue continues from here.
    fn complete(&mut self) -> StreamTurn {
        let StreamSource::Backfill(reading) = &mut self.source else { return StreamTurn::Again };
        let Some(snapshot) = reading.snapshot else { return StreamTurn::Again };
        let announced = reading.announced;
        debug_assert!(
            announced.is_none_or(|end| end >= self.progress.last_sent),
            "a snapshot ends after its last change"
        );
        debug_assert!(reading.chunk.is_none() && reading.passed.is_none(), "all of it was sent");
        self.pass_whole(snapshot.end);
        self.progress.failures = 0;
        self.set_source(StreamSource::Memory(None));
        match announced {
            Some(end) if end > self.progress.last_sent && !self.filter.is_legacy() => {
                StreamTurn::Advanced(end)
            }
            _ => StreamTurn::Again,
        }
    }
}
