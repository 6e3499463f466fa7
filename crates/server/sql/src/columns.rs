//! The columns of a table of documents, the same wherever the documents are.

/// Names and declared types.
pub const COLUMNS: [(&str, &str); 13] = [
    ("vbucket", "INTEGER"),
    ("collection", "INTEGER"),
    ("id", "TEXT"),
    ("cas", "INTEGER"),
    ("seqno", "INTEGER"),
    ("rev", "INTEGER"),
    ("flags", "INTEGER"),
    ("expiry", "INTEGER"),
    ("datatype", "INTEGER"),
    ("body_bytes", "INTEGER"),
    ("xattrs", JSON_TEXT),
    ("json", JSON_TEXT),
    ("body", "BLOB"),
];

/// Declared type of a column of JSON: compared as text, printed as a document.
pub const JSON_TEXT: &str = "JSON TEXT";

/// Position in [`COLUMNS`].
pub const VBUCKET: usize = 0;
/// Position in [`COLUMNS`].
pub const COLLECTION: usize = 1;
/// Position in [`COLUMNS`].
pub const ID: usize = 2;
/// Position in [`COLUMNS`].
pub const CAS: usize = 3;
/// Position in [`COLUMNS`].
pub const SEQNO: usize = 4;
/// Position in [`COLUMNS`].
pub const REV: usize = 5;
/// Position in [`COLUMNS`].
pub const FLAGS: usize = 6;
/// Position in [`COLUMNS`].
pub const EXPIRY: usize = 7;
/// Position in [`COLUMNS`].
pub const DATATYPE: usize = 8;
/// Position in [`COLUMNS`].
pub const BODY_BYTES: usize = 9;
/// Position in [`COLUMNS`].
pub const XATTRS: usize = 10;
/// Position in [`COLUMNS`].
pub const JSON: usize = 11;
/// Position in [`COLUMNS`].
pub const BODY: usize = 12;
