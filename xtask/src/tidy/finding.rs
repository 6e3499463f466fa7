//! Finding of a rule: a place and a message.

/// One broken rule at one place.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    /// Path relative to the root, with forward slashes.
    pub path: String,
    /// Line, counted from 1; 1 when the whole file is meant.
    pub line: usize,
    /// The fault, and its remedy.
    pub message: String,
}

impl Finding {
    pub(super) fn new(path: &str, line: usize, message: impl Into<String>) -> Finding {
        Finding { path: path.to_owned(), line, message: message.into() }
    }
}
