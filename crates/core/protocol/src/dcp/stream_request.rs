//! DCP stream request: extras, the JSON filter that a consumer writes, and the answer's body.
//!
//! A server reads the JSON with its own parser; only the writer is here.

use std::fmt::Write as _;

use oribi_types::{CollectionId, CopiesEpoch, CopyId, ManifestUid, ScopeId, Seqno, VbUuid};

use crate::request::{split_u32, split_u64};

/// Flags of the request; a set of bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StreamFlags(pub u32);

impl StreamFlags {
    /// The vbucket moves to the consumer.
    pub const TAKEOVER: StreamFlags = StreamFlags(0x001);
    /// Only changes that are persisted at the time of the request.
    pub const DISK_ONLY: StreamFlags = StreamFlags(0x002);
    /// Only up to the high seqno at the time of the request.
    pub const TO_LATEST: StreamFlags = StreamFlags(0x004);
    /// Only from an active vbucket.
    pub const ACTIVE_ONLY: StreamFlags = StreamFlags(0x010);
    /// A start of 0 must name a known history too, unless it names none.
    pub const STRICT_VB_UUID: StreamFlags = StreamFlags(0x020);
    /// Only from the high seqno at the time of the request.
    pub const FROM_LATEST: StreamFlags = StreamFlags(0x040);
    /// Purged tombstones are no reason for a rollback.
    pub const IGNORE_PURGED_TOMBSTONES: StreamFlags = StreamFlags(0x080);

    /// True when every flag of `other` is set.
    pub const fn has(self, other: StreamFlags) -> bool {
        self.0 & other.0 == other.0
    }

    /// True when only the flags above are set.
    pub const fn are_known(self) -> bool {
        self.0 & !0x0f7 == 0
    }
}

/// Extras of the request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StreamRequestExtras {
    /// The consumer's flags.
    pub flags: StreamFlags,
    /// Last seqno that the consumer has; the stream begins after it.
    pub start: Seqno,
    /// Last seqno that the consumer wants; `u64::MAX` for a stream without an end.
    pub end: Seqno,
    /// History of `start`; 0 for none.
    pub vb_uuid: VbUuid,
    /// Start of the snapshot that `start` is in.
    pub snapshot_start: Seqno,
    /// End of that snapshot.
    pub snapshot_end: Seqno,
}

impl StreamRequestExtras {
    /// Bytes on the wire.
    pub const BYTES: usize = 48;

    /// Decodes exactly 48 bytes; it ignores the four reserved ones.
    pub fn decode(extras: &[u8]) -> Option<StreamRequestExtras> {
        let (flags, rest) = split_u32(extras)?;
        let (_reserved, rest) = split_u32(rest)?;
        let (start, rest) = split_u64(rest)?;
        let (end, rest) = split_u64(rest)?;
        let (vb_uuid, rest) = split_u64(rest)?;
        let (snapshot_start, rest) = split_u64(rest)?;
        let (snapshot_end, rest) = split_u64(rest)?;
        rest.is_empty().then_some(StreamRequestExtras {
            flags: StreamFlags(flags),
            start: Seqno(start),
            end: Seqno(end),
            vb_uuid: VbUuid(vb_uuid),
            snapshot_start: Seqno(snapshot_start),
            snapshot_end: Seqno(snapshot_end),
        })
    }

    /// Encodes.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&self.flags.0.to_be_bytes());
        let numbers =
            [self.start.0, self.end.0, self.vb_uuid.0, self.snapshot_start.0, self.snapshot_end.0];
        for (field, number) in bytes[8..].chunks_exact_mut(8).zip(numbers) {
            field.copy_from_slice(&number.to_be_bytes());
        }
        bytes
    }
}

/// The documents of a stream, on a connection with collections.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Filter<'a> {
    /// All collections.
    #[default]
    All,
    /// All collections of a scope, later ones too.
    Scope(ScopeId),
    /// These collections.
    Collections(&'a [CollectionId]),
}

/// Content of the request's JSON value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StreamValue<'a> {
    /// The documents of the stream.
    pub filter: Filter<'a>,
    /// The consumer's manifest.
    pub manifest_uid: Option<ManifestUid>,
    /// Id of the stream, on a connection with stream ids; not 0.
    pub stream_id: Option<u16>,
    /// Purge seqno that the consumer saw last.
    pub purge_seqno: Option<Seqno>,
    /// For a replica: the epoch in which the vbucket has to be active.
    pub copies_epoch: Option<CopiesEpoch>,
    /// For a replica: which copy of the vbucket it is.
    pub copy: Option<CopyId>,
}

impl StreamValue<'_> {
    /// Appends the JSON object; nothing when it says nothing, which means all collections.
    pub fn write(&self, out: &mut String) {
        if *self == StreamValue::default() {
            return;
        }
        out.push('{');
        match self.filter {
            Filter::All => {}
            Filter::Scope(scope) => member(out, "scope", format_args!("\"{:x}\"", scope.0)),
            Filter::Collections(ids) => {
                member(out, "collections", format_args!("["));
                for (index, id) in ids.iter().enumerate() {
                    let comma = if index == 0 { "" } else { "," };
                    append(out, format_args!("{comma}\"{:x}\"", id.0));
                }
                out.push(']');
            }
        }
        if let Some(uid) = self.manifest_uid {
            member(out, "uid", format_args!("\"{uid}\""));
        }
        if let Some(stream_id) = self.stream_id {
            member(out, "sid", format_args!("{stream_id}"));
        }
        if let Some(seqno) = self.purge_seqno {
            member(out, "purge_seqno", format_args!("\"{}\"", seqno.0));
        }
        if let Some(epoch) = self.copies_epoch {
            member(out, "copies_epoch", format_args!("\"{}\"", epoch.0));
        }
        if let Some(CopyId { node, copy }) = self.copy {
            member(out, "copy", format_args!("\"{node}.{copy}\""));
        }
        out.push('}');
    }
}

fn member(out: &mut String, name: &str, value: std::fmt::Arguments<'_>) {
    let comma = if out.ends_with('{') { "" } else { "," };
    append(out, format_args!("{comma}\"{name}\":{value}"));
}

fn append(out: &mut String, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("a string takes every text");
}

/// Histories of a vbucket, newest first: the body of an accepted request and of GET_FAILOVER_LOG.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FailoverLog<'a> {
    entries: &'a [u8],
}

impl<'a> FailoverLog<'a> {
    /// Bytes of one entry.
    pub const ENTRY_BYTES: usize = 16;

    /// Views a body of whole entries.
    pub fn decode(value: &'a [u8]) -> Option<FailoverLog<'a>> {
        value.len().is_multiple_of(Self::ENTRY_BYTES).then_some(FailoverLog { entries: value })
    }

    /// Each history, and the seqno from which it holds.
    pub fn entries(self) -> impl Iterator<Item = (VbUuid, Seqno)> + 'a {
        self.entries.chunks_exact(Self::ENTRY_BYTES).filter_map(|entry| {
            let (vb_uuid, rest) = split_u64(entry)?;
            let (seqno, _) = split_u64(rest)?;
            Some((VbUuid(vb_uuid), Seqno(seqno)))
        })
    }

    /// Appends one entry.
    pub fn write_entry(out: &mut Vec<u8>, vb_uuid: VbUuid, seqno: Seqno) {
        out.extend_from_slice(&vb_uuid.0.to_be_bytes());
        out.extend_from_slice(&seqno.0.to_be_bytes());
    }
}

/// The body of an accepted request of a replica: the active's high seqno, then its histories with
/// the epochs in which they began, newest first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplicaStreamAnswer<'a> {
    /// The last seqno of the active when it accepted the stream.
    pub high_seqno: Seqno,
    entries: &'a [u8],
}

impl<'a> ReplicaStreamAnswer<'a> {
    /// Bytes of one entry.
    pub const ENTRY_BYTES: usize = 24;

    /// Views a body with whole entries.
    pub fn decode(value: &'a [u8]) -> Option<ReplicaStreamAnswer<'a>> {
        let (high_seqno, entries) = split_u64(value)?;
        let is_whole = entries.len().is_multiple_of(Self::ENTRY_BYTES);
        is_whole.then_some(ReplicaStreamAnswer { high_seqno: Seqno(high_seqno), entries })
    }

    /// Each history, the seqno from which it holds, and its epoch.
    pub fn histories(self) -> impl Iterator<Item = (VbUuid, Seqno, CopiesEpoch)> + 'a {
        self.entries.chunks_exact(Self::ENTRY_BYTES).filter_map(|entry| {
            let (vb_uuid, rest) = split_u64(entry)?;
            let (seqno, rest) = split_u64(rest)?;
            let (epoch, _) = split_u64(rest)?;
            Some((VbUuid(vb_uuid), Seqno(seqno), CopiesEpoch(epoch)))
        })
    }

    /// Appends the beginning of an answer.
    pub fn write_high_seqno(out: &mut Vec<u8>, high_seqno: Seqno) {
        out.extend_from_slice(&high_seqno.0.to_be_bytes());
    }

    /// Appends one history.
    pub fn write_history(out: &mut Vec<u8>, (vb_uuid, seqno): (VbUuid, Seqno), epoch: CopiesEpoch) {
        FailoverLog::write_entry(out, vb_uuid, seqno);
        out.extend_from_slice(&epoch.0.to_be_bytes());
    }
}

/// Decodes the body of a refusal with [`crate::status::Status::Rollback`]: the seqno to return to.
pub fn decode_rollback(value: &[u8]) -> Option<Seqno> {
    value.try_into().ok().map(|bytes| Seqno(u64::from_be_bytes(bytes)))
}
