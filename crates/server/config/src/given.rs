//! Which values somebody gave, and what differs between two configurations.
//!
//! Owns: the two questions, with values as text. Callers: the review at the start and the reload.

use super::resolve::{Resolved, Source};
use super::setting::Setting;
use super::table::SETTINGS;

/// A value that a flag, a variable or the file gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Given {
    /// The value as help shows it.
    pub value: String,
    /// The flag, variable or file.
    pub source: Source,
}

/// A setting whose value differs between two configurations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed {
    pub name: &'static str,
    /// The value in force; "not set" without one.
    pub before: String,
    /// The new value; "not set" without one.
    pub after: String,
}

impl Resolved {
    /// The value of a setting that is not left at its default.
    pub fn given(&self, name: &str) -> Option<Given> {
        let index = SETTINGS.iter().position(|setting| setting.name == name)?;
        let source = self.sources[index].clone();
        let value = (SETTINGS[index].get)(&self.settings)?.to_text();
        (source != Source::Default).then_some(Given { value, source })
    }

    /// The settings whose values `next` changes.
    pub fn changes(&self, next: &Resolved) -> Vec<Changed> {
        let text = |resolved: &Resolved, setting: &Setting| {
            let value = (setting.get)(&resolved.settings);
            value.map_or_else(|| "not set".to_owned(), |value| value.to_text())
        };
        let changed = SETTINGS.iter().map(|setting| Changed {
            name: setting.name,
            before: text(self, setting),
            after: text(next, setting),
        });
        changed.filter(|changed| changed.before != changed.after).collect()
    }

    /// Takes one setting over from `next`: it is in force now.
    pub fn adopt(&mut self, name: &str, next: &Resolved) {
        let Some(index) = SETTINGS.iter().position(|setting| setting.name == name) else { return };
        if let Some(value) = (SETTINGS[index].get)(&next.settings) {
            (SETTINGS[index].set)(&mut self.settings, value);
            self.sources[index] = next.sources[index].clone();
        }
    }
}
