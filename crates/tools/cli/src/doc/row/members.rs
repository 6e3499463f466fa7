//! The members of an object with their values as they stand, and values that may be in a key.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use super::error::DocumentRowError;

/// An object's members in order, values as they stand.
pub struct RowMembers<'de>(pub Vec<(Cow<'de, str>, &'de RawValue)>);

impl<'de> RowMembers<'de> {
    pub fn of(text: &'de str) -> Result<RowMembers<'de>, DocumentRowError> {
        serde_json::from_str(text).map_err(|error| DocumentRowError::NotAnObject(error.to_string()))
    }
}

impl<'de> Deserialize<'de> for RowMembers<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<RowMembers<'de>, D::Error> {
        struct All;
        impl<'de> Visitor<'de> for All {
            type Value = RowMembers<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(RowMembers(members))
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
