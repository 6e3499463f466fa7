//! The next version of a document as a caller of the engine builds it.
//!
//! Owns: what such a version is made of, and places in it for its own CAS and seqno ([`Stamp`]),
//! which are known only when it is queued. A version without such places does not pay for them.

use oribi_types::{Cas, Datatype, DocKey, Seqno, Timestamp};

use crate::item::{ItemFields, ItemRef, NewItem};

/// Digits that a [`Stamp`] takes.
const STAMP_DIGITS: usize = 16;
const _: () = assert!(STAMP_DIGITS == 2 * size_of::<u64>(), "a number in hexadecimal");

/// Input of the next version of a rewrite.
#[derive(Clone, Copy, Debug)]
pub struct CurrentVersion<'a> {
    /// The document, its tombstone, or nothing.
    pub version: Option<&'a ItemRef>,
    /// The request named the CAS of a lock of this version, so the version's own does not matter.
    pub is_lock_cas: bool,
    /// The absolute expiry that the request's means in the key's collection.
    pub expiry: u32,
}

/// Everything about a version but its key, its value and what is assigned to it.
#[derive(Clone, Copy, Debug, Default)]
pub struct VersionFields {
    pub flags: u32,
    /// Absolute expiry in UNIX seconds, 0 for none. Not used for a tombstone.
    pub expiry: u32,
    /// Datatype of the value.
    pub datatype: Datatype,
    /// True for a tombstone.
    pub deleted: bool,
}

/// A place in a value for 16 hexadecimal digits about the version itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stamp {
    /// The CAS, lowest byte first, as Couchbase prints it.
    Cas {
        /// Offset in the value.
        at: usize,
    },
    /// The seqno, highest byte first.
    Seqno {
        /// Offset in the value.
        at: usize,
    },
}

/// A version that is complete but for its stamps.
pub struct NextVersion {
    pub(super) item: NewItem,
    pub(super) stamps: Vec<Stamp>,
}

impl NextVersion {
    /// Puts a version together, copying the parts of its value once.
    ///
    /// # Panics
    /// When key or value are longer than the protocol allows; callers check.
    pub fn new(
        key: DocKey<'_>,
        fields: VersionFields,
        parts: &[&[u8]],
        now: Timestamp,
    ) -> NextVersion {
        let VersionFields { flags, expiry, datatype, deleted } = fields;
        // The expiry of a tombstone is the time of the deletion.
        let expiry = if deleted { now.unix_s() } else { expiry };
        let fields = ItemFields { flags, expiry, datatype, deleted, ..ItemFields::default() };
        NewItem::new(key, fields, parts).into()
    }

    /// Adds places to be written in.
    ///
    /// # Panics
    /// When it is used and a place is not inside the value.
    #[must_use]
    pub fn with_stamps(mut self, stamps: Vec<Stamp>) -> NextVersion {
        self.stamps = stamps;
        self
    }
}

impl From<NewItem> for NextVersion {
    fn from(item: NewItem) -> NextVersion {
        NextVersion { item, stamps: Vec::new() }
    }
}

/// Writes what the stamps ask for into a version that is about to be queued as this one.
pub(super) fn stamp(new: &mut NewItem, stamps: &[Stamp], (cas, seqno): (Cas, Seqno)) {
    for stamp in stamps {
        let (at, number) = match stamp {
            Stamp::Cas { at } => (*at, cas.0.swap_bytes()),
            Stamp::Seqno { at } => (*at, seqno.0),
        };
        let digits = format!("{number:0width$x}", width = STAMP_DIGITS);
        debug_assert_eq!(digits.len(), STAMP_DIGITS, "a stamp has its number of digits");
        debug_assert!(at + STAMP_DIGITS <= new.as_item().value_bytes(), "a stamp is in the value");
        new.patch_value(at, digits.as_bytes());
    }
}
