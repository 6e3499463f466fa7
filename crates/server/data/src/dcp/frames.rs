//! Writes steps of a stream as messages.
//!
//! Owns: the form in which a document goes out: which parts of its value, compressed or not, with
//! which datatype, copied or pinned. A stored value is the block of extended attributes, always
//! plain, and the body, which may be compressed. On the wire the two are compressed together or not
//! at all.
//!
//! Invariant: every function appends one whole frame, or nothing when it fails. The producer calls
//! this; the rules are those of its consumer's flags and options.

use std::borrow::Cow;

use oribi_engine::compression::{Inflater, inflate_into, inflated_bytes, with_compressed};
use oribi_engine::dcp::{ChangedDocument, SnapshotSource, StreamChange, StreamMarker};
use oribi_engine::{ManifestEvent, ManifestEventKind};
use oribi_protocol::dcp::end_reason::EndReason;
use oribi_protocol::dcp::item::{DeletionExtras, DeletionLayout, MutationExtras};
use oribi_protocol::dcp::marker::{self, MarkerFlags};
use oribi_protocol::dcp::open::OpenFlags;
use oribi_protocol::dcp::system_event::{self, EventChange};
use oribi_protocol::dcp::{MessageHead, StreamHead, write_head, write_seqno_advanced};
use oribi_protocol::feature::Feature;
use oribi_protocol::limits::{GATHER_VALUE_BYTES_MIN, VALUE_BYTES_MAX};
use oribi_protocol::opcode::Opcode;
use oribi_subdoc::xattr::{self, XattrDraft};
use oribi_types::{CollectionId, Datatype, Seqno};

use crate::buckets::dcp_registry::DcpOptions;
use crate::connection::features::Features;
use crate::connection::send_buffer::{PinnedValue, SendBuffer};
use crate::limits::RESERVED_ANSWER_BYTES_MIN;

/// Bodies of at least this size are sent as stored. Compressing them would need additional memory
/// for each consumer.
const COMPRESSED_BYTES_MAX: usize = RESERVED_ANSWER_BYTES_MIN;

/// A stored document cannot be read; nothing was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DamagedDocument;

/// See the module text.
pub(crate) struct FrameWriter<'a> {
    /// Flags of the connection.
    pub flags: OpenFlags,
    /// Features of the connection.
    pub features: Features,
    /// DcpOptions of the connection.
    pub options: &'a DcpOptions,
}

impl FrameWriter<'_> {
    fn has_collections(&self) -> bool {
        self.features.has(Feature::Collections)
    }

    /// Appends the end of a stream. Consumers without collections know fewer reasons.
    pub fn end(&self, out: &mut SendBuffer, stream: StreamHead, reason: EndReason) -> usize {
        let reason = match reason {
            EndReason::FilterEmpty | EndReason::LostPrivileges if !self.has_collections() => {
                EndReason::Ok
            }
            reason => reason,
        };
        reason.write(out.tail(), stream)
    }

    /// Appends a seqno without a change.
    pub fn advanced(&self, out: &mut SendBuffer, stream: StreamHead, seqno: Seqno) -> usize {
        write_seqno_advanced(out.tail(), stream, seqno)
    }

    pub fn marker(&self, out: &mut SendBuffer, stream: StreamHead, marker: &StreamMarker) -> usize {
        let (source, purge_seqno) = match marker.source {
            SnapshotSource::Memory => (MarkerFlags::MEMORY, None),
            SnapshotSource::Disk => {
                let purge_seqno = self.options.purge_seqnos.then_some(marker.purge_seqno);
                (MarkerFlags::DISK, purge_seqno)
            }
        };
        let flags = match marker.is_checkpoint {
            true => source.and(MarkerFlags::CHECKPOINT),
            false => source,
        };
        let (start, end) = (marker.start, marker.end);
        marker::SnapshotMarker { start, end, flags, purge_seqno, replica: None }
            .write(out.tail(), stream)
    }

    /// Appends a change.
    ///
    /// # Errors
    /// [`DamagedDocument`].
    pub fn change(
        &self,
        out: &mut SendBuffer,
        stream: StreamHead,
        change: &StreamChange<'_>,
    ) -> Result<usize, DamagedDocument> {
        match change {
            StreamChange::Document(document) if document.record.deleted => {
                self.deletion(out, stream, document)
            }
            StreamChange::Document(document) => self.mutation(out, stream, document),
            StreamChange::Event(event) => {
                event_of(event).map(|event| event.write(out.tail(), stream)).ok_or(DamagedDocument)
            }
        }
    }

    fn mutation(
        &self,
        out: &mut SendBuffer,
        stream: StreamHead,
        document: &ChangedDocument<'_>,
    ) -> Result<usize, DamagedDocument> {
        let record = &document.record;
        let extras = MutationExtras {
            by_seqno: record.seqno,
            rev_seqno: record.rev_seqno,
            flags: record.flags,
            expiry: record.expiry,
        };
        let extras = extras.encode();
        let head = MessageHead {
            cas: record.cas.0,
            extras: &extras,
            collection: self.collection(record.key.collection),
            key: record.key.key,
            ..MessageHead::new(Opcode::DcpMutation, stream)
        };
        let (attributes, body) = parts(document)?;
        let shown = if self.flags.has(OpenFlags::INCLUDE_XATTRS) { attributes } else { &[] };
        if let Some(datatype) = self.datatype_without_body(record.datatype, shown) {
            let head = MessageHead { datatype, ..head };
            return Ok(write_copied(out, &head, shown));
        }
        let datatype = with_attributes(record.datatype, shown);
        let head = MessageHead { datatype, ..head };
        if record.datatype.contains(Datatype::SNAPPY) {
            let is_readable = self.features.has(Feature::Snappy) && shown.is_empty();
            if !is_readable {
                return write_inflated(out, head, document, shown, body);
            }
        } else if self.options.compresses
            && record.key.collection != CollectionId::PREPARES
            && shown.is_empty()
            && body.len() < COMPRESSED_BYTES_MAX
            && let Some(frame_bytes) = write_compressed(out, head, body)
        {
            return Ok(frame_bytes);
        }
        let value = if shown.is_empty() { body } else { record.value };
        Ok(write_value(out, &head, document, value))
    }

    /// The datatype of a message without a body; `None` when the body goes out. Attributes go out
    /// as they are, so with them the message is not compressed whatever the body is.
    fn datatype_without_body(&self, stored: Datatype, shown: &[u8]) -> Option<u8> {
        if self.flags.has(OpenFlags::NO_VALUE_WITH_DATATYPE) {
            let snappy = if shown.is_empty() { 0 } else { Datatype::SNAPPY.0 };
            return Some(with_attributes(stored, shown) & !snappy);
        }
        let is_without = self.flags.has(OpenFlags::NO_VALUE);
        is_without.then(|| with_attributes(Datatype::RAW, shown))
    }

    fn deletion(
        &self,
        out: &mut SendBuffer,
        stream: StreamHead,
        document: &ChangedDocument<'_>,
    ) -> Result<usize, DamagedDocument> {
        let record = &document.record;
        let has_times = self.flags.has(OpenFlags::INCLUDE_DELETE_TIMES);
        let (opcode, layout) = match has_times {
            true if record.expired && self.options.expirations => {
                (Opcode::DcpExpiration, DeletionLayout::Expiration)
            }
            true => (Opcode::DcpDeletion, DeletionLayout::DeletionV2),
            false => (Opcode::DcpDeletion, DeletionLayout::DeletionV1),
        };
        let extras = DeletionExtras {
            by_seqno: record.seqno,
            rev_seqno: record.rev_seqno,
            delete_time: Some(record.expiry),
        };
        let (extras, extras_bytes) = extras.encode(layout);
        let attributes = self.attributes_of_deletion(document)?;
        let head = MessageHead {
            cas: record.cas.0,
            datatype: with_attributes(Datatype::RAW, &attributes),
            extras: &extras[..extras_bytes],
            collection: self.collection(record.key.collection),
            key: record.key.key,
            ..MessageHead::new(opcode, stream)
        };
        Ok(write_copied(out, &head, &attributes))
    }

    /// The attributes that go out with a deletion. Without a flag for them those of users stay.
    fn attributes_of_deletion<'d>(
        &self,
        document: &ChangedDocument<'d>,
    ) -> Result<Cow<'d, [u8]>, DamagedDocument> {
        let (attributes, _) = parts(document)?;
        if attributes.is_empty() || !self.flags.has(OpenFlags::INCLUDE_XATTRS) {
            return Ok(Cow::Borrowed(&[]));
        }
        if self.flags.has(OpenFlags::INCLUDE_DELETED_USER_XATTRS) {
            return Ok(Cow::Borrowed(attributes));
        }
        let (xattrs, _) = xattr::split(attributes).map_err(|_| DamagedDocument)?;
        if xattrs.iter().all(|(key, _)| xattr::is_system(key)) {
            return Ok(Cow::Borrowed(attributes));
        }
        let mut kept = XattrDraft::new(xattrs);
        kept.retain(xattr::is_system);
        let mut block = Vec::with_capacity(kept.byte_count());
        kept.write(&mut block);
        debug_assert_eq!(block.len(), kept.byte_count(), "attributes have the announced length");
        Ok(Cow::Owned(block))
    }

    fn collection(&self, id: CollectionId) -> Option<CollectionId> {
        self.has_collections().then_some(id)
    }
}

/// The attributes and the body of a stored value.
///
/// # Errors
/// [`DamagedDocument`].
pub(crate) fn parts<'d>(
    document: &ChangedDocument<'d>,
) -> Result<(&'d [u8], &'d [u8]), DamagedDocument> {
    let value = document.record.value;
    if !document.record.datatype.contains(Datatype::XATTR) {
        return Ok((&[], value));
    }
    let body = xattr::body_of(value).map_err(|_| DamagedDocument)?;
    debug_assert!(body.len() <= value.len(), "the body is the end of the value");
    Ok(value.split_at(value.len() - body.len()))
}

/// Datatype bits of a body after these attributes.
fn with_attributes(body: Datatype, attributes: &[u8]) -> u8 {
    let xattr = if attributes.is_empty() { 0 } else { Datatype::XATTR.0 };
    body.0 & !Datatype::XATTR.0 | xattr
}

#[inline]
fn write_copied(out: &mut SendBuffer, head: &MessageHead<'_>, value: &[u8]) -> usize {
    let frame_bytes = write_head(out.tail(), head, value.len());
    out.tail().extend_from_slice(value);
    frame_bytes
}

/// Appends a message whose value is the end of the stored one. A large value is pinned: one in a
/// table, and one that a backfill has copied for itself alone.
fn write_value(
    out: &mut SendBuffer,
    head: &MessageHead<'_>,
    document: &ChangedDocument<'_>,
    value: &[u8],
) -> usize {
    let whole_bytes = document.record.value.len();
    debug_assert!(value.len() <= whole_bytes, "a part is no longer than its document");
    if let Some(copied) = document.copied
        && value.len() >= RESERVED_ANSWER_BYTES_MIN
    {
        let frame_bytes = write_head(out.tail(), head, value.len());
        let part = (whole_bytes - value.len()) as u32..whole_bytes as u32;
        out.pin(PinnedValue::Record(copied.share(), part));
        return frame_bytes;
    }
    match document.item.filter(|item| item.value().len() == whole_bytes) {
        Some(item) if value.len() >= GATHER_VALUE_BYTES_MIN => {
            let frame_bytes = write_head(out.tail(), head, value.len());
            let part = (whole_bytes - value.len()) as u32..whole_bytes as u32;
            out.pin(PinnedValue::Part(item.clone(), part));
            frame_bytes
        }
        _ => write_copied(out, head, value),
    }
}

/// Appends a message with attributes and a body that is inflated. A large one in memory is inflated
/// as it is sent.
fn write_inflated(
    out: &mut SendBuffer,
    head: MessageHead<'_>,
    document: &ChangedDocument<'_>,
    attributes: &[u8],
    body: &[u8],
) -> Result<usize, DamagedDocument> {
    let head = MessageHead { datatype: head.datatype & !Datatype::SNAPPY.0, ..head };
    let bytes = inflated_bytes(body, VALUE_BYTES_MAX).map_err(|_| DamagedDocument)?;
    let begin = out.tail().len();
    let frame_bytes = write_head(out.tail(), &head, attributes.len() + bytes);
    out.tail().extend_from_slice(attributes);
    if bytes >= GATHER_VALUE_BYTES_MIN
        && let Some(item) = document.item.filter(|item| item.body().len() == body.len())
        && let Ok(inflating) = Inflater::new(item.body(), VALUE_BYTES_MAX)
    {
        out.pin(PinnedValue::Inflating(item.clone(), Box::new(inflating)));
        return Ok(frame_bytes);
    }
    if bytes >= RESERVED_ANSWER_BYTES_MIN
        && let Some(copied) = document.copied
        && let Ok(inflating) = Inflater::new(body, VALUE_BYTES_MAX)
    {
        let from = (document.record.value.len() - body.len()) as u32;
        out.pin(PinnedValue::InflatingRecord(copied.share(), from, Box::new(inflating)));
        return Ok(frame_bytes);
    }
    debug_assert!(begin < out.tail().len(), "a frame begins with its head");
    if inflate_into(body, VALUE_BYTES_MAX, out.tail()).is_err() {
        out.tail().truncate(begin);
        return Err(DamagedDocument);
    }
    Ok(frame_bytes)
}

/// Appends a message with its body compressed, if that pays.
fn write_compressed(out: &mut SendBuffer, head: MessageHead<'_>, body: &[u8]) -> Option<usize> {
    let head = MessageHead { datatype: head.datatype | Datatype::SNAPPY.0, ..head };
    with_compressed(body, |compressed| write_copied(out, &head, compressed))
}

/// An event as on the wire; `None` for one without its collection.
fn event_of<'a>(event: &ManifestEvent<'a>) -> Option<system_event::SystemEvent<'a>> {
    let name = event.name.as_bytes();
    let change = match event.kind {
        // A later description of a collection that the reader has not seen begin.
        ManifestEventKind::CollectionBegin | ManifestEventKind::CollectionChanged => {
            EventChange::CollectionBegin {
                collection: event.collection?,
                name,
                max_ttl: event.max_ttl_s,
            }
        }
        ManifestEventKind::CollectionEnd => {
            EventChange::CollectionEnd { collection: event.collection? }
        }
        ManifestEventKind::ScopeBegin => EventChange::ScopeBegin { name },
        ManifestEventKind::ScopeEnd => EventChange::ScopeEnd,
    };
    Some(system_event::SystemEvent {
        by_seqno: event.seqno,
        manifest_uid: event.manifest_uid,
        scope: event.scope,
        change,
    })
}
