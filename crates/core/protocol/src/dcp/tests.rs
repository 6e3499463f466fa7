//! Known bytes of each layout, and every message comes back as it was written.

use oribi_types::{CopiesEpoch, ManifestUid, RevSeqno, ScopeId, VbUuid};
use proptest::collection::vec;
use proptest::prelude::*;

use super::end_reason::EndReason;
use super::item::{DeletionExtras, DeletionLayout, MutationExtras};
use super::marker::{MarkerFlags, ReplicaSeqnos, SnapshotMarker};
use super::message::{DcpDocument, Message, MessageError, decode};
use super::open::{OpenExtras, OpenFlags};
use super::stream_request::{
    FailoverLog, Filter, ReplicaStreamAnswer, StreamFlags, StreamRequestExtras, StreamValue,
    decode_rollback,
};
use super::system_event::{EventChange, SystemEvent};
use super::vb_seqnos::{VbSeqnos, VbSeqnosExtras};
use super::*;
use crate::frame::Frame;

const STREAM: StreamHead = StreamHead { opaque: 0x8000_0001, vbid: Vbid(5), stream_id: None };

fn whole(bytes: &[u8]) -> Frame<'_> {
    let frame = Frame::whole(bytes).expect("a complete frame");
    assert_eq!(frame.header.frame_bytes(), bytes.len(), "nothing follows the frame");
    frame
}

#[test]
fn a_marker_byte_by_byte() {
    let marker = SnapshotMarker {
        start: Seqno(1),
        end: Seqno(7),
        flags: MarkerFlags::DISK.and(MarkerFlags::CHECKPOINT),
        purge_seqno: None,
        replica: None,
    };
    let mut bytes = Vec::new();
    assert_eq!(marker.write(&mut bytes, STREAM), 44);
    assert_eq!(
        bytes,
        b"\x80\x56\x00\x00\x14\x00\x00\x05\x00\x00\x00\x14\x80\x00\x00\x01\
          \x00\x00\x00\x00\x00\x00\x00\x00\
          \x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x07\x00\x00\x00\x06"
    );
    let newer = SnapshotMarker { purge_seqno: Some(Seqno(3)), ..marker };
    bytes.clear();
    assert_eq!(newer.write(&mut bytes, STREAM), 77);
    let frame = whole(&bytes);
    assert_eq!((frame.extras, frame.value.len()), (&b"\x02"[..], 52));
    assert_eq!(frame.value[20..28], 7u64.to_be_bytes(), "the highest visible seqno");
    assert_eq!(frame.value[36..44], 3u64.to_be_bytes(), "the purge seqno");
}

#[test]
fn a_stream_id_makes_the_frame_three_bytes_longer() {
    let stream = StreamHead { stream_id: Some(0x0102), ..STREAM };
    let mut bytes = Vec::new();
    assert_eq!(EndReason::FilterEmpty.write(&mut bytes, stream), 31);
    assert_eq!(bytes[..6], *b"\x08\x55\x03\x00\x04\x00");
    assert_eq!(bytes[24..], *b"\x22\x01\x02\x00\x00\x00\x07");
    assert_eq!(decode(&whole(&bytes)), Ok((stream, Message::StreamEnd(EndReason::FilterEmpty))));
}

#[test]
fn frames_have_the_sizes_that_consumers_count() {
    let mut out = Vec::new();
    assert_eq!(write_seqno_advanced(&mut out, STREAM, Seqno(9)), 32);
    assert_eq!(EndReason::Ok.write(&mut out, STREAM), 28);
    let layouts = [
        (DeletionLayout::DeletionV1, 42),
        (DeletionLayout::DeletionV2, 45),
        (DeletionLayout::Expiration, 44),
    ];
    for (layout, frame_bytes) in layouts {
        let (extras, used) = DeletionExtras::default().encode(layout);
        let head = MessageHead {
            extras: &extras[..used],
            ..MessageHead::new(Opcode::DcpDeletion, STREAM)
        };
        assert_eq!(write_head(&mut out, &head, 0), frame_bytes);
    }
    let extras = MutationExtras::default().encode();
    let head = MessageHead { extras: &extras, ..MessageHead::new(Opcode::DcpMutation, STREAM) };
    assert_eq!(write_head(&mut out, &head, 0), 55);
    let event = SystemEvent {
        by_seqno: Seqno(1),
        manifest_uid: ManifestUid(2),
        scope: ScopeId(3),
        change: EventChange::ScopeEnd,
    };
    assert_eq!(event.write(&mut out, STREAM), 37 + 12);
}

#[test]
fn a_noop_byte_by_byte() {
    let mut bytes = Vec::new();
    write_noop(&mut bytes, 0x8196_9800);
    assert_eq!(bytes[..16], *b"\x80\x5c\0\0\0\0\0\0\0\0\0\0\x81\x96\x98\x00");
    assert_eq!(bytes.len(), HEADER_BYTES);
}

#[test]
fn the_filter_is_written_as_json() {
    let mut text = String::new();
    StreamValue::default().write(&mut text);
    assert_eq!(text, "", "an empty value means all collections");
    let value = StreamValue {
        filter: Filter::Collections(&[CollectionId(8), CollectionId(0x1f)]),
        manifest_uid: Some(ManifestUid(0xab)),
        stream_id: Some(7),
        purge_seqno: Some(Seqno(12)),
        copies_epoch: None,
        copy: None,
    };
    value.write(&mut text);
    assert_eq!(text, r#"{"collections":["8","1f"],"uid":"ab","sid":7,"purge_seqno":"12"}"#);
    text.clear();
    StreamValue { filter: Filter::Scope(ScopeId(9)), ..StreamValue::default() }.write(&mut text);
    assert_eq!(text, r#"{"scope":"9"}"#);
}

#[test]
fn flags_without_a_meaning_are_unknown() {
    for bit in 0..32 {
        let open = [0, 2, 3, 5, 6, 8].contains(&bit);
        assert_eq!(OpenFlags(1 << bit).are_known(), open, "open flag {bit}");
        let stream = [0, 1, 2, 4, 5, 6, 7].contains(&bit);
        assert_eq!(StreamFlags(1 << bit).are_known(), stream, "stream flag {bit}");
    }
}

#[test]
fn bodies_of_wrong_length_are_refused() {
    assert_eq!(decode_rollback(&[0; 8]), Some(Seqno(0)));
    for bytes in (0..60).filter(|bytes| *bytes != 8) {
        assert_eq!(decode_rollback(&vec![0; bytes]), None);
        let is_log = bytes % FailoverLog::ENTRY_BYTES == 0;
        assert_eq!(FailoverLog::decode(&vec![0; bytes]).is_some(), is_log);
        assert_eq!(VbSeqnos::decode(&vec![0; bytes]).is_some(), bytes % 10 == 0);
    }
}

#[test]
fn a_response_is_not_a_message() {
    let mut bytes = Vec::new();
    write_noop(&mut bytes, 1);
    bytes[0] = 0x81;
    assert_eq!(decode(&whole(&bytes)), Err(MessageError::NotDcp));
    bytes[..2].copy_from_slice(b"\x80\x00");
    assert_eq!(decode(&whole(&bytes)), Err(MessageError::NotDcp));
}

#[test]
fn an_unknown_event_is_malformed() {
    let event = SystemEvent {
        by_seqno: Seqno(1),
        manifest_uid: ManifestUid(2),
        scope: ScopeId(3),
        change: EventChange::ScopeEnd,
    };
    let mut bytes = Vec::new();
    event.write(&mut bytes, STREAM);
    bytes[HEADER_BYTES + 11] = 9;
    assert_eq!(decode(&whole(&bytes)), Err(MessageError::Malformed));
}

fn streams() -> impl Strategy<Value = StreamHead> {
    (any::<u32>(), any::<u16>(), any::<Option<u16>>())
        .prop_map(|(opaque, vbid, stream_id)| StreamHead { opaque, vbid: Vbid(vbid), stream_id })
}

fn deletions() -> impl Strategy<Value = (DeletionExtras, DeletionLayout)> {
    let layouts = prop::sample::select(vec![
        DeletionLayout::DeletionV1,
        DeletionLayout::DeletionV2,
        DeletionLayout::Expiration,
    ]);
    (any::<(u64, u64, u32)>(), layouts).prop_map(|((seqno, rev, time), layout)| {
        let delete_time = (layout != DeletionLayout::DeletionV1).then_some(time);
        let extras =
            DeletionExtras { by_seqno: Seqno(seqno), rev_seqno: RevSeqno(rev), delete_time };
        (extras, layout)
    })
}

proptest! {
    #[test]
    fn documents_come_back(
        stream in streams(),
        collection in any::<Option<u32>>(),
        key in vec(any::<u8>(), 1..240),
        (cas, datatype) in any::<(u64, u8)>(),
        value in vec(any::<u8>(), 0..300),
        (by_seqno, rev_seqno, flags, expiry) in any::<(u64, u64, u32, u32)>(),
        (deleted, layout) in deletions(),
        removed in any::<bool>(),
    ) {
        let extras = MutationExtras {
            by_seqno: Seqno(by_seqno),
            rev_seqno: RevSeqno(rev_seqno),
            flags,
            expiry,
        };
        let (of_deletion, used) = deleted.encode(layout);
        let opcode = match (removed, layout) {
            (false, _) => Opcode::DcpMutation,
            (true, DeletionLayout::Expiration) => Opcode::DcpExpiration,
            (true, _) => Opcode::DcpDeletion,
        };
        let of_mutation = extras.encode();
        let collection = collection.map(CollectionId);
        let head = MessageHead {
            cas,
            datatype,
            extras: if removed { &of_deletion[..used] } else { &of_mutation },
            collection,
            key: &key,
            ..MessageHead::new(opcode, stream)
        };
        let mut bytes = Vec::new();
        let frame_bytes = write_head(&mut bytes, &head, value.len());
        bytes.extend_from_slice(&value);
        prop_assert_eq!(frame_bytes, bytes.len());
        let mut field = Vec::new();
        if let Some(CollectionId(id)) = collection {
            let (prefix, prefix_bytes) = leb128::encode_u32(id);
            field.extend_from_slice(&prefix[..prefix_bytes]);
        }
        field.extend_from_slice(&key);
        let expected = match opcode {
            Opcode::DcpMutation => Message::Mutation(
                DcpDocument { extras, key: &field, cas, datatype, value: &value }),
            Opcode::DcpExpiration => Message::Expiration(
                DcpDocument { extras: deleted, key: &field, cas, datatype, value: &value }),
            _ => Message::Deletion(
                DcpDocument { extras: deleted, key: &field, cas, datatype, value: &value }),
        };
        prop_assert_eq!(decode(&whole(&bytes)), Ok((stream, expected)));
    }

    #[test]
    fn markers_come_back(
        stream in streams(),
        (start, end, flags) in any::<(u64, u64, u32)>(),
        purge in any::<Option<u64>>(),
        replica in any::<Option<(u64, u64, u64)>>(),
    ) {
        let mut marker = SnapshotMarker {
            start: Seqno(start),
            end: Seqno(end),
            flags: MarkerFlags(flags),
            purge_seqno: purge.map(Seqno),
            replica: replica.map(|(visible, completed, prepared)| ReplicaSeqnos {
                max_visible: Seqno(visible),
                high_completed: Seqno(completed),
                high_prepared: purge.map(|_| Seqno(prepared)),
            }),
        };
        let mut bytes = Vec::new();
        prop_assert_eq!(marker.write(&mut bytes, stream), bytes.len());
        if purge.is_some() {
            let high_prepared = Some(Seqno(0));
            let nothing = ReplicaSeqnos { max_visible: Seqno(end), high_prepared, ..ReplicaSeqnos::default() };
            marker.replica.get_or_insert(nothing);
        }
        prop_assert_eq!(decode(&whole(&bytes)), Ok((stream, Message::SnapshotMarker(marker))));
    }

    #[test]
    fn events_come_back(
        stream in streams(),
        (seqno, uid, scope, collection) in any::<(u64, u64, u32, u32)>(),
        max_ttl in any::<Option<u32>>(),
        name in vec(any::<u8>(), 0..40),
        kind in 0..4,
    ) {
        let collection = CollectionId(collection);
        let change = match kind {
            0 => EventChange::CollectionBegin { collection, name: &name, max_ttl },
            1 => EventChange::CollectionEnd { collection },
            2 => EventChange::ScopeBegin { name: &name },
            _ => EventChange::ScopeEnd,
        };
        let event = SystemEvent {
            by_seqno: Seqno(seqno),
            manifest_uid: ManifestUid(uid),
            scope: ScopeId(scope),
            change,
        };
        let mut bytes = Vec::new();
        prop_assert_eq!(event.write(&mut bytes, stream), bytes.len());
        prop_assert_eq!(decode(&whole(&bytes)), Ok((stream, Message::SystemEvent(event))));
    }

    #[test]
    fn requests_come_back(
        numbers in any::<[u64; 5]>(),
        flags in any::<u32>(),
        state in any::<Option<u32>>(),
        collection in any::<Option<u32>>(),
        log in vec(any::<(u64, u64)>(), 0..30),
    ) {
        let open = OpenExtras { flags: OpenFlags(flags) };
        prop_assert_eq!(OpenExtras::decode(&open.encode()), Some(open));
        let request = StreamRequestExtras {
            flags: StreamFlags(flags),
            start: Seqno(numbers[0]),
            end: Seqno(numbers[1]),
            vb_uuid: VbUuid(numbers[2]),
            snapshot_start: Seqno(numbers[3]),
            snapshot_end: Seqno(numbers[4]),
        };
        prop_assert_eq!(StreamRequestExtras::decode(&request.encode()), Some(request));
        let seqnos = VbSeqnosExtras {
            state: state.or(collection.map(|_| 0)),
            collection: collection.map(CollectionId),
        };
        let mut bytes = Vec::new();
        seqnos.write(&mut bytes);
        prop_assert_eq!(VbSeqnosExtras::decode(&bytes), Some(seqnos));
        bytes.clear();
        for (uuid, seqno) in &log {
            FailoverLog::write_entry(&mut bytes, VbUuid(*uuid), Seqno(*seqno));
        }
        let entries = FailoverLog::decode(&bytes).expect("whole entries").entries();
        prop_assert_eq!(entries.map(|(uuid, seqno)| (uuid.0, seqno.0)).collect::<Vec<_>>(), log);
    }

    /// Whatever the header says, a message is decoded or refused.
    #[test]
    fn damaged_messages_are_refused_or_decoded(
        opcode in 0x50u8..0x68,
        framing in vec(any::<u8>(), 0..5),
        extras in vec(any::<u8>(), 0..56),
        key in vec(any::<u8>(), 0..9),
        value in vec(any::<u8>(), 0..60),
    ) {
        let body = [framing.clone(), extras.clone(), key.clone(), value].concat();
        let header = Header {
            magic: Magic::AltClientRequest,
            opcode,
            framing_bytes: framing.len() as u8,
            key_bytes: key.len() as u16,
            extras_bytes: extras.len() as u8,
            datatype: 0,
            vbucket_or_status: 3,
            body_bytes: body.len() as u32,
            opaque: 4,
            cas: 5,
        };
        let bytes = [header.encode().to_vec(), body].concat();
        if let Ok((stream, _)) = decode(&whole(&bytes)) {
            prop_assert_eq!((stream.opaque, stream.vbid), (4, Vbid(3)));
        }
        if let Ok((stream, _)) = durability::decode(&whole(&bytes)) {
            prop_assert_eq!((stream.opaque, stream.vbid), (4, Vbid(3)));
        }
    }
}

#[test]
fn answers_to_replicas_name_epochs() {
    let mut body = Vec::new();
    ReplicaStreamAnswer::write_high_seqno(&mut body, Seqno(12));
    let histories = [(VbUuid(7), Seqno(9), CopiesEpoch(3)), (VbUuid(5), Seqno(0), CopiesEpoch(1))];
    for (uuid, seqno, epoch) in histories {
        ReplicaStreamAnswer::write_history(&mut body, (uuid, seqno), epoch);
    }
    let answer = ReplicaStreamAnswer::decode(&body).unwrap();
    assert_eq!(answer.high_seqno, Seqno(12));
    assert_eq!(answer.histories().collect::<Vec<_>>(), histories);
    for length in 0..body.len() {
        let is_whole = length >= 8 && (length - 8).is_multiple_of(24);
        assert_eq!(ReplicaStreamAnswer::decode(&body[..length]).is_some(), is_whole, "{length}");
    }
    let mut text = String::new();
    let copies_epoch = Some(CopiesEpoch(17));
    StreamValue { copies_epoch, ..StreamValue::default() }.write(&mut text);
    assert_eq!(text, r#"{"copies_epoch":"17"}"#);
}
