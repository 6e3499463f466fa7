//! An agreement in the memory of one process, with faults on request.
//!
//! Owns: the records, their history, sessions by a clock that the caller gives, and the faults of
//! tests and simulations: requests that are slow, unreachable, or lose their answer before or after
//! they were applied, and watches that lag. Deterministic: the same calls at the same times give
//! the same answers. A crashed process loses it; no cluster uses it in production.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::{
    Agreement, AgreementAnswer, AgreementError, AgreementRecord, RecordChange, RecordComparison,
    RecordList, SessionGrant, SessionId, Sessions, WatchAnswer, WatchEvent,
};

/// The time of a clock that only moves forward.
pub type AgreementClock = Box<dyn Fn() -> Duration + Send + Sync>;

/// What becomes of a request whose answer is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LostAnswer {
    /// The request was applied.
    Applied,
    /// The request never arrived.
    NotApplied,
    /// The request arrives with [`MemoryAgreement::deliver_late`].
    AppliedLater,
}

/// See the module text.
pub struct MemoryAgreement {
    clock: AgreementClock,
    state: Mutex<MemoryState>,
    changed: Notify,
}

#[derive(Default)]
struct MemoryState {
    revision: i64,
    records: BTreeMap<String, AgreementRecord>,
    /// Every change after `compacted`, in order.
    history: Vec<WatchEvent>,
    compacted: i64,
    sessions: BTreeMap<SessionId, MemorySession>,
    last_session: i64,
    faults: Faults,
}

#[derive(Debug, Clone, Copy)]
struct MemorySession {
    ttl: Duration,
    ends_at: Duration,
}

#[derive(Default)]
struct Faults {
    is_away: bool,
    delay: Duration,
    lost_answers: VecDeque<LostAnswer>,
    /// Revisions that watches do not report yet.
    watch_lag: i64,
    late: Vec<(Vec<RecordComparison>, Vec<RecordChange>)>,
}

impl MemoryAgreement {
    /// An empty agreement whose sessions end by `clock`.
    pub fn new(clock: AgreementClock) -> Arc<MemoryAgreement> {
        Arc::new(MemoryAgreement {
            clock,
            state: Mutex::new(MemoryState { revision: 1, ..MemoryState::default() }),
            changed: Notify::new(),
        })
    }

    /// Makes every request fail, or none from now on.
    pub fn set_away(&self, is_away: bool) {
        self.state.lock().faults.is_away = is_away;
        self.changed.notify_waiters();
    }

    /// Sets the time that each request takes before it is applied.
    pub fn set_delay(&self, delay: Duration) {
        self.state.lock().faults.delay = delay;
    }

    /// Loses the answer of the next transaction for which none is planned yet.
    pub fn lose_answer(&self, lost: LostAnswer) {
        self.state.lock().faults.lost_answers.push_back(lost);
    }

    /// Applies the transactions that are still under way, in the order in which they were sent.
    pub fn deliver_late(&self) {
        let mut state = self.state.lock();
        for (comparisons, changes) in std::mem::take(&mut state.faults.late) {
            // The sender has given up, so the result has no reader.
            let _ = state.transact(&comparisons, &changes);
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// Sets the number of revisions that watches are behind.
    pub fn set_watch_lag(&self, revisions: u32) {
        self.state.lock().faults.watch_lag = i64::from(revisions);
        self.changed.notify_waiters();
    }

    /// Forgets the history up to a revision.
    pub fn compact(&self, revision: i64) {
        let mut state = self.state.lock();
        let revision = revision.min(state.revision);
        state.compacted = state.compacted.max(revision);
        state.history.retain(|event| event.revision() > revision);
        drop(state);
        self.changed.notify_waiters();
    }

    /// Restarts the agreement: sessions that have not ended begin their time again, as etcd's
    /// leases do when a member becomes the leader.
    pub fn restart(&self) {
        let (now, mut state) = ((self.clock)(), self.state.lock());
        for session in state.sessions.values_mut() {
            session.ends_at = now + session.ttl;
        }
    }

    /// Ends the faults of answers: planned ones do not happen any more.
    pub fn forget_faults(&self) {
        self.state.lock().faults = Faults::default();
    }

    /// Puts an earlier state in place of the present one, as a restore from a backup does: the
    /// revision goes back, and no session is left.
    pub fn restore(&self, backup: &RecordList) {
        let mut state = self.state.lock();
        let kept = backup.records.iter().filter(|record| record.session.is_none());
        state.records = kept.map(|record| (record.key.clone(), record.clone())).collect();
        (state.revision, state.compacted) = (backup.revision, backup.revision);
        state.history.clear();
        state.sessions.clear();
        drop(state);
        self.changed.notify_waiters();
    }

    /// Sessions that have not ended.
    pub fn sessions(&self) -> Vec<SessionId> {
        let mut state = self.state.lock();
        state.expire((self.clock)());
        state.sessions.keys().copied().collect()
    }

    /// Waits as long as a request takes to arrive, and applies it.
    async fn request<T>(
        &self,
        limit: Duration,
        apply: impl FnOnce(&mut MemoryState) -> T,
    ) -> Result<T, AgreementError> {
        let delay = self.state.lock().faults.delay;
        if delay >= limit {
            tokio::time::sleep(limit).await;
            return Err(unreachable("no answer in time"));
        }
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        let mut state = self.state.lock();
        if state.faults.is_away {
            return Err(unreachable("away"));
        }
        state.expire((self.clock)());
        let applied = apply(&mut state);
        drop(state);
        self.changed.notify_waiters();
        Ok(applied)
    }

    async fn wait_for_changes(
        &self,
        prefix: &str,
        revision: i64,
        limit: Duration,
    ) -> Result<WatchAnswer, AgreementError> {
        let end = Instant::now() + limit;
        loop {
            // Registered before the look, so that no change is missed.
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            let next_expiry = {
                let (now, mut state) = ((self.clock)(), self.state.lock());
                if state.faults.is_away {
                    return Err(unreachable("away"));
                }
                state.expire(now);
                match state.changes_after(prefix, revision) {
                    WatchAnswer::Quiet => {}
                    answer => return Ok(answer),
                }
                let ends = state.sessions.values().map(|session| session.ends_at);
                ends.min().map(|ends_at| ends_at.saturating_sub(now))
            };
            let wake = next_expiry.map_or(end, |left| end.min(Instant::now() + left));
            tokio::select! {
                () = changed => {}
                () = tokio::time::sleep_until(wake) => {}
            }
            if Instant::now() >= end {
                return Ok(WatchAnswer::Quiet);
            }
        }
    }
}

impl MemoryState {
    fn transact(
        &mut self,
        comparisons: &[RecordComparison],
        changes: &[RecordChange],
    ) -> Result<Option<i64>, AgreementError> {
        let unknown = |session: &SessionId| !self.sessions.contains_key(session);
        for change in changes {
            if let RecordChange::Put { session: Some(session), .. } = change
                && unknown(session)
            {
                let detail = format!("session {session:?} is over");
                return Err(AgreementError::Refused { path: "transact", detail });
            }
        }
        if !comparisons.iter().all(|comparison| self.holds(comparison)) {
            return Ok(None);
        }
        let revision = self.revision + 1;
        let events: Vec<WatchEvent> =
            changes.iter().filter_map(|change| self.apply(change, revision)).collect();
        if !events.is_empty() {
            self.note(revision, events);
        }
        Ok(Some(self.revision))
    }

    fn note(&mut self, revision: i64, events: Vec<WatchEvent>) {
        assert!(revision > self.revision, "revisions only grow");
        assert!(events.iter().all(|event| event.revision() == revision));
        self.revision = revision;
        self.history.extend(events);
    }

    fn holds(&self, comparison: &RecordComparison) -> bool {
        match comparison {
            RecordComparison::Absent(key) => !self.records.contains_key(key),
            RecordComparison::ModifiedAt(key, revision) => {
                self.records.get(key).is_some_and(|record| record.mod_revision == *revision)
            }
            RecordComparison::CreatedAt(key, revision) => {
                self.records.get(key).is_some_and(|record| record.create_revision == *revision)
            }
            RecordComparison::HasValue(key, value) => {
                self.records.get(key).is_some_and(|record| record.value == *value)
            }
        }
    }

    fn apply(&mut self, change: &RecordChange, revision: i64) -> Option<WatchEvent> {
        match change {
            RecordChange::Put { key, value, session } => {
                let before = self.records.get(key);
                let record = AgreementRecord {
                    key: key.clone(),
                    value: value.clone(),
                    mod_revision: revision,
                    create_revision: before.map_or(revision, |record| record.create_revision),
                    session: *session,
                };
                self.records.insert(key.clone(), record.clone());
                Some(WatchEvent::Put(record))
            }
            RecordChange::Delete { key } => {
                let removed = self.records.remove(key)?;
                Some(WatchEvent::Deleted { key: removed.key, revision })
            }
        }
    }

    /// Ends the sessions whose time is over.
    fn expire(&mut self, now: Duration) {
        let over: Vec<SessionId> = self
            .sessions
            .iter()
            .filter(|(_, session)| session.ends_at <= now)
            .map(|(id, _)| *id)
            .collect();
        over.into_iter().for_each(|session| self.end(session));
    }

    fn end(&mut self, session: SessionId) {
        self.sessions.remove(&session);
        let revision = self.revision + 1;
        let keys: Vec<String> = self
            .records
            .values()
            .filter(|record| record.session == Some(session))
            .map(|record| record.key.clone())
            .collect();
        let deleted = |key: String| self.apply(&RecordChange::Delete { key }, revision);
        let events: Vec<WatchEvent> = keys.into_iter().filter_map(deleted).collect();
        if !events.is_empty() {
            self.note(revision, events);
        }
    }

    fn changes_after(&self, prefix: &str, revision: i64) -> WatchAnswer {
        if revision < self.compacted {
            return WatchAnswer::Compacted;
        }
        let visible = self.revision - self.faults.watch_lag;
        let is_next = |event: &&WatchEvent| {
            let key = match event {
                WatchEvent::Put(record) => &record.key,
                WatchEvent::Deleted { key, .. } => key,
            };
            event.revision() > revision && event.revision() <= visible && key.starts_with(prefix)
        };
        let events: Vec<WatchEvent> = self.history.iter().filter(is_next).cloned().collect();
        if events.is_empty() { WatchAnswer::Quiet } else { WatchAnswer::Changes(events) }
    }
}

impl Agreement for MemoryAgreement {
    fn get<'a>(
        &'a self,
        key: &'a str,
        limit: Duration,
    ) -> AgreementAnswer<'a, Option<AgreementRecord>> {
        Box::pin(self.request(limit, move |state| state.records.get(key).cloned()))
    }

    fn list<'a>(&'a self, prefix: &'a str, limit: Duration) -> AgreementAnswer<'a, RecordList> {
        Box::pin(self.request(limit, move |state| {
            let records = state.records.range(prefix.to_owned()..);
            let records = records.take_while(|(key, _)| key.starts_with(prefix));
            let records = records.map(|(_, record)| record.clone()).collect();
            RecordList { records, revision: state.revision }
        }))
    }

    fn transact<'a>(
        &'a self,
        comparisons: &'a [RecordComparison],
        changes: &'a [RecordChange],
        limit: Duration,
    ) -> AgreementAnswer<'a, Option<i64>> {
        Box::pin(async move {
            let apply = |state: &mut MemoryState| match state.faults.lost_answers.pop_front() {
                None => state.transact(comparisons, changes),
                Some(lost) => {
                    match lost {
                        LostAnswer::Applied => drop(state.transact(comparisons, changes)),
                        LostAnswer::NotApplied => {}
                        LostAnswer::AppliedLater => {
                            state.faults.late.push((comparisons.to_vec(), changes.to_vec()));
                        }
                    }
                    Err(unreachable("the answer is lost"))
                }
            };
            self.request(limit, apply).await?
        })
    }

    fn watch<'a>(
        &'a self,
        prefix: &'a str,
        revision: i64,
        limit: Duration,
    ) -> AgreementAnswer<'a, WatchAnswer> {
        Box::pin(self.wait_for_changes(prefix, revision, limit))
    }
}

impl Sessions for MemoryAgreement {
    fn begin_session(&self, ttl_s: u64, limit: Duration) -> AgreementAnswer<'_, SessionGrant> {
        let ttl = Duration::from_secs(ttl_s);
        Box::pin(self.request(limit, move |state| {
            state.last_session += 1;
            let id = SessionId(state.last_session);
            let ends_at = (self.clock)() + ttl;
            state.sessions.insert(id, MemorySession { ttl, ends_at });
            SessionGrant { id, ttl }
        }))
    }

    fn renew_session(
        &self,
        session: SessionId,
        limit: Duration,
    ) -> AgreementAnswer<'_, Option<Duration>> {
        Box::pin(self.request(limit, move |state| {
            let session = state.sessions.get_mut(&session)?;
            session.ends_at = (self.clock)() + session.ttl;
            Some(session.ttl)
        }))
    }

    fn end_session(&self, session: SessionId, limit: Duration) -> AgreementAnswer<'_, ()> {
        Box::pin(self.request(limit, move |state| state.end(session)))
    }
}

fn unreachable(detail: &str) -> AgreementError {
    AgreementError::Unreachable { endpoint: "memory".to_owned(), detail: detail.to_owned() }
}

#[cfg(test)]
mod tests;
