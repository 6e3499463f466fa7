//! Feeds the harness: random bytes, documents, and the fuzz targets' corpora.

use proptest::collection::vec;
use proptest::prelude::*;

use super::{check_document, check_operations, check_operations_with, check_path, check_xattrs};
use crate::byte_masks::BLOCK_BYTES;
use crate::edit::Mutation;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn operations_agree_with_the_tree(input in vec(any::<u8>(), 0..400)) {
        check_operations(&input);
    }

    #[test]
    fn documents(path in "[a-c.`\\[\\]0-2-]{0,12}", text in "[\\[\\]{}:,\"a0-9\\-+.eE \\\\utrlsnf]{0,80}") {
        check_document(format!("{path}\n{text}").as_bytes());
    }

    /// Texts of several blocks, changed at a few places.
    #[test]
    fn longer_documents(
        input in vec(any::<u8>(), 0..400),
        changes in vec((any::<prop::sample::Index>(), "[\\[\\]{}:,\"a0-1\\-+.eE \\\\n]"), 0..3),
    ) {
        let mut text = super::generate::Source::new(&input).document();
        for (place, byte) in changes {
            let place = place.index(text.len());
            text[place] = byte.as_bytes()[0];
        }
        super::check_detection(&text);
    }

    #[test]
    fn numbers(text in "([ ,]?-?[0-9.eE+\\-]{1,12}){1,12}") {
        check_document(format!("a\n{text}").as_bytes());
    }

    #[test]
    fn noise(input in vec(any::<u8>(), 0..200)) {
        check_document(&input);
        check_path(&input);
        check_xattrs(&input);
    }

    #[test]
    fn paths(text in "[a-c.`\\[\\]0-2\\\\\"u-]{0,20}") {
        check_path(text.as_bytes());
    }
}

/// A target's name and its check.
type Target = (&'static str, fn(&[u8]));

#[test]
fn corpora_of_the_fuzz_targets() {
    let checks: [Target; 4] = [
        ("subdoc_path", check_path),
        ("subdoc_document", check_document),
        ("subdoc_operations", check_operations),
        ("xattr", check_xattrs),
    ];
    for (target, check) in checks {
        let directory = format!("{}/../../../fuzz/corpus/{target}", env!("CARGO_MANIFEST_DIR"));
        let mut files = 0;
        for entry in std::fs::read_dir(&directory).expect("each target has a corpus") {
            check(&std::fs::read(entry.expect("the directory can be read").path()).unwrap());
            files += 1;
        }
        assert!(files > 0, "{directory} is empty");
    }
}

/// The comparison notices when the wrong end of an array is pushed to, or a key that exists is
/// added.
#[test]
fn planted_bugs_are_found() {
    use Mutation::{ArrayPushFirst, ArrayPushLast, DictAdd, DictUpsert};
    for (right, wrong) in [(ArrayPushFirst, ArrayPushLast), (DictAdd, DictUpsert)] {
        let plant = |mutation| if mutation == right { wrong } else { mutation };
        let found = (0u64..5000).any(|seed| {
            let mut state = seed;
            let input: Vec<u8> = std::iter::repeat_with(|| {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (state >> 56) as u8
            })
            .take(300)
            .collect();
            std::panic::catch_unwind(|| check_operations_with(&input, plant)).is_err()
        });
        assert!(found, "{right:?} done as {wrong:?}");
    }
}

/// The comparison notices a detection that takes no notice of the byte a block begins with.
#[test]
fn blindness_at_the_beginning_of_blocks_is_found() {
    let blind = |text: &[u8]| {
        let mut seen = text.to_vec();
        seen.iter_mut().skip(BLOCK_BYTES).step_by(BLOCK_BYTES).for_each(|byte| *byte = b'1');
        crate::json::nesting(&seen)
    };
    let found = (1..20).any(|count| {
        let text = "[12,\"x\"]".repeat(count).replace("][", ",");
        std::panic::catch_unwind(|| super::check_detection_in_places(text.as_bytes(), blind))
            .is_err()
    });
    assert!(found);
}
