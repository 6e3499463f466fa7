//! Writes the rows of one statement as a Parquet file.
//!
//! Owns: the type of each column, and the rows of the group in progress. The first group of rows
//! decides the columns, unless the statement names them, and their types: integers, numbers,
//! booleans, text, else JSON. Invariants: a file has a group of rows in memory, not all rows; a
//! value that does not fit its column is an error. A file whose statement failed has no end, so
//! readers refuse it.

use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;

use super::columns::OutputColumns;
use super::row::{OutputRow, string_in};

/// Rows, and about the bytes, of a group.
const GROUP_ROWS: usize = 256 * 1024;
const GROUP_BYTES: usize = 32 << 20;

/// Memory of a value besides its text.
const VALUE_BYTES: usize = size_of::<Cell>();

/// A value of a row. A missing field is null.
#[derive(Clone, Debug, PartialEq)]
enum Cell {
    Null,
    Bool(bool),
    Integer(i64),
    Real(f64),
    Text(Box<str>),
    /// An array, an object, or a number that is neither of the above.
    Json(Box<str>),
}

impl Cell {
    fn of(json: &str) -> Cell {
        match json.as_bytes().first() {
            Some(b'"') => match string_in(json) {
                Some(text) => Cell::Text(text.into()),
                None => Cell::Json(json.into()),
            },
            Some(b'n') => Cell::Null,
            Some(b't') => Cell::Bool(true),
            Some(b'f') => Cell::Bool(false),
            Some(b'{' | b'[') => Cell::Json(json.into()),
            _ => match (json.parse::<i64>(), json.parse::<f64>()) {
                (Ok(number), _) => Cell::Integer(number),
                (_, Ok(number)) if number.is_finite() => Cell::Real(number),
                _ => Cell::Json(json.into()),
            },
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Cell::Text(text) | Cell::Json(text) => VALUE_BYTES + text.len(),
            _ => VALUE_BYTES,
        }
    }
}

/// Content of a column of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Bool,
    Integer,
    Real,
    Text,
    Json,
}

impl Kind {
    /// Of a column's first values.
    fn of(cells: &[Cell]) -> Kind {
        let mut kinds = cells.iter().filter_map(|cell| match cell {
            Cell::Null => None,
            Cell::Bool(_) => Some(Kind::Bool),
            Cell::Integer(_) => Some(Kind::Integer),
            Cell::Real(_) => Some(Kind::Real),
            Cell::Text(_) => Some(Kind::Text),
            Cell::Json(_) => Some(Kind::Json),
        });
        let first = kinds.next().unwrap_or(Kind::Text);
        kinds.fold(first, |kind, next| match (kind, next) {
            (kind, next) if kind == next => kind,
            (Kind::Integer, Kind::Real) | (Kind::Real, Kind::Integer) => Kind::Real,
            _ => Kind::Json,
        })
    }

    fn field(self, name: &str) -> Result<Type> {
        let (physical, logical) = match self {
            Kind::Bool => (Physical::BOOLEAN, None),
            Kind::Integer => (Physical::INT64, None),
            Kind::Real => (Physical::DOUBLE, None),
            Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
            Kind::Json => (Physical::BYTE_ARRAY, Some(LogicalType::Json)),
        };
        let field = Type::primitive_type_builder(name, physical)
            .with_repetition(Repetition::OPTIONAL)
            .with_logical_type(logical);
        Ok(field.build()?)
    }
}

/// A file on standard output.
pub struct ParquetFile(ParquetRows<std::fs::File>);

impl ParquetFile {
    /// Begins one.
    ///
    /// # Errors
    /// On a terminal.
    pub fn stdout(signature: &str) -> Result<ParquetFile> {
        let out = io::stdout();
        if out.is_terminal() {
            bail!("Parquet is not for terminals: send the output to a file");
        }
        let out = std::fs::File::from(out.as_fd().try_clone_to_owned()?);
        Ok(ParquetFile(ParquetRows::new(out, signature)))
    }

    /// Takes a row.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn row(&mut self, json: &[u8]) -> Result<()> {
        self.0.row(json)
    }

    /// Writes the rest and the end of the file.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn finish(self) -> Result<()> {
        self.0.finish().map(drop)
    }
}

/// The rows of a file.
struct ParquetRows<W: Write + Send> {
    columns: OutputColumns,
    /// The group in progress, by columns.
    cells: Vec<Vec<Cell>>,
    rows: usize,
    bytes: usize,
    file: File<W>,
}

/// The file, whose types the first group decides.
enum File<W: Write + Send> {
    Unbegun(W),
    Begun {
        writer: Box<SerializedFileWriter<W>>,
        kinds: Vec<Kind>,
        rows: u64,
    },
    /// An error came in between.
    Broken,
}

impl<W: Write + Send> ParquetRows<W> {
    fn new(out: W, signature: &str) -> ParquetRows<W> {
        let columns = OutputColumns::of_signature(signature);
        let cells = vec![Vec::new(); columns.len()];
        ParquetRows { columns, cells, rows: 0, bytes: 0, file: File::Unbegun(out) }
    }

    fn row(&mut self, json: &[u8]) -> Result<()> {
        for (name, value) in OutputRow::parse(json)?.fields {
            let at = match self.columns.position(&name) {
                Some(at) => at,
                None if !matches!(self.file, File::Unbegun(_)) => bail!(
                    "a row has the field {name:?}, which the rows before have not: name the fields \
                     in SELECT"
                ),
                None => {
                    self.cells.push(vec![Cell::Null; self.rows]);
                    self.columns.add(name)
                }
            };
            let cell = Cell::of(value);
            self.bytes += cell.bytes();
            self.cells[at].push(cell);
        }
        self.rows += 1;
        for cells in &mut self.cells {
            cells.resize(self.rows, Cell::Null);
        }
        match self.rows >= GROUP_ROWS || self.bytes >= GROUP_BYTES {
            true => self.end_group(),
            false => Ok(()),
        }
    }

    fn finish(mut self) -> Result<W> {
        self.end_group()?;
        match self.file {
            File::Begun { writer, .. } => Ok(writer.into_inner()?),
            File::Unbegun(_) | File::Broken => bail!("the file was not begun"),
        }
    }

    fn end_group(&mut self) -> Result<()> {
        let (mut writer, kinds, before) = match std::mem::replace(&mut self.file, File::Broken) {
            File::Begun { writer, kinds, rows } => (writer, kinds, rows),
            File::Unbegun(out) => {
                let kinds: Vec<Kind> = self.cells.iter().map(|cells| Kind::of(cells)).collect();
                (Box::new(begin(out, self.columns.names(), &kinds)?), kinds, 0)
            }
            File::Broken => bail!("the file is incomplete"),
        };
        if self.rows > 0 {
            let mut group = writer.next_row_group()?;
            for ((name, kind), cells) in
                self.columns.names().iter().zip(&kinds).zip(&mut self.cells)
            {
                let mut written = group.next_column()?.context("a column of the schema")?;
                write_column(written.untyped(), *kind, cells, before)
                    .with_context(|| format!("the column {name:?}"))?;
                written.close()?;
                cells.clear();
            }
            group.close()?;
        }
        self.file = File::Begun { writer, kinds, rows: before + self.rows as u64 };
        (self.rows, self.bytes) = (0, 0);
        Ok(())
    }
}

fn begin<W: Write + Send>(
    out: W,
    names: &[String],
    kinds: &[Kind],
) -> Result<SerializedFileWriter<W>> {
    let fields = names.iter().zip(kinds).map(|(name, kind)| kind.field(name));
    let fields = fields.map(|field| field.map(Arc::new)).collect::<Result<Vec<_>>>()?;
    let schema = Type::group_type_builder("rows").with_fields(fields).build()?;
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
    Ok(SerializedFileWriter::new(out, Arc::new(schema), Arc::new(properties))?)
}

/// Writes the cells of a column; `before` rows are in earlier groups.
fn write_column(
    column: &mut ColumnWriter<'_>,
    kind: Kind,
    cells: &[Cell],
    before: u64,
) -> Result<()> {
    let levels = cells.iter().map(|cell| i16::from(*cell != Cell::Null)).collect::<Vec<_>>();
    let levels = Some(levels.as_slice());
    let present = (before + 1..).zip(cells).filter(|(_, cell)| **cell != Cell::Null);
    match column {
        ColumnWriter::BoolColumnWriter(column) => {
            let values = present.map(|(row, cell)| match cell {
                Cell::Bool(value) => Ok(*value),
                other => unfit(row, other, kind),
            });
            column.write_batch(&values.collect::<Result<Vec<_>>>()?, levels, None)?;
        }
        ColumnWriter::Int64ColumnWriter(column) => {
            let values = present.map(|(row, cell)| match cell {
                Cell::Integer(number) => Ok(*number),
                other => unfit(row, other, kind),
            });
            column.write_batch(&values.collect::<Result<Vec<_>>>()?, levels, None)?;
        }
        ColumnWriter::DoubleColumnWriter(column) => {
            let values = present.map(|(row, cell)| match cell {
                Cell::Real(number) => Ok(*number),
                Cell::Integer(number) if (*number as f64) as i64 == *number => Ok(*number as f64),
                other => unfit(row, other, kind),
            });
            column.write_batch(&values.collect::<Result<Vec<_>>>()?, levels, None)?;
        }
        ColumnWriter::ByteArrayColumnWriter(column) => {
            let values = present.map(|(row, cell)| match (cell, kind) {
                (Cell::Text(text), Kind::Text) => Ok(ByteArray::from(text.as_bytes().to_vec())),
                (_, Kind::Json) => Ok(ByteArray::from(json_of(cell).into_bytes())),
                (other, _) => unfit(row, other, kind),
            });
            column.write_batch(&values.collect::<Result<Vec<_>>>()?, levels, None)?;
        }
        _ => bail!("a column of a type that no column has"),
    };
    Ok(())
}

/// The JSON of any value.
fn json_of(cell: &Cell) -> String {
    match cell {
        Cell::Null => "null".to_owned(),
        Cell::Bool(value) => value.to_string(),
        Cell::Integer(number) => number.to_string(),
        Cell::Real(number) => format!("{number:?}"),
        Cell::Text(text) => serde_json::Value::from(&**text).to_string(),
        Cell::Json(text) => text.to_string(),
    }
}

fn unfit<T>(row: u64, cell: &Cell, kind: Kind) -> Result<T> {
    let found = json_of(cell).chars().take(40).collect::<String>();
    let kind = match kind {
        Kind::Bool => "booleans",
        Kind::Integer => "integers",
        Kind::Real => "numbers",
        Kind::Text | Kind::Json => "texts",
    };
    bail!(
        "row {row} has {found} among {kind}; Parquet has one type for all rows: write TO_STRING(..) \
         or TO_NUMBER(..) in SELECT"
    )
}

#[cfg(test)]
mod tests {
    //! Files, read back.

    use bytes::Bytes;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::Field;

    use super::*;

    fn read_back(file: Vec<u8>) -> (Vec<String>, Vec<Vec<Field>>) {
        let reader = SerializedFileReader::new(Bytes::from(file)).unwrap();
        let schema = reader.metadata().file_metadata().schema_descr();
        let types = schema.columns().iter().map(|column| {
            format!("{} {} {:?}", column.name(), column.physical_type(), column.logical_type_ref())
        });
        let rows = reader
            .get_row_iter(None)
            .unwrap()
            .map(|row| row.unwrap().get_column_iter().map(|(_, field)| field.clone()).collect());
        (types.collect(), rows.collect())
    }

    #[test]
    fn types_are_those_of_the_values() {
        let mut rows = ParquetRows::new(Vec::new(), "");
        rows.row(
            br#"{"id":"k1","cas":9223372036854775807,"doc":{"a":1},"total":0.5,"n":-1,"mixed":7}"#,
        )
        .unwrap();
        rows.row(br#"{"id":"k\n2","total":3,"mixed":"seven","flag":true,"none":null}"#).unwrap();
        let (types, rows) = read_back(rows.finish().unwrap());
        assert_eq!(
            types,
            [
                "id BYTE_ARRAY Some(String)",
                "cas INT64 None",
                "doc BYTE_ARRAY Some(Json)",
                "total DOUBLE None",
                "n INT64 None",
                "mixed BYTE_ARRAY Some(Json)",
                "flag BOOLEAN None",
                "none BYTE_ARRAY Some(String)",
            ]
        );
        let text = |text: &str| Field::Str(text.to_owned());
        assert_eq!(rows[0][..2], [text("k1"), Field::Long(i64::MAX)]);
        assert_eq!(rows[0][3..6], [Field::Double(0.5), Field::Long(-1), text("7")]);
        assert_eq!(rows[0][6..], [Field::Null, Field::Null]);
        assert_eq!(rows[1][..3], [text("k\n2"), Field::Null, Field::Null]);
        let rest = [Field::Double(3.0), Field::Null, text("\"seven\""), Field::Bool(true)];
        assert_eq!(rows[1][3..7], rest);
    }

    #[test]
    fn no_rows_are_a_file_with_columns() {
        let rows = ParquetRows::new(Vec::new(), r#"{"id":"json"}"#);
        let (types, rows) = read_back(rows.finish().unwrap());
        assert_eq!((types.len(), rows.len()), (1, 0));
    }

    #[test]
    fn later_value_of_another_type_is_rejected() {
        let mut rows = ParquetRows::new(Vec::new(), "");
        for number in 0..GROUP_ROWS + 5 {
            rows.row(format!("{{\"n\":{number}}}").as_bytes()).unwrap();
        }
        let late = rows.row(br#"{"n":1,"m":2}"#).unwrap_err().to_string();
        assert!(late.contains("\"m\""), "{late}");
        let mut rows = ParquetRows::new(Vec::new(), "");
        for _ in 0..GROUP_ROWS {
            rows.row(b"{\"n\":1}").unwrap();
        }
        rows.row(b"{\"n\":\"x\"}").unwrap();
        let error = format!("{:#}", rows.finish().err().unwrap());
        let expected = format!("row {} has \"x\" among integers", GROUP_ROWS + 1);
        assert!(error.contains("\"n\"") && error.contains(&expected), "{error}");
    }
}
