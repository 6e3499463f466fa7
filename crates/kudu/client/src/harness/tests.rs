//! Replays the corpora of the fuzz targets, and feeds noise.

use std::path::Path;

use proptest::collection::vec;
use proptest::prelude::*;

use super::{check_frames, check_negotiation, check_rows, check_scan, check_table, frames};

type Check = fn(&[u8]);

const TARGETS: [(&str, Check); 5] = [
    ("kudu_frames", check_frames),
    ("kudu_negotiation", check_negotiation),
    ("kudu_rows", check_rows),
    ("kudu_scan", check_scan),
    ("kudu_table", check_table),
];

#[test]
fn the_corpora_hold() {
    for (target, check) in TARGETS {
        let directory =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fuzz/corpus").join(target);
        let mut inputs = 0;
        for entry in std::fs::read_dir(&directory).expect("a corpus") {
            let path = entry.expect("an entry").path();
            check(&std::fs::read(&path).expect("an input"));
            inputs += 1;
        }
        assert!(inputs > 0, "{} is empty", directory.display());
    }
}

/// A check that finds nothing may be one that looks at nothing.
#[test]
#[should_panic(expected = "pieces of a stream are the same frames")]
fn a_piece_that_arrives_damaged_is_found() {
    let input = std::fs::read(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fuzz/corpus/kudu_frames/two_frames"),
    );
    frames::check_with(&input.expect("a seed"), |room, piece| {
        let damaged: Vec<u8> = piece.iter().map(|byte| byte ^ u8::from(*byte == b'b')).collect();
        room.extend_from_slice(&damaged);
    });
}

proptest! {
    #[test]
    fn noise_holds(input in vec(any::<u8>(), 0..400)) {
        for (_, check) in TARGETS {
            check(&input);
        }
    }
}
