//! The hints of a statement to a scan: conditions on fields, and the fields that it reads.
//!
//! Keyspaces that can filter where documents are get them with each scan; others never do.
//! Invariant: every condition is checked again on each document, so a keyspace may ignore any.

/// Conditions and fields by which a scan may skip data.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScanHints {
    /// All hold for every document that the statement wants.
    pub conditions: Vec<FieldCondition>,
    /// The fields that are read; `None` for whole documents. Others may be missing.
    pub fields: Option<Vec<String>>,
}

/// A condition on a top-level field.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldCondition {
    pub field: String,
    pub operator: FieldOperator,
    /// One value, or those of `In`; none for tests.
    pub values: Vec<FieldValue>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldOperator {
    Equal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
    IsNull,
    /// Neither null nor missing.
    IsValued,
}

/// A value to compare with.
#[derive(Clone, Debug, PartialEq)]
pub enum FieldValue {
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(Vec<u8>),
    /// Null, missing, or a container.
    Other,
}
