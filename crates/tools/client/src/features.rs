//! Features that a server granted in answer to HELLO.

use oribi_protocol::feature::Feature;

// A feature's code is the number of its bit.
const _: () = {
    let mut rest = Feature::all();
    while let [feature, more @ ..] = rest {
        assert!(feature.code() < u64::BITS as u16);
        rest = more;
    }
};

/// Features that the server granted: one bit for each code.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FeatureSet(u64);

impl FeatureSet {
    /// Adds `feature`.
    pub fn grant(&mut self, feature: Feature) {
        self.0 |= 1 << feature.code();
    }

    /// True when the server granted `feature`.
    pub fn has(self, feature: Feature) -> bool {
        self.0 & 1 << feature.code() != 0
    }
}
