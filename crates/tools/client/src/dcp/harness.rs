//! One check of what a server may send to a change stream, shared by tests and the fuzz target.
//!
//! The first byte chooses the size of the pieces and the filter; the rest is what a server sends.
//! Compiled for tests and under the `harness` feature only.

use std::collections::HashMap;

use oribi_protocol::change_token::{ChangeToken, Position, Rest};
use oribi_protocol::frame::Frame;
use oribi_types::{CollectionId, Seqno, Vbid};

use super::event::DcpEvent;
use super::machine::{CollectionFilter, DcpStateMachine, FollowUp};
use super::names::CollectionNameCache;
use crate::frame_reader::FrameReader;

/// Vbuckets of the bucket.
pub const VBUCKETS: u16 = 4;

/// The only connection.
const FEED: u64 = 1;

/// Feeds `input` to a stream as a server's bytes.
///
/// # Panics
/// When an invariant of the stream is violated.
pub fn check(input: &[u8]) {
    let (seed, stream) = input.split_first().map_or((0, input), |(seed, rest)| (*seed, rest));
    let has_collections = seed & 0x80 == 0;
    let rest = if seed & 0x40 == 0 { Rest::Beginning } else { Rest::Now };
    let wanted = match seed & 0x20 {
        0 => CollectionFilter::All,
        _ => CollectionFilter::Collections(vec![CollectionId::DEFAULT, CollectionId(9)]),
    };
    let from = ChangeToken::new(rest);
    let machine =
        DcpStateMachine::new(VBUCKETS, &from, wanted, seed & 0x10 != 0, CollectionNameCache::new());
    let mut check = Check { machine, out: Vec::new(), reached: HashMap::new(), has_collections };
    for vbid in 0..VBUCKETS {
        check.begin(Vbid(vbid));
    }
    let mut reader = FrameReader::new();
    for piece in stream.chunks(usize::from(seed & 0x0f) * 7 + 1) {
        let mut piece = piece;
        while !piece.is_empty() {
            let spare = reader.spare();
            let bytes = spare.len().min(piece.len());
            spare[..bytes].copy_from_slice(&piece[..bytes]);
            reader.commit(bytes);
            piece = &piece[bytes..];
        }
        loop {
            match reader.advance() {
                Ok(false) => break,
                Err(_) => return,
                Ok(true) => {
                    if !check.take(&mut reader) {
                        return;
                    }
                }
            }
        }
    }
}

struct Check {
    machine: DcpStateMachine,
    out: Vec<u8>,
    /// Seqno of each vbucket's last event.
    reached: HashMap<Vbid, Seqno>,
    has_collections: bool,
}

impl Check {
    fn begin(&mut self, vbid: Vbid) {
        self.machine.begin(FEED, vbid, self.has_collections, &mut self.out);
    }

    /// Takes the present frame; false when the connection is to end.
    fn take(&mut self, reader: &mut FrameReader) -> bool {
        let Some((mut header, block)) = reader.take_body() else { return true };
        header.body_bytes -= u32::from(header.framing_bytes);
        header.framing_bytes = 0;
        let Some(frame) = Frame::from_body(header, &block) else { return false };
        let taken = self.machine.take(FEED, &frame, &block, self.has_collections, &mut self.out);
        let then = taken.map(|taken| {
            if let Some(change) = taken.change {
                let lent = change.clone().borrow(&block);
                let shared = self.machine.share(change.clone(), &block);
                assert_eq!((lent.key, lent.raw_value), (&*shared.key, &*shared.raw_value));
                self.see(&DcpEvent::Change(shared));
            }
            taken.then
        });
        while let Some(event) = self.machine.next_event() {
            self.see(&event);
        }
        let text = self.machine.token().to_string();
        assert_eq!(text.parse(), Ok(self.machine.token()), "a token survives being written");
        match then {
            Err(_) | Ok(FollowUp::Fail(_)) => return false,
            Ok(FollowUp::Later(vbid) | FollowUp::Moved(vbid, _) | FollowUp::CheckFilter(vbid)) => {
                self.begin(vbid);
            }
            Ok(FollowUp::GoOn | FollowUp::Streaming(_)) => {}
        }
        true
    }

    fn see(&mut self, event: &DcpEvent) {
        let (position, may_stay) = match event {
            DcpEvent::Change(change) => {
                // Whatever came, looking at it does no harm.
                let _ = (change.value(), change.attributes());
                (change.position, false)
            }
            DcpEvent::System(event) => (event.position, false),
            DcpEvent::SnapshotEnd(position) => {
                assert!(position.is_at_snapshot_end());
                (*position, true)
            }
            DcpEvent::Rollback(rollback) => {
                assert!(rollback.to.seqno < rollback.from, "a rollback leads back");
                self.reached.insert(rollback.to.vbid, rollback.to.seqno);
                return;
            }
            DcpEvent::Disconnected(_) => return,
        };
        let Position { vbid, seqno, snapshot: (start, end), .. } = position;
        assert!(start <= seqno && seqno <= end, "a position lies in its snapshot");
        assert!(vbid.0 < VBUCKETS);
        let before = self.reached.insert(vbid, seqno);
        let is_behind = before.is_none_or(|before| seqno > before || may_stay && seqno == before);
        assert!(is_behind, "seqnos rise");
    }
}

#[cfg(test)]
mod tests;
