//! Prints the rows of a statement.
//!
//! Owns the three forms: a table for people, JSON lines and CSV for programs. Invariants: rows are
//! written as they come; a table holds back a page of rows for the widths of its columns, limited
//! in rows and in bytes. Bytes that are no text are never written to a terminal as they are.

use std::collections::BTreeSet;
use std::io;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use comfy_table::{ContentArrangement, Table, presets};
use oribi_sql::ValueRef;
use oribi_sql::database::ResultColumn;
use oribi_sql::json_value::push_json;

use crate::stats::output::StatsOutput;
use crate::stats::text::{clean, push_json_string};

/// Most rows, and about the most bytes, of a page of a table.
const PAGE_ROWS: usize = 1000;
const PAGE_BYTES: usize = 1 << 20;
/// Most bytes of a binary value that a table shows.
const SHOWN_BYTES_MAX: usize = 32;

/// How rows are printed.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Table,
    /// One object a line.
    Json,
    /// A line of names, then one a row.
    Csv,
    /// A Parquet file with the rows of one statement.
    Parquet,
}

/// How rows are printed as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultLines {
    Table,
    Json,
    Csv,
}

impl Format {
    /// The format of this name, of those that are text.
    pub fn named(name: &str) -> Option<Format> {
        match name {
            "table" => Some(Format::Table),
            "json" => Some(Format::Json),
            "csv" => Some(Format::Csv),
            _ => None,
        }
    }

    /// The form of the text; `None` for a file.
    pub fn lines(self) -> Option<ResultLines> {
        match self {
            Format::Table => Some(ResultLines::Table),
            Format::Json => Some(ResultLines::Json),
            Format::Csv => Some(ResultLines::Csv),
            Format::Parquet => None,
        }
    }
}

/// Prints the rows of one statement.
pub struct ResultWriter {
    out: StatsOutput,
    lines: ResultLines,
    names: Vec<String>,
    /// Whether a column is one of JSON documents, which JSON lines contain as documents and not as
    /// strings.
    are_documents: Vec<bool>,
    page: Vec<Vec<String>>,
    page_bytes: usize,
}

impl ResultWriter {
    /// Prints to standard output. A statement without columns prints nothing.
    pub fn stdout(lines: ResultLines, columns: Vec<ResultColumn>) -> io::Result<ResultWriter> {
        ResultWriter::new(StatsOutput::stdout()?, lines, columns)
    }

    fn new(
        out: StatsOutput,
        lines: ResultLines,
        columns: Vec<ResultColumn>,
    ) -> io::Result<ResultWriter> {
        let are_documents = columns.iter().map(ResultColumn::is_document).collect();
        let mut names = columns.into_iter().map(|column| column.name).collect::<Vec<_>>();
        if lines == ResultLines::Json {
            make_distinct(&mut names);
        }
        let mut writer =
            ResultWriter { out, lines, names, are_documents, page: Vec::new(), page_bytes: 0 };
        if lines == ResultLines::Csv && !writer.names.is_empty() {
            let names = writer.names.clone();
            let names = names.iter().map(|name| ValueRef::Text(name.as_bytes()));
            writer.csv(&names.collect::<Vec<_>>());
        }
        Ok(writer)
    }

    /// Prints a row, or keeps it for its page.
    pub fn row(&mut self, values: &[ValueRef<'_>]) -> io::Result<()> {
        match self.lines {
            ResultLines::Json => self.json(values),
            ResultLines::Csv => self.csv(values),
            ResultLines::Table => {
                let row = values.iter().map(|value| shown(*value)).collect::<Vec<_>>();
                self.page_bytes += row.iter().map(String::len).sum::<usize>();
                self.page.push(row);
                if self.page.len() >= PAGE_ROWS || self.page_bytes >= PAGE_BYTES {
                    self.end_page();
                }
            }
        }
        self.out.spill()
    }

    /// Prints what is left.
    pub fn finish(mut self) -> io::Result<()> {
        if !self.page.is_empty() {
            self.end_page();
        }
        self.out.flush()
    }

    fn end_page(&mut self) {
        let mut table = Table::new();
        table.load_style(presets::UTF8_FULL_CONDENSED);
        table.set_content_arrangement(ContentArrangement::Dynamic);
        table.set_header(self.names.iter().map(|name| clean(name.as_bytes())));
        table.add_rows(self.page.drain(..));
        self.page_bytes = 0;
        self.out.block.extend_from_slice(table.to_string().as_bytes());
        self.out.block.push(b'\n');
    }

    fn json(&mut self, values: &[ValueRef<'_>]) {
        let out = &mut self.out.block;
        out.push(b'{');
        for (at, value) in values.iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            push_json_string(out, self.names[at].as_bytes());
            out.push(b':');
            push_json(out, *value, self.are_documents[at]);
        }
        out.extend_from_slice(b"}\n");
    }

    fn csv(&mut self, values: &[ValueRef<'_>]) {
        let out = &mut self.out.block;
        for (at, value) in values.iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            push_csv(out, *value);
        }
        out.extend_from_slice(b"\r\n");
    }
}

/// Gives repeated names a number, because an object has each once.
pub fn make_distinct(names: &mut [String]) {
    let mut known = BTreeSet::new();
    for name in names {
        let mut distinct = name.clone();
        let mut number = 1;
        while !known.insert(distinct.clone()) {
            number += 1;
            distinct = format!("{name}_{number}");
        }
        *name = distinct;
    }
}

fn push_csv(out: &mut Vec<u8>, value: ValueRef<'_>) {
    match value {
        ValueRef::Null => {}
        ValueRef::Integer(number) => {
            out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes())
        }
        ValueRef::Real(number) => out.extend_from_slice(format!("{number:?}").as_bytes()),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => {
            let text = std::str::from_utf8(bytes).map(str::to_owned);
            let text = text.unwrap_or_else(|_| format!("base64:{}", STANDARD.encode(bytes)));
            if text.is_empty() || text.contains([',', '"', '\n', '\r']) {
                out.push(b'"');
                out.extend_from_slice(text.replace('"', "\"\"").as_bytes());
                out.push(b'"');
            } else {
                out.extend_from_slice(text.as_bytes());
            }
        }
    }
}

/// A value for people.
fn shown(value: ValueRef<'_>) -> String {
    match value {
        ValueRef::Null => "NULL".to_owned(),
        ValueRef::Integer(number) => number.to_string(),
        ValueRef::Real(number) => format!("{number:?}"),
        ValueRef::Text(bytes) => clean(bytes),
        ValueRef::Blob(bytes) if std::str::from_utf8(bytes).is_ok() => clean(bytes),
        ValueRef::Blob(bytes) => {
            let start = &bytes[..bytes.len().min(SHOWN_BYTES_MAX)];
            let hex = start.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
            match bytes.len() > SHOWN_BYTES_MAX {
                true => format!("x'{hex}'... ({} bytes)", bytes.len()),
                false => format!("x'{hex}'"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    //! The forms of values.

    use std::io::Read;
    use std::io::Seek;

    use oribi_sql::columns::JSON_TEXT;

    use super::*;

    fn printed(
        lines: ResultLines,
        columns: &[(&str, Option<&str>)],
        values: &[ValueRef<'_>],
    ) -> String {
        let mut file = tempfile::tempfile().unwrap();
        let columns = columns
            .iter()
            .map(|(name, declared)| ResultColumn {
                name: (*name).to_owned(),
                declared: declared.map(str::to_owned),
            })
            .collect();
        let out = StatsOutput::new(file.try_clone().unwrap());
        let mut writer = ResultWriter::new(out, lines, columns).unwrap();
        writer.row(values).unwrap();
        writer.finish().unwrap();
        let mut text = String::new();
        file.rewind().unwrap();
        file.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn json_has_documents_and_every_name_once() {
        let columns = [("id", None), ("id", None), ("json", Some(JSON_TEXT)), ("b", Some("BLOB"))];
        let document = ValueRef::Text(b"{\n\"a\":[1]}");
        let values =
            [ValueRef::Text(b"k\"1"), ValueRef::Integer(-3), document, ValueRef::Blob(&[0xff])];
        assert_eq!(
            printed(ResultLines::Json, &columns, &values),
            "{\"id\":\"k\\\"1\",\"id_2\":-3,\"json\":{ \"a\":[1]},\"b\":{\"base64\":\"/w==\"}}\n"
        );
        let broken = [
            ValueRef::Null,
            ValueRef::Real(f64::INFINITY),
            ValueRef::Text(b"{"),
            ValueRef::Real(0.5),
        ];
        assert_eq!(
            printed(ResultLines::Json, &columns, &broken),
            "{\"id\":null,\"id_2\":null,\"json\":\"{\",\"b\":0.5}\n"
        );
    }

    #[test]
    fn csv_is_quoted_where_it_has_to_be() {
        let columns = [("a,b", None), ("c", None), ("d", None), ("e", None)];
        let values =
            [ValueRef::Text(b"x\"y"), ValueRef::Null, ValueRef::Text(b""), ValueRef::Blob(&[0xff])];
        assert_eq!(
            printed(ResultLines::Csv, &columns, &values),
            "\"a,b\",c,d,e\r\n\"x\"\"y\",,\"\",base64:/w==\r\n"
        );
    }

    #[test]
    fn a_table_shows_nothing_that_a_terminal_obeys() {
        let text = printed(ResultLines::Table, &[("k", None)], &[ValueRef::Text(b"\x1b[2J")]);
        assert!(text.contains("\\x1b[2J") && !text.contains('\x1b'), "{text:?}");
        assert_eq!(shown(ValueRef::Blob(&[0xfe; 40])).len(), 2 * SHOWN_BYTES_MAX + 17);
    }
}
