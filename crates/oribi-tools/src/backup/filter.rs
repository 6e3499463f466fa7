//! Which documents are meant, by collection and key.

use anyhow::Context;
use clap::Args;
use regex::bytes::Regex;

/// See the module text.
#[derive(Args, Clone, Debug)]
pub struct FilterArgs {
    /// Only this collection, as scope.collection; may be given several times.
    #[arg(long, value_name = "PATH")]
    collection: Vec<String>,
    /// Only documents whose key matches this regular expression.
    #[arg(long, value_name = "REGEX")]
    key_pattern: Option<String>,
}

/// A filter that is ready for use.
#[derive(Clone)]
pub struct Filter {
    /// Paths with their scope, sorted; empty for all.
    pub collections: Vec<String>,
    /// Expression that keys match.
    pub key_pattern: Option<String>,
    regex: Option<Regex>,
}

impl FilterArgs {
    /// Reads the expression.
    pub fn filter(&self) -> anyhow::Result<Filter> {
        let with_scope = |path: &String| match path.contains('.') {
            true => path.clone(),
            false => format!("_default.{path}"),
        };
        let mut collections: Vec<String> = self.collection.iter().map(with_scope).collect();
        collections.sort();
        collections.dedup();
        let regex = self.key_pattern.as_deref().map(Regex::new).transpose();
        let regex = regex.context("--key-pattern")?;
        Ok(Filter { collections, key_pattern: self.key_pattern.clone(), regex })
    }
}

impl Filter {
    /// True when the collection is meant.
    pub fn has_collection(&self, path: &str) -> bool {
        self.collections.is_empty() || self.collections.iter().any(|wanted| wanted == path)
    }

    /// True when the key is meant.
    pub fn has_key(&self, key: &[u8]) -> bool {
        self.regex.as_ref().is_none_or(|regex| regex.is_match(key))
    }
}
