//! Why a name is not found, and why a manifest does not change.
//!
//! Owns: both errors. Their texts are what the admin HTTP answers.

/// Why a name could not be turned into an id.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LookupError {
    /// No scope has this name.
    #[error("unknown scope")]
    UnknownScope,
    /// The scope has no collection of this name.
    #[error("unknown collection")]
    UnknownCollection,
    /// The name could never exist: wrong length or characters.
    #[error("invalid scope or collection name")]
    InvalidName,
}

/// Why a change was refused or a manifest could not be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ManifestError {
    /// Not 1 to 251 characters of `A-Za-z0-9_-%`, or it starts with `_` or `%`.
    #[error("a name has 1 to 251 characters of A-Z a-z 0-9 _ - % and does not start with _ or %")]
    InvalidName,
    /// The scope is there already.
    #[error("scope exists already")]
    ScopeExists,
    /// The collection is there already.
    #[error("collection exists already")]
    CollectionExists,
    /// There is no such scope.
    #[error("unknown scope")]
    UnknownScope,
    /// The scope has no such collection.
    #[error("unknown collection")]
    UnknownCollection,
    /// The bucket has as many scopes or collections as it may have, or no id is left.
    #[error("too many scopes or collections")]
    TooMany,
    /// `_default` cannot be dropped.
    #[error("_default cannot be dropped")]
    Reserved,
    /// Not a manifest; the text names the fault.
    #[error("corrupt manifest: {0}")]
    Corrupt(String),
}
