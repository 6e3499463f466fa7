//! The result of a handler: a reply, or the reason for none.
//!
//! A handler locates its document, calls the engine and maps the engine's result to one of these
//! values. It writes nothing: [`super::answer`] encodes an outcome, and decides about silence,
//! statuses and texts. A miss is a reply; [`Rejection`] holds what `?` carries.

use std::borrow::Cow;
use std::sync::Arc;

use oribi_auth::PrivilegeSet;
use oribi_engine::{ItemRef, MutationOutcome, OperationRejection, SharedItem};
use oribi_protocol::status::Status;
use oribi_types::{Cas, Datatype};
use smallvec::SmallVec;

use crate::connection::parked::Answer;
use crate::connection::pending::HeadWait;
use crate::dispatch::environment::Environment;
use crate::dispatch::job::BlockingJob;
use crate::dispatch::late_outcome::LateOutcome;
use crate::dispatch::status;

/// The result of a request, as its handler sees it.
pub(super) type Outcome<'a> = Result<HandlerReply<'a>, Rejection>;

/// The answer to a served request.
pub(super) enum HandlerReply<'a> {
    /// Success with no body.
    Success,
    /// A document with this CAS, and the key field if the answer repeats it.
    Document { item: ItemRef, cas: Cas, key: &'a [u8] },
    /// The same, of a document that was found without a lock: its body is copied as it is.
    Shared { item: SharedItem<'a>, key: &'a [u8] },
    /// No such document; the key field if the answer repeats it.
    Miss { key: &'a [u8] },
    /// A write that is done in memory. It is answered once it has reached its durability level.
    Written(Answer),
    /// A value, with Success or another status that is no failure.
    Value { status: Status, value: Cow<'static, [u8]> },
    /// A CAS and extras.
    Extras { cas: Cas, extras: SmallVec<[u8; 24]> },
    /// A JSON document of the server.
    Json(Arc<str>),
    /// A document of the server's choice.
    Sampled(Box<SampledDocument>),
    /// The values at several paths of a document.
    Found(PathValues),
    /// Another thread makes the answer, and the connection waits for it.
    Job(BlockingJob<Environment>),
    /// An outcome that is answered alike whether the worker or another thread made it.
    AsLate(LateOutcome),
    /// Nothing: the command has no answer.
    Nothing,
    /// The answer is made slice by slice; the connection requests each.
    Streamed,
}

/// A document chosen at random.
pub(super) struct SampledDocument {
    pub key: Vec<u8>,
    pub item: ItemRef,
    pub cas: Cas,
    /// Attributes and plain body, if attributes were requested.
    pub with_attributes: Option<Vec<u8>>,
}

/// The values at paths.
pub(super) struct PathValues {
    pub status: Status,
    /// The version of the document.
    pub item: ItemRef,
    pub cas: Cas,
    /// Datatype of the value, when there is only one.
    pub datatype: Datatype,
    /// Each value has its own head.
    pub is_list: bool,
    pub values: SmallVec<[FoundValue; 4]>,
    /// Values that do not exist in the item in the form in which they are sent.
    pub made: Vec<u8>,
}

/// One value: a range of the item's bytes, or of `made`.
pub(super) struct FoundValue {
    pub status: Status,
    pub is_in_item: bool,
    pub begin: u32,
    pub end: u32,
}

impl HandlerReply<'_> {
    /// Success and a value.
    pub fn value(value: impl Into<Cow<'static, [u8]>>) -> HandlerReply<'static> {
        HandlerReply::Value { status: Status::Success, value: value.into() }
    }

    /// Success and a short text.
    pub fn text(text: &'static str) -> HandlerReply<'static> {
        HandlerReply::value(text.as_bytes())
    }
}

/// Why a request was not done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rejection {
    /// A status that needs no explanation.
    Status(Status),
    /// A status, and a readable reason: plain ASCII without quotes.
    Because(Status, &'static str),
    /// The engine did not look at the key. A request that needs a fetch is tried again after it
    /// instead of answered.
    Engine(OperationRejection),
    /// A scope or collection is not in the manifest.
    Unknown(Status),
    /// The rules or the user's rights refuse it.
    Refused(RuleRejection),
    /// The request is tried again when this wait is over.
    Retry(HeadWait),
}

/// Why a request is not served, though the engine was not asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RuleRejection {
    /// This status, and a readable reason.
    Status(Status, &'static str),
    /// The user lacks these privileges.
    Access(PrivilegeSet),
    /// The collection does not exist, or the user may not know whether it does.
    UnknownCollection,
}

impl From<OperationRejection> for Rejection {
    #[inline]
    fn from(refused: OperationRejection) -> Rejection {
        Rejection::Engine(refused)
    }
}

impl From<Status> for Rejection {
    #[inline]
    fn from(status: Status) -> Rejection {
        Rejection::Status(status)
    }
}

impl From<RuleRejection> for Rejection {
    fn from(refusal: RuleRejection) -> Rejection {
        Rejection::Refused(refusal)
    }
}

/// A write that was not done. Outcomes that depend only on the document need no reason.
impl From<MutationOutcome> for Rejection {
    #[inline(never)]
    fn from(outcome: MutationOutcome) -> Rejection {
        let status = status::of_mutation(&outcome);
        match outcome {
            MutationOutcome::Refused(refused) => Rejection::Engine(refused),
            MutationOutcome::TooLarge => {
                Rejection::Because(status, "the value is longer than a document may be")
            }
            MutationOutcome::Corrupt => {
                Rejection::Because(status, "the value is not what its datatype says")
            }
            _ => Rejection::Status(status),
        }
    }
}
