//! Snapshot markers: the range of seqnos that the following messages belong to, both ends included.
//!
//! The first layout has all fields in the extras. The second has a version there, and its fields in
//! the value. Version 2.0 is for replicas, version 2.2 adds the purge seqno and the high prepared
//! seqno.

use oribi_types::Seqno;

use crate::dcp::{MessageHead, StreamHead, write_head};
use crate::opcode::Opcode;
use crate::request::{split_u32, split_u64};

/// Extras of version 2.0.
const VERSION_2_0: u8 = 0x00;
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

/// Seqnos of a marker that a replica needs; only the second layout carries them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReplicaSeqnos {
    /// Highest seqno of the snapshot that is visible to reads: neither a prepare nor an abort.
    pub max_visible: Seqno,
    /// All prepares up to here are completed. It counts only with [`MarkerFlags::DISK`].
    pub high_completed: Seqno,
    /// The sender holds all prepares up to here. It counts only with [`MarkerFlags::DISK`], and
    /// only version 2.2 carries it.
    pub high_prepared: Option<Seqno>,
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
    /// Highest seqno of a purged tombstone; version 2.2 carries it, and no other.
    pub purge_seqno: Option<Seqno>,
    /// Seqnos for replicas; the first layout has none.
    pub replica: Option<ReplicaSeqnos>,
}

impl SnapshotMarker {
    const V1_BYTES: usize = 20;
    const V2_0_BYTES: usize = 36;
    const V2_2_BYTES: usize = 52;

    /// Decodes extras and value of any layout.
    pub fn decode(extras: &[u8], value: &[u8]) -> Option<SnapshotMarker> {
        if extras.len() == Self::V1_BYTES && value.is_empty() {
            return Some(SnapshotMarker::fields(extras)?.0);
        }
        let (&[version], bytes) = (extras, value.len()) else { return None };
        let (marker, rest) = SnapshotMarker::fields(value)?;
        let (max_visible, rest) = split_u64(rest)?;
        let (high_completed, rest) = split_u64(rest)?;
        let mut replica = ReplicaSeqnos {
            max_visible: Seqno(max_visible),
            high_completed: Seqno(high_completed),
            high_prepared: None,
        };
        match (version, bytes) {
            (VERSION_2_0, Self::V2_0_BYTES) => {
                Some(SnapshotMarker { replica: Some(replica), ..marker })
            }
            (VERSION_2_2, Self::V2_2_BYTES) => {
                let (purge_seqno, rest) = split_u64(rest)?;
                replica.high_prepared = Some(Seqno(split_u64(rest)?.0));
                let purge_seqno = Some(Seqno(purge_seqno));
                Some(SnapshotMarker { purge_seqno, replica: Some(replica), ..marker })
            }
            _ => None,
        }
    }

    fn fields(bytes: &[u8]) -> Option<(SnapshotMarker, &[u8])> {
        let (start, rest) = split_u64(bytes)?;
        let (end, rest) = split_u64(rest)?;
        let (flags, rest) = split_u32(rest)?;
        let marker = SnapshotMarker {
            start: Seqno(start),
            end: Seqno(end),
            flags: MarkerFlags(flags),
            purge_seqno: None,
            replica: None,
        };
        Some((marker, rest))
    }

    /// Appends the message and returns the frame's bytes. Its version is 2.2 with a purge seqno,
    /// 2.0 with the seqnos for replicas alone, and otherwise the first layout. Version 2.2 without
    /// seqnos for replicas says that all is visible and that there are no durable writes.
    pub fn write(&self, out: &mut Vec<u8>, stream: StreamHead) -> usize {
        let head = MessageHead::new(Opcode::DcpSnapshotMarker, stream);
        let mut bytes = [0; Self::V2_2_BYTES];
        bytes[..8].copy_from_slice(&self.start.0.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.end.0.to_be_bytes());
        bytes[16..20].copy_from_slice(&self.flags.0.to_be_bytes());
        if self.purge_seqno.is_none() && self.replica.is_none() {
            return write_head(out, &MessageHead { extras: &bytes[..Self::V1_BYTES], ..head }, 0);
        }
        let nothing = ReplicaSeqnos { max_visible: self.end, ..ReplicaSeqnos::default() };
        let replica = self.replica.unwrap_or(nothing);
        bytes[20..28].copy_from_slice(&replica.max_visible.0.to_be_bytes());
        bytes[28..36].copy_from_slice(&replica.high_completed.0.to_be_bytes());
        let (version, value_bytes) = match self.purge_seqno {
            None => (VERSION_2_0, Self::V2_0_BYTES),
            Some(purge_seqno) => {
                let high_prepared = replica.high_prepared.unwrap_or_default();
                bytes[36..44].copy_from_slice(&purge_seqno.0.to_be_bytes());
                bytes[44..].copy_from_slice(&high_prepared.0.to_be_bytes());
                (VERSION_2_2, Self::V2_2_BYTES)
            }
        };
        let frame_bytes = write_head(out, &MessageHead { extras: &[version], ..head }, value_bytes);
        out.extend_from_slice(&bytes[..value_bytes]);
        frame_bytes
    }
}
