//! Encodes row after row, without an allocation per row.
//!
//! The encoder stores each cell in an image of a full row. Until the row's tablet is known, the
//! bytes of its strings wait in `staged`; from then on they go straight into the tablet's indirect
//! data. To finish a row it appends the image to the tablet's rows in one copy, or cell by cell
//! when some are missing. Invariants: a column is set at most once, so bytes in the indirect data
//! are abandoned only with the whole row. Every cell has the width of its type. One encoder serves
//! one session.

use std::sync::Arc;

use crate::key_encoding::KeyCells;
use crate::schema::{
    DataType, Value, ValueError, check_date, check_decimal, truncate_to_characters,
};

use super::{ColumnPlan, RowError, RowLayout, RowOperation};

/// The row in progress.
#[derive(Debug)]
pub(crate) struct RowEncoder {
    layout: Arc<RowLayout>,
    /// The columns that determine the tablet; a bit for each column.
    partition_columns: Box<[u64]>,
    num_partition_columns: u32,
    /// Largest cell, in bytes.
    cell_bytes_max: usize,
    image: Vec<u8>,
    set: Box<[u64]>,
    null: Box<[u64]>,
    /// Columns that determine the tablet and are not set yet.
    missing_partition_columns: u32,
    /// Strings of a row whose tablet is not known yet.
    staged: Vec<u8>,
    staged_columns: Vec<usize>,
}

impl RowEncoder {
    /// An encoder that can locate rows once `partition_columns` are set.
    pub(crate) fn new(
        layout: Arc<RowLayout>,
        partition_columns: impl IntoIterator<Item = usize>,
        cell_bytes_max: usize,
    ) -> RowEncoder {
        let mut words = vec![0; layout.all.words.len()].into_boxed_slice();
        for column in partition_columns {
            let plan = layout.columns[column];
            words[plan.word] |= plan.bit;
        }
        let num_partition_columns = words.iter().map(|word: &u64| word.count_ones()).sum();
        RowEncoder {
            image: vec![0; layout.full_row_bytes],
            set: vec![0; words.len()].into_boxed_slice(),
            null: vec![0; words.len()].into_boxed_slice(),
            partition_columns: words,
            num_partition_columns,
            missing_partition_columns: num_partition_columns,
            cell_bytes_max,
            staged: Vec::new(),
            staged_columns: Vec::new(),
            layout,
        }
    }

    /// Forgets the row.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.set.fill(0);
        self.null.fill(0);
        self.missing_partition_columns = self.num_partition_columns;
        self.staged.clear();
        self.staged_columns.clear();
    }

    /// Whether every cell that determines the tablet is set.
    #[inline]
    pub(crate) fn is_locatable(&self) -> bool {
        self.missing_partition_columns == 0
    }

    /// Sets a cell of fixed width.
    #[inline]
    pub(crate) fn put_fixed<const N: usize>(
        &mut self,
        column: usize,
        data_type: DataType,
        cell: [u8; N],
    ) -> Result<(), RowError> {
        let plan = self.plan(column)?;
        if plan.data_type != data_type {
            return Err(self.wrong_type(column, data_type.name()));
        }
        self.mark(column, plan)?;
        self.image[plan.offset..plan.offset + N].copy_from_slice(&cell);
        Ok(())
    }

    /// Sets a date, in days since 1970-01-01.
    pub(crate) fn put_date(&mut self, column: usize, days: i32) -> Result<(), RowError> {
        self.plan(column)?;
        check_date(days, &self.layout.schema.columns()[column])?;
        self.put_fixed(column, DataType::Date, days.to_le_bytes())
    }

    /// Sets a decimal from its digits.
    pub(crate) fn put_decimal(&mut self, column: usize, digits: i128) -> Result<(), RowError> {
        let plan = self.plan(column)?;
        if !plan.data_type.is_decimal() {
            return Err(self.wrong_type(column, "DECIMAL"));
        }
        check_decimal(digits, &self.layout.schema.columns()[column])?;
        self.mark(column, plan)?;
        // The column has space for its precision, checked above, so this cuts off only sign bits.
        let cell = &digits.to_le_bytes()[..plan.size];
        self.image[plan.offset..plan.offset + plan.size].copy_from_slice(cell);
        Ok(())
    }

    /// Sets a string or varchar. Its bytes go to `indirect`, or wait while the tablet is unknown.
    #[inline]
    pub(crate) fn put_text(
        &mut self,
        column: usize,
        text: &str,
        indirect: Option<&mut Vec<u8>>,
    ) -> Result<(), RowError> {
        let plan = self.plan(column)?;
        match plan.data_type {
            DataType::String => self.put_variable(column, plan, text.as_bytes(), indirect),
            DataType::Varchar => {
                let length = self.layout.schema.columns()[column].type_attributes().length;
                self.put_variable(
                    column,
                    plan,
                    truncate_to_characters(text, length).as_bytes(),
                    indirect,
                )
            }
            _ => Err(self.wrong_type(column, "STRING")),
        }
    }

    /// Sets a binary cell.
    #[inline]
    pub(crate) fn put_binary(
        &mut self,
        column: usize,
        bytes: &[u8],
        indirect: Option<&mut Vec<u8>>,
    ) -> Result<(), RowError> {
        let plan = self.plan(column)?;
        if plan.data_type != DataType::Binary {
            return Err(self.wrong_type(column, "BINARY"));
        }
        self.put_variable(column, plan, bytes, indirect)
    }

    /// Sets a string or binary cell from unchecked bytes.
    #[inline]
    pub(crate) fn put_bytes(
        &mut self,
        column: usize,
        bytes: &[u8],
        indirect: Option<&mut Vec<u8>>,
    ) -> Result<(), RowError> {
        let plan = self.plan(column)?;
        if !matches!(plan.data_type, DataType::String | DataType::Binary) {
            return Err(self.wrong_type(column, "bytes"));
        }
        self.put_variable(column, plan, bytes, indirect)
    }

    /// Sets a cell to NULL.
    pub(crate) fn put_null(&mut self, column: usize) -> Result<(), RowError> {
        let plan = self.plan(column)?;
        if !plan.is_nullable {
            return Err(ValueError::NotNullable { column: self.layout.name(column) }.into());
        }
        self.mark(column, plan)?;
        self.null[plan.word] |= plan.bit;
        Ok(())
    }

    /// Sets a cell from the bytes of another row's cell in the same column. `None` is NULL.
    pub(crate) fn put_cell(
        &mut self,
        column: usize,
        cell: Option<&[u8]>,
        indirect: Option<&mut Vec<u8>>,
    ) -> Result<(), RowError> {
        let Some(cell) = cell else { return self.put_null(column) };
        let plan = self.plan(column)?;
        if plan.data_type.is_variable_length() {
            return self.put_variable(column, plan, cell, indirect);
        }
        if cell.len() != plan.size {
            return Err(self.wrong_type(column, "a cell of another width"));
        }
        self.mark(column, plan)?;
        self.image[plan.offset..plan.offset + plan.size].copy_from_slice(cell);
        Ok(())
    }

    /// Sets a cell from a value.
    pub(crate) fn put_value(
        &mut self,
        column: usize,
        value: Value<'_>,
        indirect: Option<&mut Vec<u8>>,
    ) -> Result<(), RowError> {
        match value {
            Value::Null => self.put_null(column),
            Value::String(text) => self.put_text(column, text, indirect),
            Value::Binary(bytes) => self.put_binary(column, bytes, indirect),
            other => {
                self.plan(column)?;
                let cell = other.to_cell(&self.layout.schema.columns()[column])?;
                self.put_cell(column, Some(&cell), indirect)
            }
        }
    }

    /// Moves the staged strings into the indirect data of the row's tablet.
    pub(crate) fn unstage(&mut self, indirect: &mut Vec<u8>) {
        let base = indirect.len() as u64;
        append(indirect, &self.staged);
        for column in self.staged_columns.drain(..) {
            let offset = self.layout.columns[column].offset;
            let staged_at = read_u64(&self.image, offset);
            self.image[offset..offset + 8].copy_from_slice(&(base + staged_at).to_le_bytes());
        }
        self.staged.clear();
    }

    /// Most bytes that the finished row adds to the rows.
    #[inline]
    pub(crate) fn row_bytes_max(&self) -> usize {
        self.layout.full_row_bytes
    }

    /// Bytes of staged strings.
    #[inline]
    pub(crate) fn staged_bytes(&self) -> usize {
        self.staged.len()
    }

    /// Checks that the row has all required cells of its operation and no forbidden ones.
    #[inline]
    pub(crate) fn check(&self, operation: RowOperation) -> Result<(), RowError> {
        let layout = &*self.layout;
        let ok = match operation {
            RowOperation::Insert | RowOperation::InsertIgnore => {
                layout.required.first_missing(&self.set).is_none()
                    && layout.auto_incrementing.first_common(&self.set).is_none()
            }
            RowOperation::Upsert | RowOperation::UpsertIgnore => {
                layout.required.first_missing(&self.set).is_none()
                    && layout.key.first_missing(&self.set).is_none()
            }
            RowOperation::Update | RowOperation::UpdateIgnore => {
                layout.key.first_missing(&self.set).is_none()
                    && layout.key.first_foreign(&self.set).is_some()
            }
            RowOperation::Delete | RowOperation::DeleteIgnore => self.set == layout.key.words,
        };
        if ok { Ok(()) } else { Err(self.complaint(operation)) }
    }

    /// Appends the row, which the caller has checked.
    #[inline]
    pub(crate) fn finish(&mut self, operation: u8, rows: &mut Vec<u8>) {
        self.write_header(operation);
        let is_full = self.set == self.layout.all.words && self.null.iter().all(|word| *word == 0);
        if is_full {
            append(rows, &self.image);
        } else {
            self.append_sparse(rows);
        }
    }

    fn write_header(&mut self, operation: u8) {
        self.image[0] = operation;
        let (set_at, bitmap_bytes) = (1, self.layout.bitmap_bytes);
        copy_bits(&self.set, &mut self.image[set_at..set_at + bitmap_bytes]);
        let null_at = set_at + bitmap_bytes;
        copy_bits(&self.null, &mut self.image[null_at..null_at + self.layout.null_bitmap_bytes]);
    }

    fn append_sparse(&self, rows: &mut Vec<u8>) {
        append(rows, &self.image[..self.layout.header_bytes]);
        for (word, (set, null)) in self.set.iter().zip(&self.null).enumerate() {
            let mut present = set & !null;
            while present != 0 {
                let plan = &self.layout.columns[word * 64 + present.trailing_zeros() as usize];
                append(rows, &self.image[plan.offset..plan.offset + plan.size]);
                present &= present - 1;
            }
        }
    }

    #[inline]
    fn plan(&self, column: usize) -> Result<ColumnPlan, RowError> {
        match self.layout.columns.get(column) {
            Some(plan) => Ok(*plan),
            None => {
                Err(RowError::NoSuchColumn { index: column, columns: self.layout.columns.len() })
            }
        }
    }

    #[inline]
    fn mark(&mut self, column: usize, plan: ColumnPlan) -> Result<(), RowError> {
        let word = &mut self.set[plan.word];
        if *word & plan.bit != 0 {
            return Err(RowError::SetTwice { column: self.layout.name(column) });
        }
        *word |= plan.bit;
        self.missing_partition_columns -=
            u32::from(self.partition_columns[plan.word] & plan.bit != 0);
        Ok(())
    }

    #[inline]
    fn put_variable(
        &mut self,
        column: usize,
        plan: ColumnPlan,
        bytes: &[u8],
        indirect: Option<&mut Vec<u8>>,
    ) -> Result<(), RowError> {
        if bytes.len() > self.cell_bytes_max {
            return Err(RowError::CellTooLarge {
                column: self.layout.name(column),
                bytes: bytes.len(),
                bytes_max: self.cell_bytes_max,
            });
        }
        self.mark(column, plan)?;
        let target = match indirect {
            Some(indirect) => indirect,
            None => {
                self.staged_columns.push(column);
                &mut self.staged
            }
        };
        let mut cell = [0; 16];
        cell[..8].copy_from_slice(&(target.len() as u64).to_le_bytes());
        cell[8..].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
        self.image[plan.offset..plan.offset + 16].copy_from_slice(&cell);
        append(target, bytes);
        Ok(())
    }

    #[cold]
    fn wrong_type(&self, column: usize, given: &'static str) -> RowError {
        let expected = self.layout.columns[column].data_type;
        ValueError::WrongType { column: self.layout.name(column), expected, given }.into()
    }

    #[cold]
    fn complaint(&self, operation: RowOperation) -> RowError {
        let layout = &*self.layout;
        let is_insert = matches!(operation, RowOperation::Insert | RowOperation::InsertIgnore);
        if is_insert && let Some(column) = layout.auto_incrementing.first_common(&self.set) {
            return RowError::AutoIncrementing { column: layout.name(column), operation };
        }
        let is_new =
            matches!(operation, RowOperation::Upsert | RowOperation::UpsertIgnore) || is_insert;
        let missing_key = (!is_insert).then(|| layout.key.first_missing(&self.set)).flatten();
        let missing_cell = is_new.then(|| layout.required.first_missing(&self.set)).flatten();
        if let Some(column) = missing_key.or(missing_cell) {
            return RowError::MissingCell { column: layout.name(column), operation };
        }
        match layout.key.first_foreign(&self.set) {
            Some(column) => RowError::NotPartOfKey { column: layout.name(column), operation },
            None => RowError::NothingToUpdate { operation },
        }
    }
}

/// The cells of a row whose strings are still staged.
impl KeyCells for RowEncoder {
    #[inline]
    fn cell(&self, column: usize) -> Option<&[u8]> {
        let plan = self.layout.columns.get(column)?;
        if self.set[plan.word] & !self.null[plan.word] & plan.bit == 0 {
            return None;
        }
        if !plan.data_type.is_variable_length() {
            return self.image.get(plan.offset..plan.offset + plan.size);
        }
        let start = read_u64(&self.image, plan.offset) as usize;
        let length = read_u64(&self.image, plan.offset + 8) as usize;
        self.staged.get(start..start + length)
    }
}

/// Least growth of a full buffer.
const GROWTH_BYTES_MIN: usize = 4096;

/// Appends to a buffer that grows by an eighth. Buffered rows dominate a client's memory, and
/// doubling would leave a quarter of it unused on average. Buffers are reused, so growth is rare.
#[inline]
fn append(buffer: &mut Vec<u8>, bytes: &[u8]) {
    if buffer.capacity() - buffer.len() < bytes.len() {
        grow(buffer, bytes.len());
    }
    buffer.extend_from_slice(bytes);
}

#[cold]
fn grow(buffer: &mut Vec<u8>, additional: usize) {
    buffer.reserve_exact(additional.max(buffer.capacity() / 8).max(GROWTH_BYTES_MIN));
}

/// The first bytes of a set of columns in wire order: least significant bit first.
#[inline]
fn copy_bits(words: &[u64], bitmap: &mut [u8]) {
    for (bytes, word) in bitmap.chunks_mut(8).zip(words) {
        for (place, byte) in bytes.iter_mut().enumerate() {
            *byte = (word >> (8 * place)) as u8;
        }
    }
}

#[inline]
fn read_u64(image: &[u8], offset: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&image[offset..offset + 8]);
    u64::from_le_bytes(word)
}
