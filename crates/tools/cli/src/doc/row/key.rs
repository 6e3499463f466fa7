//! Where the key of an imported document comes from: one of its fields, or a template of several.
//!
//! A template is text with fields in braces: `{type}::{id}`. `{a.b}` is the field `b` of the object
//! in field `a`, unless there is a field of that whole name. Doubled braces stand for themselves.
//! Fields are strings or whole numbers, as in the key field.

use std::borrow::Cow;
use std::fmt;

use serde_json::Value;
use serde_json::value::RawValue;

use super::error::DocumentRowError;
use super::members::{RowMembers, key_text};

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum KeySource {
    /// A field that is the key.
    Field(String),
    /// Several fields make it.
    Template(KeyTemplate),
}

/// See the module text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyTemplate(Vec<Part>);

#[derive(Clone, PartialEq, Eq, Debug)]
enum Part {
    Text(String),
    Field(String),
}

impl std::str::FromStr for KeyTemplate {
    type Err = String;

    fn from_str(text: &str) -> Result<KeyTemplate, String> {
        let (mut parts, mut literal) = (Vec::new(), String::new());
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            literal.push_str(&rest[..at]);
            let (brace, behind) = rest[at..].split_at(1);
            if let Some(behind) = behind.strip_prefix(brace) {
                literal.push_str(brace);
                rest = behind;
                continue;
            }
            let end = behind.find('}').filter(|_| brace == "{");
            let end =
                end.ok_or("a brace without its partner (doubled ones stand for themselves)")?;
            if end == 0 {
                return Err("a field has a name, as in {id}".to_owned());
            }
            parts.extend((!literal.is_empty()).then(|| Part::Text(std::mem::take(&mut literal))));
            parts.push(Part::Field(behind[..end].to_owned()));
            rest = &behind[end + 1..];
        }
        literal.push_str(rest);
        parts.extend((!literal.is_empty()).then_some(Part::Text(literal)));
        match parts.iter().any(|part| matches!(part, Part::Field(_))) {
            true => Ok(KeyTemplate(parts)),
            false => Err("without a field, all documents would have one key".to_owned()),
        }
    }
}

impl fmt::Display for KeyTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in &self.0 {
            match part {
                Part::Text(text) => f.write_str(&text.replace('{', "{{").replace('}', "}}"))?,
                Part::Field(name) => write!(f, "{{{name}}}")?,
            }
        }
        Ok(())
    }
}

impl KeyTemplate {
    /// The key of a document.
    pub fn key_of(&self, document: &str) -> Result<Vec<u8>, DocumentRowError> {
        let RowMembers(members) = RowMembers::of(document)?;
        let mut key = Vec::new();
        for part in &self.0 {
            match part {
                Part::Text(text) => key.extend_from_slice(text.as_bytes()),
                Part::Field(name) => {
                    let value = value_at(&members, name)?;
                    let text = key_text(&value)
                        .ok_or_else(|| DocumentRowError::KeyOfWrongKind(name.clone()))?;
                    key.extend_from_slice(text.as_bytes());
                }
            }
        }
        Ok(key)
    }
}

fn value_at(members: &[(Cow<'_, str>, &RawValue)], path: &str) -> Result<Value, DocumentRowError> {
    let member = |name: &str| members.iter().rev().find(|(known, _)| known == name);
    let missing = || DocumentRowError::NoField(path.to_owned());
    let (first, rest) = match member(path) {
        Some(_) => (path, None),
        None => {
            path.split_once('.').map(|(first, rest)| (first, Some(rest))).ok_or_else(missing)?
        }
    };
    let (_, raw) = member(first).ok_or_else(missing)?;
    let value: Value = serde_json::from_str(raw.get()).map_err(|_| missing())?;
    let Some(rest) = rest else { return Ok(value) };
    let found = rest.split('.').try_fold(&value, |value, name| value.get(name));
    found.cloned().ok_or_else(missing)
}

#[cfg(test)]
mod tests {
    //! Templates, the keys that they make, and what they cannot do.

    use super::*;

    fn key(template: &str, document: &str) -> Result<String, String> {
        let template: KeyTemplate = template.parse().expect("a template");
        let key = template.key_of(document).map_err(|error| error.to_string())?;
        Ok(String::from_utf8(key).expect("text"))
    }

    #[test]
    fn fields_make_keys() {
        let document = r#"{"type":"user","id":7,"a":{"b":{"c":"x"}},"a.b.d":"flat","t":1.5}"#;
        for (template, expected) in [
            ("{type}::{id}", "user::7"),
            ("{id}", "7"),
            ("{{{id}}}", "{7}"),
            ("k-{a.b.c}-{a.b.d}", "k-x-flat"),
        ] {
            assert_eq!(key(template, document).as_deref(), Ok(expected), "{template}");
            let parsed: KeyTemplate = template.parse().expect("a template");
            assert_eq!(parsed.to_string(), template);
        }
        for (template, reason) in [
            ("{type}::{name}", "no field \"name\""),
            ("{a.b.x}", "no field \"a.b.x\""),
            ("{a}", "field \"a\" is neither a string nor a whole number"),
            ("{t}", "field \"t\" is neither a string nor a whole number"),
        ] {
            let error = key(template, document).expect_err(template);
            assert!(error.starts_with(reason), "{error}");
        }
        assert!(key("{a}", "[1]").expect_err("no object").starts_with("not a JSON object"));
    }

    #[test]
    fn templates_without_sense_are_refused() {
        for template in ["", "key", "{", "}", "{a", "a}", "{}", "{{a}}", "{a}}"] {
            template.parse::<KeyTemplate>().expect_err(template);
        }
    }
}
