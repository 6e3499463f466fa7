//! One setting: its name, its help, the form of its value, and the field that it goes to.

use super::form::{SettingValue, ValueForm};
use super::settings::Settings;

/// Form of a port.
pub(super) const PORT: ValueForm = ValueForm::Integer { min: 0, max: 65_535 };

/// One row of the table.
pub(super) struct Setting {
    /// TOML key; the flag has dashes, the variable is `ORIBI_` and capitals.
    pub(super) name: &'static str,
    /// Heading of the group in `--help`.
    pub(super) heading: &'static str,
    pub(super) value_name: &'static str,
    pub(super) help: &'static str,
    pub(super) form: ValueForm,
    /// The value in force; `None` when the setting is not set.
    pub(super) get: fn(&Settings) -> Option<SettingValue>,
    /// Takes a value that has passed [`ValueForm::check`].
    pub(super) set: fn(&mut Settings, SettingValue),
}

impl Setting {
    pub(super) fn flag(&self) -> String {
        self.name.replace('_', "-")
    }

    pub(super) fn variable(&self) -> String {
        format!("ORIBI_{}", self.name.to_ascii_uppercase())
    }
}
