//! Snapshot markers: the range of seqnos that the following messages belong to, both ends included.
//!
//! The first layout has all fields in the extras. The second has a version there, and its fields in
//! the value; version 2.2 adds the purge seqno. Version 2.0 is for replicas of durable writes only,
//! so it is not decoded.

use oribi_types::Seqno;

use crate::dcp::{MessageHead, StreamHead, write_head};
use crate::opcode::Opcode;
use crate::request::{split_u32, split_u64};

/// Extras of version 2.2.
const VERSION_2_2: u8 = 0x02;

/// Flags of a marker; a set of bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MarkerFlags(pub u32);

impl MarkerFlags {
    /// The snapshot comes from memory.
    pub const MEMORY: MarkerFlags = MarkerFlags(0x01);
    /// The snapshot comes from disk.
    pub const DISK: MarkerFlags = MarkerFlags(0x02);
    /// A checkpoint begins.
    pub const CHECKPOINT: MarkerFlags = MarkerFlags(0x04);
    /// The consumer answers once it has the whole snapshot.
    pub const ACK: MarkerFlags = MarkerFlags(0x08);
    /// The snapshot holds retained versions.
    pub const HISTORY: MarkerFlags = MarkerFlags(0x10);
    /// The snapshot may hold several versions of a key.
    pub const MAY_DUPLICATE_KEYS: MarkerFlags = MarkerFlags(0x20);

    /// True when every flag of `other` is set.
    pub const fn has(self, other: MarkerFlags) -> bool {
        self.0 & other.0 == other.0
    }

    /// The flags of both.
    pub const fn and(self, other: MarkerFlags) -> MarkerFlags {
        MarkerFlags(self.0 | other.0)
    }
}

/// A snapshot marker.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SnapshotMarker {
    /// First seqno of the snapshot; no message needs to carry it.
    pub start: Seqno,
    /// Last seqno of the snapshot, which a message carries.
    pub end: Seqno,
    /// Where it comes from.
    pub flags: MarkerFlags,
    /// Highest seqno of a purged tombstone; only version 2.2 carries it.
    pub purge_seqno: Option<Seqno>,
}

impl SnapshotMarker {
    const V1_BYTES: usize = 20;
    const V2_2_BYTES: usize = 52;

    /// Decodes extras and value of either layout.
    pub fn decode(extras: &[u8], value: &[u8]) -> Option<SnapshotMarker> {
        match (extras.len(), value.len()) {
            (Self::V1_BYTES, 0) => SnapshotMarker::fields(extras),
            (1, Self::V2_2_BYTES) if extras == [VERSION_2_2] => {
                let marker = SnapshotMarker::fields(value)?;
                let (purge_seqno, _) = split_u64(value.get(36..)?)?;
                Some(SnapshotMarker { purge_seqno: Some(Seqno(purge_seqno)), ..marker })
            }
            _ => None,
        }
    }

    fn fields(bytes: &[u8]) -> Option<SnapshotMarker> {
        let (start, rest) = split_u64(bytes)?;
        let (end, rest) = split_u64(rest)?;
        let (flags, _) = split_u32(rest)?;
        Some(SnapshotMarker {
            start: Seqno(start),
            end: Seqno(end),
            flags: MarkerFlags(flags),
            purge_seqno: None,
        })
    }

    /// Appends the message, in version 2.2 when there is a purge seqno; returns the frame's bytes.
    pub fn write(&self, out: &mut Vec<u8>, stream: StreamHead) -> usize {
        let head = MessageHead::new(Opcode::DcpSnapshotMarker, stream);
        let mut bytes = [0; Self::V2_2_BYTES];
        bytes[..8].copy_from_slice(&self.start.0.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.end.0.to_be_bytes());
        bytes[16..20].copy_from_slice(&self.flags.0.to_be_bytes());
        let Some(purge_seqno) = self.purge_seqno else {
            return write_head(out, &MessageHead { extras: &bytes[..Self::V1_BYTES], ..head }, 0);
        };
        // Highest visible seqno; there are no durable writes to complete, so those fields are 0.
        bytes[20..28].copy_from_slice(&self.end.0.to_be_bytes());
        bytes[36..44].copy_from_slice(&purge_seqno.0.to_be_bytes());
        let head = MessageHead { extras: &[VERSION_2_2], ..head };
        let frame_bytes = write_head(out, &head, Self::V2_2_BYTES);
        out.extend_from_slice(&bytes);
        frame_bytes
    }
}
