//! A bucket's minimum durability.
//!
//! Owns: the names of the levels, which `bucket.json` and the HTTP interface share, and the byte by
//! which requests see that a bucket is not an ordinary one. Writes at a lower level are raised to
//! the minimum (`dispatch::durable`, [`super::durable_wait`]).

use std::sync::atomic::{AtomicU8, Ordering};

use oribi_types::DurabilityLevel;
use serde::{Deserialize, Serialize};

/// The minimum durability of writes to a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum DurabilityMin {
    #[default]
    None,
    /// A majority of the copies has the write in memory.
    Majority,
    /// And the active copy has it on disk.
    MajorityAndPersistActive,
    /// A majority of the copies has it on disk.
    PersistToMajority,
}

pub const DURABILITY_MIN_NAMES: [&str; 4] =
    ["none", "majority", "majorityAndPersistActive", "persistToMajority"];

const LEVELS: [DurabilityMin; 4] = [
    DurabilityMin::None,
    DurabilityMin::Majority,
    DurabilityMin::MajorityAndPersistActive,
    DurabilityMin::PersistToMajority,
];

impl DurabilityMin {
    /// The level with this name.
    pub fn named(name: &str) -> Option<DurabilityMin> {
        LEVELS.into_iter().find(|level| level.name() == name)
    }

    /// The name of the level.
    pub fn name(self) -> &'static str {
        DURABILITY_MIN_NAMES[self as usize]
    }

    /// The level that a write is raised to.
    pub fn level(self) -> DurabilityLevel {
        match self {
            DurabilityMin::None => DurabilityLevel::None,
            DurabilityMin::Majority => DurabilityLevel::Majority,
            DurabilityMin::MajorityAndPersistActive => DurabilityLevel::MajorityAndPersistOnMaster,
            DurabilityMin::PersistToMajority => DurabilityLevel::PersistToMajority,
        }
    }

    /// False for a level that asks for the store of a bucket in memory.
    pub fn is_possible(self, is_in_memory: bool) -> bool {
        !(is_in_memory && self.level().needs_persistence())
    }

    /// True for the level of a bucket that was never given one.
    pub(super) fn is_default(&self) -> bool {
        *self == DurabilityMin::default()
    }
}

/// What makes a bucket differ from an ordinary one, in one byte: each request tests it. The low
/// bits are the minimum durability.
#[derive(Debug, Default)]
pub(super) struct RequestGate(AtomicU8);

const DELETED: u8 = 1 << 7;
const _: () = assert!(LEVELS.len() < DELETED as usize);

impl RequestGate {
    /// True for a bucket that exists and raises no write.
    #[inline(always)]
    pub(super) fn is_ordinary(&self) -> bool {
        self.0.load(Ordering::Acquire) == 0
    }

    pub(super) fn is_deleted(&self) -> bool {
        self.0.load(Ordering::Acquire) & DELETED != 0
    }

    pub(super) fn delete(&self) {
        self.0.fetch_or(DELETED, Ordering::AcqRel);
    }

    pub(super) fn durability_min(&self) -> DurabilityMin {
        LEVELS[usize::from(self.0.load(Ordering::Acquire) & !DELETED)]
    }

    pub(super) fn set_durability_min(&self, level: DurabilityMin) {
        let next = |gate: u8| Some(gate & DELETED | level as u8);
        // The closure always answers, so this never fails.
        let _ = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
        debug_assert_eq!(self.durability_min(), level, "settings change one after the other");
    }
}

#[cfg(test)]
mod tests {
    use oribi_types::DurabilityLevel;

    use super::{DURABILITY_MIN_NAMES, DurabilityMin, RequestGate};

    #[test]
    fn every_level_has_its_name_and_its_place() {
        let gate = RequestGate::default();
        assert!(gate.is_ordinary() && gate.durability_min() == DurabilityMin::default());
        let mut lower = None;
        for name in DURABILITY_MIN_NAMES {
            let level = DurabilityMin::named(name).unwrap();
            gate.set_durability_min(level);
            assert_eq!((level.name(), gate.durability_min()), (name, level));
            assert_eq!(serde_json::to_value(level).unwrap(), name);
            assert_eq!(gate.is_ordinary(), level.level() == DurabilityLevel::None);
            assert!(lower < Some(level.level()), "each level is above the one before");
            lower = Some(level.level());
        }
        assert_eq!(DurabilityMin::named("persist"), None);
        gate.delete();
        assert_eq!(gate.durability_min(), DurabilityMin::PersistToMajority);
        gate.set_durability_min(DurabilityMin::None);
        assert!(gate.is_deleted() && !gate.is_ordinary());
    }
}
