//! What is refused and how early, what is worth compressing, and the fuzz target's corpus.

use proptest::prelude::*;

use super::{
    COMPRESS_BYTES_MIN, CompressionMode, CompressionSwitch, InflateError, check, inflate,
    inflated_bytes, with_compressed,
};

#[test]
fn a_length_is_checked_before_anything_else() {
    // Lengths are varints: 4 GiB minus one, 1 GiB, 100, 64 bytes from one copy of nothing.
    assert_eq!(inflated_bytes(b"\xff\xff\xff\xff\x0f\0", 1 << 20), Err(InflateError::TooLarge));
    assert_eq!(inflated_bytes(b"\x80\x80\x80\x80\x04\0", usize::MAX), Err(InflateError::Corrupt));
    assert_eq!(inflated_bytes(b"\x64\0\0", 100), Err(InflateError::Corrupt));
    assert_eq!(inflated_bytes(b"", 100), Err(InflateError::Corrupt));
    assert_eq!(inflated_bytes(b"\xff\xff\xff\xff\xff\xff", 100), Err(InflateError::Corrupt));
    assert_eq!(inflate(b"\0", 0), Ok(Vec::new()));
    assert_eq!(inflate(b"\x03\x08abc", 3), Ok(b"abc".to_vec()));
    assert_eq!(inflate(b"\x03\x08abc", 2), Err(InflateError::TooLarge));
    for damaged in [&b"\x03\x08ab"[..], b"\x04\x08abc", b"\x02\x08abc", b"\x03\x08abcd"] {
        assert_eq!(inflate(damaged, 100), Err(InflateError::Corrupt), "{damaged:?}");
    }
}

#[test]
fn the_densest_stream_is_not_taken_for_a_bomb() {
    let plain = vec![b'x'; 20 << 20];
    let compressed = with_compressed(&plain, <[u8]>::to_vec).expect("it shrinks");
    assert_eq!(inflated_bytes(&compressed, plain.len()), Ok(plain.len()));
    assert_eq!(inflate(&compressed, plain.len()).as_deref(), Ok(&plain[..]));
}

#[test]
fn only_what_shrinks_enough_is_compressed() {
    let short = vec![b'x'; COMPRESS_BYTES_MIN - 1];
    assert!(with_compressed(&short, <[u8]>::len).is_none());
    assert!(with_compressed(&[b'x'; COMPRESS_BYTES_MIN], <[u8]>::len).is_some());
    let mut state = 1_u32;
    let mut noise = |bytes: usize| -> Vec<u8> {
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        (0..bytes).map(|_| next()).collect()
    };
    assert!(with_compressed(&noise(1000), <[u8]>::len).is_none());
    // The beginning of a long value decides.
    let picture = [noise(8192), vec![b'x'; 100_000]].concat();
    assert!(with_compressed(&picture, <[u8]>::len).is_none());
}

#[test]
fn a_mode_can_be_switched() {
    let switch = CompressionSwitch::default();
    assert_eq!(switch.get(), CompressionMode::Passive);
    for mode in [CompressionMode::Off, CompressionMode::Active, CompressionMode::Passive] {
        switch.set(mode);
        assert_eq!(switch.get(), mode);
    }
}

#[test]
fn corpus_of_the_fuzz_target() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../fuzz/corpus/snappy");
    let mut checked = 0;
    for entry in std::fs::read_dir(corpus).expect("the corpus is part of the repository") {
        check(&std::fs::read(entry.expect("the corpus can be listed").path()).unwrap());
        checked += 1;
    }
    assert!(checked >= 10, "only {checked} corpus files were found");
}

proptest! {
    #[test]
    fn arbitrary_bytes(input in prop::collection::vec(any::<u8>(), 0..300)) {
        check(&input);
    }

    #[test]
    fn damaged_streams(
        plain in prop::collection::vec(0u8..4, 128..600),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        check(&plain);
        if let Some(mut stream) = with_compressed(&plain, <[u8]>::to_vec) {
            check(&stream);
            let at = at.index(stream.len());
            check(&stream[..at]);
            stream[at] = byte;
            check(&stream);
        }
    }
}
