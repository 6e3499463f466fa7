//! Names of the compression modes.
//!
//! Owns: the names, which settings, `bucket.json`, the HTTP interface and STAT share.
//! [`CompressionMode`] defines their meaning.

use oribi_types::policy::CompressionMode;

pub const COMPRESSION_NAMES: [&str; 3] = ["off", "passive", "active"];

/// The mode with this name.
pub fn mode_named(name: &str) -> Option<CompressionMode> {
    use CompressionMode::{Active, Off, Passive};
    [Off, Passive, Active].into_iter().find(|mode| name_of(*mode) == name)
}

/// The name of a mode.
pub fn name_of(mode: CompressionMode) -> &'static str {
    match mode {
        CompressionMode::Off => COMPRESSION_NAMES[0],
        CompressionMode::Passive => COMPRESSION_NAMES[1],
        CompressionMode::Active => COMPRESSION_NAMES[2],
    }
}

#[cfg(test)]
mod tests {
    use super::{COMPRESSION_NAMES, mode_named, name_of};

    #[test]
    fn every_mode_has_its_name() {
        for name in COMPRESSION_NAMES {
            assert_eq!(mode_named(name).map(name_of), Some(name));
        }
        assert_eq!(mode_named("Active"), None);
    }
}
