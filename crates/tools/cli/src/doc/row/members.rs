//! The members of an object with their values as they stand, and values that may be in a key.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use super::error::RowError;

/// An object's members in order, values as they stand.
pub struct Members<'de>(pub Vec<(Cow<'de, str>, &'de RawValue)>);

impl<'de> Members<'de> {
    pub fn of(text: &'de str) -> Result<Members<'de>, RowError> {
        serde_json::from_str(text).map_err(|error| RowError::NotAnObject(error.to_string()))
    }
}

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Members<'de>, D::Error> {
        struct All;
        impl<'de> Visitor<'de> for All {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(All)
    }
}

/// The text that a value is in a key; `None` when it is neither a string nor a whole number.
pub fn key_text(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::String(text) => Some(Cow::Borrowed(text)),
        Value::Number(number) if !number.is_f64() => Some(Cow::Owned(number.to_string())),
        _ => None,
    }
}
