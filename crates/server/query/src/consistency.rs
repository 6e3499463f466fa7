//! How fresh the indexes of a statement are.

/// How fresh index scans must be.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Consistency {
    /// Whatever the index has.
    #[default]
    NotBounded,
    /// All writes acknowledged before the request.
    RequestPlus,
    /// The vectors of `scan_vectors` as JSON text.
    AtPlus(String),
}
