//! Records of CSV (RFC 4180) as JSON objects: the first record names the fields.
//!
//! Values are strings, unless types are to be inferred. Then the JSON forms of numbers, `true`,
//! `false` and `null` stand for themselves; a number with leading zeros has no such form and stays
//! a string.
//!
//! No crate parses it, because the usual ones read damaged quoting (`"1"x`) as a value. Here it
//! ends the import.

use std::collections::HashSet;

use anyhow::{Context, bail};
use bytes::Bytes;
use serde_json::Value;

/// The names of the fields.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CsvHeader {
    names: Vec<String>,
    separator: u8,
}

/// How values are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CsvValues {
    /// Numbers, `true`, `false` and `null` are no strings.
    pub infer_types: bool,
    /// Fields without a value are left out.
    pub omit_empty: bool,
}

impl CsvHeader {
    /// Parses the first record.
    pub fn parse(record: &[u8], separator: u8) -> anyhow::Result<CsvHeader> {
        // Spreadsheets mark UTF-8 like this.
        let record = record.strip_prefix(b"\xef\xbb\xbf").unwrap_or(record);
        let end = record.len() - record.iter().rev().take_while(|b| b"\r\n".contains(b)).count();
        let mut names = Vec::new();
        let mut known = HashSet::new();
        for name in fields(&record[..end], separator).context("the field names")? {
            if name.is_empty() {
                bail!("field {} has no name", names.len() + 1);
            }
            if known.contains(&name) {
                bail!("two fields have the name {name:?}");
            }
            names.push(serde_json::to_string(&name).context("a field name")?);
            known.insert(name);
        }
        Ok(CsvHeader { names, separator })
    }

    /// The object that a record is.
    pub fn object_of(&self, record: &[u8], values: CsvValues) -> anyhow::Result<Bytes> {
        let fields = fields(record, self.separator)?;
        if fields.len() != self.names.len() {
            bail!("{} fields, and the first line names {}", fields.len(), self.names.len());
        }
        let mut object = String::with_capacity(record.len() * 2);
        for (name, value) in self.names.iter().zip(&fields) {
            if value.is_empty() && values.omit_empty {
                continue;
            }
            object.push(if object.is_empty() { '{' } else { ',' });
            object.push_str(name);
            object.push(':');
            match values.infer_types && is_literal(value) {
                true => object.push_str(value),
                false => object.push_str(&serde_json::to_string(value).context("a value")?),
            }
        }
        object.push_str(if object.is_empty() { "{}" } else { "}" });
        Ok(object.into())
    }
}

/// True for text that is a JSON number, `true`, `false` or `null`.
fn is_literal(text: &str) -> bool {
    let is_scalar = |value: &Value| !value.is_string() && !value.is_array() && !value.is_object();
    text.trim().len() == text.len()
        && serde_json::from_str(text).is_ok_and(|value| is_scalar(&value))
}

fn fields(record: &[u8], separator: u8) -> anyhow::Result<Vec<String>> {
    let mut rest = std::str::from_utf8(record).context("not UTF-8")?;
    let separator = char::from(separator);
    let mut fields = Vec::new();
    loop {
        let (field, behind) = match rest.strip_prefix('"') {
            Some(quoted) => unquoted(quoted)?,
            None => {
                let end = rest.find(separator).unwrap_or(rest.len());
                (rest[..end].to_owned(), &rest[end..])
            }
        };
        fields.push(field);
        if behind.is_empty() {
            return Ok(fields);
        }
        let Some(next) = behind.strip_prefix(separator) else {
            bail!("field {} has text behind its quotes", fields.len());
        };
        rest = next;
    }
}

/// The content of a quoted field, and the text after its closing quote.
fn unquoted(text: &str) -> anyhow::Result<(String, &str)> {
    let (mut field, mut rest) = (String::new(), text);
    loop {
        let (before, behind) = rest.split_once('"').context("a quote has no end")?;
        field.push_str(before);
        match behind.strip_prefix('"') {
            Some(behind) => {
                field.push('"');
                rest = behind;
            }
            None => return Ok((field, behind)),
        }
    }
}

#[cfg(test)]
mod tests {
    //! Records as spreadsheets and programs write them.

    use super::*;

    fn object(record: &str, values: CsvValues) -> Result<String, String> {
        let names = "\u{feff}id,\"the \"\"name\"\"\",n\r\n";
        let header = CsvHeader::parse(names.as_bytes(), b',').expect("a header");
        let object = header.object_of(record.as_bytes(), values);
        let object = object.map_err(|error| error.to_string())?;
        serde_json::from_slice::<Value>(&object).expect("JSON");
        Ok(String::from_utf8(object.to_vec()).expect("text"))
    }

    #[test]
    fn records_are_objects() {
        let (text, typed) =
            (CsvValues::default(), CsvValues { infer_types: true, omit_empty: true });
        for (record, as_text, as_typed) in [
            (
                "1,a,2",
                r#"{"id":"1","the \"name\"":"a","n":"2"}"#,
                r#"{"id":1,"the \"name\"":"a","n":2}"#,
            ),
            (
                "007,,true",
                r#"{"id":"007","the \"name\"":"","n":"true"}"#,
                r#"{"id":"007","n":true}"#,
            ),
            (
                "\"a,\nb\",\"\"\"q\"\"\",1e3",
                r#"{"id":"a,\nb","the \"name\"":"\"q\"","n":"1e3"}"#,
                r#"{"id":"a,\nb","the \"name\"":"\"q\"","n":1e3}"#,
            ),
            (",,", r#"{"id":"","the \"name\"":"","n":""}"#, "{}"),
        ] {
            assert_eq!(object(record, text).as_deref(), Ok(as_text));
            assert_eq!(object(record, typed).as_deref(), Ok(as_typed));
        }
    }

    #[test]
    fn records_that_do_not_fit_are_refused() {
        for (record, reason) in [
            ("1,2", "2 fields, and the first line names 3"),
            ("1,2,3,4", "4 fields, and the first line names 3"),
            ("\"1\"x,2,3", "field 1 has text behind its quotes"),
            ("\"1", "a quote has no end"),
        ] {
            assert_eq!(object(record, CsvValues::default()), Err(reason.to_owned()), "{record}");
        }
        for names in ["a,", "a,b,a", "\"a"] {
            CsvHeader::parse(names.as_bytes(), b',').expect_err(names);
        }
    }
}
