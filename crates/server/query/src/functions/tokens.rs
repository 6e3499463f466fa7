//! Words of texts, at any depth of a value.

use std::collections::HashSet;

use super::function::{Function, array, free, strict};
use crate::error::Result;
use crate::operators::containment::descend;
use crate::runtime::Runtime;
use crate::value::{QueryValue, Text, key};

pub const TABLE: &[Function] = &[
    free("TOKENS", 1, 2, |args, rt| {
        if args.iter().any(QueryValue::is_missing) {
            return Ok(QueryValue::Missing);
        }
        array(tokens(&args[0], args.get(1), rt)?)
    }),
    strict("CONTAINS_TOKEN", 2, 3, |args, rt| {
        let found = tokens(&args[0], args.get(2), rt)?;
        Ok(QueryValue::Bool(found.contains(&args[1])))
    }),
    strict("CONTAINS_TOKEN_LIKE", 2, 3, |args, rt| {
        let Some(pattern) = args[1].as_text() else { return Ok(QueryValue::Null) };
        let like = rt.like(pattern, &Text::from("\\"))?;
        any_text(args, rt, |text| like.matches(text.as_bytes(), &mut |bytes| rt.work(bytes)))
    }),
    strict("CONTAINS_TOKEN_REGEXP", 2, 3, |args, rt| {
        let Some(pattern) = args[1].as_text() else { return Ok(QueryValue::Null) };
        rt.regex(pattern)?;
        let whole = rt.regex(&Text::from(format!("^(?:{pattern})$")))?;
        any_text(args, rt, |text| {
            let text = text.to_str();
            Ok(whole.search(text.len(), rt)?.is_match(&text))
        })
    }),
];

fn any_text(
    args: &[QueryValue],
    rt: &Runtime<'_>,
    is_wanted: impl Fn(&Text) -> Result<bool>,
) -> Result<QueryValue> {
    let found = tokens(&args[0], args.get(2), rt)?;
    for text in found.iter().filter_map(QueryValue::as_text) {
        rt.turn()?;
        if is_wanted(text)? {
            return Ok(QueryValue::Bool(true));
        }
    }
    Ok(QueryValue::Bool(false))
}

/// The distinct words, numbers, booleans and nulls of a value. Options: `case` (`lower`, `upper`),
/// `names` (field names too), `specials` (words joined by marks too).
fn tokens(
    value: &QueryValue,
    options: Option<&QueryValue>,
    rt: &Runtime<'_>,
) -> Result<Vec<QueryValue>> {
    let option = |name: &str| options.map(|options| options.field(name.as_bytes()));
    let case = match option("case") {
        Some(QueryValue::Str(case)) => case.to_string(),
        _ => String::new(),
    };
    let names = !matches!(option("names"), Some(QueryValue::Bool(false)));
    let specials = option("specials").is_some_and(|specials| specials.truth());
    let mut found = DistinctTokens { seen: HashSet::new(), list: Vec::new(), case, specials };
    found.add_value(value, rt)?;
    descend(value, rt, &mut |position, part| {
        rt.turn()?;
        if names && let QueryValue::Str(name) = &position {
            found.add_text(name, rt)?;
        }
        found.add_value(part, rt)?;
        Ok(true)
    })?;
    Ok(found.list)
}

struct DistinctTokens {
    seen: HashSet<Vec<u8>>,
    list: Vec<QueryValue>,
    case: String,
    specials: bool,
}

impl DistinctTokens {
    fn add(&mut self, value: QueryValue, rt: &Runtime<'_>) -> Result<()> {
        let mut bytes = Vec::new();
        key::append(&value, &mut bytes);
        if !self.seen.contains(&bytes) {
            rt.scratch_keys(std::slice::from_ref(&value))?;
            rt.scratch(value.byte_count())?;
            self.seen.insert(bytes);
            self.list.push(value);
        }
        debug_assert!(self.list.len() == self.seen.len(), "a token is listed once");
        Ok(())
    }

    fn add_value(&mut self, value: &QueryValue, rt: &Runtime<'_>) -> Result<()> {
        match value {
            QueryValue::Str(text) => self.add_text(text, rt),
            value if value.is_array() || value.is_object() => Ok(()),
            value => self.add(value.clone(), rt),
        }
    }

    fn add_text(&mut self, text: &Text, rt: &Runtime<'_>) -> Result<()> {
        // A copy, and one in the other case.
        rt.scratch(3 * text.as_bytes().len())?;
        let mut text = text.to_string();
        match self.case.as_str() {
            "lower" => text = text.to_lowercase(),
            "upper" => text = text.to_uppercase(),
            _ => {}
        }
        let is_letter = |c: char| c.is_alphanumeric() || c == '_';
        for word in text.split(|c| !is_letter(c)).filter(|word| !word.is_empty()) {
            self.add(QueryValue::from(word), rt)?;
        }
        if self.specials {
            for word in text.split_whitespace() {
                self.add(QueryValue::from(word), rt)?;
            }
        }
        Ok(())
    }
}
