//! Random numbers, reproducible from a seed.

/// xorshift64*: small, seedable, good enough to choose keys.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A sequence that follows from `seed`.
    pub fn new(seed: u64) -> Random {
        // Consecutive seeds must not give sequences that begin alike, and the state must not be
        // zero.
        let mixed = (seed ^ (seed >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Random((mixed ^ (mixed >> 29)) | 1)
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// True once in `often` on average.
    pub fn one_in(&mut self, often: u64) -> bool {
        self.below(often) == 0
    }

    /// Another sequence that follows from this one.
    pub fn fork(&mut self) -> Random {
        Random::new(self.next())
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 24
    }
}
