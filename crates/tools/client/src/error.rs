//! Errors, from a caller's point of view.
//!
//! [`RejectionKind`] is an answer of the server: the connection is fine and the server decided.
//! The other errors say that no usable answer came. Errors are cheap to clone, because a broken
//! connection fails every request in flight on it.

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use oribi_protocol::change_cursor::OutOfOrder;
use oribi_protocol::status::Status;

/// Why an operation gave no result.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The server decided against it.
    #[error(transparent)]
    Rejected(#[from] RejectionKind),
    /// The key is empty or too long for its collection.
    #[error("a key has 1 to {max} bytes, this one has {len}")]
    InvalidKey {
        /// Bytes of the key.
        len: usize,
        /// Longest key that the collection allows.
        max: usize,
    },
    /// The value is larger than any server accepts.
    #[error("a value has at most {max} bytes, this one has {len}")]
    ValueTooLarge {
        /// Bytes of the value.
        len: usize,
        /// Largest allowed value.
        max: usize,
    },
    /// The server needs to have negotiated something that it did not.
    #[error("the server does not offer {0}")]
    NotOffered(&'static str),
    /// The call itself makes no sense, for instance a list of paths that is too long.
    #[error("{0}")]
    InvalidArgument(&'static str),
    /// A path of a sub-document write failed, and with it the whole write.
    #[error("path {index} failed: {error}")]
    Path {
        /// Position of the path in the request, from 0.
        index: usize,
        /// Reason why it is invalid.
        error: PathError,
    },
    /// Name and password were not accepted, or the server could not prove that it knows them.
    #[error("authentication failed: {0}")]
    Authentication(Cow<'static, str>),
    /// The server could not be reached.
    #[error("connecting to {peer}: {error}")]
    Connect {
        /// `host:port`.
        peer: Arc<str>,
        /// The system's error.
        error: Arc<io::Error>,
    },
    /// The server sent something that does not follow the protocol.
    #[error("{at}: protocol error: {reason}")]
    Protocol {
        /// Connection and operation.
        at: Site,
        /// Reason why it is invalid.
        reason: Cow<'static, str>,
    },
    /// No answer in time; whether the operation was carried out is unknown.
    #[error("{at}: no answer within {after:?}")]
    Timeout {
        /// Connection and operation.
        at: Site,
        /// How long was waited.
        after: Duration,
    },
    /// There was no connection to send it on in time, or it ended before the request was sent. The
    /// operation was not carried out.
    #[error("{at}: not sent: {reason}")]
    NotSent {
        /// Connection and operation.
        at: Site,
        /// Why there was no connection.
        reason: Arc<str>,
    },
    /// The connection ended before the answer came; whether the operation was carried out is
    /// unknown.
    #[error("{at}: the connection is closed: {reason}")]
    Closed {
        /// Connection and operation.
        at: Site,
        /// Why it ended.
        reason: Arc<str>,
    },
}

/// Which connection, and what it was doing.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Site {
    /// The server, as `host:port`.
    pub peer: Arc<str>,
    /// Name of the operation, for instance `GET`.
    pub operation: &'static str,
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.operation, self.peer)
    }
}

/// Bytes of a server that do not mean what they should; the text says what was expected.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct MalformedResponse(Cow<'static, str>);

impl MalformedResponse {
    pub(crate) fn new(reason: impl Into<Cow<'static, str>>) -> MalformedResponse {
        MalformedResponse(reason.into())
    }

    /// The error of the operation whose answer it was.
    pub(crate) fn at(self, at: Site) -> ClientError {
        ClientError::Protocol { at, reason: self.0 }
    }
}

impl From<OutOfOrder> for MalformedResponse {
    fn from(out_of_order: OutOfOrder) -> MalformedResponse {
        MalformedResponse::new(out_of_order.0)
    }
}

/// A status other than success, by what a caller can do about it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RejectionKind {
    /// No such document (or bucket).
    #[error("not found")]
    NotFound,
    /// The document is there already, or has another CAS.
    #[error("the document exists already or has another CAS")]
    Exists,
    /// Document too large.
    #[error("the value is too large for the server")]
    TooLarge,
    /// The server finds the request malformed.
    #[error("the server found the request invalid")]
    Invalid,
    /// Nothing to append to, or nothing added.
    #[error("not stored")]
    NotStored,
    /// The document is no decimal counter.
    #[error("the document is not a counter")]
    NotANumber,
    /// The vbucket is not active on the node that was asked.
    #[error("the vbucket is not active on this node")]
    NotMyVbucket,
    /// No bucket is selected.
    #[error("no bucket is selected")]
    NoBucket,
    /// Another client has locked the document.
    #[error("the document is locked")]
    Locked,
    /// The document to unlock is not locked.
    #[error("the document is not locked")]
    NotLocked,
    /// The user may not do this, or the bucket does not exist.
    #[error("access denied")]
    AccessDenied,
    /// The bucket has no memory left.
    #[error("the bucket is out of memory")]
    OutOfMemory,
    /// The server does not implement it.
    #[error("not supported by the server")]
    NotSupported,
    /// The server asks to try again later.
    #[error("temporary failure")]
    TemporaryFailure,
    /// The collection does not exist (any more).
    #[error("unknown collection")]
    UnknownCollection,
    /// The scope does not exist.
    #[error("unknown scope")]
    UnknownScope,
    /// The durability level is not available.
    #[error("the durability level is not available")]
    DurabilityInvalidLevel,
    /// Too few replicas for the durability level.
    #[error("too few replicas for the durability level")]
    DurabilityImpossible,
    /// Another durable write of the key is under way.
    #[error("another durable write of this key is under way")]
    SyncWriteInProgress,
    /// A durable write was started but its outcome is unknown.
    #[error("the outcome of the durable write is unknown")]
    SyncWriteAmbiguous,
    /// Any other status.
    #[error("{}", describe(*.0))]
    Other(u16),
}

fn describe(code: u16) -> String {
    match Status::from_u16(code) {
        Some(status) => format!("status 0x{code:02x} {}: {}", status.name(), status.description()),
        None => format!("status 0x{code:02x}"),
    }
}

impl RejectionKind {
    /// The meaning of a status; success has none.
    #[inline]
    pub fn from_status(code: u16) -> Result<(), RejectionKind> {
        // Nearly every answer is one, and millions of them are asked.
        match code == Status::Success.code() {
            true => Ok(()),
            false => RejectionKind::from_failure(code),
        }
    }

    fn from_failure(code: u16) -> Result<(), RejectionKind> {
        let Some(status) = Status::from_u16(code) else { return Err(RejectionKind::Other(code)) };
        Err(match status {
            Status::Success => return Ok(()),
            Status::KeyEnoent => RejectionKind::NotFound,
            Status::KeyEexists => RejectionKind::Exists,
            Status::E2big => RejectionKind::TooLarge,
            Status::Einval => RejectionKind::Invalid,
            Status::NotStored => RejectionKind::NotStored,
            Status::DeltaBadval => RejectionKind::NotANumber,
            Status::NotMyVbucket => RejectionKind::NotMyVbucket,
            Status::NoBucket => RejectionKind::NoBucket,
            Status::Locked => RejectionKind::Locked,
            Status::NotLocked => RejectionKind::NotLocked,
            Status::Eaccess => RejectionKind::AccessDenied,
            Status::Enomem => RejectionKind::OutOfMemory,
            Status::NotSupported | Status::UnknownCommand => RejectionKind::NotSupported,
            Status::Etmpfail | Status::Ebusy => RejectionKind::TemporaryFailure,
            Status::UnknownCollection => RejectionKind::UnknownCollection,
            Status::UnknownScope => RejectionKind::UnknownScope,
            Status::DurabilityInvalidLevel => RejectionKind::DurabilityInvalidLevel,
            Status::DurabilityImpossible => RejectionKind::DurabilityImpossible,
            Status::SyncWriteInProgress | Status::SyncWriteReCommitInProgress => {
                RejectionKind::SyncWriteInProgress
            }
            Status::SyncWriteAmbiguous => RejectionKind::SyncWriteAmbiguous,
            _ => RejectionKind::Other(code),
        })
    }

    /// True when nothing was changed and the same request may succeed later.
    pub const fn is_transient(self) -> bool {
        matches!(
            self,
            RejectionKind::TemporaryFailure
                | RejectionKind::OutOfMemory
                | RejectionKind::SyncWriteInProgress
                | RejectionKind::NotMyVbucket
        )
    }
}

/// Why one path of a sub-document operation gave nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PathError {
    /// Nothing is there.
    #[error("no such path")]
    NotFound,
    /// Something is there that must not be.
    #[error("the path exists already")]
    Exists,
    /// The path leads through a value of another type.
    #[error("the path does not fit the document")]
    Mismatch,
    /// The path is not well formed.
    #[error("the path is malformed")]
    Malformed,
    /// The value is no JSON, or does not belong there.
    #[error("the value cannot be put there")]
    CannotInsert,
    /// The document is no JSON.
    #[error("the document is not JSON")]
    NotJson,
    /// The counter's value would leave the range of 64-bit integers, or the delta is no number.
    #[error("the counter or its delta is out of range")]
    OutOfRange,
    /// Path, value or document are nested too deeply or too long.
    #[error("too long or nested too deeply")]
    TooDeep,
    /// Any other status.
    #[error("{}", describe(*.0))]
    Other(u16),
}

impl PathError {
    /// The meaning of a path's status; success has none.
    pub fn from_status(code: u16) -> Result<(), PathError> {
        Err(match Status::from_u16(code) {
            Some(Status::Success) => return Ok(()),
            Some(Status::SubdocPathEnoent) => PathError::NotFound,
            Some(Status::SubdocPathEexists) => PathError::Exists,
            Some(Status::SubdocPathMismatch) => PathError::Mismatch,
            Some(Status::SubdocPathEinval) => PathError::Malformed,
            Some(Status::SubdocValueCantinsert) => PathError::CannotInsert,
            Some(Status::SubdocDocNotJson) => PathError::NotJson,
            Some(Status::SubdocNumErange | Status::SubdocDeltaEinval) => PathError::OutOfRange,
            Some(
                Status::SubdocPathE2big | Status::SubdocDocE2deep | Status::SubdocValueEtoodeep,
            ) => PathError::TooDeep,
            _ => PathError::Other(code),
        })
    }
}

impl ClientError {
    /// The same error, as that of `operation`.
    pub(crate) fn named(mut self, operation: &'static str) -> ClientError {
        if let ClientError::Protocol { at, .. }
        | ClientError::Timeout { at, .. }
        | ClientError::NotSent { at, .. }
        | ClientError::Closed { at, .. } = &mut self
        {
            at.operation = operation;
        }
        self
    }

    /// The server's refusal, if that is what it is.
    pub const fn rejection(&self) -> Option<RejectionKind> {
        match self {
            ClientError::Rejected(refused) => Some(*refused),
            _ => None,
        }
    }

    /// True when it is certain that the operation changed nothing because it never reached the
    /// server: it may be repeated whatever it is.
    pub fn was_not_sent(&self) -> bool {
        matches!(self, ClientError::NotSent { .. })
    }

    /// True when the connection ended while the operation was in flight: a read may be repeated, of
    /// a write nothing is known.
    pub fn was_interrupted(&self) -> bool {
        matches!(self, ClientError::Closed { .. })
    }

    /// True when connecting again with the same name, password and bucket is pointless.
    pub(crate) fn is_final(&self) -> bool {
        matches!(
            self,
            ClientError::Authentication(_) | ClientError::Rejected(RejectionKind::AccessDenied)
        )
    }

    /// True when the same request may succeed later on the same connection.
    pub fn is_transient(&self) -> bool {
        self.rejection().is_some_and(RejectionKind::is_transient)
    }
}

#[cfg(test)]
mod tests {
    //! Every status has a meaning, and only harmless ones are tried again.

    use super::*;

    #[test]
    fn only_success_is_no_refusal() {
        for status in Status::all() {
            let outcome = RejectionKind::from_status(status.code());
            assert_eq!(outcome.is_ok(), *status == Status::Success, "{status:?}");
        }
        assert_eq!(RejectionKind::from_status(0x7777), Err(RejectionKind::Other(0x7777)));
    }

    /// A program that prints an error with its sources says the refusal once.
    #[test]
    fn a_refusal_is_no_source_of_itself() {
        let error = ClientError::from(RejectionKind::NotFound);
        assert_eq!(error.to_string(), "not found");
        assert!(std::error::Error::source(&error).is_none());
    }

    /// A status that may have changed something is never tried again by itself.
    #[test]
    fn transient_refusals_changed_nothing() {
        let transient: Vec<&str> = Status::all()
            .iter()
            .filter(|status| {
                RejectionKind::from_status(status.code()).is_err_and(RejectionKind::is_transient)
            })
            .map(|status| status.name())
            .collect();
        let expected = [
            "NotMyVbucket",
            "Enomem",
            "Ebusy",
            "Etmpfail",
            "SyncWriteInProgress",
            "SyncWriteReCommitInProgress",
        ];
        assert_eq!(transient, expected);
    }

    #[test]
    fn unnamed_statuses_show_their_number() {
        let text = RejectionKind::Other(Status::RangeScanMore.code()).to_string();
        assert_eq!(text, "status 0xa6 RangeScanMore: the range scan has more");
        assert_eq!(RejectionKind::Other(0x7777).to_string(), "status 0x7777");
    }
}
