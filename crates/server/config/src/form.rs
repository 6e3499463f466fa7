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
pub(super) enum Value {
    Text(String),
    Address(IpAddr),
    Integer(u64),
    Flag(bool),
    Names(Vec<String>),
}

impl ValueForm {
    /// Parses the text of a flag or variable.
    pub(super) fn parse(self, text: &str) -> Result<Value, String> {
        match self {
            ValueForm::Text => self.check(Value::Text(text.to_owned())),
            ValueForm::Address => match text.parse() {
                Ok(address) => Ok(Value::Address(address)),
                Err(_) => Err(format!("{text:?} is not an IP address")),
            },
            ValueForm::Integer { .. } => match text.parse() {
                Ok(number) => self.check(Value::Integer(number)),
                Err(_) => Err(format!("{text:?} is not a whole number")),
            },
            ValueForm::Flag => match text {
                "true" | "1" => Ok(Value::Flag(true)),
                "false" | "0" => Ok(Value::Flag(false)),
                _ => Err(format!("{text:?} is neither true nor false")),
            },
            ValueForm::Choice(_) | ValueForm::Checked(_) => {
                self.check(Value::Text(text.to_owned()))
            }
            ValueForm::Names => {
                let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
                Ok(Value::Names(names.map(str::to_owned).collect()))
            }
        }
    }

    /// Takes a TOML value.
    pub(super) fn take(self, value: &toml::Value) -> Result<Value, String> {
        let wrong = |expected: &str| Err(format!("{value} is not {expected}"));
        match (self, value) {
            (
                ValueForm::Text | ValueForm::Choice(_) | ValueForm::Checked(_),
                toml::Value::String(text),
            ) => self.check(Value::Text(text.clone())),
            (ValueForm::Address, toml::Value::String(text)) => self.parse(text),
            (ValueForm::Integer { .. }, toml::Value::Integer(number)) => {
                match u64::try_from(*number) {
                    Ok(number) => self.check(Value::Integer(number)),
                    Err(_) => wrong("a number of 0 or more"),
                }
            }
            (ValueForm::Flag, toml::Value::Boolean(flag)) => Ok(Value::Flag(*flag)),
            (ValueForm::Names, toml::Value::Array(entries)) => {
                let names: Option<Vec<String>> =
                    entries.iter().map(|entry| entry.as_str().map(str::to_owned)).collect();
                names.map_or_else(|| wrong("a list of strings"), |names| Ok(Value::Names(names)))
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

    fn check(self, value: Value) -> Result<Value, String> {
        match (self, &value) {
            (ValueForm::Integer { min, max }, Value::Integer(number))
                if !(min..=max).contains(number) =>
            {
                Err(format!("{number} is not between {min} and {max}"))
            }
            (ValueForm::Text, Value::Text(text)) if text.is_empty() => {
                Err("it must not be empty".to_owned())
            }
            (ValueForm::Choice(choices), Value::Text(text))
                if !choices.contains(&text.as_str()) =>
            {
                Err(format!("{text:?} is not one of {}", choices.join(", ")))
            }
            (ValueForm::Checked(check), Value::Text(text)) => check(text).map(|()| value),
            _ => Ok(value),
        }
    }
}

impl Value {
    /// The value as TOML writes it.
    pub(super) fn to_toml(&self) -> toml::Value {
        match self {
            Value::Text(text) => toml::Value::String(text.clone()),
            Value::Address(address) => toml::Value::String(address.to_string()),
            Value::Integer(number) => {
                toml::Value::Integer(i64::try_from(*number).unwrap_or(i64::MAX))
            }
            Value::Flag(flag) => toml::Value::Boolean(*flag),
            Value::Names(names) => {
                toml::Value::Array(names.iter().cloned().map(toml::Value::String).collect())
            }
        }
    }

    /// The value as `--help` shows it.
    pub(super) fn to_text(&self) -> String {
        match self {
            Value::Text(text) => text.clone(),
            Value::Address(address) => address.to_string(),
            Value::Integer(number) => number.to_string(),
            Value::Flag(flag) => flag.to_string(),
            Value::Names(names) => names.join(","),
        }
    }

    pub(super) fn text(self) -> String {
        match self {
            Value::Text(text) => text,
            other => unreachable_form(&other),
        }
    }

    /// The text as a path.
    pub(super) fn path(self) -> PathBuf {
        PathBuf::from(self.text())
    }

    pub(super) fn address(self) -> IpAddr {
        match self {
            Value::Address(address) => address,
            other => unreachable_form(&other),
        }
    }

    /// The number, in the type of the field. The bounds in the table fit the field.
    pub(super) fn integer<T: TryFrom<u64>>(self) -> T {
        match self {
            Value::Integer(number) => {
                T::try_from(number).ok().expect("the bounds in the table fit the field")
            }
            other => unreachable_form(&other),
        }
    }

    pub(super) fn flag(self) -> bool {
        match self {
            Value::Flag(flag) => flag,
            other => unreachable_form(&other),
        }
    }

    pub(super) fn names(self) -> Vec<String> {
        match self {
            Value::Names(names) => names,
            other => unreachable_form(&other),
        }
    }
}

fn unreachable_form(value: &Value) -> ! {
    unreachable!("a row's setter and form disagree about {value:?}; a test sets every row")
}

/// A path as a value.
pub(super) fn path_value(path: &Path) -> Value {
    Value::Text(path.to_string_lossy().into_owned())
}
