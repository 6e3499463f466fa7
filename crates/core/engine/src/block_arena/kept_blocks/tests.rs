//! Tests of kept blocks: which one is taken, which one goes first, and how they age.

use std::ptr::NonNull;

use super::super::large_block::{LargeBlock, rounded};
use super::KeptBlocks;

/// Blocks of the two lengths that the tests use.
const SHORT: usize = 150_000;
const LONG: usize = 300_000;

fn block(bytes: usize) -> (LargeBlock, NonNull<u8>) {
    let bytes = rounded(bytes);
    let address = LargeBlock::new(bytes).into_raw();
    // SAFETY: (9) the block has just been made with this length, and nothing uses it.
    (unsafe { LargeBlock::from_raw(address, bytes) }, address)
}

/// Keeps new blocks of these lengths; their addresses.
fn keep(kept: &mut KeptBlocks, lengths: &[usize]) -> Vec<NonNull<u8>> {
    let put = |bytes: &usize| {
        let (block, address) = block(*bytes);
        kept.put(block);
        address
    };
    lengths.iter().map(put).collect()
}

/// The address of a block that was taken, which goes back to the system.
fn address(taken: Option<LargeBlock>) -> Option<NonNull<u8>> {
    let block = taken?;
    let bytes = block.bytes();
    let address = block.into_raw();
    // SAFETY: (9) as above.
    unsafe { LargeBlock::from_raw(address, bytes) }.give_back();
    Some(address)
}

#[test]
fn the_pool_gives_the_newest_and_trims_the_oldest() {
    let mut kept = KeptBlocks::new();
    let made = keep(&mut kept, &[SHORT, LONG, SHORT, LONG, SHORT]);
    assert_eq!((kept.blocks, kept.bytes), (5, 3 * rounded(SHORT) + 2 * rounded(LONG)));
    assert_eq!(address(kept.take(rounded(SHORT))), Some(made[4]));
    assert_eq!(address(kept.take_oldest()), Some(made[0]));
    assert_eq!(address(kept.take_oldest()), Some(made[1]));
    assert_eq!(address(kept.take(rounded(LONG))), Some(made[3]));
    assert!(kept.take(rounded(LONG)).is_none() && kept.take(rounded(LONG) + 4096).is_none());
    assert_eq!(address(kept.take_oldest()), Some(made[2]));
    assert!(kept.take_oldest().is_none());
    assert_eq!((kept.blocks, kept.bytes), (0, 0));
}

#[test]
fn a_slightly_longer_block_is_reused_a_long_one_not() {
    let mut kept = KeptBlocks::new();
    let made = keep(&mut kept, &[LONG, LONG + LONG / 8, 2 * LONG]);
    let need = LONG - LONG / 8;
    assert_eq!(address(kept.take(rounded(need))), Some(made[0]));
    assert_eq!(address(kept.take(rounded(LONG))), Some(made[1]));
    assert!(kept.take(rounded(LONG)).is_none() && kept.blocks == 1);
    assert_eq!(address(kept.take_oldest()), Some(made[2]));
}

#[test]
fn shrinking_a_block_returns_its_rest() {
    let (block, address) = block(LONG);
    // SAFETY: the block is this test's.
    unsafe { address.write_bytes(7, LONG) }
    let block = block.shortened(rounded(SHORT));
    assert_eq!(block.bytes(), rounded(SHORT));
    // SAFETY: its beginning is still this test's, and was written above.
    let content = unsafe { std::slice::from_raw_parts(address.as_ptr(), SHORT) };
    assert!(content.iter().all(|byte| *byte == 7));
    block.give_back();
}

#[test]
fn blocks_unused_for_a_period_are_returned() {
    let mut kept = KeptBlocks::new();
    let first = keep(&mut kept, &[SHORT, LONG]);
    kept.end_period();
    assert!(kept.take_unwanted().is_none(), "not yet a whole period");
    // One of them is used in the second period, and freed again.
    let used = kept.take(rounded(SHORT)).expect("it is kept");
    kept.put(used);
    let second = keep(&mut kept, &[LONG]);
    kept.end_period();
    assert_eq!(address(kept.take_unwanted()), Some(first[1]));
    assert!(kept.take_unwanted().is_none());
    kept.end_period();
    let unwanted = [kept.take_unwanted(), kept.take_unwanted(), kept.take_unwanted()];
    assert_eq!(unwanted.map(address), [Some(first[0]), Some(second[0]), None]);
    assert_eq!((kept.blocks, kept.bytes), (0, 0));
}
