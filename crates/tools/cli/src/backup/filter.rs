//! Which documents are meant, by collection and key.

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
    key_pattern: Option<Regex>,
}

/// A filter that is ready for use.
#[derive(Clone)]
pub struct BackupFilter {
    /// Paths with their scope, sorted; empty for all.
    pub collections: Vec<String>,
    key_pattern: Option<Regex>,
}

impl FilterArgs {
    /// The filter that they describe.
    pub fn filter(&self) -> BackupFilter {
        let with_scope = |path: &String| match path.contains('.') {
            true => path.clone(),
            false => format!("_default.{path}"),
        };
        let mut collections: Vec<String> = self.collection.iter().map(with_scope).collect();
        collections.sort();
        collections.dedup();
        BackupFilter { collections, key_pattern: self.key_pattern.clone() }
    }
}

impl BackupFilter {
    /// True when the collection is meant.
    pub fn has_collection(&self, path: &str) -> bool {
        self.collections.is_empty() || self.collections.iter().any(|wanted| wanted == path)
    }

    /// Expression that keys match.
    pub fn key_pattern(&self) -> Option<String> {
        self.key_pattern.as_ref().map(Regex::to_string)
    }

    /// True when the key is meant.
    pub fn has_key(&self, key: &[u8]) -> bool {
        self.key_pattern.as_ref().is_none_or(|pattern| pattern.is_match(key))
    }
}
