//! Feeds the harness: generated frames, damaged frames, noise, and the fuzz target's corpus.

use proptest::collection::vec;
use proptest::prelude::*;

use super::{check, check_with};
use crate::frame::Header;
use crate::magic::Magic;

fn frames() -> impl Strategy<Value = Vec<u8>> {
    let magics = prop::sample::select(vec![
        Magic::ClientRequest,
        Magic::AltClientRequest,
        Magic::ClientResponse,
        Magic::AltClientResponse,
        Magic::ServerRequest,
    ]);
    let part = || vec(any::<u8>(), 0..40);
    let fields = any::<(u8, u8, u16, u32, u64)>();
    let value = prop_oneof![9 => vec(any::<u8>(), 0..64), 1 => vec(any::<u8>(), 0..3000)];
    let frame = (magics, fields, part(), part(), part(), value).prop_map(
        |(
            magic,
            (opcode, datatype, vbucket_or_status, opaque, cas),
            mut framing,
            extras,
            key,
            value,
        )| {
            if !magic.is_alt() {
                framing.clear();
            }
            let body = [framing.clone(), extras.clone(), key.clone(), value].concat();
            let header = Header {
                magic,
                opcode,
                framing_bytes: framing.len() as u8,
                key_bytes: key.len() as u16,
                extras_bytes: extras.len() as u8,
                datatype,
                vbucket_or_status,
                body_bytes: body.len() as u32,
                opaque,
                cas,
            };
            [header.encode().to_vec(), body].concat()
        },
    );
    vec(frame, 0..12).prop_map(|frames| frames.concat())
}

proptest! {
    #[test]
    fn streams_of_frames(seeds in any::<[u8; 2]>(), stream in frames()) {
        check(&[seeds.to_vec(), stream].concat());
    }

    #[test]
    fn damaged_streams(
        seeds in any::<[u8; 2]>(),
        mut stream in frames(),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<prop::sample::Index>(),
    ) {
        for (at, byte) in damage {
            if !stream.is_empty() {
                let at = at.index(stream.len());
                stream[at] = byte;
            }
        }
        stream.truncate(cut.index(stream.len() + 1));
        check(&[seeds.to_vec(), stream].concat());
    }

    // Invariant: Bytes from network or disk never cause a panic.
    #[test]
    fn noise(input in vec(any::<u8>(), 0..400)) {
        check(&input);
    }
}

/// Every input that the fuzz target has ever found interesting stays checked without the fuzzer.
#[test]
fn corpus_of_the_fuzz_target() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../fuzz/corpus/frame");
    let mut checked = 0;
    for entry in std::fs::read_dir(corpus).expect("the corpus is part of the repository") {
        let path = entry.expect("the corpus can be listed").path();
        check(&std::fs::read(&path).expect("the corpus can be read"));
        checked += 1;
    }
    assert!(checked >= 20, "only {checked} corpus files were found");
}

/// The check must notice one byte that is delivered wrongly.
#[test]
fn canary_a_damaged_chunk_is_noticed() {
    let mut input = vec![1, 1];
    for _ in 0..4 {
        let header = Header {
            magic: Magic::ClientRequest,
            opcode: 0,
            framing_bytes: 0,
            key_bytes: 0,
            extras_bytes: 0,
            datatype: 0,
            vbucket_or_status: 0,
            body_bytes: 100,
            opaque: 0,
            cas: 0,
        };
        input.extend_from_slice(&header.encode());
        input.extend_from_slice(&[7; 100]);
    }
    check(&input);
    let damaged = std::panic::catch_unwind(|| {
        check_with(&input, |spare, chunk| {
            spare.copy_from_slice(chunk);
            if let Some(byte) = spare.iter_mut().rev().find(|byte| **byte == 7) {
                *byte = 8;
            }
        });
    });
    assert!(damaged.is_err(), "the planted bug goes unnoticed");
}
