//! Why an operation on a path failed: the protocol's sub-document statuses, one for one.

/// Outcome of an operation without effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SubdocError {
    /// The path leads nowhere.
    PathEnoent,
    /// The path expects an object, an array or a number where there is something else.
    PathMismatch,
    /// The path is malformed, or the operation does not take it.
    PathEinval,
    /// The path is too long or has too many components.
    PathE2big,
    /// The walk met containers nested beyond [`crate::limits::DEPTH_MAX`].
    DocE2deep,
    /// The value is not JSON, not of the kind the operation takes, or a counter would overflow.
    ValueCantinsert,
    /// The document is not JSON.
    DocNotJson,
    /// The number at the path does not fit 64 bits.
    NumErange,
    /// The delta is 0, not an integer, or does not fit 64 bits.
    DeltaEinval,
    /// A value already exists at the path.
    PathEexists,
    /// The value would be nested beyond [`crate::limits::DEPTH_MAX`].
    ValueEtoodeep,
}
