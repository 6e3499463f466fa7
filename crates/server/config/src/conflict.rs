//! Names of the conflict resolutions.
//!
//! Owns: the names, which settings, `bucket.json` and the HTTP interface share;
//! [`ConflictResolution`] defines their meaning. A bucket's resolution is fixed at its creation,
//! because versions kept by one rule cannot be compared by the other.

use oribi_types::policy::ConflictResolution;

pub const CONFLICT_RESOLUTION_NAMES: [&str; 2] = ["seqno", "lww"];

/// The resolution with this name.
pub fn resolution_named(name: &str) -> Option<ConflictResolution> {
    use ConflictResolution::{LastWriteWins, Seqno};
    [Seqno, LastWriteWins].into_iter().find(|resolution| name_of(*resolution) == name)
}

/// The name of a resolution.
pub fn name_of(resolution: ConflictResolution) -> &'static str {
    match resolution {
        ConflictResolution::Seqno => CONFLICT_RESOLUTION_NAMES[0],
        ConflictResolution::LastWriteWins => CONFLICT_RESOLUTION_NAMES[1],
    }
}

#[cfg(test)]
mod tests {
    use super::{CONFLICT_RESOLUTION_NAMES, name_of, resolution_named};

    #[test]
    fn every_resolution_has_its_name() {
        for name in CONFLICT_RESOLUTION_NAMES {
            assert_eq!(resolution_named(name).map(name_of), Some(name));
        }
        assert_eq!(resolution_named("LWW"), None);
    }
}
