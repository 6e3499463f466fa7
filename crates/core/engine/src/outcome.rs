//! Requests to the engine and their outcomes: one small enum per operation family.
//!
//! A miss or a CAS mismatch is an outcome, not an error. Nothing here allocates or holds text; the
//! server maps each variant to exactly one wire status.

use oribi_types::policy::ConflictResolution;
use oribi_types::{Cas, Datatype, RevSeqno, Seqno, VbUuid};

use crate::item::{ItemRef, SharedItem};

/// Why an operation was not tried at all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OperationRejection {
    /// The vbucket does not exist here or is not active.
    NotMyVbucket,
    /// The collection is not in the manifest.
    UnknownCollection,
    /// Try again: warmup is under way, the disk queue is full, or the store is failing.
    TemporaryFailure,
    /// The bucket's memory quota is used up.
    NoMemory,
    /// Memory lacks the value of an evicted version, or the certainty that there is no such
    /// document. [`crate::Bucket::fetch`] brings it into memory; then the caller tries again.
    NeedsFetch,
    /// The document is locked, and the request does not name the CAS of the lock.
    Locked,
    /// A durable write of the key is under way. Until that is decided no other write is done.
    DurableWriteInProgress,
    /// This copy was promoted, and durable writes that its predecessor may have shown are being
    /// committed again.
    Recommitting,
}

/// Identity of a change that was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AppliedMutation {
    pub cas: Cas,
    /// Position in the vbucket's history.
    pub seqno: Seqno,
    pub vb_uuid: VbUuid,
}

/// The CAS that readers see of a locked document; no version has it.
pub const LOCKED_CAS: Cas = Cas(u64::MAX);

#[derive(Debug)]
pub enum LockOutcome {
    /// The document, and the CAS that writes to it must name while it is locked.
    Done {
        item: ItemRef,
        cas: Cas,
    },
    Miss,
    /// Not tried, or locked already.
    Refused(OperationRejection),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UnlockOutcome {
    Done,
    NotFound,
    /// It was not locked.
    NotLocked,
    /// Not tried, or the CAS is not that of the lock.
    Refused(OperationRejection),
}

/// Answer of get and get-and-touch.
#[derive(Debug)]
pub enum GetOutcome {
    Hit(ItemRef),
    /// A locked document: readers see [`LOCKED_CAS`] instead of its CAS.
    HitLocked(ItemRef),
    Miss,
    Refused(OperationRejection),
}

/// Answer of a get that takes no lock.
pub enum SharedOutcome<'s> {
    Hit(SharedItem<'s>),
    Miss,
    Undecided,
}

/// Answer of a look-up of metadata.
#[derive(Debug)]
pub enum MetaOutcome {
    /// The document or its tombstone, and the CAS that may be shown.
    Found(ItemRef, Cas),
    Miss,
    Refused(OperationRejection),
}

/// The versions that a read looks for, and must rule out in the store before it answers a miss. It
/// finds any version in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadTarget {
    Document,
    /// Tombstones as well, which are in the store only soon after the deletion.
    Tombstone,
}

/// Answer of a read that sees tombstones.
#[derive(Debug)]
pub enum VersionOutcome {
    /// The document or its tombstone, and the CAS that may be shown.
    Found(ItemRef, Cas),
    Miss,
    Refused(OperationRejection),
}

/// Answer of a rewrite.
#[derive(Debug)]
pub enum RewriteOutcome<E> {
    Done(AppliedMutation),
    /// The caller's `build` refused.
    Rejected(E),
    Refused(OperationRejection),
}

/// Answer of set, add, replace, append, prepend, delete and touch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MutationOutcome {
    Done(AppliedMutation),
    /// The document to change does not exist.
    NotFound,
    /// It exists and must not (add), or its CAS differs.
    Exists,
    /// Nothing to append or prepend to.
    NotStored,
    /// The value would be longer than the bucket allows.
    TooLarge,
    /// The request says that the value is compressed, and it is not.
    Corrupt,
    Refused(OperationRejection),
}

/// Answer of increment and decrement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CounterOutcome {
    Done {
        /// Identity of the change.
        mutation: AppliedMutation,
        /// The counter after it.
        value: u64,
    },
    /// The counter does not exist and was not to be created.
    NotFound,
    Exists,
    /// The document is not a decimal number of 64 bits.
    NotANumber,
    Refused(OperationRejection),
}

impl From<OperationRejection> for GetOutcome {
    fn from(refused: OperationRejection) -> GetOutcome {
        GetOutcome::Refused(refused)
    }
}

impl<E> From<OperationRejection> for RewriteOutcome<E> {
    fn from(refused: OperationRejection) -> RewriteOutcome<E> {
        RewriteOutcome::Refused(refused)
    }
}

impl From<OperationRejection> for MutationOutcome {
    fn from(refused: OperationRejection) -> MutationOutcome {
        MutationOutcome::Refused(refused)
    }
}

impl From<OperationRejection> for CounterOutcome {
    fn from(refused: OperationRejection) -> CounterOutcome {
        CounterOutcome::Refused(refused)
    }
}

/// Condition under which a value is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StoreCondition {
    Set,
    /// Only where there is no document.
    Add,
    /// Only where there is one.
    Replace,
}

/// Set, add or replace.
#[derive(Clone, Copy, Debug)]
pub struct StoreRequest<'a> {
    pub mode: StoreCondition,
    pub value: &'a [u8],
    /// The client says that the value is compressed with Snappy.
    pub is_compressed: bool,
    pub flags: u32,
    /// Expiry as on the wire: 0 none, up to 30 days relative seconds, else UNIX time.
    pub expiry: u32,
    /// Required version, 0 for any.
    pub cas: Cas,
    /// Keep the expiry of the version before, if there is one.
    pub preserve_expiry: bool,
}

impl<'a> StoreRequest<'a> {
    /// Sets a document to a plain value: no condition, no flags, no expiry.
    pub const fn set(value: &'a [u8]) -> StoreRequest<'a> {
        StoreRequest {
            mode: StoreCondition::Set,
            value,
            is_compressed: false,
            flags: 0,
            expiry: 0,
            cas: Cas(0),
            preserve_expiry: false,
        }
    }
}

/// Kind of a write with metadata.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WithMetaMode {
    Set,
    /// Stores a document where there is none.
    Add,
    Delete,
}

/// A version that was made elsewhere, with its metadata.
#[derive(Clone, Copy, Debug)]
pub struct WithMetaRequest<'a> {
    pub mode: WithMetaMode,
    /// Extended attributes, if the datatype says so, and body. A tombstone has no body.
    pub value: &'a [u8],
    /// Datatype of the value, which is not compressed. The caller checked attributes; JSON is
    /// detected here.
    pub datatype: Datatype,
    pub flags: u32,
    /// Absolute expiry in UNIX seconds, 0 for none, which the longest life in its collection may
    /// cut short; of a tombstone the time of its deletion, 0 for now.
    pub expiry: u32,
    /// A tombstone is an expiration's. Without meaning for documents.
    pub expired: bool,
    /// Its CAS, below [`EXPLICIT_CAS_END`]. With `None` it gets one of the vbucket's.
    pub given_cas: Option<Cas>,
    /// Its revision, from 1 to 2^48 - 1.
    pub rev_seqno: RevSeqno,
    /// Required CAS of the present document, 0 for any.
    pub cas: Cas,
    /// Rule for comparing it with the present version; with `None` it is newer.
    pub resolution: Option<ConflictResolution>,
}

/// Given CAS values end here: one that is higher would leave the vbucket's clock no space to
/// continue.
pub const EXPLICIT_CAS_END: Cas = Cas(1 << 63);

/// Which end a value is joined to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConcatMode {
    Append,
    Prepend,
}

#[derive(Clone, Copy, Debug)]
pub struct ConcatRequest<'a> {
    pub mode: ConcatMode,
    pub value: &'a [u8],
    /// Required version, 0 for any.
    pub cas: Cas,
}

/// Increment or decrement of a decimal counter of 64 bits. Increments wrap, decrements stop at 0.
/// An existing counter keeps its expiry.
#[derive(Clone, Copy, Debug)]
pub struct CounterRequest {
    pub delta: u64,
    /// Down instead of up.
    pub decrement: bool,
    /// Value to create a missing counter with; `None` does not create.
    pub initial: Option<u64>,
    /// Expiry of a created counter, as on the wire.
    pub expiry: u32,
    /// Required version, 0 for any.
    pub cas: Cas,
}
