//! Names of the memory tiers.
//!
//! Owns: the names, which settings, `bucket.json`, the HTTP interface and STAT share.
//! [`MemoryTier`] defines their meaning.

use oribi_types::policy::MemoryTier;

pub const MEMORY_TIER_NAMES: [&str; 2] = ["off", "dense"];

/// The tier with this name.
pub fn tier_named(name: &str) -> Option<MemoryTier> {
    [MemoryTier::Off, MemoryTier::Dense].into_iter().find(|tier| name_of(*tier) == name)
}

/// The name of a tier.
pub fn name_of(tier: MemoryTier) -> &'static str {
    match tier {
        MemoryTier::Off => MEMORY_TIER_NAMES[0],
        MemoryTier::Dense => MEMORY_TIER_NAMES[1],
    }
}

#[cfg(test)]
mod tests {
    use super::{MEMORY_TIER_NAMES, name_of, tier_named};

    #[test]
    fn every_tier_has_its_name() {
        for name in MEMORY_TIER_NAMES {
            assert_eq!(tier_named(name).map(name_of), Some(name));
        }
        assert_eq!(tier_named("Dense"), None);
    }
}
