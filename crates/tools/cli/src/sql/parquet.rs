//! Writes the rows of one statement as a Parquet file.
//!
//! Owns: the type of each column, and the rows of the group in progress. Columns of tables have
//! their declared type. SQLite knows no type of an expression, so its first group of rows decides:
//! integers, numbers, bytes, else text. Invariants: a file has a group of rows in memory, not all
//! rows; a value that does not fit its column is converted without loss or is an error. A file
//! whose statement failed has no end, so readers refuse it.

use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use oribi_sql::ValueRef;
use oribi_sql::columns::JSON_TEXT;
use oribi_sql::database::ResultColumn;
use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;

use super::output::make_distinct;

/// Rows, and about the bytes, of a group.
const GROUP_ROWS: usize = 256 * 1024;
const GROUP_BYTES: usize = 32 << 20;

/// What a value needs in memory besides its text or bytes.
const VALUE_BYTES: usize = size_of::<Cell>();

/// A value of a row.
#[derive(Clone, Debug, PartialEq)]
enum Cell {
    Null,
    Integer(i64),
    Real(f64),
    Text(Box<[u8]>),
    Blob(Box<[u8]>),
}

impl Cell {
    fn of(value: ValueRef<'_>) -> Cell {
        match value {
            ValueRef::Null => Cell::Null,
            ValueRef::Integer(number) => Cell::Integer(number),
            ValueRef::Real(number) => Cell::Real(number),
            ValueRef::Text(text) => Cell::Text(text.into()),
            ValueRef::Blob(bytes) => Cell::Blob(bytes.into()),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Cell::Text(bytes) | Cell::Blob(bytes) => VALUE_BYTES + bytes.len(),
            _ => VALUE_BYTES,
        }
    }
}

/// What a column of the file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Integer,
    Real,
    Text,
    Json,
    Bytes,
}

impl Kind {
    /// Of the declared type, or of an expression's first values.
    fn of(declared: Option<&str>, cells: &[Cell]) -> Kind {
        match declared {
            Some("INTEGER") => return Kind::Integer,
            Some("TEXT") => return Kind::Text,
            Some("BLOB") => return Kind::Bytes,
            Some(JSON_TEXT) => return Kind::Json,
            _ => {}
        }
        let mut values = cells.iter().filter(|cell| **cell != Cell::Null).peekable();
        if values.peek().is_none() {
            return Kind::Text;
        }
        let (mut integers, mut numbers, mut blobs) = (true, true, true);
        for value in values {
            integers &= matches!(value, Cell::Integer(_));
            numbers &= matches!(value, Cell::Integer(_) | Cell::Real(_));
            blobs &= matches!(value, Cell::Blob(_));
        }
        match (integers, numbers, blobs) {
            (true, ..) => Kind::Integer,
            (_, true, _) => Kind::Real,
            (.., true) => Kind::Bytes,
            _ => Kind::Text,
        }
    }

    fn field(self, name: &str) -> Result<Type> {
        let (physical, logical) = match self {
            Kind::Integer => (Physical::INT64, None),
            Kind::Real => (Physical::DOUBLE, None),
            Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
            Kind::Json => (Physical::BYTE_ARRAY, Some(LogicalType::Json)),
            Kind::Bytes => (Physical::BYTE_ARRAY, None),
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
    pub fn stdout(columns: Vec<ResultColumn>) -> Result<ParquetFile> {
        let out = io::stdout();
        if out.is_terminal() {
            bail!("Parquet is not for terminals: send the output to a file");
        }
        let out = std::fs::File::from(out.as_fd().try_clone_to_owned()?);
        Ok(ParquetFile(ParquetRows::new(out, columns)))
    }

    /// Takes a row.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn row(&mut self, values: &[ValueRef<'_>]) -> Result<()> {
        self.0.row(values)
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
    columns: Vec<ResultColumn>,
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
    fn new(out: W, mut columns: Vec<ResultColumn>) -> ParquetRows<W> {
        let mut names = columns.iter().map(|column| column.name.clone()).collect::<Vec<_>>();
        make_distinct(&mut names);
        columns.iter_mut().zip(names).for_each(|(column, name)| column.name = name);
        let cells = columns.iter().map(|_| Vec::new()).collect();
        ParquetRows { columns, cells, rows: 0, bytes: 0, file: File::Unbegun(out) }
    }

    fn row(&mut self, values: &[ValueRef<'_>]) -> Result<()> {
        for (cells, value) in self.cells.iter_mut().zip(values) {
            let cell = Cell::of(*value);
            self.bytes += cell.bytes();
            cells.push(cell);
        }
        self.rows += 1;
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
                let kinds = self.columns.iter().zip(&self.cells);
                let kinds =
                    kinds.map(|(column, cells)| Kind::of(column.declared.as_deref(), cells));
                let kinds = kinds.collect::<Vec<_>>();
                (Box::new(begin(out, &self.columns, &kinds)?), kinds, 0)
            }
            File::Broken => bail!("the file is incomplete"),
        };
        if self.rows > 0 {
            let mut group = writer.next_row_group()?;
            for ((column, kind), cells) in self.columns.iter().zip(&kinds).zip(&mut self.cells) {
                let mut written = group.next_column()?.context("a column of the schema")?;
                write_column(written.untyped(), *kind, cells, before)
                    .with_context(|| format!("the column {:?}", column.name))?;
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
    columns: &[ResultColumn],
    kinds: &[Kind],
) -> Result<SerializedFileWriter<W>> {
    let fields = columns.iter().zip(kinds).map(|(column, kind)| kind.field(&column.name));
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
            let values = present.map(|(_, cell)| ByteArray::from(bytes_of(cell, kind)));
            column.write_batch(&values.collect::<Vec<_>>(), levels, None)?;
        }
        _ => bail!("a column of a type that no column has"),
    };
    Ok(())
}

/// Text of any value; of bytes that are none, their base64.
fn bytes_of(cell: &Cell, kind: Kind) -> Vec<u8> {
    match cell {
        Cell::Null => Vec::new(),
        Cell::Integer(number) => number.to_string().into_bytes(),
        Cell::Real(number) => format!("{number:?}").into_bytes(),
        Cell::Text(bytes) | Cell::Blob(bytes) => {
            match kind == Kind::Bytes || std::str::from_utf8(bytes).is_ok() {
                true => bytes.to_vec(),
                false => format!("base64:{}", STANDARD.encode(bytes)).into_bytes(),
            }
        }
    }
}

fn unfit<T>(row: u64, cell: &Cell, kind: Kind) -> Result<T> {
    let found = match cell {
        Cell::Null => "NULL".to_owned(),
        Cell::Integer(number) => number.to_string(),
        Cell::Real(number) => format!("{number:?}"),
        Cell::Text(_) => "text".to_owned(),
        Cell::Blob(_) => "bytes".to_owned(),
    };
    let kind = match kind {
        Kind::Integer => "integers",
        _ => "numbers",
    };
    bail!(
        "row {row} has {found} among {kind}; Parquet has one type for all rows: write \
         cast(... as text), real or integer"
    )
}

#[cfg(test)]
mod tests {
    //! Files, read back.

    use bytes::Bytes;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::Field;

    use super::*;

    fn columns(columns: &[(&str, Option<&str>)]) -> Vec<ResultColumn> {
        let of = |(name, declared): &(&str, Option<&str>)| ResultColumn {
            name: (*name).to_owned(),
            declared: declared.map(str::to_owned),
        };
        columns.iter().map(of).collect()
    }

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
    fn types_are_declared_or_those_of_the_values() {
        let columns = columns(&[
            ("id", Some("TEXT")),
            ("cas", Some("INTEGER")),
            ("json", Some(JSON_TEXT)),
            ("body", Some("BLOB")),
            ("total", None),
            ("n", None),
            ("mixed", None),
            ("nothing", None),
        ]);
        let mut rows = ParquetRows::new(Vec::new(), columns);
        rows.row(&[
            ValueRef::Text(b"k1"),
            ValueRef::Integer(i64::MAX),
            ValueRef::Text(b"{\"a\":1}"),
            ValueRef::Null,
            ValueRef::Real(0.5),
            ValueRef::Integer(-1),
            ValueRef::Integer(7),
            ValueRef::Null,
        ])
        .unwrap();
        rows.row(&[
            ValueRef::Text(b"\xff"),
            ValueRef::Null,
            ValueRef::Null,
            ValueRef::Blob(b"\xff\0"),
            ValueRef::Integer(3),
            ValueRef::Null,
            ValueRef::Text(b"seven"),
            ValueRef::Null,
        ])
        .unwrap();
        let (types, rows) = read_back(rows.finish().unwrap());
        assert_eq!(
            types,
            [
                "id BYTE_ARRAY Some(String)",
                "cas INT64 None",
                "json BYTE_ARRAY Some(Json)",
                "body BYTE_ARRAY None",
                "total DOUBLE None",
                "n INT64 None",
                "mixed BYTE_ARRAY Some(String)",
                "nothing BYTE_ARRAY Some(String)",
            ]
        );
        let text = |text: &str| Field::Str(text.to_owned());
        assert_eq!(rows[0][..2], [text("k1"), Field::Long(i64::MAX)]);
        assert_eq!(
            rows[0][3..],
            [Field::Null, Field::Double(0.5), Field::Long(-1), text("7"), Field::Null]
        );
        assert_eq!(rows[1][0], text("base64:/w=="));
        assert_eq!(rows[1][3], Field::Bytes(ByteArray::from(vec![0xff, 0])));
        assert_eq!(rows[1][4..7], [Field::Double(3.0), Field::Null, text("seven")]);
    }

    #[test]
    fn no_rows_are_a_file_with_columns() {
        let rows = ParquetRows::new(Vec::new(), columns(&[("id", Some("TEXT"))]));
        let (types, rows) = read_back(rows.finish().unwrap());
        assert_eq!((types.len(), rows.len()), (1, 0));
    }

    #[test]
    fn later_value_of_another_type_is_rejected() {
        let mut rows = ParquetRows::new(Vec::new(), columns(&[("n", None)]));
        for number in 0..2 * GROUP_ROWS as i64 + 5 {
            rows.row(&[ValueRef::Integer(number)]).unwrap();
        }
        let (_, found) = read_back(rows.finish().unwrap());
        assert_eq!(found.len(), 2 * GROUP_ROWS + 5);
        let numbers = found.iter().map(|row| row[0].clone());
        assert!(numbers.zip(0..).all(|(field, number)| field == Field::Long(number)));
        let mut rows = ParquetRows::new(Vec::new(), columns(&[("n", None)]));
        for number in 0..GROUP_ROWS as i64 {
            rows.row(&[ValueRef::Integer(number)]).unwrap();
        }
        rows.row(&[ValueRef::Real(0.5)]).unwrap();
        let said = format!("{:#}", rows.finish().err().unwrap());
        assert!(said.contains("\"n\"") && said.contains("row 262145 has 0.5"), "{said}");
    }
}
