//! Changes of single documents by a statement.
//!
//! Owns: the rights of each change, its repetition after a fetch, and the engine's outcomes as
//! codes. A change is an ordinary write with a CAS where the statement has read the document.
//! Invariant: an outcome that was computed past the lease's deadline is an error.

use std::sync::Arc;
use std::time::{Duration, Instant};

use oribi_auth::Privilege;
use oribi_engine::{
    Bucket, FetchOutcome, FetchSink, MutationOutcome, OperationRejection, StoreCondition,
    StoreRequest, WriteVisibility,
};
use oribi_protocol::hash::vbucket_of;
use oribi_query::{DocumentMutation, Precondition, QueryError, Result};
use oribi_server::buckets::{DURABLE_WAIT, DurableWait};
use oribi_system::clock::wall_clock;
use oribi_types::{Cas, DocKey, Vbid};
use parking_lot::{Condvar, Mutex};

use super::place::KeyspacePlace;

/// The flags of JSON that SDKs write and read.
const JSON_FLAGS: u32 = 0x0200_0006;

/// Fetches before a change that others overtake again and again is given up.
const FETCHES_MAX: usize = 8;
const _: () = assert!(FETCHES_MAX > 1, "a change is tried again after its fetch");

/// Interval between two looks whether a wait has to end.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Inner codes of a refused change.
const KEY_EXISTS: u32 = 17012;
const KEY_MISSING: u32 = 17014;
const CAS_MISMATCH: u32 = 12033;
const NOT_DONE: u32 = 5;

/// Applies a change. Returns the new CAS.
pub(super) fn apply(keyspace: &KeyspacePlace, mutation: &DocumentMutation) -> Result<u64> {
    keyspace.check_rights(match (&mutation.value, mutation.precondition) {
        (None, _) => &[Privilege::Delete],
        (Some(_), Precondition::Absent) => &[Privilege::Insert],
        (Some(_), Precondition::Cas(_)) => &[Privilege::Upsert],
        (Some(_), Precondition::None) => &[Privilege::Insert, Privilege::Upsert],
    })?;
    let vbid = vbucket_of(&mutation.key, keyspace.handle.vbuckets());
    let key = DocKey { collection: keyspace.collection, key: &mutation.key };
    let visibility = match keyspace.handle.raised_visibility(vbid) {
        Ok(Some(visibility)) => visibility,
        Ok(None) => {
            return Err(not_done("fewer copies exist than the bucket's durability asks for"));
        }
        Err(refused) => return result_of(MutationOutcome::Refused(refused), mutation),
    };
    for _ in 0..FETCHES_MAX {
        keyspace.control.check().map_err(|error| keyspace.read_error(&error))?;
        match attempt(keyspace, (vbid, visibility), key, mutation)? {
            MutationOutcome::Refused(OperationRejection::NeedsFetch) => fetch(keyspace, vbid, key)?,
            MutationOutcome::Done(done) => {
                let wait = DurableWait::begin(&keyspace.handle, (vbid, visibility), done);
                wait.map_or(Ok(()), |wait| until_durable(keyspace, &wait))?;
                return Ok(done.cas.0);
            }
            outcome => return result_of(outcome, mutation),
        }
    }
    Err(not_done("the document is evicted as often as it is read"))
}

/// Waits until a change is as durable as its bucket demands.
fn until_durable(keyspace: &KeyspacePlace, wait: &DurableWait) -> Result<()> {
    let ends = Instant::now() + DURABLE_WAIT;
    loop {
        match wait.wait(LOOK_INTERVAL) {
            Some(true) => return Ok(()),
            None if Instant::now() < ends => {}
            _ => return Err(not_done("the change is not durable; whether it was done is unknown")),
        }
        keyspace.control.check().map_err(|error| keyspace.read_error(&error))?;
    }
}

fn attempt(
    keyspace: &KeyspacePlace,
    (vbid, visibility): (Vbid, WriteVisibility),
    key: DocKey<'_>,
    mutation: &DocumentMutation,
) -> Result<MutationOutcome> {
    let (bucket, now) = (keyspace.handle.bucket(), wall_clock());
    let node = keyspace.server.cluster.node_of(&keyspace.handle);
    let session = node.as_ref().map(|node| node.lease().serving());
    let (mode, cas) = match mutation.precondition {
        Precondition::None => (StoreCondition::Set, Cas(0)),
        Precondition::Absent => (StoreCondition::Add, Cas(0)),
        Precondition::Cas(cas) => (StoreCondition::Replace, Cas(cas)),
    };
    let context = bucket.context(now).visible(visibility);
    let outcome = match (bucket.vbucket_or_rejection(vbid), &mutation.value) {
        (Err(rejection), _) => MutationOutcome::Refused(rejection),
        (Ok(vbucket), None) => vbucket.delete(&context, key, cas),
        (Ok(vbucket), Some(value)) => {
            let request = StoreRequest {
                mode,
                flags: JSON_FLAGS,
                expiry: mutation.expiration.unwrap_or(0),
                cas,
                preserve_expiry: mutation.expiration.is_none(),
                ..StoreRequest::set(value)
            };
            vbucket.store(&context, key, &request)
        }
    };
    match (session, &node) {
        (Some(session), Some(node)) if !node.lease().still_holds(session) => {
            Err(not_done("this node lost its lease; whether the change was done is unknown"))
        }
        _ => Ok(outcome),
    }
}

fn result_of(outcome: MutationOutcome, mutation: &DocumentMutation) -> Result<u64> {
    let key = String::from_utf8_lossy(&mutation.key);
    let refused = |code, why: &str| Err(QueryError::mutation(code, format!("{why} - key {key}")));
    match outcome {
        MutationOutcome::Done(done) => Ok(done.cas.0),
        MutationOutcome::Exists if mutation.precondition == Precondition::Absent => {
            refused(KEY_EXISTS, "Duplicate Key")
        }
        MutationOutcome::Exists => refused(CAS_MISMATCH, "CAS mismatch"),
        MutationOutcome::NotFound => refused(KEY_MISSING, "Key not found"),
        MutationOutcome::NotStored if mutation.precondition == Precondition::Absent => {
            refused(KEY_EXISTS, "Duplicate Key")
        }
        MutationOutcome::NotStored => refused(KEY_MISSING, "Key not found"),
        MutationOutcome::TooLarge => refused(NOT_DONE, "The value is too large"),
        MutationOutcome::Corrupt => refused(NOT_DONE, "The value is not what it says"),
        MutationOutcome::Refused(OperationRejection::NotMyVbucket) => {
            refused(NOT_DONE, "Another node serves the document's vbucket")
        }
        MutationOutcome::Refused(OperationRejection::UnknownCollection) => {
            refused(NOT_DONE, "The collection was dropped")
        }
        MutationOutcome::Refused(OperationRejection::NoMemory) => {
            refused(NOT_DONE, "The memory quota of the bucket is used up")
        }
        MutationOutcome::Refused(OperationRejection::Locked) => {
            refused(NOT_DONE, "The document is locked")
        }
        MutationOutcome::Refused(OperationRejection::DurableWriteInProgress) => {
            refused(NOT_DONE, "A durable write of the document is under way")
        }
        MutationOutcome::Refused(
            OperationRejection::TemporaryFailure
            | OperationRejection::NeedsFetch
            | OperationRejection::Recommitting,
        ) => refused(NOT_DONE, "The bucket loads, its queue is full, or its store fails"),
    }
}

fn not_done(why: &str) -> Box<QueryError> {
    QueryError::mutation(NOT_DONE, why)
}

/// Takes the end of a fetch.
#[derive(Default)]
struct FetchWaiter {
    outcome: Mutex<Option<FetchOutcome>>,
    ended: Condvar,
}

impl FetchSink for FetchWaiter {
    fn fetched(&self, _token: u64, outcome: FetchOutcome) {
        let before = self.outcome.lock().replace(outcome);
        debug_assert!(before.is_none(), "a fetch ends once");
        self.ended.notify_all();
    }
}

/// Waits until the document is in memory.
fn fetch(keyspace: &KeyspacePlace, vbid: Vbid, key: DocKey<'_>) -> Result<()> {
    let bucket: &Arc<Bucket> = keyspace.handle.bucket();
    let waiting = Arc::new(FetchWaiter::default());
    let sink: Arc<dyn FetchSink> = Arc::clone(&waiting) as _;
    bucket.fetch(vbid, key, &sink, 0);
    let mut outcome = waiting.outcome.lock();
    loop {
        match *outcome {
            Some(FetchOutcome::Ready) => return Ok(()),
            Some(FetchOutcome::Failed) => return Err(not_done("the store cannot be read now")),
            None => {}
        }
        waiting.ended.wait_for(&mut outcome, LOOK_INTERVAL);
        keyspace.control.check().map_err(|error| keyspace.read_error(&error))?;
    }
}
