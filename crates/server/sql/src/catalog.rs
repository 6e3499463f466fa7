//! The tables that statements may name.
//!
//! It owns the seam to what knows them, and the words for a name that is not among them. A table is
//! looked up when a statement names it, so a bucket with thousands of collections costs nothing.
//! Names are compared as SQLite compares them: ASCII letters of either case are the same.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Result, bail};

use crate::source::TableSource;

/// Names that an error lists, at most.
const LISTED_MAX: usize = 8;

/// How similar a name must be to be suggested, from 0 to 1.
const SIMILAR_MIN: f64 = 0.6;

/// Knows tables by their names.
pub trait Catalog: Send + Sync {
    /// All names.
    ///
    /// # Errors
    /// When they cannot be learned.
    fn names(&self) -> Result<Vec<String>>;

    /// The table with one of these names.
    ///
    /// # Errors
    /// What the user is told when the table cannot be read.
    fn table(&self, name: &str) -> Result<Arc<dyn TableSource>>;
}

/// A fixed set of tables.
impl Catalog for BTreeMap<String, Arc<dyn TableSource>> {
    fn names(&self) -> Result<Vec<String>> {
        Ok(self.keys().cloned().collect())
    }

    fn table(&self, name: &str) -> Result<Arc<dyn TableSource>> {
        match self.get(name) {
            Some(table) => Ok(table.clone()),
            None => bail!("there is no table {name:?}"),
        }
    }
}

/// The table that a statement means.
///
/// # Errors
/// When there is none: then the error suggests names.
pub fn find(catalog: &dyn Catalog, wanted: &str) -> Result<Arc<dyn TableSource>> {
    let names = catalog.names()?;
    let mut matching = names.iter().filter(|name| name.eq_ignore_ascii_case(wanted));
    match (matching.next(), matching.next()) {
        (Some(name), None) => catalog.table(name),
        (Some(first), Some(second)) => bail!(
            "{first:?} and {second:?} differ only in the case of letters, which SQL does not \
             distinguish"
        ),
        _ => bail!("no such table: {wanted}; {}", advice(&names, wanted)),
    }
}

/// What to write instead of a name that is unknown.
fn advice(names: &[String], wanted: &str) -> String {
    if names.is_empty() {
        return "there are no tables (that this user may read)".to_owned();
    }
    let folded = wanted.to_ascii_lowercase();
    let mut similar = names
        .iter()
        .map(|name| (similarity(&name.to_ascii_lowercase(), &folded), name))
        .filter(|(similarity, _)| *similarity >= SIMILAR_MIN)
        .collect::<Vec<_>>();
    similar.sort_by(|(left, _), (right, _)| right.total_cmp(left));
    if let Some((_, name)) = similar.first() {
        return format!("did you mean {}?", quoted(name));
    }
    let listed = names.iter().take(LISTED_MAX).map(|name| quoted(name)).collect::<Vec<_>>();
    let more = match names.len().saturating_sub(LISTED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("there are {}{more}", listed.join(", "))
}

/// 1 for the same name. `scope.collection` is nearly `bucket.scope.collection`.
fn similarity(name: &str, wanted: &str) -> f64 {
    let is_end = name.strip_suffix(wanted).is_some_and(|front| front.ends_with('.'));
    let parts = |text: &str| text.split('.').map(str::to_owned).collect::<Vec<_>>();
    let (have, want) = (parts(name), parts(wanted));
    let has_ends = want.len() == 2 && have.len() == 3 && have[0] == want[0] && have[2] == want[1];
    match is_end || has_ends {
        true => 1.0,
        false => strsim::normalized_damerau_levenshtein(name, wanted),
    }
}

/// A name as statements have to write it.
pub fn quoted(name: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let begins_plain = name.bytes().next().is_some_and(|byte| !byte.is_ascii_digit());
    // Words of SQL need quotes, too; these are the ones that buckets are called.
    let is_word = ["default", "order", "group", "index", "table", "values", "transaction"]
        .iter()
        .any(|word| name.eq_ignore_ascii_case(word));
    match begins_plain && name.bytes().all(is_plain) && !is_word {
        true => name.to_owned(),
        false => format!("\"{}\"", name.replace('"', "\"\"")),
    }
}

#[cfg(test)]
mod tests {
    //! Suggestions.

    use super::*;

    #[test]
    fn unknown_names_suggest_quotes_and_neighbours() {
        let names =
            ["default", "shop", "shop._default._default", "shop.eu.orders"].map(str::to_owned);
        for (wanted, expected) in [
            ("shpo", "did you mean shop?"),
            ("defualt", "did you mean \"default\"?"),
            ("eu.orders", "did you mean \"shop.eu.orders\"?"),
            ("shop.orders", "did you mean \"shop.eu.orders\"?"),
            ("orders", "did you mean \"shop.eu.orders\"?"),
            ("zzz", "there are \"default\", shop, \"shop._default._default\", \"shop.eu.orders\""),
        ] {
            assert_eq!(advice(&names, wanted), expected, "{wanted}");
        }
        assert!(advice(&[], "x").contains("no tables"));
    }

    #[test]
    fn names_that_differ_in_case_only_are_ambiguous() {
        struct Two;
        impl Catalog for Two {
            fn names(&self) -> Result<Vec<String>> {
                Ok(vec!["Shop".to_owned(), "shop".to_owned()])
            }
            fn table(&self, name: &str) -> Result<Arc<dyn TableSource>> {
                bail!("asked for {name}")
            }
        }
        let said = find(&Two, "shop").err().map(|error| error.to_string()).unwrap_or_default();
        assert!(said.contains("differ only in the case"), "{said}");
    }
}
