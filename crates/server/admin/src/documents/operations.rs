//! Operations of document requests on the engine.
//!
//! Owns: the repetition of an operation whose document has to be fetched first, the outcomes as
//! statuses, and pages with their deadline. Invariants: an answer that was computed past the
//! lease's deadline is not sent; a page runs on a blocking thread and ends at [`PAGE_DEADLINE`].
//! Caller: `documents`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::StatusCode;
use oribi_engine::{
    AppliedMutation, Bucket, FetchOutcome, FetchSink, GetOutcome, ItemRef, LOCKED_CAS, ListError,
    ListRequest, ListedPage, MutationOutcome, OperationRejection, StoreRequest, WriteVisibility,
};
use oribi_protocol::hash::vbucket_of;
use oribi_system::clock::wall_clock;
use oribi_types::{Cas, CollectionId, DocKey, Vbid};
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::oneshot;

use super::super::blocking::{blocking, failed};
use super::super::message::{HttpRejection, HttpReply, busy, error, json_reply};
use super::parameters::{PageParameters, WriteParameters};
use oribi_server::buckets::{BucketHandle, DURABLE_WAIT, DurableWait};
use oribi_server::server_context::ServerContext;

/// Time for a page.
const PAGE_DEADLINE: Duration = Duration::from_secs(20);

/// Fetches before an operation that others overtake again and again is given up.
const FETCHES_MAX: usize = 8;
const _: () = assert!(FETCHES_MAX > 1, "an operation is tried again after its fetch");

pub(super) struct DocumentTarget {
    server: Arc<ServerContext>,
    handle: Arc<BucketHandle>,
    collection: CollectionId,
    pub key: Vec<u8>,
    pub vbid: Vbid,
}

/// A document and the CAS that may be shown.
pub(super) struct DocumentView {
    pub item: ItemRef,
    pub cas: Cas,
}

/// Takes the end of one fetch.
struct FetchWaiter(Mutex<Option<oneshot::Sender<FetchOutcome>>>);

impl FetchSink for FetchWaiter {
    fn fetched(&self, _token: u64, outcome: FetchOutcome) {
        if let Some(sender) = self.0.lock().take() {
            // The request may be gone.
            let _ = sender.send(outcome);
        }
    }
}

impl DocumentTarget {
    pub(super) fn new(
        server: Arc<ServerContext>,
        handle: Arc<BucketHandle>,
        collection: CollectionId,
        key: Vec<u8>,
    ) -> DocumentTarget {
        let vbid = vbucket_of(&key, handle.vbuckets());
        DocumentTarget { server, handle, collection, key, vbid }
    }

    fn bucket(&self) -> &Arc<Bucket> {
        self.handle.bucket()
    }

    fn doc_key(&self) -> DocKey<'_> {
        DocKey { collection: self.collection, key: &self.key }
    }

    /// The number of the lease's session, for a bucket that depends on the lease.
    fn session(&self) -> Option<u64> {
        self.server.cluster.node_of(&self.handle).map(|node| node.lease().serving())
    }

    fn still_holds(&self, session: Option<u64>) -> bool {
        match (session, self.server.cluster.node_of(&self.handle)) {
            (Some(session), Some(node)) => node.lease().still_holds(session),
            _ => true,
        }
    }

    /// When a write becomes visible, by the bucket's minimum durability.
    fn visibility(&self) -> Result<WriteVisibility, HttpRejection> {
        match self.handle.raised_visibility(self.vbid) {
            Ok(Some(visibility)) => Ok(visibility),
            Ok(None) => {
                Err(busy("fewer copies exist than the bucket's durability asks for").into())
            }
            Err(refused) => Err(refused_reply(refused).into()),
        }
    }

    /// Runs an operation, and again after each fetch that it needs.
    async fn run<T>(
        &self,
        mut operation: impl FnMut(&Bucket) -> Result<T, OperationRejection>,
    ) -> Result<T, HttpRejection> {
        for _ in 0..FETCHES_MAX {
            let session = self.session();
            let outcome = operation(self.bucket());
            if !self.still_holds(session) {
                let message = "this node lost its lease; whether a write was done is unknown";
                return Err(error(StatusCode::SERVICE_UNAVAILABLE, message).into());
            }
            match outcome {
                Ok(done) => return Ok(done),
                Err(OperationRejection::NeedsFetch) => self.fetch().await?,
                Err(refused) => return Err(refused_reply(refused).into()),
            }
        }
        Err(busy("the document is evicted as often as it is read").into())
    }

    async fn fetch(&self) -> Result<(), HttpRejection> {
        let (sender, told) = oneshot::channel();
        let sink: Arc<dyn FetchSink> = Arc::new(FetchWaiter(Mutex::new(Some(sender))));
        self.bucket().fetch(self.vbid, self.doc_key(), &sink, 0);
        match told.await {
            Ok(FetchOutcome::Ready) => Ok(()),
            Ok(FetchOutcome::Failed) | Err(_) => Err(busy("the store cannot be read now").into()),
        }
    }
}

fn refused_reply(refused: OperationRejection) -> HttpReply {
    match refused {
        OperationRejection::NotMyVbucket => {
            busy("this node does not serve the document's vbucket; another node does")
        }
        OperationRejection::UnknownCollection => {
            error(StatusCode::NOT_FOUND, "The collection was dropped")
        }
        OperationRejection::TemporaryFailure | OperationRejection::NeedsFetch => busy(
            "the bucket cannot serve this now: it loads, its queue is full, or its store fails",
        ),
        OperationRejection::NoMemory => error(
            StatusCode::INSUFFICIENT_STORAGE,
            "The memory quota of the bucket is used up; raise it or delete documents",
        ),
        OperationRejection::Locked => {
            error(StatusCode::LOCKED, "The document is locked by a client")
        }
        OperationRejection::DurableWriteInProgress => {
            busy("a durable write of the document is under way")
        }
        OperationRejection::Recommitting => {
            busy("this copy was promoted, and commits durable writes of the one before")
        }
    }
}

fn not_found() -> HttpRejection {
    error(StatusCode::NOT_FOUND, "Document is not found").into()
}

pub(super) async fn get(target: &DocumentTarget) -> Result<DocumentView, HttpRejection> {
    let seen = target.run(|bucket| {
        let vbucket = bucket.vbucket_or_rejection(target.vbid)?;
        match vbucket.get(&bucket.context(wall_clock()), target.doc_key()) {
            GetOutcome::Hit(item) => Ok(Some(DocumentView { cas: item.cas(), item })),
            GetOutcome::HitLocked(item) => Ok(Some(DocumentView { cas: LOCKED_CAS, item })),
            GetOutcome::Miss => Ok(None),
            GetOutcome::Refused(refused) => Err(refused),
        }
    });
    seen.await?.ok_or_else(not_found)
}

pub(super) async fn put(
    target: &DocumentTarget,
    parameters: &WriteParameters,
    value: &[u8],
) -> Result<HttpReply, HttpRejection> {
    let request = StoreRequest {
        mode: parameters.mode,
        flags: parameters.flags,
        expiry: parameters.expiry.unwrap_or(0),
        cas: parameters.cas,
        preserve_expiry: parameters.expiry.is_none(),
        ..StoreRequest::set(value)
    };
    let visibility = target.visibility()?;
    let outcome = target.run(|bucket| {
        let vbucket = bucket.vbucket_or_rejection(target.vbid)?;
        let context = bucket.context(wall_clock()).visible(visibility);
        match vbucket.store(&context, target.doc_key(), &request) {
            MutationOutcome::Refused(refused) => Err(refused),
            outcome => Ok(outcome),
        }
    });
    written(target, visibility, outcome.await?).await
}

pub(super) async fn delete(target: &DocumentTarget, cas: Cas) -> Result<HttpReply, HttpRejection> {
    let visibility = target.visibility()?;
    let outcome = target.run(|bucket| {
        let vbucket = bucket.vbucket_or_rejection(target.vbid)?;
        let context = bucket.context(wall_clock()).visible(visibility);
        match vbucket.delete(&context, target.doc_key(), cas) {
            MutationOutcome::Refused(refused) => Err(refused),
            outcome => Ok(outcome),
        }
    });
    written(target, visibility, outcome.await?).await
}

async fn written(
    target: &DocumentTarget,
    visibility: WriteVisibility,
    outcome: MutationOutcome,
) -> Result<HttpReply, HttpRejection> {
    if let MutationOutcome::Done(mutation) = outcome
        && let Some(wait) = DurableWait::begin(&target.handle, (target.vbid, visibility), mutation)
        && blocking(move || wait.wait(DURABLE_WAIT)).await? != Some(true)
    {
        return Err(busy("the write is not as durable as its bucket demands; it may exist").into());
    }
    match outcome {
        MutationOutcome::Done(AppliedMutation { cas, seqno, vb_uuid }) => Ok(json_reply(&json!({
            "cas": cas.0.to_string(),
            "seqno": seqno.0.to_string(),
            "vb_uuid": vb_uuid.0.to_string(),
            "vbucket": target.vbid.0,
        }))),
        MutationOutcome::NotFound | MutationOutcome::NotStored => Err(not_found()),
        MutationOutcome::Exists => {
            let message = "The document exists already or was changed since it was read";
            Err(error(StatusCode::CONFLICT, message).into())
        }
        MutationOutcome::TooLarge => {
            Err(error(StatusCode::PAYLOAD_TOO_LARGE, "The value is too large").into())
        }
        MutationOutcome::Corrupt => {
            Err(error(StatusCode::BAD_REQUEST, "The value is not what it says").into())
        }
        MutationOutcome::Refused(refused) => Err(refused_reply(refused).into()),
    }
}

/// Lists documents, one more than the page has rows; the extra one is the start of the next page.
pub(super) async fn page(
    bucket: Arc<Bucket>,
    collection: CollectionId,
    parameters: PageParameters,
) -> Result<ListedPage, HttpRejection> {
    let PageParameters { from, until, rows_max } = parameters;
    let request =
        ListRequest { collection, from, until, rows_max: rows_max + 1, now: wall_clock() };
    let listed = blocking(move || {
        let ends = Instant::now() + PAGE_DEADLINE;
        bucket.list_documents(&request, &mut || Instant::now() < ends && !bucket.is_ending())
    });
    match listed.await? {
        Ok(page) => Ok(page),
        Err(ListError::Late) => Err(busy(
            "the collection is too large to be listed here; scan it with a client instead",
        )
        .into()),
        Err(ListError::Recommitting) => {
            Err(busy("a copy was promoted, and commits durable writes of the one before").into())
        }
        Err(ListError::Store(failure)) => Err(failed("list documents", &failure).into()),
    }
}
