//! Extras of documents in a stream. Seqnos are the vbucket's, revisions the document's.

use oribi_types::{RevSeqno, Seqno};

use crate::request::{split_u32, split_u64};

/// Extras of a mutation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MutationExtras {
    /// Seqno of the change.
    pub by_seqno: Seqno,
    /// Revision of the document.
    pub rev_seqno: RevSeqno,
    /// The client's flags, unchanged.
    pub flags: u32,
    /// UNIX time in seconds, 0 for none.
    pub expiry: u32,
}

impl MutationExtras {
    /// Bytes on the wire.
    pub const BYTES: usize = 31;

    /// Decodes exactly 31 bytes; it ignores lock time, metadata length and frequency.
    pub fn decode(extras: &[u8]) -> Option<MutationExtras> {
        let (by_seqno, rest) = split_u64(extras)?;
        let (rev_seqno, rest) = split_u64(rest)?;
        let (flags, rest) = split_u32(rest)?;
        let (expiry, _) = split_u32(rest)?;
        let fields = MutationExtras {
            by_seqno: Seqno(by_seqno),
            rev_seqno: RevSeqno(rev_seqno),
            flags,
            expiry,
        };
        (extras.len() == Self::BYTES).then_some(fields)
    }

    /// Encodes, with 0 in the other fields.
    #[inline]
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.by_seqno.0.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.rev_seqno.0.to_be_bytes());
        bytes[16..20].copy_from_slice(&self.flags.to_be_bytes());
        bytes[20..24].copy_from_slice(&self.expiry.to_be_bytes());
        bytes
    }
}

/// Extras of a deletion or an expiration. The layout depends on the message and on a flag of the
/// connection, see [`DeletionLayout`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DeletionExtras {
    /// Seqno of the change.
    pub by_seqno: Seqno,
    /// Revision of the document.
    pub rev_seqno: RevSeqno,
    /// When the document was removed, in UNIX seconds; absent in the first layout.
    pub delete_time: Option<u32>,
}

/// The three layouts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeletionLayout {
    /// A deletion without a time: 18 bytes.
    DeletionV1,
    /// A deletion with a time: 21 bytes.
    DeletionV2,
    /// An expiration: 20 bytes.
    Expiration,
}

impl DeletionLayout {
    /// Bytes on the wire.
    pub const fn bytes(self) -> usize {
        match self {
            DeletionLayout::DeletionV1 => 18,
            DeletionLayout::DeletionV2 => 21,
            DeletionLayout::Expiration => 20,
        }
    }
}

impl DeletionExtras {
    /// Bytes of the longest layout.
    pub const BYTES_MAX: usize = 21;

    /// Decodes the extras of a deletion: 18 or 21 bytes.
    pub fn of_deletion(extras: &[u8]) -> Option<DeletionExtras> {
        match extras.len() {
            18 => DeletionExtras::fields(extras, false),
            21 => DeletionExtras::fields(extras, true),
            _ => None,
        }
    }

    /// Decodes the extras of an expiration: 20 bytes.
    pub fn of_expiration(extras: &[u8]) -> Option<DeletionExtras> {
        if extras.len() == DeletionLayout::Expiration.bytes() {
            DeletionExtras::fields(extras, true)
        } else {
            None
        }
    }

    fn fields(extras: &[u8], has_time: bool) -> Option<DeletionExtras> {
        let (by_seqno, rest) = split_u64(extras)?;
        let (rev_seqno, rest) = split_u64(rest)?;
        let delete_time = if has_time { Some(split_u32(rest)?.0) } else { None };
        Some(DeletionExtras {
            by_seqno: Seqno(by_seqno),
            rev_seqno: RevSeqno(rev_seqno),
            delete_time,
        })
    }

    /// Encodes: the first [`DeletionLayout::bytes`] of the array. A missing time is sent as 0.
    pub fn encode(&self, layout: DeletionLayout) -> ([u8; Self::BYTES_MAX], usize) {
        let mut bytes = [0; Self::BYTES_MAX];
        bytes[..8].copy_from_slice(&self.by_seqno.0.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.rev_seqno.0.to_be_bytes());
        if layout != DeletionLayout::DeletionV1 {
            bytes[16..20].copy_from_slice(&self.delete_time.unwrap_or(0).to_be_bytes());
        }
        (bytes, layout.bytes())
    }
}
