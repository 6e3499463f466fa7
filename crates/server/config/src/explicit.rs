//! Explicitly configured values, and the differences between two configurations.
//!
//! Values are compared as text. Callers: the review at the start and the reload.

use super::resolve::{ResolvedSettings, Source};
use super::setting::Setting;
use super::table::SETTINGS;

/// A value from a flag, a variable or the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExplicitValue {
    /// The value as help shows it.
    pub value: String,
    /// The flag, variable or file.
    pub source: Source,
}

/// A setting whose value differs between two configurations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingChange {
    pub name: &'static str,
    /// The value in force; "not set" without one.
    pub before: String,
    /// The new value; "not set" without one.
    pub after: String,
}

impl ResolvedSettings {
    /// The value of a setting that is explicitly configured; `None` for a default.
    pub fn explicit(&self, name: &str) -> Option<ExplicitValue> {
        let index = SETTINGS.iter().position(|setting| setting.name == name)?;
        let source = self.sources[index].clone();
        let value = (SETTINGS[index].get)(&self.settings)?.to_text();
        (source != Source::Default).then_some(ExplicitValue { value, source })
    }

    /// The settings whose values `next` changes.
    pub fn changes(&self, next: &ResolvedSettings) -> Vec<SettingChange> {
        assert_eq!(self.sources.len(), SETTINGS.len(), "each setting has a source");
        let text = |resolved: &ResolvedSettings, setting: &Setting| {
            let value = (setting.get)(&resolved.settings);
            value.map_or_else(|| "not set".to_owned(), |value| value.to_text())
        };
        let changed = SETTINGS.iter().map(|setting| SettingChange {
            name: setting.name,
            before: text(self, setting),
            after: text(next, setting),
        });
        changed.filter(|changed| changed.before != changed.after).collect()
    }

    /// Records that the value of one setting in `next` is now in force.
    pub fn adopt(&mut self, name: &str, next: &ResolvedSettings) {
        assert_eq!(self.sources.len(), next.sources.len(), "each setting has a source");
        let Some(index) = SETTINGS.iter().position(|setting| setting.name == name) else { return };
        if let Some(value) = (SETTINGS[index].get)(&next.settings) {
            (SETTINGS[index].set)(&mut self.settings, value);
            debug_assert!(
                (SETTINGS[index].get)(&self.settings) == (SETTINGS[index].get)(&next.settings),
                "a setting takes the next value"
            );
            self.sources[index] = next.sources[index].clone();
        }
    }
}
