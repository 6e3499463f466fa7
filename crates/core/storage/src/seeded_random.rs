//! Small random numbers that a seed repeats exactly, for the conformance suite and fault plans.
//!
//! Owns: one generator (SplitMix64, Steele, Lea and Flood 2014). Invariant: the same seed gives the
//! same numbers on every machine and in every version, so that a printed seed stays useful.
//! It is not for secrets.

/// A generator of 64-bit numbers.
#[derive(Clone, Debug)]
pub struct SeededRandom {
    state: u64,
}

impl SeededRandom {
    /// A generator that starts at `seed`.
    pub fn new(seed: u64) -> SeededRandom {
        SeededRandom { state: seed }
    }

    /// The next number, any of the 2^64.
    pub fn number(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// The next number below `limit`, which is at least 1. The bias of the remainder is far below
    /// what a test could notice.
    pub fn below(&mut self, limit: u64) -> u64 {
        assert!(limit > 0, "there is no number below zero");
        self.number() % limit
    }
}
