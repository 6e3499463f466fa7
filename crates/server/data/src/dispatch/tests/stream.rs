//! The cuts of the input into reads make no difference.

use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::RequestParts;
use proptest::prelude::*;

use super::{SET_EXTRAS, about, bytes, counter_extras};
use crate::harness::ConnectionHarness;

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        proptest::collection::vec(b'a'..=b'c', 1..3),
        proptest::collection::vec(any::<u8>(), 0..260),
    ]
}

/// One frame: mostly sensible, sometimes damaged.
fn frame() -> impl Strategy<Value = Vec<u8>> {
    let opcode = proptest::sample::select(Opcode::all().collect::<Vec<_>>());
    let value = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..50),
        (0_usize..10_000).prop_map(|size| vec![b'v'; size]),
    ];
    let extras = prop_oneof![
        Just(SET_EXTRAS.to_vec()),
        Just(counter_extras(1, 1, 0).to_vec()),
        Just(Vec::new()),
        proptest::collection::vec(any::<u8>(), 0..24),
    ];
    let damage = proptest::option::weighted(0.1, (0_usize..24, any::<u8>()));
    (opcode, key(), value, extras, damage).prop_map(|(opcode, key, value, extras, damage)| {
        let parts = RequestParts { value: &value, extras: &extras, ..about(opcode, &key) };
        let mut frame = bytes(&parts);
        if let Some((at, byte)) = damage {
            frame[at] = byte;
        }
        frame
    })
}

/// The output without the parts that vary between runs. CAS values come from the clock, which
/// stops in the harness, but vbucket uuids are random.
fn run(pieces: impl Iterator<Item = Vec<u8>>) -> (Vec<u8>, bool) {
    let mut harness = ConnectionHarness::new();
    let mut output = Vec::new();
    for piece in pieces {
        output.extend(harness.feed(&piece));
    }
    (output, harness.close_reason().is_some())
}

fn varies(opcode: Opcode) -> bool {
    matches!(opcode, Opcode::Stat | Opcode::SaslAuth | Opcode::SaslStep | Opcode::ObserveSeqno)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn byte_by_byte_equals_all_at_once(frames in proptest::collection::vec(frame(), 0..12)) {
        let frames: Vec<Vec<u8>> = frames
            .into_iter()
            .filter(|frame| !Opcode::from_u8(frame[1]).is_some_and(varies))
            .collect();
        let input = frames.concat();
        let whole = run(std::iter::once(input.clone()));
        let single = run(input.iter().map(|byte| vec![*byte]));
        prop_assert_eq!(&whole, &single);
        let odd = run(input.chunks(997).map(<[u8]>::to_vec));
        prop_assert_eq!(&whole, &odd);
    }
}

#[test]
fn a_thousand_pipelined_requests_are_ordered() {
    let mut harness = ConnectionHarness::new();
    let mut input = Vec::new();
    for index in 0..1000_u32 {
        let key = format!("k{}", index % 7).into_bytes();
        let value = [b'v'; 300];
        let parts = match index % 3 {
            0 => RequestParts { extras: &SET_EXTRAS, value: &value, ..about(Opcode::Set, &key) },
            1 => about(Opcode::Getk, &key),
            _ => RequestParts::new(Opcode::Noop),
        };
        input.extend(bytes(&RequestParts { opaque: index, ..parts }));
    }
    let replies = super::replies(&harness.feed(&input));
    let order: Vec<u32> = replies.iter().map(|reply| reply.opaque).collect();
    assert_eq!(order, (0..1000).collect::<Vec<_>>());
}
