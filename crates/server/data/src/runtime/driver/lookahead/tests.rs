//! Prefetching changes no answer: the bytes are the same with and without it, cut anywhere.

use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::{CounterExtras, RequestParts, SetExtras, encode_request};
use oribi_types::Vbid;
use proptest::prelude::*;

use crate::harness::{ConnectionHarness, HARNESS_VBUCKETS};

#[derive(Clone, Debug)]
enum Step {
    Get(Opcode, u8),
    Set(Opcode, u8, usize),
    Delete(Opcode, u8),
    Increment(u8),
    /// A vbucket that may not exist.
    Elsewhere(u8, u16),
    /// A request that is not about a document, or an unknown one.
    Other(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let get =
        prop_oneof![Just(Opcode::Get), Just(Opcode::Getq), Just(Opcode::Getk), Just(Opcode::Gatq)];
    let set = prop_oneof![Just(Opcode::Set), Just(Opcode::Setq), Just(Opcode::Add)];
    let delete = prop_oneof![Just(Opcode::Delete), Just(Opcode::Deleteq)];
    let step = prop_oneof![
        6 => (get, 0u8..30).prop_map(|(opcode, key)| Step::Get(opcode, key)),
        4 => (set, 0u8..30, 0usize..3000).prop_map(|(opcode, key, bytes)| Step::Set(opcode, key, bytes)),
        1 => (delete, 0u8..30).prop_map(|(opcode, key)| Step::Delete(opcode, key)),
        1 => (0u8..30).prop_map(Step::Increment),
        1 => (0u8..30, 0u16..8).prop_map(|(key, vbid)| Step::Elsewhere(key, vbid)),
        1 => any::<u8>().prop_map(Step::Other),
    ];
    proptest::collection::vec(step, 1..120)
}

fn encode(step: &Step, opaque: u32, out: &mut Vec<u8>) {
    let key = |number: &u8| format!("key-{number}").into_bytes();
    let home = |key: &[u8]| oribi_protocol::hash::vbucket_of(key, HARNESS_VBUCKETS);
    let counter = CounterExtras { delta: 1, initial: 5, expiry: 0 }.encode();
    let set = SetExtras::default().encode();
    let (opcode, key, extras, value, vbid) = match step {
        Step::Get(opcode, number) => (*opcode, key(number), &[][..], vec![], None),
        Step::Set(opcode, number, bytes) => (*opcode, key(number), &set[..], vec![7; *bytes], None),
        Step::Delete(opcode, number) => (*opcode, key(number), &[][..], vec![], None),
        Step::Increment(number) => (Opcode::Increment, key(number), &counter[..], vec![], None),
        Step::Elsewhere(number, vbid) => {
            (Opcode::Get, key(number), &[][..], vec![], Some(Vbid(*vbid)))
        }
        Step::Other(code) => {
            // Excludes opcodes that end the connection, and those whose answer depends on time or
            // chance.
            let opcode = Opcode::from_u8(*code).filter(|opcode| {
                !matches!(
                    opcode,
                    Opcode::Quit
                        | Opcode::Quitq
                        | Opcode::Stat
                        | Opcode::Hello
                        | Opcode::GetFailoverLog
                        | Opcode::GetRandomKey
                )
            });
            (opcode.unwrap_or(Opcode::Noop), vec![], &[][..], vec![], None)
        }
    };
    let vbid = vbid.unwrap_or_else(|| home(&key));
    let parts = RequestParts {
        opaque,
        vbid,
        key: &key,
        extras,
        value: &value,
        ..RequestParts::new(opcode)
    };
    encode_request(out, &parts);
}

proptest! {
    // Invariant: Look-ahead decides nothing, so it cannot change an answer.
    #[test]
    fn answers_are_the_same_with_and_without(
        steps in steps(),
        cuts in proptest::collection::vec(1usize..5000, 1..20),
        keys in 1usize..=32,
    ) {
        let mut bytes = Vec::new();
        for (number, step) in steps.iter().enumerate() {
            encode(step, number as u32, &mut bytes);
        }
        let mut plain = ConnectionHarness::with_prefetch(0);
        let mut ahead = ConnectionHarness::with_prefetch(keys);
        let (mut rest, mut round) = (&bytes[..], 0);
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(cuts[round % cuts.len()].min(rest.len()));
            prop_assert_eq!(plain.feed(piece), ahead.feed(piece));
            (rest, round) = (after, round + 1);
        }
    }
}
