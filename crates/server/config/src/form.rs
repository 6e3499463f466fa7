//! Forms of settings' values, and their conversion between text, TOML and a field.
//!
//! Owns: parsing and printing of a value, and the set of values that a form admits. Callers: the
//! table of settings, `resolve`, `print`.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// Form of a value.
#[derive(Clone, Copy)]
pub(super) enum ValueForm {
    Text,
    Address,
    Integer {
        min: u64,
        max: u64,
    },
    Flag,
    Names,
    Choice(&'static [&'static str]),
    /// Text that this function accepts; its error says what is wrong.
    Checked(fn(&str) -> Result<(), String>),
}

/// A value during conversion between text, TOML and a field.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum SettingValue {
    Text(String),
    Address(IpAddr),
    Integer(u64),
    Flag(bool),
    Names(Vec<String>),
}

impl ValueForm {
    /// Parses the text of a flag or variable.
    pub(super) fn parse(self, text: &str) -> Result<SettingValue, String> {
        match self {
            ValueForm::Text => self.check(SettingValue::Text(text.to_owned())),
            ValueForm::Address => match text.parse() {
                Ok(address) => Ok(SettingValue::Address(address)),
                Err(_) => Err(format!("{text:?} is not an IP address")),
            },
            ValueForm::Integer { .. } => match text.parse() {
                Ok(number) => self.check(SettingValue::Integer(number)),
                Err(_) => Err(format!("{text:?} is not a whole number")),
            },
            ValueForm::Flag => match text {
                "true" | "1" => Ok(SettingValue::Flag(true)),
                "false" | "0" => Ok(SettingValue::Flag(false)),
                _ => Err(format!("{text:?} is neither true nor false")),
            },
            ValueForm::Choice(_) | ValueForm::Checked(_) => {
                self.check(SettingValue::Text(text.to_owned()))
            }
            ValueForm::Names => {
                let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
                Ok(SettingValue::Names(names.map(str::to_owned).collect()))
            }
        }
    }

    /// Takes a TOML value.
    pub(super) fn take(self, value: &toml::Value) -> Result<SettingValue, String> {
        let wrong = |expected: &str| Err(format!("{value} is not {expected}"));
        match (self, value) {
            (
                ValueForm::Text | ValueForm::Choice(_) | ValueForm::Checked(_),
                toml::Value::String(text),
            ) => self.check(SettingValue::Text(text.clone())),
            (ValueForm::Address, toml::Value::String(text)) => self.parse(text),
            (ValueForm::Integer { .. }, toml::Value::Integer(number)) => {
                match u64::try_from(*number) {
                    Ok(number) => self.check(SettingValue::Integer(number)),
                    Err(_) => wrong("a number of 0 or more"),
                }
            }
            (ValueForm::Flag, toml::Value::Boolean(flag)) => Ok(SettingValue::Flag(*flag)),
            (ValueForm::Names, toml::Value::Array(entries)) => {
                let names: Option<Vec<String>> =
                    entries.iter().map(|entry| entry.as_str().map(str::to_owned)).collect();
                names.map_or_else(
                    || wrong("a list of strings"),
                    |names| Ok(SettingValue::Names(names)),
                )
            }
            (ValueForm::Text | ValueForm::Choice(_) | ValueForm::Checked(_), _) => {
                wrong("a string")
            }
            (ValueForm::Address, _) => wrong("an IP address in quotes"),
            (ValueForm::Integer { .. }, _) => wrong("a whole number"),
            (ValueForm::Flag, _) => wrong("true or false"),
            (ValueForm::Names, _) => wrong("a list of strings"),
        }
    }

    fn check(self, value: SettingValue) -> Result<SettingValue, String> {
        match (self, &value) {
            (ValueForm::Integer { min, max }, SettingValue::Integer(number))
                if !(min..=max).contains(number) =>
            {
                debug_assert!(min <= max, "bounds of the table are a range");
                Err(format!("{number} is not between {min} and {max}"))
            }
            (ValueForm::Text, SettingValue::Text(text)) if text.is_empty() => {
                Err("it must not be empty".to_owned())
            }
            (ValueForm::Choice(choices), SettingValue::Text(text))
                if !choices.contains(&text.as_str()) =>
            {
                Err(format!("{text:?} is not one of {}", choices.join(", ")))
            }
            (ValueForm::Checked(check), SettingValue::Text(text)) => check(text).map(|()| value),
            _ => Ok(value),
        }
    }
}

impl SettingValue {
    /// The value as TOML writes it.
    pub(super) fn to_toml(&self) -> toml::Value {
        match self {
            SettingValue::Text(text) => toml::Value::String(text.clone()),
            SettingValue::Address(address) => toml::Value::String(address.to_string()),
            SettingValue::Integer(number) => {
                toml::Value::Integer(i64::try_from(*number).unwrap_or(i64::MAX))
            }
            SettingValue::Flag(flag) => toml::Value::Boolean(*flag),
            SettingValue::Names(names) => {
                toml::Value::Array(names.iter().cloned().map(toml::Value::String).collect())
            }
        }
    }

    /// The value as `--help` shows it.
    pub(super) fn to_text(&self) -> String {
        match self {
            SettingValue::Text(text) => text.clone(),
            SettingValue::Address(address) => address.to_string(),
            SettingValue::Integer(number) => number.to_string(),
            SettingValue::Flag(flag) => flag.to_string(),
            SettingValue::Names(names) => names.join(","),
        }
    }

    pub(super) fn text(self) -> String {
        match self {
            SettingValue::Text(text) => text,
            other => unreachable_form(&other),
        }
    }

    /// The text as a path.
    pub(super) fn path(self) -> PathBuf {
        PathBuf::from(self.text())
    }

    pub(super) fn address(self) -> IpAddr {
        match self {
            SettingValue::Address(address) => address,
            other => unreachable_form(&other),
        }
    }

    /// The number, in the type of the field. The bounds in the table fit the field.
    pub(super) fn integer<T: TryFrom<u64>>(self) -> T {
        match self {
            SettingValue::Integer(number) => {
                T::try_from(number).ok().expect("the bounds in the table fit the field")
            }
            other => unreachable_form(&other),
        }
    }

    pub(super) fn flag(self) -> bool {
        match self {
            SettingValue::Flag(flag) => flag,
            other => unreachable_form(&other),
        }
    }

    pub(super) fn names(self) -> Vec<String> {
        match self {
            SettingValue::Names(names) => names,
            other => unreachable_form(&other),
        }
    }
}

fn unreachable_form(value: &SettingValue) -> ! {
    unreachable!("a row's setter and form disagree about {value:?}; a test sets every row")
}

/// A path as a value.
pub(super) fn path_value(path: &Path) -> SettingValue {
    SettingValue::Text(path.to_string_lossy().into_owned())
}
