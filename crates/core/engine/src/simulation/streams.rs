//! Readers of change streams in a simulation, and what has to hold of what they hear.
//!
//! Owns: the readers. Each keeps what it has heard and its position over crashes, continues where
//! it was or starts anew, and goes back where it is told to. The oracle: seqnos ascend inside
//! markers; no key comes twice in a snapshot; every change is one that was written; at the end of a
//! snapshot the reader's table is the state at that seqno. A reader that is told of nothing more
//! lacks nothing. Where it may continue, and how far back it is sent, follows from what survived.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use oribi_storage::Record;
use oribi_types::{CollectionId, DocKey, Seqno, VbUuid, Vbid};
use parking_lot::Mutex;

use super::model::{ModelDocument, ModelKey, ModelValue, VbucketModel};
use super::world::{VBUCKETS, World};
use crate::backfill::BackfillPause;
use crate::dcp::{
    StreamChange, StreamEndReason, StreamFilter, StreamMarker, StreamOpenError, StreamOptions,
    StreamPhase, StreamRequest, StreamSink, StreamStep, VbucketDcpStream,
};
use crate::system_event::ManifestEvent;

const READERS: u64 = 4;
/// Steps of background work after which every reader must have everything.
const ROUNDS_MAX: u32 = 400;

/// Streams that have more, by token.
#[derive(Default)]
pub(super) struct ReadyStreams(Mutex<BTreeSet<u64>>);

impl StreamSink for ReadyStreams {
    fn ready(&self, token: u64) {
        self.0.lock().insert(token);
    }
}

struct Open {
    stream: VbucketDcpStream,
    token: u64,
    end: Seqno,
    marker: Option<StreamMarker>,
    /// Keys of the snapshot so far.
    keys: BTreeSet<ModelKey>,
    /// Backfills before the marker.
    backfills: u64,
    is_reopened: bool,
}

struct Reader {
    vbid: Vbid,
    filter: StreamFilter,
    seqno: Seqno,
    uuid: VbUuid,
    snapshot: (Seqno, Seqno),
    /// Everything that it has heard and not taken back.
    heard: Vec<(Seqno, ModelKey, Option<ModelDocument>)>,
    open: Option<Open>,
}

/// All readers of a world.
#[derive(Default)]
pub(super) struct Readers {
    readers: Vec<Option<Reader>>,
    pub(super) awake: Arc<ReadyStreams>,
}

impl Readers {
    /// The bucket is closed.
    pub(super) fn disconnect(&mut self) {
        self.readers.iter_mut().flatten().for_each(|reader| reader.open = None);
        self.awake.0.lock().clear();
    }
}

fn shows(filter: &StreamFilter, key: &ModelKey) -> bool {
    let collection = key.collection;
    if collection == CollectionId::SYSTEM {
        return shows_event(filter, &key.name);
    }
    match filter {
        StreamFilter::All | StreamFilter::Replica => true,
        StreamFilter::Default => collection == CollectionId::DEFAULT,
        StreamFilter::Scope(_) => collection != CollectionId::DEFAULT,
        StreamFilter::Collections(ids) => ids.contains(&collection),
    }
}

/// Collections are in one scope only, which is that of every filter by scope.
fn shows_event(filter: &StreamFilter, name: &[u8]) -> bool {
    let is_of = |letter: char, id: u32| name == format!("{letter}{id:08x}").as_bytes();
    match filter {
        StreamFilter::All | StreamFilter::Replica => true,
        StreamFilter::Default => false,
        StreamFilter::Scope(scope) => name.starts_with(b"c") || is_of('s', scope.0),
        StreamFilter::Collections(ids) => ids.iter().any(|id| is_of('c', id.0)),
    }
}

fn document_of(record: &Record<'_>) -> Option<ModelDocument> {
    let document = ModelDocument {
        value: ModelValue(record.value.to_vec()),
        flags: record.flags,
        expiry: record.expiry,
    };
    (!record.deleted).then_some(document)
}

impl Reader {
    fn table(&self) -> BTreeMap<&ModelKey, &ModelDocument> {
        let mut table = BTreeMap::new();
        for (_, key, document) in &self.heard {
            match document {
                Some(document) => table.insert(key, document),
                None => table.remove(key),
            };
        }
        table
    }

    /// It must have the exact state at `seqno`.
    fn compare(&self, model: &VbucketModel, seqno: Seqno) {
        let (found, wanted) = (self.table(), model.documents_at(seqno));
        let shown = |key: &ModelKey| shows(&self.filter, key);
        let wanted: BTreeMap<&ModelKey, &ModelDocument> =
            wanted.into_iter().filter(|(key, _)| shown(key)).collect();
        assert_eq!(found, wanted, "{} with {:?} at {seqno:?}", self.vbid, self.filter);
    }

    fn request(&self, end: Seqno, flags: StreamOptions) -> StreamRequest {
        StreamRequest {
            vbid: self.vbid,
            start: self.seqno,
            end,
            uuid: self.uuid,
            snapshot: self.snapshot,
            client_purge_seqno: None,
            flags,
            filter: self.filter.clone(),
        }
    }

    fn announced(&mut self, marker: StreamMarker) {
        let open = self.open.as_mut().expect("an open stream");
        let backfills = open.stream.stats().backfills;
        if let Some(last) = open.marker {
            // A snapshot that was cut short is sent again from its beginning.
            let is_again = marker.start == last.start;
            let is_whole = self.seqno == last.end || backfills > open.backfills && is_again;
            assert!(is_whole, "{marker:?} in the middle of {last:?}, at {:?}", self.seqno);
        }
        assert!(marker.start <= marker.end && marker.end > self.seqno, "{marker:?}");
        open.backfills = backfills;
        open.marker = Some(marker);
        open.keys.clear();
        self.snapshot = (marker.start.min(self.seqno), marker.end);
    }

    fn moved(&mut self, seqno: Seqno, model: &VbucketModel) {
        let open = self.open.as_ref().expect("an open stream");
        let marker = open.marker.expect("a marker comes before the first change");
        let is_inside = marker.start <= seqno && seqno <= marker.end;
        assert!(is_inside, "{seqno:?} is not in {marker:?}");
        self.seqno = seqno;
        if seqno == marker.end {
            self.compare(model, seqno);
        }
    }

    fn changed(&mut self, record: &Record<'_>, model: &VbucketModel) {
        let (seqno, collection) = (record.seqno, record.key.collection);
        let key = ModelKey { vbid: self.vbid, collection, name: record.key.key.to_vec() };
        let version = model.written_at(seqno).map(|(_, version)| version);
        let cas = version.and_then(|version| version.cas);
        assert!(cas.is_none_or(|cas| cas == record.cas), "{record:?}");
        self.took(seqno, key, document_of(record), model);
    }

    fn changed_by(&mut self, event: &ManifestEvent<'_>, model: &VbucketModel) {
        let (collection, name) = (CollectionId::SYSTEM, event.key().to_vec());
        let key = ModelKey { vbid: self.vbid, collection, name };
        let nothing = || ModelDocument { value: ModelValue(Vec::new()), flags: 0, expiry: 0 };
        self.took(event.seqno, key, (!event.kind.is_end()).then(nothing), model);
    }

    fn took(
        &mut self,
        seqno: Seqno,
        key: ModelKey,
        document: Option<ModelDocument>,
        model: &VbucketModel,
    ) {
        assert!(seqno > self.seqno, "{seqno:?} of {key:?} behind {:?}", self.seqno);
        assert!(shows(&self.filter, &key), "{key:?} passes {:?}", self.filter);
        let written = model.written_at(seqno);
        let (known, version) = written.unwrap_or_else(|| panic!("{key:?} was not written"));
        assert_eq!((&key, &document), (known, &version.document), "at {seqno:?}");
        let open = self.open.as_mut().expect("an open stream");
        assert!(open.keys.insert(key.clone()), "{key:?} twice in {:?}", open.marker);
        self.heard.push((seqno, key, document));
        self.moved(seqno, model);
    }

    fn go_back(&mut self, to: Seqno) {
        self.heard.retain(|(seqno, ..)| *seqno <= to);
        (self.seqno, self.snapshot) = (to, (to, to));
        if to == Seqno(0) {
            self.uuid = VbUuid(0);
        }
    }
}

impl World {
    pub(super) fn stream(&self) {
        match self.below(16) {
            0..4 => self.open_reader(),
            4..10 => self.listen(),
            10..14 => _ = self.backfill(),
            14 => self.drop_cursors(),
            _ => self.hang_up(),
        }
    }

    fn some_reader(&self) -> usize {
        self.below(READERS) as usize
    }

    fn new_reader(&self) -> Reader {
        let collection = self.collection.get();
        let manifest = self.bucket().manifest();
        let scope = manifest
            .scope_of(collection)
            .map_or(StreamFilter::All, |scope| StreamFilter::Scope(scope.id));
        let filters = [
            StreamFilter::All,
            StreamFilter::Default,
            StreamFilter::Collections(vec![collection]),
            scope,
        ];
        Reader {
            vbid: Vbid(self.below(u64::from(VBUCKETS)) as u16),
            filter: filters[self.below(4) as usize].clone(),
            seqno: Seqno(0),
            uuid: VbUuid(0),
            snapshot: (Seqno(0), Seqno(0)),
            heard: Vec::new(),
            open: None,
        }
    }

    /// A reader comes, or one comes back.
    fn open_reader(&self) {
        let at = self.some_reader();
        let mut readers = self.readers.borrow_mut();
        readers.readers.resize_with(READERS as usize, || None);
        let slot = &mut readers.readers[at];
        if slot.as_ref().is_none_or(|reader| reader.open.is_none() && self.below(8) == 0) {
            *slot = Some(self.new_reader());
        }
        let awake = Arc::clone(&readers.awake);
        let Some(reader) = readers.readers[at].as_mut() else { return };
        if reader.open.is_some() {
            return;
        }
        let models = self.vbuckets.borrow();
        let model = &models[&reader.vbid];
        let flags = match self.below(10) {
            0 => StreamOptions { to_latest: true, ..StreamOptions::default() },
            1 => StreamOptions { disk_only: true, ..StreamOptions::default() },
            _ => StreamOptions::default(),
        };
        let end = match self.below(6) {
            0 => Seqno(reader.seqno.0 + self.below(model.high.0 + 2)),
            _ => Seqno(u64::MAX),
        };
        let token = self.token();
        let request = reader.request(end, flags);
        let opened = self.bucket().open_stream(&request, awake.clone(), token);
        self.check_opening(reader, model, opened.as_ref().err());
        if let Ok(stream) = opened {
            assert_eq!(stream.failover_table(), model.failover_table, "{request:?}");
            reader.uuid = stream.failover_table().first().expect("a history").uuid;
            let backfills = stream.stats().backfills;
            let end = stream.stats().end_seqno;
            let (marker, keys) = (None, BTreeSet::new());
            let is_reopened = reader.seqno > Seqno(0);
            self.count(|counts| counts.streams += 1);
            reader.open = Some(Open { stream, token, end, marker, keys, backfills, is_reopened });
            awake.ready(token);
        } else if let Err(StreamOpenError::Rollback(to)) = opened {
            self.count(|counts| counts.rollbacks += 1);
            reader.go_back(to);
        }
    }

    /// The answer follows from what survived of what the reader has.
    fn check_opening(&self, reader: &Reader, model: &VbucketModel, no: Option<&StreamOpenError>) {
        let vbucket_stats = self.bucket().vbucket(reader.vbid).expect("a vbucket").stats();
        let (start, (from, to)) = (reader.seqno, reader.snapshot);
        let back = match no {
            None => None,
            Some(StreamOpenError::Rollback(to)) => Some(*to),
            Some(StreamOpenError::TryLater) if vbucket_stats.loading => return,
            Some(StreamOpenError::NoMemory | StreamOpenError::Range) => return,
            Some(refused) => panic!("{:?} was refused: {refused:?}", reader.filter),
        };
        if start == Seqno(0) {
            assert_eq!(back, None, "a reader from the beginning has nothing to take back");
            return;
        }
        if start < vbucket_stats.purge_seqno {
            let is_collection = matches!(reader.filter, StreamFilter::Collections(_));
            assert!(back == Some(Seqno(0)) || is_collection, "{start:?}: {back:?}");
            return;
        }
        let table = &model.failover_table;
        let known = table.iter().position(|entry| entry.uuid == reader.uuid);
        let Some(known) = known else { return assert_eq!(back, Some(Seqno(0))) };
        let survived = known.checked_sub(1).map_or(model.high, |newer| table[newer].seqno);
        let has_none = start == from;
        let has_all = start == to;
        match back {
            None => assert!(start <= survived && (has_none || to <= survived), "{table:?}"),
            Some(back) => {
                assert!(back < start && back <= survived, "{back:?} is not far enough");
                let least = if has_all { survived } else { survived.min(from) };
                assert!(back >= least, "{back:?} is further back than {least:?}");
            }
        }
    }

    fn hang_up(&self) {
        let at = self.some_reader();
        if let Some(Some(reader)) = self.readers.borrow_mut().readers.get_mut(at) {
            reader.open = None;
        }
    }

    /// A reader reads a little, if it was told that there is something.
    fn listen(&self) {
        let (from, steps) = (self.some_reader(), self.below(24));
        for at in 0..READERS as usize {
            if self.hear((from + at) % READERS as usize, steps) {
                return;
            }
        }
    }

    fn hear(&self, at: usize, steps: u64) -> bool {
        let mut readers = self.readers.borrow_mut();
        let awake = Arc::clone(&readers.awake);
        let Some(Some(reader)) = readers.readers.get_mut(at) else { return false };
        let Some(token) = reader.open.as_ref().map(|open| open.token) else { return false };
        if !awake.0.lock().contains(&token) {
            return false;
        }
        for _ in 0..steps {
            // Before the step, which may wake it again.
            awake.0.lock().remove(&token);
            if !self.hear_step(reader) {
                return true;
            }
            awake.ready(token);
        }
        true
    }

    /// False when there is nothing for now.
    fn hear_step(&self, reader: &mut Reader) -> bool {
        let models = self.vbuckets.borrow();
        let model = &models[&reader.vbid];
        let mut open = reader.open.take().expect("an open stream");
        if self.below(2) == 0
            && let Some(found) = self.take_run(&mut open.stream)
        {
            reader.open = Some(open);
            for change in &found {
                self.count(|counts| counts.heard += 1);
                self.check_shown(reader.vbid, &change.record(), model);
                reader.changed(&change.record(), model);
            }
            return true;
        }
        let phase = open.stream.stats().phase;
        let mut change = None;
        let mut end = None;
        let mut marker = None;
        let mut advanced = None;
        let mut event = None;
        let mut owned = None;
        match open.stream.next() {
            StreamStep::Snapshot(found) => marker = Some(found),
            StreamStep::Change(StreamChange::Document(found)) => {
                owned = Some(OwnedChange::of(&found.record));
                change = Some(());
            }
            StreamStep::Change(StreamChange::Event(found)) => {
                // It borrows from the stream, which the reader gets back first.
                event = Some((found.encode(), found.seqno));
            }
            StreamStep::SeqnoAdvanced(seqno) => advanced = Some(seqno),
            StreamStep::End(reason) => end = Some(reason),
            StreamStep::Idle => {
                let stats = open.stream.stats();
                reader.open = Some(open);
                if stats.phase == StreamPhase::InMemory && phase == StreamPhase::InMemory {
                    let bucket = self.bucket();
                    let vbucket = bucket.vbucket(reader.vbid).expect("a vbucket");
                    let readable = vbucket.history_ends().readable;
                    let has_all = model.pending.is_empty();
                    assert!(!has_all || readable == model.high, "streams wait for nothing");
                    reader.compare(model, readable.max(reader.seqno));
                }
                return false;
            }
        }
        reader.open = Some(open);
        if let Some(reason) = end {
            self.stream_ended(reader, reason, model);
            return false;
        }
        if let Some(marker) = marker {
            reader.announced(marker);
        }
        if let (Some(()), Some(owned)) = (change, &owned) {
            self.count(|counts| counts.heard += 1);
            self.check_shown(reader.vbid, &owned.record(), model);
            reader.changed(&owned.record(), model);
        }
        if let Some((body, seqno)) = event {
            let event = ManifestEvent::decode(seqno, &body).expect("it was one");
            reader.changed_by(&event, model);
        }
        if let Some(seqno) = advanced {
            assert!(seqno > reader.seqno, "{seqno:?} behind {:?}", reader.seqno);
            reader.moved(seqno, model);
        }
        true
    }

    /// Some changes of a backfill in a row, if there are any.
    fn take_run(&self, stream: &mut VbucketDcpStream) -> Option<Vec<OwnedChange>> {
        let run = stream.next_run(1 + self.below(8) as usize)?;
        let mut found: Vec<_> =
            run.documents().map(|document| OwnedChange::of(&document.record)).collect();
        found.truncate(1 + self.below(found.len() as u64) as usize);
        let last = found.last().expect("a run is not empty").record().seqno;
        stream.pass_run(found.len(), last);
        self.count(|counts| counts.runs += 1);
        Some(found)
    }

    fn stream_ended(&self, reader: &mut Reader, reason: StreamEndReason, model: &VbucketModel) {
        let open = reader.open.take().expect("an open stream");
        match reason {
            StreamEndReason::Ok => {
                let is_whole = open.marker.is_none_or(|marker| marker.end == reader.seqno);
                assert!(is_whole, "the stream ends inside {:?} at {:?}", open.marker, reader.seqno);
                assert!(open.stream.stats().last_read_seqno >= open.end, "an early end");
                if open.marker.is_some() || !open.is_reopened {
                    // It lacks nothing up to the end that it asked for.
                    reader.compare(model, reader.seqno.max(open.stream.stats().last_read_seqno));
                }
            }
            StreamEndReason::BackfillFailed => {
                assert!(self.is_troubled.get(), "no disk has failed")
            }
            StreamEndReason::StateChanged => {
                let stats = self.bucket().vbucket(reader.vbid).expect("a vbucket").stats();
                assert!(stats.purge_seqno > Seqno(0), "nothing has changed");
            }
            StreamEndReason::FilterEmpty => panic!("the collections are there"),
        }
    }

    /// Serves some readers; some of them read concurrently, others stall. True when none can be
    /// served before the next commit.
    pub(super) fn backfill(&self) -> bool {
        self.scan_flushes.set(self.below(2) as u32);
        let pace = |_: BackfillPause| match self.below(3) {
            0 => false,
            _ => {
                for at in 0..READERS as usize {
                    let steps = self.below(20);
                    self.hear(at, steps);
                }
                true
            }
        };
        let bucket = self.bucket();
        match bucket.backfill_step(&pace, &crate::tasks::no_clock) {
            Ok(report) => {
                self.count(|counts| counts.backfills += report.streams as u64);
                report.is_blocked
            }
            Err(error) => {
                self.failed("a backfill", &error);
                false
            }
        }
    }

    /// Memory is short: what streams hold up leaves the queue.
    fn drop_cursors(&self) {
        for vbucket in self.bucket().vbuckets() {
            vbucket.close_big_checkpoint(1);
            let dropped = vbucket.drop_slow_cursors();
            vbucket.expel_checkpoints();
            self.count(|counts| counts.cursors_dropped += dropped as u64);
        }
    }

    /// On a sound disk every reader hears everything in the end.
    pub(super) fn recover_and_settle(&self) {
        if self.files.is_off() || self.files.is_trouble_ahead() || self.is_troubled.get() {
            return;
        }
        for _ in 0..ROUNDS_MAX {
            if self.backfill() {
                // The last commit is in doubt. The flusher repeats it; that may fail by chance.
                let _ = self.bucket().flush_step();
            }
            self.settle_commits();
            let heard = (0..READERS as usize).filter(|at| self.hear(*at, 100)).count();
            if heard == 0 && self.bucket().backfiller().is_empty() {
                break;
            }
        }
        let readers = self.readers.borrow();
        let models = self.vbuckets.borrow();
        for reader in readers.readers.iter().flatten() {
            let Some(open) = &reader.open else { continue };
            let stats = open.stream.stats();
            assert_eq!(stats.phase, StreamPhase::InMemory, "a reader waits for ever: {stats:?}");
            let bucket = self.bucket();
            let vbucket = bucket.vbucket(reader.vbid).expect("a vbucket");
            let readable = vbucket.history_ends().readable;
            reader.compare(&models[&reader.vbid], readable.max(reader.seqno));
        }
    }
}

/// A change that outlives the step.
struct OwnedChange {
    bytes: Vec<u8>,
    key_bytes: usize,
    record: Record<'static>,
}

impl OwnedChange {
    fn of(record: &Record<'_>) -> OwnedChange {
        // Field by field, because the lifetimes differ.
        let bare = Record {
            key: DocKey { collection: record.key.collection, key: b"" },
            value: b"",
            cas: record.cas,
            seqno: record.seqno,
            rev_seqno: record.rev_seqno,
            flags: record.flags,
            expiry: record.expiry,
            datatype: record.datatype,
            deleted: record.deleted,
            expired: record.expired,
        };
        let bytes = [record.key.key, record.value].concat();
        OwnedChange { bytes, key_bytes: record.key.key.len(), record: bare }
    }

    fn record(&self) -> Record<'_> {
        let (key, value) = self.bytes.split_at(self.key_bytes);
        let key = DocKey { collection: self.record.key.collection, key };
        Record { key, value, ..self.record }
    }
}
