//! Names of a bucket's minimum durability.
//!
//! Owns: the names, which `bucket.json` and the HTTP interface share. With one copy every
//! acknowledged write has majority anyway. The levels that persist would delay every write, so the
//! server refuses them instead of reporting a level without effect.

use std::sync::atomic::{AtomicU8, Ordering};

use serde::{Deserialize, Serialize};

/// The minimum durability of writes to a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DurabilityMin {
    #[default]
    None,
    /// A majority of the copies has the write in memory.
    Majority,
}

pub const DURABILITY_MIN_NAMES: [&str; 2] = ["none", "majority"];

impl DurabilityMin {
    /// The level with this name.
    pub fn named(name: &str) -> Option<DurabilityMin> {
        use DurabilityMin::{Majority, None};
        [None, Majority].into_iter().find(|level| level.name() == name)
    }

    /// The name of the level.
    pub fn name(self) -> &'static str {
        match self {
            DurabilityMin::None => DURABILITY_MIN_NAMES[0],
            DurabilityMin::Majority => DURABILITY_MIN_NAMES[1],
        }
    }

    /// True for the level of a bucket that was never given one.
    pub(super) fn is_default(&self) -> bool {
        *self == DurabilityMin::default()
    }
}

/// Copies that a durable write to a bucket waits for: a majority of those that the bucket is
/// configured for.
#[derive(Debug)]
pub(super) struct DurableMajority(AtomicU8);

impl Default for DurableMajority {
    fn default() -> DurableMajority {
        DurableMajority(AtomicU8::new(1))
    }
}

impl DurableMajority {
    pub(super) fn get(&self) -> u8 {
        self.0.load(Ordering::Relaxed)
    }

    /// The bucket is configured for `replicas` copies besides the active one.
    pub(super) fn set_replicas(&self, replicas: u8) {
        let majority = replicas.div_ceil(2) + 1;
        assert!(
            2 * u16::from(majority) > u16::from(replicas) + 1,
            "a majority is more than a half"
        );
        self.0.store(majority, Ordering::Relaxed);
    }
}

/// The level of an open bucket, which may change.
#[derive(Debug, Default)]
pub(super) struct DurabilityMinCell(AtomicU8);

impl DurabilityMinCell {
    pub(super) fn get(&self) -> DurabilityMin {
        match self.0.load(Ordering::Relaxed) {
            0 => DurabilityMin::None,
            _ => DurabilityMin::Majority,
        }
    }

    pub(super) fn set(&self, level: DurabilityMin) {
        self.0.store(level as u8, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::{DURABILITY_MIN_NAMES, DurabilityMin, DurabilityMinCell, DurableMajority};

    #[test]
    fn majorities_are_of_all_configured_copies() {
        let majority = DurableMajority::default();
        let of = |replicas| {
            majority.set_replicas(replicas);
            majority.get()
        };
        assert_eq!((0..4).map(of).collect::<Vec<u8>>(), [1, 2, 2, 3]);
    }

    #[test]
    fn every_level_has_its_name_and_its_place() {
        let cell = DurabilityMinCell::default();
        assert_eq!(cell.get(), DurabilityMin::default());
        for name in DURABILITY_MIN_NAMES {
            let level = DurabilityMin::named(name).unwrap();
            cell.set(level);
            assert_eq!((level.name(), cell.get()), (name, level));
        }
        assert_eq!(DurabilityMin::named("persistToMajority"), None);
    }
}
