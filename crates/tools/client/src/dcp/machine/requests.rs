//! Requests of a stream: what an idle vbucket has to ask next.

use oribi_protocol::change_cursor::ChangeCursor;
use oribi_protocol::dcp::stream_request::{Filter, StreamFlags, StreamRequestExtras, StreamValue};
use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::{RequestParts, encode_request};
use oribi_types::{ManifestUid, Seqno, VbUuid, Vbid};

use super::{CollectionFilter, DcpConnectionId, DcpStateMachine, Phase, Question, RequestId};

/// The end of a stream that has none.
const ENDLESS: Seqno = Seqno(u64::MAX);

impl DcpStateMachine {
    /// Begins to stream an idle vbucket over a connection; requests are appended to `out`.
    pub fn begin(
        &mut self,
        feed: DcpConnectionId,
        vbid: Vbid,
        has_collections: bool,
        out: &mut Vec<u8>,
    ) {
        let Some(vbucket) = self.vbuckets.get(usize::from(vbid.0)) else { return };
        if vbucket.phase != Phase::Idle {
            return;
        }
        let has_end = !self.until_now || vbucket.end.is_some();
        match vbucket.cursor {
            Some(cursor) if has_end => self.ask_for_stream(feed, cursor, has_collections, out),
            _ => self.ask(feed, vbid, Question::History, out, |_| ()),
        }
    }

    /// Asks how far a history is.
    pub(super) fn ask_for_last_seqno(
        &mut self,
        feed: DcpConnectionId,
        vbid: Vbid,
        vb_uuid: VbUuid,
        out: &mut Vec<u8>,
    ) {
        let value = vb_uuid.0.to_be_bytes();
        self.ask(feed, vbid, Question::LastSeqno, out, |parts| parts.value = &value);
    }

    /// Asks for the stream.
    pub(super) fn ask_for_stream(
        &mut self,
        feed: DcpConnectionId,
        cursor: ChangeCursor,
        has_collections: bool,
        out: &mut Vec<u8>,
    ) {
        let position = cursor.position();
        let vbid = position.vbid;
        let end = self.vbuckets[usize::from(vbid.0)].end;
        let extras = StreamRequestExtras {
            flags: StreamFlags::ACTIVE_ONLY,
            start: position.seqno,
            end: end.unwrap_or(ENDLESS),
            vb_uuid: position.vb_uuid,
            snapshot_start: position.snapshot.0,
            snapshot_end: position.snapshot.1,
        };
        let mut json = String::new();
        if has_collections {
            let filter = match &self.wanted {
                CollectionFilter::All => Filter::All,
                CollectionFilter::Scope(id) => Filter::Scope(*id),
                CollectionFilter::Collections(ids) => Filter::Collections(ids),
            };
            let manifest_uid = Some(self.manifest_uid).filter(|uid| *uid != ManifestUid(0));
            // Servers take the version of the manifest next to a filter only.
            if filter != Filter::All {
                StreamValue { filter, manifest_uid, ..StreamValue::default() }.write(&mut json);
            }
        }
        let extras = extras.encode();
        self.ask(feed, vbid, Question::Stream, out, |parts| {
            (parts.extras, parts.value) = (&extras, json.as_bytes());
        });
    }

    fn ask<'a>(
        &mut self,
        feed: DcpConnectionId,
        vbid: Vbid,
        question: Question,
        out: &mut Vec<u8>,
        fill: impl FnOnce(&mut RequestParts<'a>),
    ) {
        self.generation = self.generation.wrapping_add(1);
        let opaque = u32::from(self.generation) << 16 | u32::from(vbid.0);
        let mut parts = RequestParts { opaque, vbid, ..RequestParts::new(question.opcode()) };
        fill(&mut parts);
        encode_request(out, &parts);
        let request = RequestId { feed, opaque };
        self.vbuckets[usize::from(vbid.0)].phase = Phase::Asked { request, question };
    }
}

impl Question {
    pub(super) fn opcode(self) -> Opcode {
        match self {
            Question::History => Opcode::DcpGetFailoverLog,
            Question::LastSeqno => Opcode::ObserveSeqno,
            Question::Stream => Opcode::DcpStreamReq,
        }
    }
}
