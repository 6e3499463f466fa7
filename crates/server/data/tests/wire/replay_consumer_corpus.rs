//! What a consumer of changes sends: the corpus of the fuzz target `consumer`, and damage to it.

use std::fs;

use oribi_server::harness::{ConsumerTally, check_consumer};
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, TestRunner};

/// Damaged inputs of an ordinary run.
const CASES: u32 = 200;

/// The files of the corpus.
fn corpus() -> Vec<(String, Vec<u8>)> {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../fuzz/corpus/consumer");
    let entries = fs::read_dir(corpus).expect("the corpus is part of the repository");
    let files = entries.map(|entry| {
        let path = entry.expect("the corpus can be listed").path();
        (path.display().to_string(), fs::read(&path).expect("the corpus can be read"))
    });
    let mut files: Vec<(String, Vec<u8>)> = files.collect();
    files.sort();
    files
}

fn add(sum: &mut ConsumerTally, tally: ConsumerTally) {
    sum.streams += tally.streams;
    sum.rollbacks += tally.rollbacks;
    sum.changes += tally.changes;
    sum.backfills += tally.backfills;
    sum.cursors_dropped += tally.cursors_dropped;
    sum.ends += tally.ends;
    sum.compared += tally.compared;
}

#[test]
fn the_corpus_of_the_fuzz_target_holds() {
    let mut sum = ConsumerTally::default();
    for (name, input) in corpus() {
        let tally = check_consumer(&input);
        println!("{name}: {tally:?}");
        add(&mut sum, tally);
    }
    let ConsumerTally { streams, rollbacks, changes, backfills, cursors_dropped, ends, compared } =
        sum;
    let reached = [streams, rollbacks, changes, backfills, cursors_dropped, ends, compared];
    assert!(!reached.contains(&0), "the corpus does not reach everything: {sum:?}");
}

/// The beginning of one input, the end of another, and some other bytes.
#[test]
fn damaged_inputs_break_no_rule() {
    let files = corpus();
    let mut runner =
        TestRunner::new(Config { cases: CASES, failure_persistence: None, ..Config::default() });
    let index = any::<Index>;
    let changes = proptest::collection::vec((index(), any::<u8>()), 0..6);
    let choices = ((index(), index()), (index(), index()), changes);
    let result = runner.run(&choices, |((first, second), (cut, begin), changes)| {
        let (_, head) = first.get(&files);
        let (_, tail) = second.get(&files);
        let mut input = head[..=cut.index(head.len())].to_vec();
        input.extend_from_slice(&tail[begin.index(tail.len())..]);
        for (place, byte) in &changes {
            let place = place.index(input.len());
            input[place] = *byte;
        }
        check_consumer(&input);
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}"));
}
