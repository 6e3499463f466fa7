//! Structs as rows: a session writes them; scans and lookups read them.
//!
//! It owns the trait of `#[derive(KuduRow)]` and the methods that take it. Invariant: columns are
//! found by name once per session and once per batch of a scan, never per cell. Cells of structs
//! use the same encoder and decoder as cells set or read by hand, so a struct costs no extra
//! allocation and no extra copy.

mod cell_reader;
mod cell_writer;

pub use cell_reader::CellReader;
pub use cell_writer::{CellWriter, ToCell};

use crate::error::Error;
use crate::field_columns::FieldColumns;
use crate::lookup::{FoundRow, PointLookupBuilder};
use crate::row_operation::{RowError, RowOperation};
use crate::scan_error::ScanError;
use crate::scanner::{ScanBatch, Scanner, ScannerBuilder};
use crate::session::{RowWriter, Session, SessionError};

/// A struct whose fields are cells of a row. Derive it:
///
/// ```
/// use oribi_kudu::KuduRow;
///
/// #[derive(KuduRow)]
/// struct Mountain {
///     id: i64,
///     name: String,
///     #[kudu(column = "height_m")]
///     height: Option<f64>,
/// }
/// # assert_eq!(Mountain::COLUMNS, ["id", "name", "height_m"]);
/// ```
///
/// Each field is the column of its name, or of the name in `#[kudu(column = "...")]`. A struct need
/// not have every column of the table. Its types are those of [`ToCell`] and
/// [`FromCell`](crate::FromCell): an `Option` can be NULL. A struct may borrow, with `&'a str` or
/// `&'a [u8]`, and then borrows from its batch.
///
/// Write with [`Session::insert_row`] and its siblings. Read with [`ScanBatch::rows_as`],
/// [`Scanner::read_all`] or [`FoundRow::read`]. A missing column, or one of another type, is an
/// error that names the column; nothing is converted.
pub trait KuduRow<'a>: Sized {
    /// The columns, in the order of the fields.
    const COLUMNS: &'static [&'static str];

    /// Sets the cell of each field.
    fn write(&self, cells: &mut CellWriter<'_, '_>) -> Result<(), RowError>;

    /// Reads each field from its cell.
    fn read(cells: &CellReader<'a, '_>) -> Result<Self, ScanError>;
}

impl Session {
    /// Adds a row; its key must be new.
    ///
    /// Like every method that writes a struct it returns when the session has taken the row: see
    /// [`RowWriter::apply`].
    ///
    /// ```no_run
    /// # async fn example(table: oribi_kudu::Table) -> Result<(), Box<dyn std::error::Error>> {
    /// use oribi_kudu::{KuduRow, Session, SessionOptions};
    ///
    /// #[derive(KuduRow)]
    /// struct Mountain<'a> {
    ///     id: i64,
    ///     name: &'a str,
    ///     height_m: Option<f64>,
    /// }
    ///
    /// let mut session = Session::new(&table, SessionOptions::new());
    /// session.insert_row(&Mountain { id: 1, name: "Everest", height_m: Some(8848.86) }).await?;
    /// session.flush().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn insert_row<'r>(&mut self, row: &impl KuduRow<'r>) -> Result<(), SessionError> {
        self.write_row(RowOperation::Insert, row).await
    }

    /// Adds a row, or changes the struct's cells.
    pub async fn upsert_row<'r>(&mut self, row: &impl KuduRow<'r>) -> Result<(), SessionError> {
        self.write_row(RowOperation::Upsert, row).await
    }

    /// Changes the struct's cells; the key must exist.
    pub async fn update_row<'r>(&mut self, row: &impl KuduRow<'r>) -> Result<(), SessionError> {
        self.write_row(RowOperation::Update, row).await
    }

    /// Removes the row with this struct's key, which must exist. It ignores the other fields.
    pub async fn delete_row<'r>(&mut self, row: &impl KuduRow<'r>) -> Result<(), SessionError> {
        self.write_row(RowOperation::Delete, row).await
    }

    /// Writes a struct with any operation. Deletes use only the key.
    pub async fn write_row<'r, T: KuduRow<'r>>(
        &mut self,
        operation: RowOperation,
        row: &T,
    ) -> Result<(), SessionError> {
        self.open_row(operation, row)?.apply().await
    }

    /// The row with all its cells set.
    #[inline]
    fn open_row<'r, T: KuduRow<'r>>(
        &mut self,
        operation: RowOperation,
        row: &T,
    ) -> Result<RowWriter<'_>, RowError> {
        let (columns, mut writer) = self.row_of_fields(operation, T::COLUMNS)?;
        row.write(&mut CellWriter::new(&mut writer, columns, operation))?;
        Ok(writer)
    }
}

impl ScannerBuilder {
    /// Returns only the columns of this struct.
    pub fn columns_of<'a, T: KuduRow<'a>>(self) -> ScannerBuilder {
        self.columns(T::COLUMNS.iter().copied())
    }
}

impl PointLookupBuilder {
    /// Returns only the columns of this struct.
    pub fn columns_of<'a, T: KuduRow<'a>>(self) -> PointLookupBuilder {
        self.columns(T::COLUMNS.iter().copied())
    }
}

impl ScanBatch {
    /// All rows as structs, in the order of the answer. It fails when the scan lacks columns of the
    /// struct; [`ScannerBuilder::columns_of`] requests exactly those.
    ///
    /// ```no_run
    /// # async fn example(table: oribi_kudu::Table) -> Result<(), Box<dyn std::error::Error>> {
    /// use oribi_kudu::KuduRow;
    ///
    /// #[derive(KuduRow)]
    /// struct Mountain<'a> {
    ///     name: &'a str,
    ///     height_m: Option<f64>,
    /// }
    ///
    /// let mut scanner = table.scan().columns_of::<Mountain>().build()?;
    /// while let Some(batch) = scanner.next_batch().await? {
    ///     for mountain in batch.rows_as::<Mountain>()? {
    ///         let mountain = mountain?;
    ///         println!("{} {:?}", mountain.name, mountain.height_m);
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn rows_as<'a, T: KuduRow<'a>>(
        &'a self,
    ) -> Result<impl ExactSizeIterator<Item = Result<T, ScanError>> + use<'a, T>, ScanError> {
        let columns = FieldColumns::in_projection(T::COLUMNS, self.projection())?;
        Ok(self.rows().map(move |row| T::read(&CellReader::new(row, &columns))))
    }
}

impl Scanner {
    /// Reads to the end and returns all rows as structs that own their cells.
    pub async fn read_all<T: for<'a> KuduRow<'a>>(mut self) -> Result<Vec<T>, Error> {
        let mut rows = Vec::new();
        while let Some(batch) = self.next_batch().await? {
            rows.reserve(batch.num_rows());
            for row in batch.rows_as::<T>()? {
                rows.push(row?);
            }
        }
        Ok(rows)
    }
}

impl FoundRow {
    /// The row as a struct.
    pub fn read<'a, T: KuduRow<'a>>(&'a self) -> Result<T, ScanError> {
        let row = self.row();
        let columns = FieldColumns::in_projection(T::COLUMNS, row.projection())?;
        T::read(&CellReader::new(row, &columns))
    }
}
