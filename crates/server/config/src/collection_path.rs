//! A collection as settings, users and files name it.

use std::fmt;
use std::str::FromStr;

/// A collection by its name: `SCOPE.COLLECTION`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CollectionPath {
    /// Name of the scope.
    pub scope: String,
    /// Name of the collection in it.
    pub collection: String,
}

impl FromStr for CollectionPath {
    type Err = String;

    fn from_str(text: &str) -> Result<CollectionPath, String> {
        match text
            .split_once('.')
            .filter(|(scope, name)| is_collection_name(scope) && is_collection_name(name))
        {
            Some((scope, name)) => {
                let path = CollectionPath { scope: scope.to_owned(), collection: name.to_owned() };
                debug_assert_eq!(path.to_string(), text, "a path is shown as it is written");
                Ok(path)
            }
            None => Err(format!("{text:?} is not the name of a collection: SCOPE.COLLECTION")),
        }
    }
}

impl fmt::Display for CollectionPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.scope, self.collection)
    }
}

/// True for a possible name of a scope or collection, `_default` included.
pub fn is_collection_name(name: &str) -> bool {
    (1..=251).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-%".contains(&byte))
}
