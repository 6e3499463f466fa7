//! The columns of a bucket's table, and which of them a scan returns.

use anyhow::{Context, Result};
use oribi_kudu::{DataType, FromCell, Row, Schema};

/// Columns that every table of a bucket has.
const COLUMNS: [(&str, DataType); 13] = [
    ("vbucket", DataType::Int16),
    ("collection", DataType::Int64),
    ("key", DataType::String),
    ("chunk", DataType::Int16),
    ("cas", DataType::Int64),
    ("seqno", DataType::Int64),
    ("flags", DataType::Int64),
    ("expiry", DataType::Int64),
    ("datatype", DataType::Int16),
    ("deleted", DataType::Bool),
    ("body_bytes", DataType::Int64),
    ("json", DataType::String),
    ("body", DataType::Binary),
];

/// Columns that every scan returns.
const ALWAYS: [&str; 5] = ["key", "cas", "flags", "expiry", "datatype"];

/// Columns that bodies are in, and by which a document is read again and compared.
const WHOLE: [&str; 8] =
    ["json", "body", "vbucket", "collection", "chunk", "seqno", "deleted", "body_bytes"];

/// True when a table has the columns of a bucket's.
pub fn is_bucket(schema: &Schema) -> bool {
    let key = schema.key_columns().iter().map(|column| column.name());
    let has = |name: &str, data_type| {
        let index = schema.column_index(name);
        index.is_some_and(|index| schema.columns()[index].data_type() == data_type)
    };
    key.eq(["vbucket", "collection", "key", "chunk"])
        && COLUMNS.iter().all(|(name, data_type)| has(name, *data_type))
}

/// Which columns a scan returns, and where.
#[derive(Clone)]
pub struct ScanLayout {
    /// Names of the columns, in the order in which rows have them.
    pub names: Vec<&'static str>,
    /// Whether bodies are read.
    pub needs_body: bool,
}

impl ScanLayout {
    pub fn new(needs_body: bool) -> ScanLayout {
        let mut names = ALWAYS.to_vec();
        if needs_body {
            names.extend(WHOLE);
        }
        ScanLayout { names, needs_body }
    }

    /// The same with the attributes, which may precede a long body.
    pub fn with_attributes(&self) -> ScanLayout {
        let mut layout = ScanLayout::new(true);
        layout.names.push("xattrs");
        layout
    }

    /// A cell, by the name of its column.
    ///
    /// # Errors
    /// When the scan does not return the column, or it has another type.
    pub fn get<'a, T: FromCell<'a>>(&self, row: Row<'a>, name: &str) -> Result<T> {
        let at = self.names.iter().position(|known| *known == name);
        let at = at.with_context(|| format!("the scan has no column {name}"))?;
        row.get(at).with_context(|| format!("column {name}"))
    }
}

#[cfg(test)]
mod tests {
    //! What a scan returns.

    use super::*;

    #[test]
    fn bodies_are_read_only_if_needed() {
        assert!(!ScanLayout::new(false).names.contains(&"json"));
        for name in ["json", "body", "body_bytes"] {
            assert!(ScanLayout::new(true).names.contains(&name));
        }
    }
}
