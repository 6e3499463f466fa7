//! The checks of the fuzz targets on their corpora and on fixed seeds.

use super::{check_model, check_model_with, check_parser, check_statement};

/// Bytes of a seed.
fn bytes(seed: u64, count: usize) -> Vec<u8> {
    let mut state = seed;
    std::iter::repeat_with(|| {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        ((mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB) >> 56) as u8
    })
    .take(count)
    .collect()
}

/// A target's name and its check.
type Target = (&'static str, fn(&[u8]));

#[test]
fn corpora_of_the_fuzz_targets() {
    let checks: [Target; 3] = [
        ("query_parser", check_parser),
        ("query_statement", check_statement),
        ("query_model", check_model),
    ];
    for (target, check) in checks {
        let directory = format!("{}/../../../fuzz/corpus/{target}", env!("CARGO_MANIFEST_DIR"));
        let mut files = 0;
        for entry in std::fs::read_dir(&directory).expect("each target has a corpus") {
            let path = entry.expect("the directory can be read").path();
            check(&std::fs::read(path).expect("a seed can be read"));
            files += 1;
        }
        assert!(files > 0, "{directory} is empty");
    }
}

/// Seeds of one run; `ORIBI_MODEL_SEEDS` is the first one and their number.
#[test]
fn queries_have_the_rows_of_the_model() {
    let (first, count) = match std::env::var("ORIBI_MODEL_SEEDS") {
        Ok(text) => {
            let (first, count) = text.split_once(',').expect("ORIBI_MODEL_SEEDS is FIRST,COUNT");
            (first.parse().expect("a number"), count.parse().expect("a number"))
        }
        Err(_) => (0, 6_000),
    };
    let failed = (first..first + count)
        .filter(|seed| std::panic::catch_unwind(|| check_model(&bytes(*seed, 700))).is_err());
    let failed: Vec<u64> = failed.take(20).collect();
    assert!(failed.is_empty(), "seeds {failed:?}");
}

/// The comparison notices operators that are exchanged in the engine's statement.
#[test]
fn planted_differences_are_found() {
    for (right, wrong) in
        [(" <= ", " < "), (" AND ", " OR "), ("DISTINCT", ""), ("ANY ", "EVERY "), ("DESC", "")]
    {
        let found = (0..8_000).any(|seed| {
            let input = bytes(seed, 700);
            std::panic::catch_unwind(|| {
                check_model_with(&input, |statement| statement.replace(right, wrong));
            })
            .is_err()
        });
        assert!(found, "{right:?} done as {wrong:?}");
    }
}
