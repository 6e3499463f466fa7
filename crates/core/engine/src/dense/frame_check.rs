//! The check that the fuzz target of dense frames and the tests share.
//!
//! Owns: a dictionary of made-up orders, and what holds of any bytes: as a frame they are refused
//! or inflate to exactly their stated length, and nothing longer is ever written; as a value they
//! survive.

use std::sync::{Arc, LazyLock};

use oribi_types::CollectionId;

use super::dictionary::{DenseError, DictionaryEncoder, DictionaryName, with_inflated};
use super::training::Samples;
use crate::limits::DENSE_PLAIN_BYTES_MAX;

static ENCODER: LazyLock<DictionaryEncoder> = LazyLock::new(|| {
    let cities = ["Berlin", "Paris", "Madrid", "Rome", "Prague", "Oslo", "Lyon", "Porto"];
    let mut samples = Samples::default();
    for number in 0..600_u64 {
        let mixed = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let city = cities[(mixed >> 32) as usize % cities.len()];
        let text = format!(
            "{{\"type\":\"order\",\"id\":{number},\"city\":\"{city}\",\"status\":\"delivered\",\
             \"total\":{}.{:02}}}",
            mixed % 1000,
            mixed % 89
        );
        samples.add(text.as_bytes());
    }
    let mut trained = samples.train().expect("alike texts make a dictionary");
    let name = DictionaryName { collection: CollectionId(8), version: 1 };
    DictionaryEncoder::new(name, &mut trained, &Arc::default()).expect("the process has memory")
});

/// Checks arbitrary bytes: two of a stated length and a frame, and all of them as a value.
///
/// # Panics
/// When what holds does not hold.
#[doc(hidden)]
pub fn check_frame(input: &[u8]) {
    if let Some((length, frame)) = input.split_first_chunk() {
        check_stated(frame, usize::from(u16::from_le_bytes(*length)));
    }
    let mut scratch = Vec::new();
    let Some(frame) = ENCODER.compress(input, &mut scratch) else {
        assert!(input.len() > DENSE_PLAIN_BYTES_MAX, "a short value has a frame");
        return;
    };
    assert_eq!(inflated(frame, input.len()).as_deref(), Ok(input));
    for wrong in [input.len().wrapping_sub(1), input.len() + 1] {
        assert_eq!(inflated(frame, wrong), Err(damaged(wrong)), "another length");
    }
}

fn check_stated(frame: &[u8], plain_bytes: usize) {
    let found = inflated(frame, plain_bytes);
    match &found {
        Ok(plain) => assert!(plain.len() == plain_bytes && plain_bytes <= DENSE_PLAIN_BYTES_MAX),
        Err(error) => assert_eq!(*error, damaged(plain_bytes)),
    }
    assert_eq!(inflated(frame, plain_bytes), found, "a frame means one thing");
}

fn inflated(frame: &[u8], plain_bytes: usize) -> Result<Vec<u8>, DenseError> {
    with_inflated(ENCODER.dictionary().slot(), frame, plain_bytes, <[u8]>::to_vec)
}

fn damaged(plain_bytes: usize) -> DenseError {
    DenseError::Damaged { dictionary: ENCODER.dictionary().name(), plain_bytes }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{ENCODER, check_frame, damaged, inflated};
    use crate::dense::cover_process_memory;

    #[test]
    fn corpus_of_the_fuzz_target() {
        cover_process_memory();
        let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../fuzz/corpus/dense_frame");
        let mut checked = 0;
        for entry in std::fs::read_dir(corpus).expect("the corpus is part of the repository") {
            check_frame(&std::fs::read(entry.expect("it can be listed").path()).unwrap());
            checked += 1;
        }
        assert!(checked >= 6, "only {checked} corpus files were found");
    }

    /// A frame that states a size and repeats one byte; without a dictionary.
    fn run_of(bytes: u32) -> Vec<u8> {
        let mut frame = vec![0xa0];
        frame.extend_from_slice(&bytes.to_le_bytes());
        let mut left = bytes;
        while left > 0 {
            let block = left.min(128 << 10);
            left -= block;
            let header = block << 3 | 1 << 1 | u32::from(left == 0);
            frame.extend_from_slice(&header.to_le_bytes()[..3]);
            frame.push(b'x');
        }
        frame
    }

    #[test]
    fn a_bomb_is_refused_by_its_stated_size() {
        cover_process_memory();
        assert_eq!(inflated(&run_of(5000), 5000).as_deref(), Ok(&[b'x'; 5000][..]));
        for bytes in [8 << 10, 1 << 20, 1 << 30] {
            let frame = run_of(bytes);
            for stated in [0, 1, 64, 8191, bytes as usize] {
                assert_eq!(inflated(&frame, stated), Err(damaged(stated)), "{bytes} bytes");
            }
        }
    }

    proptest! {
        #[test]
        fn damaged_frames_keep_their_length(
            number in 0..1_000_000_u32,
            damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
            stated in prop::option::of(any::<u16>()),
        ) {
            cover_process_memory();
            let plain = format!("{{\"type\":\"order\",\"id\":{number},\"city\":\"Oslo\"}}");
            let mut scratch = Vec::new();
            let frame = ENCODER.compress(plain.as_bytes(), &mut scratch).expect("it is short");
            let stated = stated.unwrap_or(plain.len() as u16);
            let mut input = [&stated.to_le_bytes()[..], frame].concat();
            for (at, byte) in damage {
                let at = at.index(input.len());
                input[at] = byte;
            }
            check_frame(&input);
        }
    }
}
