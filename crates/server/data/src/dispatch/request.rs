//! One request, and the context that a handler needs to serve it.
//!
//! Owns: what handlers ask of a request: its document, located once, the selected bucket, and the
//! counters.
//!
//! Invariants:
//! - a handler gets no output; it returns an [`super::outcome::Outcome`];
//! - only handlers whose rule demands a selected bucket ask for it, because only the rule
//!   guarantees it.

use std::sync::Arc;

use oribi_engine::{
    Bucket, Context, FillingItem, GetOutcome, KeyAhead, KeyHash, MutationOutcome,
    OperationRejection, ReadSection, SharedOutcome, StoreRequest, VBucket, WriteVisibility,
};
use oribi_protocol::feature::Feature;
use oribi_protocol::frame::Frame;
use oribi_protocol::frame_info::RequestFrames;
use oribi_protocol::limits::GATHER_VALUE_BYTES_MIN;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::status::Status;
use oribi_types::{Cas, CollectionId, DocKey, Vbid};

use super::outcome::Rejection;
use crate::buckets::BucketHandle;
use crate::connection::fetches::TryHistory;
use crate::connection::request_id::RequestId;
use crate::connection::waker::ConnectionId;
use crate::diagnostics::counters::collections::CollectionCounters;
use crate::diagnostics::counters::{Counter, OperationCounters};
use crate::dispatch::connection_state::ConnectionState;
use crate::dispatch::environment::Environment;

/// One request in the hands of its handler.
pub(super) struct Request<'a> {
    /// The connection that sent it.
    pub connection: ConnectionId,
    pub frame: &'a Frame<'a>,
    pub opcode: Opcode,
    pub infos: RequestFrames,
    /// When a write of the request becomes visible, and is answered.
    pub visibility: WriteVisibility,
    /// The state of that connection.
    pub state: &'a mut ConnectionState,
    pub env: &'a mut Environment,
    /// The read section of the turn, if the request is served in one.
    pub section: Option<&'a ReadSection>,
    /// The key, if it was announced to the engine.
    pub ahead: Option<KeyAhead>,
    /// The item of a store request whose value was received in place; the frame's value is empty
    /// then.
    pub received: Option<FillingItem>,
    /// Its history, if it is tried again.
    pub tries: TryHistory,
    /// Answers to earlier requests are still unsent.
    pub has_output: bool,
}

/// The location of a request's document.
#[derive(Debug, Clone, Copy)]
pub(super) struct RequestLocation<'a> {
    /// Collection and logical key.
    pub key: DocKey<'a>,
    /// Its hash, if the key was announced.
    ahead: Option<KeyAhead>,
}

impl<'a> Request<'a> {
    /// A request as it came.
    #[inline]
    pub fn new(
        connection: ConnectionId,
        frame: &'a Frame<'a>,
        opcode: Opcode,
        state: &'a mut ConnectionState,
        env: &'a mut Environment,
    ) -> Request<'a> {
        Request {
            connection,
            frame,
            opcode,
            infos: RequestFrames::default(),
            visibility: WriteVisibility::AtOnce,
            state,
            env,
            section: None,
            ahead: None,
            received: None,
            tries: TryHistory::default(),
            has_output: false,
        }
    }

    /// The parts that its answer repeats.
    pub fn id(&self) -> RequestId {
        RequestId::of(&self.frame.header)
    }

    #[inline(always)]
    pub fn locate(&self) -> Result<RequestLocation<'a>, Rejection> {
        const INVALID: Rejection = Rejection::Because(Status::Einval, "the key is not valid");
        let key = self.state.doc_key(self.frame.key).ok_or(INVALID)?;
        Ok(RequestLocation { key, ahead: self.ahead })
    }

    /// The vbucket that the header names, for requests without a key.
    pub fn named_vbucket(&self) -> Vbid {
        Vbid(self.frame.header.vbucket_or_status)
    }

    /// The CAS that a write demands, 0 for any.
    pub fn cas(&self) -> Cas {
        Cas(self.frame.header.cas)
    }

    /// The selected bucket. Only for opcodes whose rule demands one.
    #[inline(always)]
    pub fn handle(&self) -> &Arc<BucketHandle> {
        self.state.bucket().expect("the rule of this opcode demands a selected bucket")
    }

    /// The engine's part of the selected bucket.
    #[inline(always)]
    pub fn bucket(&self) -> &Arc<Bucket> {
        self.handle().bucket()
    }

    /// The engine's context of an operation for this request.
    #[inline(always)]
    pub fn context(&self) -> Context<'_> {
        self.bucket().context(self.env.now)
    }

    /// [`Request::context`] of a write: it becomes visible as its durability level demands.
    #[inline(always)]
    pub fn write_context(&self) -> Context<'_> {
        self.context().visible(self.visibility)
    }

    /// Counters of this worker for the selected bucket. Only for opcodes whose rule demands one.
    #[inline(always)]
    pub fn counters(&self) -> &OperationCounters {
        let operations = self.state.selection.operations();
        operations.expect("they are selected with the bucket").counters()
    }

    /// Counts a request once, however often it is tried.
    #[inline(always)]
    pub fn count(&self, counter: impl FnOnce(&OperationCounters) -> &Counter) {
        if self.tries.is_first() {
            counter(self.counters()).add(1);
        }
    }

    /// Counters of this worker for a collection that the engine found.
    #[inline(always)]
    pub fn collection_counters(&mut self, id: CollectionId) -> &CollectionCounters {
        let counters = self.state.selection.collection_counters(id);
        counters.expect("the rule of this opcode demands a selected bucket")
    }

    /// True when the answer has to wait until the write is durable.
    #[inline(always)]
    pub fn waits_for_durability(&self) -> bool {
        self.visibility != WriteVisibility::AtOnce
    }

    /// Refuses a durable write that the copies of its vbucket cannot acknowledge, and one that
    /// would wait for the store when too many writes of the connection already do. Handlers call
    /// this before the write.
    #[inline(always)]
    pub fn admit_durable(&mut self) -> Result<(), Rejection> {
        if self.waits_for_durability() { self.admit_level() } else { Ok(()) }
    }

    #[cold]
    fn admit_level(&mut self) -> Result<(), Rejection> {
        const TOO_FEW: &str = "fewer copies of the vbucket exist than a durable write waits for";
        const TOO_MANY: &str = "too many writes of this connection wait to be durable";
        if let WriteVisibility::WhenCommitted(_) = self.visibility {
            // Another node may have the active copy, and the client has to ask it.
            let document = self.locate()?;
            let vbucket = self.bucket().serving_vbucket(document.vbid(self))?;
            if !vbucket.is_durability_possible() {
                return Err(Rejection::Because(Status::DurabilityImpossible, TOO_FEW));
            }
        }
        if self.state.deferred.writes_or_new().next_position().is_none() {
            return Err(Rejection::Because(Status::Etmpfail, TOO_MANY));
        }
        Ok(())
    }
}

impl RequestLocation<'_> {
    /// The document's vbucket. Reads and stores of an announced key do without it.
    #[inline(always)]
    pub fn vbid(&self, req: &Request<'_>) -> Vbid {
        req.state.vbid(req.frame.header.vbucket_or_status, self.key, req.handle().vbuckets())
    }

    /// The engine's part of that vbucket, whether it serves clients here or not.
    #[inline(always)]
    pub fn vbucket<'r>(&self, req: &'r Request<'_>) -> Result<&'r VBucket, OperationRejection> {
        req.bucket().vbucket_or_rejection(self.vbid(req))
    }

    /// That vbucket, and the hash of the key there, as announced or computed.
    #[inline(always)]
    fn place<'r>(
        &self,
        req: &'r Request<'_>,
    ) -> Result<(&'r VBucket, KeyHash), OperationRejection> {
        match self.ahead {
            Some(ahead) => {
                debug_assert_eq!(ahead.vbid(), self.vbid(req), "another vbucket was announced");
                Ok((req.bucket().vbucket_or_rejection(ahead.vbid())?, ahead.hash()))
            }
            None => {
                let vbucket = self.vbucket(req)?;
                Ok((vbucket, vbucket.hash_of(self.key)))
            }
        }
    }

    /// Reads the document without a lock, if its body is copied as it is: small, and not compressed
    /// for a client that would not understand it.
    #[inline(always)]
    pub fn get_shared<'a>(&self, req: &Request<'a>) -> SharedOutcome<'a> {
        let Some(section) = req.section else { return SharedOutcome::Undecided };
        let Ok((vbucket, hash)) = self.place(req) else { return SharedOutcome::Undecided };
        let outcome = vbucket.get_shared(section, &req.context(), hash, self.key);
        if let SharedOutcome::Hit(item) = &outcome
            && (item.value_bytes() >= GATHER_VALUE_BYTES_MIN
                || item.is_compressed() && !req.state.features().has(Feature::Snappy))
        {
            return SharedOutcome::Undecided;
        }
        outcome
    }

    #[inline(always)]
    pub fn get(&self, req: &Request<'_>) -> GetOutcome {
        match self.place(req) {
            Ok((vbucket, hash)) => vbucket.get_hashed(&req.context(), hash, self.key),
            Err(rejection) => GetOutcome::Refused(rejection),
        }
    }

    /// Stores the document. A value that was received in place is returned when the request has to
    /// be tried again.
    #[inline(always)]
    pub fn store(&self, req: &mut Request<'_>, request: &StoreRequest<'_>) -> MutationOutcome {
        let mut received = req.received.take();
        let outcome = match (self.place(req), &mut received) {
            (Ok((vbucket, _)), received @ Some(_)) => {
                vbucket.store_received(&req.write_context(), received, request)
            }
            (Ok((vbucket, hash)), None) => {
                vbucket.store_hashed(&req.write_context(), hash, self.key, request)
            }
            (Err(rejection), _) => MutationOutcome::Refused(rejection),
        };
        req.received = received;
        outcome
    }
}
