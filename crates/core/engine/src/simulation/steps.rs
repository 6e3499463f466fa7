//! The steps of a simulation, one random step at a time.
//!
//! Owns: the choice of the next step, operations of clients with their check, and background work.

use std::sync::Arc;

use oribi_storage::CompactionStep;
use oribi_storage::testing::Trouble;
use oribi_types::{Cas, Seqno, Timestamp};

use super::model::{ModelDocument, ModelKey, ModelVersion};
use super::operation::{ExpectedResult, ModelOperation, OperationAnswer};
use super::world::{HeldLock, PendingFetch, TOMBSTONE_PURGE_AGE_S, World};
use crate::background_fetch::{FetchOutcome, FetchSink};
use crate::collections::ManifestChange;
use crate::error::ManifestUpdateError;
use crate::failure::StoreOperation;
use crate::item::ItemRef;
use crate::outcome::{AppliedMutation, MetaOutcome, OperationRejection};
use crate::persistence::{PersistOutcome, PersistenceSink};
use crate::warmup::WarmupStep;

/// Fetches that one operation may need in a row; with few nested operations, more is a livelock.
const TRIES_MAX: u32 = 50;

/// Writes that must come in between before a fetch may fail.
const OVERTAKEN_MAX: u32 = 4;

impl World {
    /// One step of whatever comes.
    pub(super) fn step(&self) {
        match self.below(if self.setup.is_dense { 700 } else { 640 }) {
            640.. => self.dense_step(),
            400.. => self.stream(),
            0..197 => self.operate(),
            197..200 => self.recover(),
            200..239 => self.flush_or_die(),
            239..240 => self.change_manifest(),
            240..270 => self.fetch(),
            270..300 => self.evict(),
            300..308 => self.page(),
            308..360 => self.warm_up(),
            360..364 => self.compact(),
            364..370 => self.expire(),
            370..374 => self.purge(),
            374..380 => self.pass_time(),
            380..383 => self.read_everything(),
            _ if self.setup.is_calm => self.flush(),
            383..387 => self.plan_trouble(),
            387..390 => self.close_checkpoints(),
            390..393 => self.stop(),
            393..397 => self.crash(),
            _ => self.die(),
        }
        if self.files.is_off() {
            self.crash();
        }
        self.look_around();
    }

    /// A client's operation, or one that has waited for a fetch.
    pub(super) fn operate(&self) {
        let (key, operation) = (self.random_key(), self.random_operation());
        let is_durable = self.below(4) == 0;
        self.attempt(PendingFetch { key, operation, is_durable, tries: 0 });
    }

    /// Tries an operation; true when it was answered.
    fn attempt(&self, waiting: PendingFetch) -> bool {
        let now = self.now.get();
        self.settle_commits();
        let version = self.version(&waiting.key);
        let expected = waiting.operation.expected(version.as_ref(), now.unix_s());
        let live = version.as_ref().filter(|version| version.live(now.unix_s()).is_some());
        let lock = live.and_then(|version| self.lock_of(&waiting.key, version));
        let current = match (&waiting.operation, lock) {
            (ModelOperation::Unlock { .. }, Some(lock)) => Some(lock.cas),
            _ => live.and_then(|version| version.cas),
        };
        let bucket = self.bucket();
        let answer =
            waiting.operation.run(&bucket, &waiting.key, current, (now, waiting.is_durable));
        match answer {
            OperationAnswer::Refused(OperationRejection::NeedsFetch) => {
                self.wait(waiting);
                return false;
            }
            OperationAnswer::Refused(OperationRejection::Locked) => {
                let key = &waiting.key;
                let operation = &waiting.operation;
                let is_right = lock.is_some() && !operation.is_read();
                let is_owner = *operation == ModelOperation::Unlock { is_owner: true };
                assert!(is_right && !is_owner, "{operation:?} of {key:?}, which is not locked");
                self.count(|counts| counts.locked += 1);
            }
            OperationAnswer::Refused(OperationRejection::DurableWriteInProgress) => {
                let (key, operation) = (&waiting.key, &waiting.operation);
                let is_right = self.is_pending(key) && !operation.is_read();
                assert!(is_right, "{operation:?} of {key:?}, which has no pending write");
                self.count(|counts| counts.blocked += 1);
            }
            OperationAnswer::Refused(refused) => self.refused(&waiting, refused),
            OperationAnswer::Done(..)
            | OperationAnswer::Locked(..)
            | OperationAnswer::Unlocked
            | OperationAnswer::NotLocked
                if self.is_pending(&waiting.key) =>
            {
                panic!("{:?} of {:?} beside a pending write", waiting.operation, waiting.key)
            }
            OperationAnswer::Done(..)
            | OperationAnswer::Locked(..)
            | OperationAnswer::NotLocked
                if lock.is_some() =>
            {
                panic!("{:?} of {:?}, which is locked: {answer:?}", waiting.operation, waiting.key)
            }
            OperationAnswer::Unlocked if lock.is_none() => {
                panic!("{:?} was not locked", waiting.key)
            }
            answer => self.answered(&waiting, expected, answer, version.as_ref()),
        }
        self.settle_expiries(&waiting.key);
        true
    }

    /// The lock of this version of a document, while it holds.
    fn lock_of(&self, key: &ModelKey, version: &ModelVersion) -> Option<HeldLock> {
        let lock = self.locks.borrow().get(key).copied()?;
        let holds = lock.seqno == version.seqno && lock.until_s > self.now.get().unix_s();
        holds.then_some(lock)
    }

    fn locked(&self, waiting: &PendingFetch, item: &ItemRef, cas: Cas) {
        let ModelOperation::Lock { seconds } = waiting.operation else {
            panic!("{:?} locks nothing", waiting.operation);
        };
        let until_s = self.now.get().unix_s() + seconds;
        let lock = HeldLock { seqno: item.seqno(), cas, until_s };
        self.locks.borrow_mut().insert(waiting.key.clone(), lock);
    }

    fn version(&self, key: &ModelKey) -> Option<ModelVersion> {
        self.vbuckets.borrow()[&key.vbid].current.get(key).cloned()
    }

    fn wait(&self, waiting: PendingFetch) {
        let (token, life) = (self.token(), self.life());
        assert!(waiting.tries < TRIES_MAX, "{:?} is fetched for ever", waiting.key);
        let sink: Arc<dyn FetchSink> = Arc::clone(&life.sink) as Arc<dyn FetchSink>;
        let key = waiting.key.clone();
        let waiting = PendingFetch { tries: waiting.tries + 1, ..waiting };
        self.waiting.borrow_mut().insert(token, waiting);
        life.bucket.fetch(key.vbid, key.doc_key(), &sink, token);
    }

    fn refused(&self, waiting: &PendingFetch, refused: OperationRejection) {
        self.count(|counts| counts.refusals += 1);
        let (operation, key) = (&waiting.operation, &waiting.key);
        let is_allowed = match refused {
            OperationRejection::TemporaryFailure | OperationRejection::NoMemory => {
                operation.is_write() || self.is_troubled.get()
            }
            _ => false,
        };
        assert!(is_allowed, "{operation:?} of {key:?} was refused: {refused:?}");
    }

    fn answered(
        &self,
        waiting: &PendingFetch,
        expected: ExpectedResult,
        answer: OperationAnswer,
        version: Option<&ModelVersion>,
    ) {
        let key = &waiting.key;
        self.count(|counts| counts.answers += 1);
        match (expected, answer) {
            (
                ExpectedResult::Read,
                OperationAnswer::Read(item) | OperationAnswer::Done(None, Some(item)),
            ) => {
                self.check_item(key, &item, version);
            }
            (ExpectedResult::Unchanged, OperationAnswer::Done(Some(mutation), None)) => {
                let version = version.expect("what is touched is known");
                assert_eq!((mutation.seqno, Some(mutation.cas)), (version.seqno, version.cas));
            }
            (ExpectedResult::Locked, OperationAnswer::Locked(item, cas)) => {
                self.check_item(key, &item, version);
                self.locked(waiting, &item, cas);
            }
            (ExpectedResult::Unlocked, OperationAnswer::Unlocked) => {
                self.locks.borrow_mut().remove(key);
            }
            (ExpectedResult::Unlocked, OperationAnswer::NotLocked) => {}
            (ExpectedResult::Missing, OperationAnswer::Tombstone(item)) => {
                // Of a document that expired just now, the tombstone is newer than the model.
                let known = version.is_some_and(|version| version.seqno == item.seqno());
                assert!(known || item.seqno() > self.vbuckets.borrow()[&key.vbid].high);
            }
            (ExpectedResult::Missing, OperationAnswer::Missing)
            | (ExpectedResult::Exists, OperationAnswer::Exists)
            | (ExpectedResult::NotStored, OperationAnswer::NotStored)
            | (ExpectedResult::NotANumber, OperationAnswer::NotANumber) => {}
            (ExpectedResult::Done(document), OperationAnswer::Done(mutation, item)) => {
                self.wrote(waiting, document, mutation, item.as_ref());
            }
            (expected, answer) => panic!(
                "{:?} of {key:?}, which is {version:?}: {answer:?} instead of {expected:?}",
                waiting.operation
            ),
        }
    }

    fn check_item(&self, key: &ModelKey, item: &ItemRef, version: Option<&ModelVersion>) {
        let version = version.expect("what is read is known");
        let document = version.document.as_ref().expect("what is read is a document");
        assert_eq!(item.key(), key.doc_key());
        assert!(!item.is_evicted() || item.value().is_empty(), "an evicted version has no value");
        let found = (item.seqno(), Some(item.cas()), item.flags(), item.expiry());
        let wanted = (version.seqno, version.cas, document.flags, document.expiry);
        assert_eq!(found, wanted, "{key:?}");
        if !item.is_evicted() {
            assert_eq!(item.value(), document.value.0, "value of {key:?}");
        }
    }

    fn wrote(
        &self,
        waiting: &PendingFetch,
        document: Option<ModelDocument>,
        mutation: Option<AppliedMutation>,
        item: Option<&ItemRef>,
    ) {
        let key = &waiting.key;
        let (seqno, cas) = match (mutation, item) {
            (Some(mutation), _) => (mutation.seqno, mutation.cas),
            (None, Some(item)) => (item.seqno(), item.cas()),
            (None, None) => panic!("a mutation has a version"),
        };
        self.count(|counts| counts.mutations += 1);
        {
            let mut models = self.vbuckets.borrow_mut();
            let model = models.get_mut(&key.vbid).expect("every vbucket has a model");
            if let Some(mutation) = mutation {
                assert_eq!(Some(mutation.vb_uuid), model.uuid(), "history of {key:?}");
            }
            let version = ModelVersion { seqno, cas: Some(cas), document };
            match waiting.is_durable {
                true => model.hold(key, version),
                false => model.write(key, version),
            }
        }
        self.count(|counts| counts.durable += u64::from(waiting.is_durable));
        if self.below(3) == 0 {
            self.wait_for_persistence(key, seqno);
        }
    }

    fn wait_for_persistence(&self, key: &ModelKey, seqno: Seqno) {
        let (token, life) = (self.token(), self.life());
        let sink: Arc<dyn PersistenceSink> = Arc::clone(&life.sink) as Arc<dyn PersistenceSink>;
        match life.bucket.when_persisted(key.vbid, (seqno, None), &sink, token) {
            true => self.promised(key.vbid, seqno),
            false => {
                self.waits.borrow_mut().insert(token, (key.vbid, seqno));
            }
        }
    }

    fn promised(&self, vbid: oribi_types::Vbid, seqno: Seqno) {
        self.count(|counts| counts.promises += 1);
        self.vbuckets.borrow_mut().get_mut(&vbid).expect("a vbucket").promise(seqno);
    }

    /// Takes in what the engine did by itself: a tombstone for a document that expired.
    fn settle_expiries(&self, key: &ModelKey) {
        let (bucket, now) = (self.bucket(), self.now.get());
        let vbucket = bucket.vbucket(key.vbid).expect("the vbucket is there");
        let high = vbucket.stats().high_seqno;
        let mut models = self.vbuckets.borrow_mut();
        let model = models.get_mut(&key.vbid).expect("every vbucket has a model");
        if high == model.high {
            return;
        }
        let is_expired = model.current.get(key).is_some_and(|version| {
            version.document.is_some() && version.live(now.unix_s()).is_none()
        });
        assert!(is_expired && high.0 == model.high.0 + 1, "{key:?}: a seqno without a write");
        model.write(key, ModelVersion { seqno: high, cas: None, document: None });
        // Its CAS is above all before, and below all that come.
        model.max_cas = vbucket.stats().max_cas;
    }

    /// Completes waiters, and records the versions that the engine shows as durable.
    fn look_around(&self) {
        let life = self.life();
        self.settle_commits();
        life.bucket.check_invariants();
        for (token, outcome) in std::mem::take(&mut *life.sink.persisted.lock()) {
            let waited = self.waits.borrow_mut().remove(&token);
            let (vbid, seqno) = waited.expect("a wait is over once");
            if outcome == PersistOutcome::Persisted {
                self.promised(vbid, seqno);
            }
        }
        for vbucket in life.bucket.vbuckets() {
            let persisted = vbucket.persisted_seqno();
            let mut models = self.vbuckets.borrow_mut();
            models.get_mut(&vbucket.id()).expect("a vbucket").promise(persisted);
        }
    }

    pub(super) fn fetch(&self) {
        if self.depth.get() == 0 {
            self.churns.set(0);
        }
        let life = self.life();
        let fetched = life.bucket.fetch_step();
        self.count(|counts| counts.fetches += fetched as u64);
        self.answer_fetched();
        if self.depth.get() == 0 && life.bucket.fetcher().is_idle() {
            let waiting = self.waiting.borrow();
            assert!(waiting.is_empty(), "{} wait for fetches that nobody makes", waiting.len());
        }
    }

    /// Tries what waited again.
    fn answer_fetched(&self) {
        let life = self.life();
        let fetched = std::mem::take(&mut *life.sink.fetched.lock());
        for (token, outcome) in fetched {
            let waiting = self.waiting.borrow_mut().remove(&token).expect("a fetch is over once");
            match outcome {
                FetchOutcome::Ready => _ = self.attempt(waiting),
                // The fetcher gives up on a document that is overtaken again and again.
                FetchOutcome::Failed => assert!(
                    self.is_troubled.get() || self.churns.get() >= OVERTAKEN_MAX,
                    "a fetch of {:?} failed without reason",
                    waiting.key
                ),
            }
        }
    }

    /// Takes a document, or its value, out of memory, if the engine thinks that it may be.
    pub(super) fn evict(&self) {
        let (bucket, key) = (self.bucket(), self.random_key());
        let is_gone = bucket.evict(key.vbid, key.doc_key());
        self.count(|counts| counts.evicted += u64::from(is_gone));
    }

    /// Another client writes the document that is being read, and it leaves memory again.
    pub(super) fn churn(&self, may_flush: bool) {
        self.churns.set(self.churns.get() + 1);
        let waiting = self.waiting.borrow();
        let index = self.below(waiting.len().max(1) as u64) as usize;
        let Some(key) = waiting.values().nth(index).map(|waiting| waiting.key.clone()) else {
            return;
        };
        drop(waiting);
        let operation = self.random_write();
        let is_durable = self.below(4) == 0;
        let write = PendingFetch { key: key.clone(), operation, is_durable, tries: 0 };
        if !self.attempt(write) && may_flush {
            self.fetch();
        }
        if may_flush {
            self.flush();
        }
        let is_gone = self.bucket().evict(key.vbid, key.doc_key());
        self.count(|counts| counts.evicted += u64::from(is_gone));
    }

    /// Memory is short for a moment, so that the pager runs.
    fn page(&self) {
        let bucket = self.bucket();
        let quota = bucket.memory_quota_bytes();
        bucket.set_memory_quota(bucket.core().memory().used_bytes());
        let now = self.now.get();
        for _ in 0..=self.below(4) {
            let report = bucket.page_items_step(&|| now);
            self.count(|counts| counts.evicted += report.evicted);
        }
        bucket.set_memory_quota(quota);
    }

    fn random_operation(&self) -> ModelOperation {
        self.with_random(|random| ModelOperation::random(random, self.setup.is_dense))
    }

    fn random_write(&self) -> ModelOperation {
        self.with_random(|random| ModelOperation::random_write(random, self.setup.is_dense))
    }

    pub(super) fn warm_up(&self) {
        if let WarmupStep::Failed { error, .. } = self.bucket().warmup_step() {
            self.failed("warmup", &error);
        }
    }

    fn compact(&self) {
        for _ in 0..=self.below(3) {
            match self.life().store.compaction_step() {
                Ok(CompactionStep::Idle) => break,
                Ok(_) => {}
                Err(error) => return self.failed("compaction", &error),
            }
        }
    }

    /// The expiry pager makes tombstones of some documents; which ones is found out by their
    /// metadata.
    fn expire(&self) {
        let (bucket, now) = (self.bucket(), self.now.get());
        bucket.expiry_pager_step(&|| now);
        let context = bucket.context(now);
        for vbucket in bucket.vbuckets() {
            if vbucket.stats().high_seqno == self.vbuckets.borrow()[&vbucket.id()].high {
                continue;
            }
            let mut found: Vec<(Seqno, Cas, ModelKey)> = Vec::new();
            for key in self.all_keys().into_iter().filter(|key| key.vbid == vbucket.id()) {
                let version = self.version(&key).filter(|version| version.document.is_some());
                if version.is_none_or(|version| version.live(now.unix_s()).is_some()) {
                    continue;
                }
                // One that the pager has not come to expires by being asked for.
                if let MetaOutcome::Found(item, _) = vbucket.get_meta(&context, key.doc_key()) {
                    assert!(item.is_deleted(), "{key:?} has expired: {item:?}");
                    found.push((item.seqno(), item.cas(), key));
                }
            }
            found.sort_by_key(|(seqno, ..)| *seqno);
            let mut models = self.vbuckets.borrow_mut();
            let model = models.get_mut(&vbucket.id()).expect("every vbucket has a model");
            for (seqno, cas, key) in found {
                self.count(|counts| counts.expired += 1);
                model.write(&key, ModelVersion { seqno, cas: Some(cas), document: None });
            }
            assert_eq!(vbucket.stats().high_seqno, model.high, "a seqno without a write");
        }
    }

    /// The purger's next step, or a whole purge that a client asks for when every tombstone is old.
    /// Passes that begin by themselves are rarer than crashes. Not simulated: a purge of the newest
    /// version of the default collection. The engine does not yet end the snapshot of a stream
    /// without collections there.
    fn purge(&self) {
        let bucket = self.bucket();
        let is_asked_for = self.below(4) > 0;
        if is_asked_for {
            self.flush();
        }
        for vbucket in bucket.vbuckets() {
            let model = &self.vbuckets.borrow()[&vbucket.id()];
            let ends = [vbucket.persisted_seqno(), model.high];
            if !ends.iter().all(|end| model.default_ends_with_a_document(*end)) {
                return;
            }
        }
        if is_asked_for {
            self.pass(u64::from(TOMBSTONE_PURGE_AGE_S) + 1);
            bucket.compact();
        }
        let now = self.now.get();
        let purged = loop {
            match bucket.purge_tombstones_step(&|| now) {
                Ok(report) if report.more && is_asked_for => {}
                other => break other,
            }
        };
        for vbucket in bucket.vbuckets() {
            let mut models = self.vbuckets.borrow_mut();
            let model = models.get_mut(&vbucket.id()).expect("every vbucket has a model");
            // After an error its progress is unknown.
            let purged = if purged.is_ok() { vbucket.stats().purge_seqno } else { model.high };
            self.count(|counts| counts.purged += u64::from(purged > model.purged));
            model.purged = model.purged.max(purged);
        }
        if let Err(error) = purged {
            self.failed("a purge", &error);
        }
    }

    /// An unused scope comes or goes.
    fn change_manifest(&self) {
        if !self.setup.is_calm && self.below(3) == 0 {
            // With nothing to write, so that only a probe shows that the disk is sound again.
            self.flush();
            self.is_troubled.set(true);
            self.files.plan(1 + self.below(2), Trouble::Failure);
        }
        let (bucket, name) = (self.bucket(), "unused".to_owned());
        let is_there = bucket.manifest().scopes().iter().any(|scope| scope.name == name);
        let change = match is_there {
            true => ManifestChange::DropScope { name },
            false => ManifestChange::CreateScope { name },
        };
        match bucket.update_manifest(&change) {
            Err(ManifestUpdateError::Store(error)) => {
                self.failed("a change of the manifest", &error);
                self.recover();
            }
            _ => self.take_in_events(),
        }
    }

    /// Closes what is open, as a full checkpoint is, so that more than one is queued.
    pub(super) fn close_checkpoints(&self) {
        for vbucket in self.bucket().vbuckets() {
            vbucket.close_big_checkpoint(1);
        }
    }

    fn pass_time(&self) {
        let seconds = if self.below(4) == 0 { self.below(300) } else { self.below(30) };
        self.pass(seconds);
    }

    fn pass(&self, seconds: u64) {
        let now = self.now.get();
        self.now.set(Timestamp { unix_ns: now.unix_ns + seconds * 1_000_000_000 });
    }

    /// Trouble at one of the next steps of the disk.
    fn plan_trouble(&self) {
        let troubles = [Trouble::PowerLoss, Trouble::Failure, Trouble::NoSpace];
        let trouble = troubles[self.below(3) as usize];
        self.is_troubled.set(true);
        self.files.plan(1 + self.below(12), trouble);
    }

    /// The cause of the trouble goes away, and the bucket comes back without being opened again.
    fn recover(&self) {
        if self.files.is_off() || self.files.is_trouble_ahead() || !self.is_troubled.get() {
            return;
        }
        self.files.heal();
        let was_failing = self.bucket().stats().failed.refuse_writes();
        let mut tries = 0;
        while self.bucket().flush_step().is_err() {
            // Commits may fail between the engine and its store, by chance.
            tries += 1;
            assert!(tries < TRIES_MAX, "a sound disk takes no commit");
        }
        let failed = self.bucket().stats().failed;
        let is_sound = !failed.refuse_writes() && !failed.has(StoreOperation::Manifest);
        assert!(is_sound, "a sound disk still fails: {failed:?}");
        self.is_troubled.set(false);
        self.count(|counts| counts.recoveries += u64::from(was_failing));
    }

    /// Reads every document and compares.
    pub(super) fn read_everything(&self) {
        for key in self.all_keys() {
            let read = || PendingFetch {
                key: key.clone(),
                operation: ModelOperation::Get,
                is_durable: false,
                tries: 0,
            };
            let mut tries = 0;
            while !self.attempt(read()) {
                self.fetch();
                tries += 1;
                assert!(tries < TRIES_MAX, "{key:?} is fetched for ever");
                if self.files.is_off() {
                    return;
                }
            }
        }
    }

    /// An orderly stop and a start, if the disk allows.
    fn stop(&self) {
        loop {
            // In its own statement, so that no reference to the bucket outlives it.
            let flushed = self.bucket().flush_step();
            match flushed {
                Ok(report) if report.items == 0 && !report.more => break,
                Ok(_) => {}
                Err(error) => {
                    self.failed("the last flush", &error);
                    return if self.files.is_off() { self.crash() } else { self.die() };
                }
            }
        }
        self.look_around();
        self.end_life();
        self.count(|counts| counts.clean_stops += 1);
        self.open(true);
    }
}
