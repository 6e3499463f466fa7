//! Prints the rows of a statement.
//!
//! Owns the three forms: a table for people, JSON lines and CSV for programs. Invariants: rows are
//! written as they come; a table and CSV hold back a page of rows for their columns, limited in
//! rows and in bytes. Text that a terminal obeys is never written to a table as it is.

use std::io;

use anyhow::{Result, bail};
use comfy_table::{ContentArrangement, Table, presets};

use super::columns::OutputColumns;
use super::row::{OutputRow, string_in};
use crate::stats::output::StatsOutput;
use crate::stats::text::clean;

/// Most rows, and about the most bytes, of a page.
const PAGE_ROWS: usize = 1000;
const PAGE_BYTES: usize = 1 << 20;

/// How rows are printed.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Table,
    /// One row a line, as the statement makes it.
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
    columns: OutputColumns,
    /// Rows that wait for their columns, by their places in them; none for a missing field.
    page: Vec<Vec<Option<String>>>,
    page_bytes: usize,
    has_header: bool,
}

impl ResultWriter {
    /// Prints to standard output.
    pub fn stdout(lines: ResultLines, signature: &str) -> io::Result<ResultWriter> {
        Ok(ResultWriter::new(StatsOutput::stdout()?, lines, signature))
    }

    fn new(out: StatsOutput, lines: ResultLines, signature: &str) -> ResultWriter {
        let columns = OutputColumns::of_signature(signature);
        let (page, page_bytes, has_header) = (Vec::new(), 0, false);
        ResultWriter { out, lines, columns, page, page_bytes, has_header }
    }

    /// Prints a row, or keeps it for its page.
    ///
    /// # Errors
    /// When it cannot be written, or has a field that the header of a CSV file lacks.
    pub fn row(&mut self, json: &[u8]) -> Result<()> {
        if self.lines == ResultLines::Json {
            self.out.block.extend_from_slice(json);
            self.out.block.push(b'\n');
            return Ok(self.out.spill()?);
        }
        let row = OutputRow::parse(json)?;
        let shown = if self.lines == ResultLines::Csv { csv_cell } else { table_cell };
        let mut cells = vec![None; self.columns.len()];
        for (name, value) in row.fields {
            let at = match self.columns.position(&name) {
                Some(at) => at,
                None if self.has_header => bail!(
                    "a row has the field {name:?}, which the rows before have not: name the fields \
                     in SELECT, or use --format json"
                ),
                None => self.columns.add(name),
            };
            cells.resize(cells.len().max(at + 1), None);
            let cell = shown(value);
            self.page_bytes += cell.len();
            cells[at] = Some(cell);
        }
        self.page.push(cells);
        if self.page.len() >= PAGE_ROWS || self.page_bytes >= PAGE_BYTES {
            self.end_page();
        }
        Ok(self.out.spill()?)
    }

    /// Prints the rest.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn finish(mut self) -> io::Result<()> {
        let has_names = self.columns.len() > 0;
        if !self.page.is_empty() || (self.lines == ResultLines::Csv && has_names) {
            self.end_page();
        }
        self.out.flush()
    }

    fn end_page(&mut self) {
        match self.lines {
            ResultLines::Table => self.end_table(),
            ResultLines::Csv => self.end_lines(),
            ResultLines::Json => {}
        }
        self.page_bytes = 0;
    }

    fn end_table(&mut self) {
        let width = self.columns.len();
        let mut table = Table::new();
        table.load_style(presets::UTF8_FULL_CONDENSED);
        table.set_content_arrangement(ContentArrangement::Dynamic);
        table.set_header(self.columns.names().iter().map(|name| clean(name.as_bytes())));
        table.add_rows(self.page.drain(..).map(|mut cells| {
            cells.resize(width, None);
            cells.into_iter().map(Option::unwrap_or_default).collect::<Vec<_>>()
        }));
        self.out.block.extend_from_slice(table.to_string().as_bytes());
        self.out.block.push(b'\n');
        // The next page has other columns.
        self.columns.forget_added();
    }

    fn end_lines(&mut self) {
        if !std::mem::replace(&mut self.has_header, true) {
            let names = self.columns.names().iter().map(|name| quoted_csv(name));
            let line = names.collect::<Vec<_>>().join(",");
            self.out.block.extend_from_slice(line.as_bytes());
            self.out.block.extend_from_slice(b"\r\n");
        }
        let width = self.columns.len();
        for mut cells in self.page.drain(..) {
            cells.resize(width, None);
            let cells: Vec<String> = cells.into_iter().map(Option::unwrap_or_default).collect();
            self.out.block.extend_from_slice(cells.join(",").as_bytes());
            self.out.block.extend_from_slice(b"\r\n");
        }
    }
}

/// A value in a line of CSV. Null is an empty cell, and an empty text is quoted.
fn csv_cell(json: &str) -> String {
    match string_in(json) {
        Some(text) => quoted_csv(&text),
        None if json == "null" => String::new(),
        None => quoted_csv(json),
    }
}

fn quoted_csv(text: &str) -> String {
    match text.is_empty() || text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

/// A value for people.
fn table_cell(json: &str) -> String {
    clean(string_in(json).as_deref().unwrap_or(json).as_bytes())
}

#[cfg(test)]
mod tests {
    //! The forms of values.

    use std::io::{Read, Seek};

    use super::*;

    fn printed(lines: ResultLines, signature: &str, rows: &[&str]) -> Result<String> {
        let mut file = tempfile::tempfile().unwrap();
        let out = StatsOutput::new(file.try_clone().unwrap());
        let mut writer = ResultWriter::new(out, lines, signature);
        for row in rows {
            writer.row(row.as_bytes())?;
        }
        writer.finish().unwrap();
        let mut text = String::new();
        file.rewind().unwrap();
        file.read_to_string(&mut text).unwrap();
        Ok(text)
    }

    #[test]
    fn json_has_rows_as_they_are() {
        let rows = [r#"{"b":1,"a":{"c":[]}}"#, "7", "null"];
        let expected = "{\"b\":1,\"a\":{\"c\":[]}}\n7\nnull\n";
        assert_eq!(printed(ResultLines::Json, "", &rows).unwrap(), expected);
    }

    #[test]
    fn csv_is_quoted_where_it_has_to_be() {
        let rows = [r#"{"a,b":"x\"y","c":null,"d":"","e":[1, "z"]}"#, r#"{"d":1.5,"f":true}"#];
        assert_eq!(
            printed(ResultLines::Csv, "", &rows).unwrap(),
            "\"a,b\",c,d,e,f\r\n\"x\"\"y\",,\"\",\"[1, \"\"z\"\"]\",\r\n,,1.5,,true\r\n"
        );
        let named = r#"{"b":"json","a":"json"}"#;
        let text = printed(ResultLines::Csv, named, &[r#"{"a":1}"#]).unwrap();
        assert_eq!(text, "b,a\r\n,1\r\n");
        assert_eq!(printed(ResultLines::Csv, named, &[]).unwrap(), "b,a\r\n");
        assert_eq!(printed(ResultLines::Csv, "\"json\"", &["7"]).unwrap(), "$1\r\n7\r\n");
    }

    #[test]
    fn late_fields_of_csv_are_errors() {
        let mut rows = vec![r#"{"a":1}"#; PAGE_ROWS];
        rows.push(r#"{"b":1}"#);
        let error = printed(ResultLines::Csv, "", &rows).unwrap_err().to_string();
        assert!(error.contains("\"b\"") && error.contains("name the fields"), "{error}");
        let text = printed(ResultLines::Table, "", &rows).unwrap();
        assert_eq!(text.matches('┌').count(), 2, "a page has its own columns");
    }

    #[test]
    fn a_table_shows_nothing_that_a_terminal_obeys() {
        let rows = [r#"{"k":"\u001b[2J","n":null}"#, r#"{"o":{"a":1}}"#];
        let text = printed(ResultLines::Table, "", &rows).unwrap();
        assert!(text.contains("\\x1b[2J") && !text.contains('\x1b'), "{text}");
        assert!(text.contains("null") && text.contains("{\"a\":1}"), "{text}");
        assert_eq!(printed(ResultLines::Table, "", &[]).unwrap(), "");
    }
}
