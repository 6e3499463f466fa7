//! The columns of a bucket's table: what SQL shows, what Kudu has, and which of them a scan
//! returns.

use anyhow::{Context, Result};
use oribi_kudu::{DataType, Row};
use oribi_sql::columns::{BODY, JSON, JSON_TEXT, XATTRS};

/// Columns of SQL, their declared types, and Kudu's columns.
pub const COLUMNS: [(&str, &str, &str, DataType); 13] = [
    ("vbucket", "INTEGER", "vbucket", DataType::Int16),
    ("collection", "INTEGER", "collection", DataType::Int64),
    ("id", "TEXT", "key", DataType::String),
    ("cas", "INTEGER", "cas", DataType::Int64),
    ("seqno", "INTEGER", "seqno", DataType::Int64),
    ("rev", "INTEGER", "rev", DataType::Int64),
    ("flags", "INTEGER", "flags", DataType::Int64),
    ("expiry", "INTEGER", "expiry", DataType::Int64),
    ("datatype", "INTEGER", "datatype", DataType::Int16),
    ("body_bytes", "INTEGER", "body_bytes", DataType::Int64),
    ("xattrs", JSON_TEXT, "xattrs", DataType::Binary),
    ("json", JSON_TEXT, "json", DataType::String),
    ("body", "BLOB", "body", DataType::Binary),
];
/// Columns of Kudu that say what a document is, and by which it is read again and compared.
const WHOLE: [&str; 8] =
    ["datatype", "vbucket", "collection", "key", "chunk", "seqno", "deleted", "body_bytes"];

/// Which columns of Kudu a scan returns, and where.
#[derive(Clone)]
pub struct SqlLayout {
    /// Names of the columns, in the order in which rows have them.
    pub names: Vec<&'static str>,
    /// Positions of the columns of SQL that were asked for.
    pub positions: [Option<usize>; COLUMNS.len()],
    /// Whether bodies are shown.
    pub needs_body: bool,
}

impl SqlLayout {
    /// What a scan for these columns of SQL needs.
    pub fn new(columns: &[usize]) -> SqlLayout {
        let needs_body = columns.contains(&JSON) || columns.contains(&BODY);
        let mut layout =
            SqlLayout { names: Vec::new(), positions: [None; COLUMNS.len()], needs_body };
        for column in columns.iter().filter(|column| **column < COLUMNS.len()) {
            layout.positions[*column] = Some(layout.add(COLUMNS[*column].2));
        }
        layout.add("expiry");
        if needs_body {
            // JSON that is compressed is there, too; bodies of JSON that is not are NULL.
            layout.add("body");
        }
        if needs_body || columns.contains(&XATTRS) {
            for name in WHOLE {
                layout.add(name);
            }
        }
        layout
    }

    /// The same with all columns that showing a document requires.
    pub fn with_all_columns(&self) -> SqlLayout {
        let mut layout = self.clone();
        layout.needs_body = true;
        for name in ["xattrs", "json", "body"] {
            layout.add(name);
        }
        layout
    }

    /// The position of a column, which is added if it is not there yet.
    fn add(&mut self, name: &'static str) -> usize {
        self.position(name).unwrap_or_else(|| {
            self.names.push(name);
            self.names.len() - 1
        })
    }

    /// The position of a column of Kudu.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|known| *known == name)
    }

    /// A cell that the scan returns, by the name of Kudu's column.
    pub fn get<'a, T: oribi_kudu::FromCell<'a>>(&self, row: Row<'a>, name: &str) -> Result<T> {
        let at = self.position(name).with_context(|| format!("{name} was not asked for"))?;
        row.get(at).with_context(|| format!("column {name}"))
    }

    /// The same, of a column that need not have been asked for.
    pub fn find<'a, T: oribi_kudu::FromCell<'a>>(
        &self,
        row: Row<'a>,
        name: &str,
    ) -> Result<Option<T>> {
        self.position(name).map(|_| self.get(row, name)).transpose()
    }
}

#[cfg(test)]
mod tests {
    //! What a scan returns.

    use oribi_sql::columns::ID;

    use super::*;

    #[test]
    fn the_columns_are_those_of_every_table_of_documents() {
        let shown = COLUMNS.map(|(name, declared, _, _)| (name, declared));
        assert_eq!(shown, oribi_sql::columns::COLUMNS);
    }

    #[test]
    fn no_body_is_read_that_nobody_asked_for() {
        assert_eq!(SqlLayout::new(&[]).names, ["expiry"]);
        assert_eq!(SqlLayout::new(&[ID, 7]).names, ["key", "expiry"]);
        assert!(!SqlLayout::new(&[ID, 9]).needs_body);
        // Binary bodies alone do not need those of JSON; JSON may be compressed, and is a body
        // then.
        assert!(!SqlLayout::new(&[BODY]).names.contains(&"json"));
        assert!(SqlLayout::new(&[JSON]).names.contains(&"body"));
        assert!(!SqlLayout::new(&[XATTRS]).names.contains(&"body"));
    }
}
