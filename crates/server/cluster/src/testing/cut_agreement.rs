//! One node's way to the agreement in memory, which a test cuts or delays.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::agreement::memory::MemoryAgreement;
use crate::agreement::{
    Agreement, AgreementAnswer, AgreementError, AgreementRecord, RecordChange, RecordComparison,
    RecordList, SessionGrant, SessionId, Sessions, WatchAnswer,
};

/// See the module text.
pub struct CutAgreement {
    inner: Arc<MemoryAgreement>,
    is_cut: AtomicBool,
    on_answer: Mutex<Option<OnAnswer>>,
}

/// Called when a session was granted or renewed, before the node has the answer.
pub type OnAnswer = Box<dyn Fn() + Send>;

impl CutAgreement {
    pub fn over(inner: &Arc<MemoryAgreement>) -> Arc<CutAgreement> {
        Arc::new(CutAgreement {
            inner: Arc::clone(inner),
            is_cut: AtomicBool::new(false),
            on_answer: Mutex::default(),
        })
    }

    /// Sets what happens while an answer about a session is under way.
    pub fn delay_answers(&self, on_answer: Option<OnAnswer>) {
        *self.on_answer.lock() = on_answer;
    }

    fn delayed<'a, T: Send + 'a>(
        &'a self,
        answer: AgreementAnswer<'a, T>,
    ) -> AgreementAnswer<'a, T> {
        let answer = self.unless_cut(answer);
        Box::pin(async {
            let answer = answer.await;
            if let Some(on_answer) = &*self.on_answer.lock() {
                on_answer();
            }
            answer
        })
    }

    /// Lets every request of this node fail, or none from now on.
    pub fn set_cut(&self, is_cut: bool) {
        self.is_cut.store(is_cut, Ordering::SeqCst);
    }

    fn unless_cut<'a, T: Send + 'a>(
        &self,
        answer: AgreementAnswer<'a, T>,
    ) -> AgreementAnswer<'a, T> {
        if self.is_cut.load(Ordering::SeqCst) {
            let (endpoint, detail) = ("memory".to_owned(), "cut".to_owned());
            return Box::pin(async { Err(AgreementError::Unreachable { endpoint, detail }) });
        }
        answer
    }
}

impl Agreement for CutAgreement {
    fn get<'a>(
        &'a self,
        key: &'a str,
        limit: Duration,
    ) -> AgreementAnswer<'a, Option<AgreementRecord>> {
        self.unless_cut(self.inner.get(key, limit))
    }

    fn list<'a>(&'a self, prefix: &'a str, limit: Duration) -> AgreementAnswer<'a, RecordList> {
        self.unless_cut(self.inner.list(prefix, limit))
    }

    fn transact<'a>(
        &'a self,
        comparisons: &'a [RecordComparison],
        changes: &'a [RecordChange],
        limit: Duration,
    ) -> AgreementAnswer<'a, Option<i64>> {
        self.unless_cut(self.inner.transact(comparisons, changes, limit))
    }

    fn watch<'a>(
        &'a self,
        prefix: &'a str,
        revision: i64,
        limit: Duration,
    ) -> AgreementAnswer<'a, WatchAnswer> {
        self.unless_cut(self.inner.watch(prefix, revision, limit))
    }
}

impl Sessions for CutAgreement {
    fn begin_session(&self, ttl_s: u64, limit: Duration) -> AgreementAnswer<'_, SessionGrant> {
        self.delayed(self.inner.begin_session(ttl_s, limit))
    }

    fn renew_session(
        &self,
        session: SessionId,
        limit: Duration,
    ) -> AgreementAnswer<'_, Option<Duration>> {
        self.delayed(self.inner.renew_session(session, limit))
    }

    fn end_session(&self, session: SessionId, limit: Duration) -> AgreementAnswer<'_, ()> {
        self.unless_cut(self.inner.end_session(session, limit))
    }
}
