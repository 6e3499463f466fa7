//! A row of a result: its fields in order, as JSON texts.
//!
//! A row that is no object, as of `SELECT RAW`, has one field.

use std::fmt;

use anyhow::{Context, Result};
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The name of a bare value.
const BARE_NAME: &str = "$1";

/// See the module text.
#[derive(Debug)]
pub struct OutputRow<'a> {
    pub fields: Vec<(String, &'a str)>,
}

impl<'a> OutputRow<'a> {
    /// Takes a row apart.
    ///
    /// # Errors
    /// When it is no JSON.
    pub fn parse(json: &'a [u8]) -> Result<OutputRow<'a>> {
        let json = json.trim_ascii();
        if json.first() == Some(&b'{') {
            let mut deserializer = serde_json::Deserializer::from_slice(json);
            let fields = deserializer.deserialize_map(FieldVisitor).context("a row")?;
            return Ok(OutputRow { fields });
        }
        let text = std::str::from_utf8(json).context("a row")?;
        Ok(OutputRow { fields: vec![(BARE_NAME.to_owned(), text)] })
    }

    /// The names of a signature, when it names all fields.
    pub fn names_in_signature(signature: &str) -> Option<Vec<String>> {
        if signature == "\"json\"" || !signature.starts_with('{') {
            return None;
        }
        let row = OutputRow::parse(signature.as_bytes()).ok()?;
        let names: Vec<String> = row.fields.into_iter().map(|(name, _)| name).collect();
        (!names.is_empty() && names.iter().all(|name| name != "*")).then_some(names)
    }
}

struct FieldVisitor;

impl<'de> Visitor<'de> for FieldVisitor {
    type Value = Vec<(String, &'de str)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields = Vec::new();
        while let Some((name, value)) = map.next_entry::<String, &RawValue>()? {
            fields.push((name, value.get()));
        }
        Ok(fields)
    }
}

/// The text of a JSON string; `None` for another value.
pub fn string_in(json: &str) -> Option<String> {
    if !json.starts_with('"') {
        return None;
    }
    serde_json::from_str(json).ok()
}

#[cfg(test)]
mod tests {
    //! Rows and signatures.

    use super::*;

    #[test]
    fn fields_keep_their_order() {
        let row = OutputRow::parse(br#"{"b":[1, 2],"a\n":"x","c":-1.50}"#).unwrap();
        let expected = [("b", "[1, 2]"), ("a\n", "\"x\""), ("c", "-1.50")];
        assert_eq!(row.fields, expected.map(|(name, value)| (name.to_owned(), value)));
        assert_eq!(OutputRow::parse(b" [1]").unwrap().fields, [("$1".to_owned(), "[1]")]);
        assert!(OutputRow::parse(b"{\"a\":").is_err());
    }

    #[test]
    fn signatures_with_a_star_name_no_columns() {
        let names = |text: &str| OutputRow::names_in_signature(text);
        let both = Some(vec!["b".to_owned(), "a".to_owned()]);
        assert_eq!(names(r#"{"b":"json","a":"json"}"#), both);
        for text in [r#"{"*":"*"}"#, "\"json\"", "null", "", "{}"] {
            assert_eq!(names(text), None, "{text}");
        }
    }
}
