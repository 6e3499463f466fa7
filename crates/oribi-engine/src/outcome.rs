//! What the engine is asked and what it answers: one small enum per operation family.
//!
//! A miss or a CAS mismatch is an outcome, not an error. Nothing here allocates or holds text; the
//! server maps each variant to exactly one wire status.

use oribi_types::{Cas, Datatype, RevSeqno, Seqno, VbUuid};

use crate::item::ItemRef;

/// Why an operation was not tried at all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// The vbucket does not exist here or is not active.
    NotMyVbucket,
    /// The collection is not in the manifest.
    UnknownCollection,
    /// Try again: warmup is under way, the disk queue is full, or the store is failing.
    TemporaryFailure,
    /// The bucket's memory quota is used up.
    NoMemory,
    /// It needs something that is only in the store: the value of an evicted version, or certainty that
    /// there is no such document. [`crate::Bucket::fetch`] brings it into memory; then it is to be tried again.
    NeedsFetch,
    /// Somebody has locked the document, and the request does not name the CAS of the lock.
    Locked,
}

/// Identity of a change that was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mutation {
    /// New version.
    pub cas: Cas,
    /// Position in the vbucket's history.
    pub seqno: Seqno,
    /// That history.
    pub vb_uuid: VbUuid,
}

/// What is shown as the CAS of a locked document; no version has it.
pub const LOCKED_CAS: Cas = Cas(u64::MAX);

/// Answer of get-and-lock.
#[derive(Debug)]
pub enum LockOutcome {
    /// The document, and the CAS that writes to it have to name while it is locked.
    Done {
        /// The document.
        item: ItemRef,
        /// Of the lock.
        cas: Cas,
    },
    /// No such document.
    Miss,
    /// Not tried, or locked already.
    Refused(Refused),
}

/// Answer of unlock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UnlockOutcome {
    /// It is not locked any more.
    Done,
    /// No such document.
    NotFound,
    /// It was not locked.
    NotLocked,
    /// Not tried, or the CAS is not that of the lock.
    Refused(Refused),
}

/// Answer of get and get-and-touch.
#[derive(Debug)]
pub enum GetOutcome {
    /// The document.
    Hit(ItemRef),
    /// The document, which somebody has locked: its CAS is not to be shown, see [`LOCKED_CAS`].
    HitLocked(ItemRef),
    /// No such document.
    Miss,
    /// Not tried.
    Refused(Refused),
}

/// Answer of a look-up of metadata.
#[derive(Debug)]
pub enum MetaOutcome {
    /// The document or its tombstone, and the CAS that may be shown.
    Found(ItemRef, Cas),
    /// Neither is there.
    Miss,
    /// Not tried.
    Refused(Refused),
}

/// Answer of set, add, replace, append, prepend, delete and touch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MutationOutcome {
    /// Done, in memory.
    Done(Mutation),
    /// The document to change does not exist.
    NotFound,
    /// It exists and must not (add), or its CAS differs.
    Exists,
    /// Nothing to append or prepend to.
    NotStored,
    /// The value would be longer than the bucket allows.
    TooLarge,
    /// The value was to be compressed, and is not.
    Corrupt,
    /// Not tried.
    Refused(Refused),
}

/// Answer of increment and decrement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CounterOutcome {
    /// Done, in memory.
    Done {
        /// Identity of the change.
        mutation: Mutation,
        /// The counter after it.
        value: u64,
    },
    /// The counter does not exist and was not to be created.
    NotFound,
    /// The CAS differs.
    Exists,
    /// The document is not a decimal number of 64 bits.
    NotANumber,
    /// Not tried.
    Refused(Refused),
}

/// Condition under which a value is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StoreMode {
    /// Always.
    Set,
    /// Only where there is no document.
    Add,
    /// Only where there is one.
    Replace,
}

/// Set, add or replace.
#[derive(Clone, Copy, Debug)]
pub struct StoreRequest<'a> {
    /// Condition.
    pub mode: StoreMode,
    /// New value.
    pub value: &'a [u8],
    /// The value is compressed with Snappy, says the client.
    pub is_compressed: bool,
    /// Opaque client flags.
    pub flags: u32,
    /// Expiry as on the wire: 0 none, up to 30 days relative seconds, else UNIX time.
    pub expiry: u32,
    /// Required version, 0 for any.
    pub cas: Cas,
    /// Keep the expiry of the version before, if there is one.
    pub preserve_expiry: bool,
}

/// What decides which of two versions of a document stays, when they were written in different places.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ConflictResolution {
    /// The one that was changed more often.
    #[default]
    Seqno,
    /// The one that was written last, by the clocks in CAS values.
    LastWriteWins,
}

/// What a write with metadata does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WithMetaMode {
    /// Stores a document.
    Set,
    /// Stores a document where there is none.
    Add,
    /// Stores a tombstone.
    Delete,
}

/// A version that was made elsewhere, with its metadata.
#[derive(Clone, Copy, Debug)]
pub struct WithMetaRequest<'a> {
    /// What it does.
    pub mode: WithMetaMode,
    /// Extended attributes, if the datatype says so, and body. A tombstone has no body.
    pub value: &'a [u8],
    /// What the value is, which is not compressed. Attributes were checked by the caller; JSON is detected here.
    pub datatype: Datatype,
    /// Opaque client flags.
    pub flags: u32,
    /// Absolute expiry in UNIX seconds, 0 for none, which the longest life in its collection may cut short; of a
    /// tombstone the time of its deletion, 0 for now.
    pub expiry: u32,
    /// Its CAS, below [`GIVEN_CAS_END`]. With `None` it gets one of the vbucket's.
    pub given_cas: Option<Cas>,
    /// Its revision, from 1 to 2^48 - 1.
    pub rev_seqno: RevSeqno,
    /// Required version of what is there, 0 for any.
    pub cas: Cas,
    /// What decides whether it is newer than what is there; with `None` it is.
    pub resolution: Option<ConflictResolution>,
}

/// Given CAS values end here: one that is higher would leave the vbucket's clock no room to go on.
pub const GIVEN_CAS_END: Cas = Cas(1 << 63);

/// Which end a value is joined to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConcatMode {
    /// At the end.
    Append,
    /// At the beginning.
    Prepend,
}

/// Append or prepend.
#[derive(Clone, Copy, Debug)]
pub struct ConcatRequest<'a> {
    /// Which end.
    pub mode: ConcatMode,
    /// Bytes to join.
    pub value: &'a [u8],
    /// Required version, 0 for any.
    pub cas: Cas,
}

/// Increment or decrement of a decimal counter of 64 bits. Increments wrap, decrements stop at 0.
/// An existing counter keeps its expiry.
#[derive(Clone, Copy, Debug)]
pub struct CounterRequest {
    /// Amount.
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
