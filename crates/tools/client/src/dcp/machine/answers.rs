//! Answers to the requests of a stream, and its end.

use bytes::Bytes;
use oribi_protocol::change_cursor::ChangeCursor;
use oribi_protocol::dcp::end_reason::EndReason;
use oribi_protocol::dcp::stream_request::{FailoverLog, decode_rollback};
use oribi_protocol::frame::Frame;
use oribi_protocol::status::Status;
use oribi_types::{Seqno, VbUuid, Vbid};

use super::{DcpConnectionId, DcpStateMachine, FollowUp, Phase, Position, Question, RequestId};
use crate::error::{MalformedResponse, RejectionKind};
use crate::persistence::ObservedSeqno;

impl DcpStateMachine {
    pub(super) fn take_answer(
        &mut self,
        feed: DcpConnectionId,
        frame: &Frame<'_>,
        block: &Bytes,
        has_collections: bool,
        out: &mut Vec<u8>,
    ) -> Result<FollowUp, MalformedResponse> {
        let request = RequestId { feed, opaque: frame.header.opaque };
        let vbid = Vbid(request.opaque as u16);
        let phase = self.vbuckets.get(usize::from(vbid.0)).map(|vbucket| vbucket.phase);
        let question = match phase {
            Some(Phase::Asked { request: asked, question }) if asked == request => question,
            // Of a request that was given up, or of an acknowledgement that went wrong.
            _ => return Ok(FollowUp::GoOn),
        };
        if frame.header.opcode != question.opcode() as u8 {
            return Err(MalformedResponse::new("an answer with another opcode than its request"));
        }
        let status = frame.header.vbucket_or_status;
        if status != Status::Success.code() {
            return self.take_refusal(vbid, question, frame, block, (feed, has_collections), out);
        }
        match question {
            Question::History => {
                let vb_uuid = newest_history(frame.value)?;
                self.ask_for_last_seqno(feed, vbid, vb_uuid, out);
            }
            Question::LastSeqno => {
                let observed = ObservedSeqno::decode_present(block.slice_ref(frame.value), vbid)?;
                let vbucket = &mut self.vbuckets[usize::from(vbid.0)];
                let now = Position::at(vbid, observed.vb_uuid, observed.current);
                let cursor = *vbucket.cursor.get_or_insert(ChangeCursor::new(now));
                let position = cursor.position();
                // A position of another history may be lost, which only the answer to a stream
                // request tells.
                let is_shared = position.vb_uuid == observed.vb_uuid || position.seqno == Seqno(0);
                if self.until_now && is_shared && position.seqno >= observed.current {
                    self.finish(vbid);
                    return Ok(FollowUp::GoOn);
                }
                let end = observed.current.max(position.seqno);
                vbucket.end = self.until_now.then_some(end);
                self.ask_for_stream(feed, cursor, has_collections, out);
            }
            Question::Stream => {
                let vb_uuid = newest_history(frame.value)?;
                let vbucket = &mut self.vbuckets[usize::from(vbid.0)];
                vbucket.phase = Phase::Streaming(request);
                if let Some(cursor) = &mut vbucket.cursor {
                    cursor.accept(vb_uuid);
                }
                return Ok(FollowUp::Streaming(vbid));
            }
        }
        Ok(FollowUp::GoOn)
    }

    fn take_refusal(
        &mut self,
        vbid: Vbid,
        question: Question,
        frame: &Frame<'_>,
        block: &Bytes,
        (feed, has_collections): (DcpConnectionId, bool),
        out: &mut Vec<u8>,
    ) -> Result<FollowUp, MalformedResponse> {
        let code = frame.header.vbucket_or_status;
        if question == Question::Stream && code == Status::Rollback.code() {
            let to = decode_rollback(frame.value)
                .ok_or_else(|| MalformedResponse::new("a rollback without a seqno"))?;
            self.roll_back(vbid, to)?;
            self.vbuckets[usize::from(vbid.0)].phase = Phase::Idle;
            self.begin(feed, vbid, has_collections, out);
            return Ok(FollowUp::GoOn);
        }
        self.vbuckets[usize::from(vbid.0)].rest();
        Ok(match Status::from_u16(code) {
            Some(Status::NotMyVbucket) => FollowUp::Moved(vbid, block.slice_ref(frame.value)),
            // The history has ended between two questions, or a stream is not quite gone yet.
            Some(Status::KeyEnoent | Status::KeyEexists) => FollowUp::Later(vbid),
            Some(Status::UnknownCollection | Status::UnknownScope) => FollowUp::CheckFilter(vbid),
            _ => match RejectionKind::from_status(code) {
                Err(refused) if !refused.is_transient() => FollowUp::Fail(refused),
                _ => FollowUp::Later(vbid),
            },
        })
    }

    pub(super) fn end_stream(&mut self, vbid: Vbid, reason: EndReason) -> FollowUp {
        match reason {
            // An endless stream ends so when there is nothing left that it could show.
            EndReason::Ok | EndReason::FilterEmpty => {
                self.finish(vbid);
                return FollowUp::GoOn;
            }
            _ => self.vbuckets[usize::from(vbid.0)].rest(),
        }
        match reason {
            EndReason::LostPrivileges => FollowUp::Fail(RejectionKind::AccessDenied),
            EndReason::StateChanged => FollowUp::Moved(vbid, Bytes::new()),
            _ => FollowUp::Later(vbid),
        }
    }
}

fn newest_history(value: &[u8]) -> Result<VbUuid, MalformedResponse> {
    let log = FailoverLog::decode(value);
    let newest = log.and_then(|log| log.entries().next()).map(|(vb_uuid, _)| vb_uuid);
    newest.ok_or_else(|| MalformedResponse::new("a vbucket without a history"))
}
