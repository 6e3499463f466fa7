//! The check that the connection fuzzer and the tests share: arbitrary bytes, in arbitrary pieces.
//!
//! Input: a byte that chooses the initial state, a byte that chooses the pieces into which the rest
//! is cut, and the bytes that the client sends. An odd first byte means logged in with everything
//! but unordered execution negotiated and bucket `default` selected; an even one means just
//! connected.
//!
//! The check fails on a panic, or when one of these does not hold:
//! 1. the output is a sequence of whole response frames with known statuses and of messages of
//!    change streams, or of whole lines where the first byte began the text protocol;
//! 2. the connection sends no answer after it has a close reason;
//! 3. the cuts make no difference: the same requests get the same statuses or lines, and the
//!    connection ends for the same reason. With unordered execution later requests overtake a
//!    durable write, so the moment at which the store has it decides, and this is not checked.

use std::sync::{Arc, OnceLock};

use oribi_auth::UserStore;
use oribi_protocol::dcp::message;
use oribi_protocol::feature::Feature;
use oribi_protocol::frame::{self, DecodedFrame};
use oribi_protocol::magic::Magic;
use oribi_protocol::status::Status;
use oribi_storage::MemoryStore;

use super::ConnectionHarness;
use super::login::log_in;
use crate::connection::close_reason::CloseReason;

#[derive(Debug, PartialEq, Eq)]
enum Answers {
    Frames(Vec<Answer>),
    /// Lines of the text protocol. Statistics differ between two runs, so of these nothing is kept.
    Text(Vec<u8>),
}

/// The content of one response, without the parts that differ between two runs (CAS, vbucket uuids,
/// nonces).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Answer {
    opaque: u32,
    opcode: u8,
    status: u16,
}

/// Runs the input and panics when an invariant does not hold.
pub fn check(input: &[u8]) {
    let [start, cut, bytes @ ..] = input else { return };
    let logged_in = start & 1 == 1;
    let whole = run(logged_in, std::iter::once(bytes));
    let pieces = run(logged_in, Pieces { rest: bytes, state: *cut });
    if let (Some(whole), Some(pieces)) = (whole, pieces) {
        assert_eq!(whole, pieces, "the answers depend on how the bytes were cut");
    }
}

/// The connection's answers; none with unordered execution.
fn run<'a>(
    logged_in: bool,
    pieces: impl Iterator<Item = &'a [u8]>,
) -> Option<(Answers, Option<CloseReason>)> {
    let mut harness = ConnectionHarness::over(users(), Arc::new(MemoryStore::new()));
    if logged_in {
        log_in(&mut harness, |feature| feature != Feature::UnorderedExecution);
    }
    let (mut answers, mut text) = (Vec::new(), Vec::new());
    for piece in pieces {
        let ended = harness.close_reason().is_some();
        let answered = harness.feed(piece);
        assert!(!ended || answered.is_empty(), "an answer after the end: {answered:?}");
        match harness.is_text() {
            true => text.extend_from_slice(&answered),
            false => answers.extend(parse(&answered)),
        }
    }
    if harness.is_text() {
        assert!(text.is_empty() || text.ends_with(b"\r\n"), "the server sent a part of a line");
        if memchr::memmem::find(&text, b"STAT ").is_some() {
            text.clear();
        }
        return Some((Answers::Text(text), harness.close_reason()));
    }
    if harness.is_unordered() {
        return None;
    }
    // The cuts decide when the answers of writes that wait for the store come.
    answers.sort();
    Some((Answers::Frames(answers), harness.close_reason()))
}

/// One user store for all runs, so that they pay for the key derivation of the log-in only once.
fn users() -> Arc<UserStore> {
    static USERS: OnceLock<Arc<UserStore>> = OnceLock::new();
    Arc::clone(USERS.get_or_init(|| Arc::new(UserStore::development())))
}

/// Splits the output into frames; all of them have to be whole. The responses among them.
fn parse(mut answered: &[u8]) -> Vec<Answer> {
    let mut answers = Vec::new();
    while !answered.is_empty() {
        let decoded = frame::decode(answered).expect("the server sends well-formed frames");
        let DecodedFrame::Complete { frame, consumed } = decoded else {
            panic!("the server sent a part of a frame: {decoded:?}");
        };
        let header = frame.header;
        answered = &answered[consumed..];
        // What a change stream shows depends on the turns between two pieces.
        if header.magic.is_request() {
            message::decode(&frame).expect("the server's own requests are messages of streams");
            continue;
        }
        let is_response = matches!(header.magic, Magic::ClientResponse | Magic::AltClientResponse);
        assert!(is_response, "not a response: {header:?}");
        let status = header.vbucket_or_status;
        assert!(Status::from_u16(status).is_some(), "no such status: {header:?}");
        answers.push(Answer { opaque: header.opaque, opcode: header.opcode, status });
    }
    answers
}

/// Cuts bytes into pieces whose lengths follow from one byte.
struct Pieces<'a> {
    rest: &'a [u8],
    state: u8,
}

impl<'a> Iterator for Pieces<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if self.rest.is_empty() {
            return None;
        }
        // A generator over one byte gives short and long pieces in turn; 1 means byte by byte.
        let length = match self.state {
            1 => 1,
            state => usize::from(state % 61) + 1,
        };
        if self.state != 1 {
            self.state = self.state.wrapping_mul(5).wrapping_add(3);
        }
        let (piece, rest) = self.rest.split_at(length.min(self.rest.len()));
        self.rest = rest;
        Some(piece)
    }
}
