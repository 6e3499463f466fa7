//! Newtypes that every crate shares, so that a seqno is never passed where a CAS belongs.
//!
//! Owns: the vocabulary. Invariant: no logic beyond conversion and display; nothing here allocates
//! on a hot path, does I/O or knows a wire layout.

#![warn(missing_docs)]

pub mod policy;

use std::fmt;

/// Number of a vbucket: a partition of a bucket's key space. At most 1024 per bucket.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Vbid(pub u16);

/// Sequence number of a mutation within one vbucket. 0 means "none yet"; the first mutation has 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Seqno(pub u64);

/// Compare-and-swap version of a document: a hybrid logical clock value (48 bits of wall-clock
/// nanoseconds, low 16 bits logical). 0 means "not given" in a request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Cas(pub u64);

/// How many times a document was mutated since it was first created, deletions included.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct RevSeqno(pub u64);

/// Identity of one history of a vbucket; it changes when history may have been lost (a crash).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct VbUuid(pub u64);

/// Number of a configuration of a vbucket's copies. 0 means none.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct CopiesEpoch(pub u64);

/// One copy of a vbucket. A node whose disk was wiped has another copy.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CopyId {
    /// Number of the node's disk.
    pub node: u16,
    /// Chosen when the copy is created.
    pub copy: u64,
}

impl CopiesEpoch {
    /// The epoch after this one.
    pub fn next(self) -> CopiesEpoch {
        CopiesEpoch(self.0 + 1)
    }
}

/// Numeric id of a collection. 0 is the default collection, 1 to 7 are reserved.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct CollectionId(pub u32);

impl CollectionId {
    /// `_default._default`, which always exists.
    pub const DEFAULT: CollectionId = CollectionId(0);
    /// Where a vbucket keeps its system events. The protocol reserves the id: no client reaches
    /// it, and no collection ever gets it.
    pub const SYSTEM: CollectionId = CollectionId(1);
    /// Where a vbucket keeps durable writes that its copies have not committed. Reserved like
    /// [`CollectionId::SYSTEM`].
    pub const PREPARES: CollectionId = CollectionId(2);
}

/// Numeric id of a scope. 0 is the default scope, 1 to 7 are reserved.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ScopeId(pub u32);

/// Version of a bucket's collections manifest; printed as hexadecimal without prefix.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ManifestUid(pub u64);

impl fmt::Display for Vbid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "vb:{}", self.0)
    }
}

impl fmt::Display for ManifestUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

/// A document's key as the engine knows it: collection and logical key, borrowed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DocKey<'a> {
    /// Collection that the key belongs to.
    pub collection: CollectionId,
    /// Logical key without collection prefix, 1 to 250 bytes.
    pub key: &'a [u8],
}

/// Format of a document's bytes: a set of the bits below.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Datatype(pub u8);

impl Datatype {
    /// No bit set: opaque bytes.
    pub const RAW: Datatype = Datatype(0);
    /// The body is valid JSON.
    pub const JSON: Datatype = Datatype(0x01);
    /// The value is compressed with Snappy.
    pub const SNAPPY: Datatype = Datatype(0x02);
    /// The value begins with an extended-attributes section.
    pub const XATTR: Datatype = Datatype(0x04);

    /// True when every bit of `other` is set.
    pub const fn contains(self, other: Datatype) -> bool {
        self.0 & other.0 == other.0
    }
}

/// When a write may be answered, as the client asked in its durability frame.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum DurabilityLevel {
    /// In memory.
    #[default]
    None,
    /// In the memory of a majority of replicas: with one copy, the same as in memory.
    Majority,
    /// A majority in memory, and on the disk of the active node.
    MajorityAndPersistOnMaster,
    /// On the disk of a majority of nodes.
    PersistToMajority,
}

impl DurabilityLevel {
    /// True when the answer has to wait for the store.
    pub const fn needs_persistence(self) -> bool {
        matches!(self, Self::MajorityAndPersistOnMaster | Self::PersistToMajority)
    }
}

/// Wall-clock time, passed down by the owner of a clock; the engine never reads one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Timestamp {
    /// Nanoseconds since the UNIX epoch.
    pub unix_ns: u64,
}

impl Timestamp {
    /// Whole seconds since the UNIX epoch, the unit of document expiry.
    pub const fn unix_s(self) -> u32 {
        (self.unix_ns / 1_000_000_000) as u32
    }

    /// A time given in seconds since the UNIX epoch.
    pub const fn from_unix_s(seconds: u32) -> Timestamp {
        Timestamp { unix_ns: seconds as u64 * 1_000_000_000 }
    }
}
