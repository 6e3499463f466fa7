//! The reader against the plain model: a list of frames, and a stream cut anywhere.

use oribi_protocol::response::{ResponseParts, write_response};
use oribi_protocol::status::Status;
use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
struct ResponseResult {
    key: Vec<u8>,
    value_bytes: usize,
    opaque: u32,
}

impl ResponseResult {
    fn value(&self) -> Vec<u8> {
        (0..self.value_bytes).map(|at| (at as u32 ^ self.opaque) as u8).collect()
    }

    fn write(&self, out: &mut Vec<u8>) {
        let value = self.value();
        let parts = ResponseParts {
            extras: &[1, 2, 3, 4],
            key: &self.key,
            value: &value,
            ..ResponseParts::new(0, Status::Success, self.opaque)
        };
        write_response(out, &parts);
    }
}

fn answers() -> impl Strategy<Value = Vec<ResponseResult>> {
    let bytes = prop_oneof![
        6 => 0usize..100,
        2 => 1000usize..20_000,
        1 => LARGE_FRAME_BYTES_MIN - 60..LARGE_FRAME_BYTES_MIN + 60,
        1 => 100_000usize..300_000,
    ];
    let answer = (proptest::collection::vec(any::<u8>(), 0..40), bytes, any::<u32>());
    let answer =
        answer.prop_map(|(key, value_bytes, opaque)| ResponseResult { key, value_bytes, opaque });
    proptest::collection::vec(answer, 0..40)
}

/// How much each read delivers; the last one repeats.
fn cuts() -> impl Strategy<Value = Vec<usize>> {
    proptest::collection::vec(prop_oneof![1usize..30, 1usize..70_000, Just(1 << 20)], 1..50)
}

/// Puts the next `cut` bytes in, by as many calls as there is space for.
fn feed(reader: &mut FrameReader, stream: &mut &[u8], cut: usize) {
    let mut left = cut.min(stream.len());
    while left > 0 {
        let room = reader.spare();
        let bytes = room.len().min(left);
        room[..bytes].copy_from_slice(&stream[..bytes]);
        reader.commit(bytes);
        *stream = &stream[bytes..];
        left -= bytes;
    }
}

/// Feeds `answers` in reads of `cuts` bytes and compares each frame that the reader finds. The
/// caller advances after every `drain_every` reads, and takes the bodies if `take`.
fn check_cuts(answers: &[ResponseResult], cuts: &[usize], take: bool, drain_every: usize) {
    let mut bytes = Vec::new();
    answers.iter().for_each(|answer| answer.write(&mut bytes));
    let mut stream = &bytes[..];
    let mut reader = FrameReader::new();
    let mut expected = answers.iter();
    let mut round = 0;
    while !stream.is_empty() {
        let cut = cuts[round.min(cuts.len() - 1)].max(bytes.len() / 2000);
        feed(&mut reader, &mut stream, cut);
        assert_eq!(reader.buffer.regrown_bytes(), 0, "no block grows");
        round += 1;
        // A connection that is sending receives without advancing.
        if round % drain_every != 0 && !stream.is_empty() {
            continue;
        }
        while reader.advance().unwrap() {
            let answer = expected.next().expect("no more frames than were sent");
            let frame = reader.frame().expect("advance found one");
            assert_eq!(frame.key, &answer.key);
            assert_eq!(frame.header.opaque, answer.opaque);
            assert!(frame.value == answer.value());
            if take {
                let (header, body) = reader.take_body().expect("there is a frame");
                assert_eq!(header.opaque, answer.opaque);
                assert!(body[4 + answer.key.len()..] == answer.value());
                assert!(reader.frame().is_none());
            }
        }
        assert!(reader.moved_bytes() <= reader.received_bytes());
    }
    assert!(expected.next().is_none());
    assert_eq!(reader.received_bytes(), bytes.len() as u64);
    assert!(reader.moved_bytes() <= reader.received_bytes());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Every frame comes out once, in order and unharmed, whether it is borrowed or taken and
    /// wherever the stream is cut; and no byte moves more than once.
    #[test]
    fn frames_survive_any_cut(
        answers in answers(),
        cuts in cuts(),
        take in any::<bool>(),
        drain_every in 1usize..4,
    ) {
        check_cuts(&answers, &cuts, take, drain_every);
    }
}

/// Found by a random run of the property above: bytes moved to the front of the buffer while the
/// connection was sending, and again into the block of the large frame.
#[test]
fn regression_1_moved_bytes_do_not_move_again() {
    let lengths = [(0, 1230), (20, 1438), (19, 14_928), (36, 4751), (6, 65_502)];
    let answers = lengths.map(|(key_bytes, value_bytes)| ResponseResult {
        key: vec![b'k'; key_bytes],
        value_bytes,
        opaque: 0,
    });
    check_cuts(&answers, &[17_676, 1, 55_287, 23], true, 2);
}

/// A large value that arrives after its header is in place: it is received where it is handed out.
#[test]
fn large_values_are_received_where_they_stay() {
    let answer = ResponseResult { key: b"k".to_vec(), value_bytes: 20 << 20, opaque: 7 };
    let mut bytes = Vec::new();
    answer.write(&mut bytes);
    let mut reader = FrameReader::new();
    let mut stream = &bytes[..];
    feed(&mut reader, &mut stream, 1000);
    assert!(!reader.advance().unwrap());
    let place = reader.spare().as_ptr();
    feed(&mut reader, &mut stream, usize::MAX);
    assert!(reader.advance().unwrap());
    let (_, body) = reader.take_body().unwrap();
    assert_eq!(body[1000 - HEADER_BYTES..].as_ptr(), place);
    assert_eq!(reader.moved_bytes(), 1000, "only what had arrived before");
    assert!(body[5..] == answer.value());
}

/// Draining a long stream of small frames moves at most one partial frame a block.
#[test]
fn long_streams_hardly_move() {
    let answer =
        ResponseResult { key: b"vb_12:0x8:high_seqno".to_vec(), value_bytes: 5, opaque: 1 };
    let mut block = Vec::new();
    (0..1000).for_each(|_| answer.write(&mut block));
    let mut reader = FrameReader::new();
    let mut frames = 0;
    for _ in 0..1000 {
        let mut stream = &block[..];
        while !stream.is_empty() {
            // As a socket does it: as much as there is space for.
            let room = reader.spare().len();
            feed(&mut reader, &mut stream, room);
            while reader.advance().unwrap() {
                frames += 1;
            }
        }
    }
    assert_eq!(frames, 1_000_000);
    let blocks = reader.received_bytes() / READ_ROOM_BYTES_MIN as u64;
    let frame_bytes = (block.len() / 1000) as u64;
    assert!(reader.moved_bytes() <= blocks * frame_bytes, "{} bytes moved", reader.moved_bytes());
}

#[test]
fn refuses_what_no_server_sends() {
    let mut reader = FrameReader::new();
    feed(&mut reader, &mut &b"HTTP/1.1 200 OK"[..], 100);
    let unknown = StreamError::Frame(FrameError::UnknownMagic(b'H'));
    assert_eq!(reader.advance(), Err(unknown));

    let mut header = [0; HEADER_BYTES];
    header[0] = 0x81;
    header[8..12].copy_from_slice(&u32::MAX.to_be_bytes());
    let mut reader = FrameReader::new();
    feed(&mut reader, &mut &header[..], 100);
    let bytes = HEADER_BYTES + u32::MAX as usize;
    assert_eq!(reader.advance(), Err(StreamError::TooLong { bytes }));
}
