//! Dictionaries alone: round trips, damage, and when a slot is given back.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use oribi_storage::SeededRandom;
use oribi_types::CollectionId;

use super::{
    COMPRESSION, DenseError, DictionaryEncoder, DictionaryName, count_value, release_value,
    with_inflated,
};
use crate::dense::cover_process_memory;
use crate::dense::training::Samples;
use crate::limits::DENSE_PLAIN_BYTES_MAX;

fn order(random: &mut SeededRandom) -> Vec<u8> {
    let cities = ["Berlin", "Paris", "Madrid", "Rome", "Prague", "Oslo"];
    format!(
        "{{\"type\":\"order\",\"id\":{},\"city\":\"{}\",\"status\":\"delivered\",\"total\":{}.{:02}}}",
        random.below(1_000_000),
        cities[random.below(6) as usize],
        random.below(1000),
        random.below(100)
    )
    .into_bytes()
}

fn trained(seed: u64, account: &Arc<AtomicU64>) -> (DictionaryEncoder, Vec<Vec<u8>>) {
    cover_process_memory();
    let mut random = SeededRandom::new(seed);
    let documents: Vec<Vec<u8>> = (0..2000).map(|_| order(&mut random)).collect();
    let mut samples = Samples::default();
    assert!(documents.iter().all(|document| samples.add(document)));
    let mut dictionary = samples.train().expect("alike documents make a dictionary");
    let name = DictionaryName { collection: CollectionId(8), version: 3 };
    let encoder = DictionaryEncoder::new(name, &mut dictionary, account).expect("a slot is free");
    assert!(samples.paying_percent(&encoder, None).expect("it pays") < 60);
    assert_eq!(samples.paying_percent(&encoder, Some(&encoder)), None, "it is no better than it");
    (encoder, documents)
}

#[test]
fn values_survive_and_stated_lengths_hold() {
    let account = Arc::default();
    let (encoder, documents) = trained(1, &account);
    let slot = encoder.dictionary().slot();
    let damaged = |plain_bytes| {
        Err(DenseError::Damaged { dictionary: encoder.dictionary().name(), plain_bytes })
    };
    let mut scratch = Vec::new();
    for document in &documents[..200] {
        let frame = encoder.compress(document, &mut scratch).expect("it is short").to_vec();
        let show = |bytes| with_inflated(slot, &frame, bytes, <[u8]>::to_vec);
        assert_eq!(show(document.len()).as_deref(), Ok(&document[..]));
        assert_eq!(show(document.len() - 1), damaged(document.len() - 1));
        assert_eq!(show(document.len() + 1), damaged(document.len() + 1));
        assert_eq!(show(1 << 20), damaged(1 << 20));
    }
    assert_eq!(encoder.dictionary().inflations(), 800);
}

#[test]
fn damaged_frames_are_errors_or_of_their_length() {
    let account = Arc::default();
    let (encoder, documents) = trained(2, &account);
    let slot = encoder.dictionary().slot();
    let (mut random, mut scratch) = (SeededRandom::new(5), Vec::new());
    for document in &documents {
        let mut frame = encoder.compress(document, &mut scratch).expect("it is short").to_vec();
        match random.below(3) {
            0 => frame.truncate(random.below(frame.len() as u64) as usize),
            1 => frame.extend((0..random.below(40)).map(|_| random.below(256) as u8)),
            _ => {
                let at = random.below(frame.len() as u64) as usize;
                frame[at] ^= 1 << random.below(8);
            }
        }
        if let Ok(bytes) = with_inflated(slot, &frame, document.len(), <[u8]>::len) {
            assert_eq!(bytes, document.len());
        }
    }
}

#[test]
fn another_dictionary_is_an_error() {
    let account = Arc::default();
    let (first, documents) = trained(3, &account);
    let (second, _) = trained(4, &account);
    let mut scratch = Vec::new();
    let frame = first.compress(&documents[0], &mut scratch).expect("it is short");
    let slot = second.dictionary().slot();
    let error = with_inflated(slot, frame, documents[0].len(), |_| ()).expect_err("it is another");
    let dictionary = second.dictionary().name();
    assert_eq!(error, DenseError::Damaged { dictionary, plain_bytes: documents[0].len() });
    assert_eq!(
        error.to_string(),
        format!(
            "a dense value of dictionary 3 of collection 0x8 does not inflate to its {} bytes",
            documents[0].len()
        )
    );
}

#[test]
fn a_slot_is_kept_until_its_last_value() {
    let account: Arc<AtomicU64> = Arc::default();
    let (encoder, documents) = trained(6, &account);
    let dictionary = Arc::clone(encoder.dictionary());
    let (slot, mut scratch) = (dictionary.slot(), Vec::new());
    let frame = encoder.compress(&documents[0], &mut scratch).expect("it is short");
    let show = || with_inflated(slot, frame, documents[0].len(), |_| ());
    count_value(slot, documents[0].len(), frame.len());
    assert!(!dictionary.retire_unused(), "a value names it");
    dictionary.orphan();
    assert_eq!(show(), Ok(()));
    let held = account.load(std::sync::atomic::Ordering::Relaxed);
    assert!(held > 16 << 10, "{held} bytes are counted");
    release_value(slot, documents[0].len(), frame.len());
    // Another test may have taken the slot by now.
    assert!(show().is_err(), "the slot was given back");
    assert_eq!((dictionary.plain_bytes(), dictionary.dense_bytes()), (0, 0));
    drop((encoder, dictionary));
    assert_eq!(account.load(std::sync::atomic::Ordering::Relaxed), 0);
}

#[test]
fn an_encoder_is_counted_as_it_grows() {
    let (encoder, _) = trained(9, &Arc::default());
    let (counted, held) = std::thread::spawn(move || {
        for bytes in [64, 1024, DENSE_PLAIN_BYTES_MAX] {
            let _ = encoder.compress(&vec![b'a'; bytes], &mut Vec::new()).expect("it is short");
        }
        COMPRESSION.with_borrow(|compression| {
            let compression = compression.as_ref().expect("the thread has compressed");
            (compression.memory.0, compression.encoder.sizeof() as u64)
        })
    })
    .join()
    .expect("the thread ends");
    assert_eq!(counted, held);
}

#[test]
fn noise_is_not_trained() {
    let mut random = SeededRandom::new(4);
    let mut samples = Samples::default();
    let mut noise = || (0..480).map(|_| random.below(256) as u8).collect::<Vec<u8>>();
    while samples.add(&noise()) {}
    assert_eq!(samples.train(), None);
}
