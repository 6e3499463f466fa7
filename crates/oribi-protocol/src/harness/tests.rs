//! Feeds the harness: generated frames, damaged frames, noise, and the fuzz target's corpus.

use proptest::collection::vec;
use proptest::prelude::*;

use super::check;
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

    #[test]
    fn noise(input in vec(any::<u8>(), 0..400)) {
        check(&input);
    }
}

/// Every input that the fuzz target has ever found interesting stays checked without the fuzzer.
#[test]
fn corpus_of_the_fuzz_target() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/frame");
    let mut checked = 0;
    for entry in std::fs::read_dir(corpus).expect("the corpus is part of the repository") {
        let path = entry.expect("the corpus can be listed").path();
        check(&std::fs::read(&path).expect("the corpus can be read"));
        checked += 1;
    }
    assert!(checked >= 20, "only {checked} corpus files were found");
}
