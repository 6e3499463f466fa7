//! Replays the corpus of the fuzz target `connection`, so that what a fuzzer found once stays
//! found.

use std::fs;

// Invariant: Bytes from network or disk never cause a panic.
#[test]
fn the_corpus_of_the_fuzz_target_holds() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../fuzz/corpus/connection");
    let mut replayed = 0;
    for entry in fs::read_dir(corpus).expect("the corpus is part of the repository") {
        let path = entry.expect("the corpus can be listed").path();
        println!("{}", path.display());
        oribi_server::harness::check(&fs::read(&path).expect("the corpus can be read"));
        replayed += 1;
    }
    assert!(replayed >= 30, "only {replayed} corpus files were found");
}
