//! How sub-document operations are made.

use oribi_types::{Cas, DurabilityLevel};

use crate::write_options::WriteOptions;

/// Flags of the document.
mod document_flag {
    pub const MAKE: u8 = 0x01;
    pub const ADD: u8 = 0x02;
    pub const ACCESS_DELETED: u8 = 0x04;
    pub const CREATE_AS_DELETED: u8 = 0x08;
    pub const REVIVE: u8 = 0x10;
}

/// How a lookup is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct LookupInOptions {
    /// Look at what is left of a deleted document, too.
    pub access_deleted: bool,
}

impl LookupInOptions {
    /// Looks at documents that exist.
    pub fn new() -> LookupInOptions {
        LookupInOptions::default()
    }

    /// Also looks at what is left of a deleted document, or not.
    pub fn access_deleted(mut self, is_wanted: bool) -> LookupInOptions {
        self.access_deleted = is_wanted;
        self
    }

    pub(super) fn document_flags(self) -> u8 {
        if self.access_deleted { document_flag::ACCESS_DELETED } else { 0 }
    }
}

/// Precondition of a sub-document write.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum DocumentPolicy {
    /// It is there.
    #[default]
    MustExist,
    /// It is made when it is not there.
    CreateIfMissing,
    /// It is not there, and is made.
    MustBeCreated,
}

/// How a sub-document write is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct MutateInOptions {
    /// Write only if the document has this CAS; 0 for any.
    pub cas: Cas,
    /// New expiry as in [`WriteOptions`], if it is to be changed.
    pub expiry: Option<u32>,
    /// When the server may answer.
    pub durability: DurabilityLevel,
    /// How long the server may take for the durability; its default if not given.
    pub durability_timeout_ms: Option<u16>,
    /// Keep the expiry that the document has.
    pub preserve_expiry: bool,
    /// Precondition on the document.
    pub document: DocumentPolicy,
    /// Write to what is left of a deleted document, too.
    pub access_deleted: bool,
    /// Create the document as a deleted one, which only has attributes.
    pub create_as_deleted: bool,
    /// Make a deleted document a living one again.
    pub revive: bool,
}

impl MutateInOptions {
    /// Any CAS, a document that exists, no durability.
    pub fn new() -> MutateInOptions {
        MutateInOptions::default()
    }

    /// Writes only if the document has this CAS.
    pub fn cas(mut self, cas: Cas) -> MutateInOptions {
        self.cas = cas;
        self
    }

    /// Sets a new expiry, as in [`WriteOptions`].
    pub fn expiry(mut self, expiry: u32) -> MutateInOptions {
        self.expiry = Some(expiry);
        self
    }

    /// Answers only when the write is as durable as this.
    pub fn durability(mut self, level: DurabilityLevel) -> MutateInOptions {
        self.durability = level;
        self
    }

    /// Limits how long the server may take for the durability.
    pub fn durability_timeout_ms(mut self, timeout_ms: u16) -> MutateInOptions {
        self.durability_timeout_ms = Some(timeout_ms);
        self
    }

    /// Keeps the expiry that the document has, or not.
    pub fn preserve_expiry(mut self, is_kept: bool) -> MutateInOptions {
        self.preserve_expiry = is_kept;
        self
    }

    /// Sets what is expected of the document.
    pub fn document(mut self, policy: DocumentPolicy) -> MutateInOptions {
        self.document = policy;
        self
    }

    /// Also writes to what is left of a deleted document, or not.
    pub fn access_deleted(mut self, is_wanted: bool) -> MutateInOptions {
        self.access_deleted = is_wanted;
        self
    }

    /// Creates the document as a deleted one, which only has attributes, or not.
    pub fn create_as_deleted(mut self, is_wanted: bool) -> MutateInOptions {
        self.create_as_deleted = is_wanted;
        self
    }

    /// Makes a deleted document a living one again, or not.
    pub fn revive(mut self, is_wanted: bool) -> MutateInOptions {
        self.revive = is_wanted;
        self
    }

    /// Options shared with other writes.
    pub(crate) fn write_options(&self) -> WriteOptions {
        WriteOptions {
            cas: self.cas,
            durability: self.durability,
            durability_timeout_ms: self.durability_timeout_ms,
            preserve_expiry: self.preserve_expiry,
            ..WriteOptions::default()
        }
    }

    pub(super) fn document_flags(&self) -> u8 {
        let policy = match self.document {
            DocumentPolicy::MustExist => 0,
            DocumentPolicy::CreateIfMissing => document_flag::MAKE,
            DocumentPolicy::MustBeCreated => document_flag::ADD,
        };
        let bit = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        policy
            | bit(self.access_deleted || self.revive, document_flag::ACCESS_DELETED)
            | bit(self.create_as_deleted, document_flag::CREATE_AS_DELETED)
            | bit(self.revive, document_flag::REVIVE)
    }
}
