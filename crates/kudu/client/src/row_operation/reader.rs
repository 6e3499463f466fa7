//! Decodes encoded rows: failed rows, rows to encode again for a changed schema, and range bounds
//! from a server.
//!
//! It checks every offset and length, because bounds come from the network. Finding a row is linear
//! in the rows before it, and happens only on error paths.

use super::RowLayout;

/// The bytes are not rows of the layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MalformedRow;

/// Encoded rows, one after the other.
#[derive(Clone, Debug)]
pub(crate) struct EncodedRows<'a> {
    layout: &'a RowLayout,
    rows: &'a [u8],
    indirect: &'a [u8],
}

/// One encoded row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EncodedRow<'a> {
    layout: &'a RowLayout,
    /// The row, from its operation to its last cell.
    pub bytes: &'a [u8],
    indirect: &'a [u8],
}

impl<'a> EncodedRows<'a> {
    pub(crate) fn new(
        layout: &'a RowLayout,
        rows: &'a [u8],
        indirect: &'a [u8],
    ) -> EncodedRows<'a> {
        EncodedRows { layout, rows, indirect }
    }
}

impl<'a> Iterator for EncodedRows<'a> {
    type Item = Result<EncodedRow<'a>, MalformedRow>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rows.is_empty() {
            return None;
        }
        let Some(length) = row_length(self.layout, self.rows) else {
            self.rows = &[];
            return Some(Err(MalformedRow));
        };
        let (bytes, rest) = self.rows.split_at(length);
        self.rows = rest;
        Some(Ok(EncodedRow { layout: self.layout, bytes, indirect: self.indirect }))
    }
}

impl<'a> EncodedRow<'a> {
    /// The byte with the row's operation.
    pub(crate) fn operation(&self) -> u8 {
        self.bytes[0]
    }

    /// The row's columns with their cells; `None` is NULL. A cell that points outside the indirect
    /// data ends the row with an error.
    pub(crate) fn cells(
        &self,
    ) -> impl Iterator<Item = Result<(usize, Option<&'a [u8]>), MalformedRow>> + use<'a> {
        let row = *self;
        let mut offset = row.layout.header_bytes;
        (0..row.layout.columns.len()).filter(move |column| has_bit(row.set_bits(), *column)).map(
            move |column| {
                if has_bit(row.null_bits(), column) {
                    return Ok((column, None));
                }
                let plan = &row.layout.columns[column];
                let cell = row.bytes.get(offset..offset + plan.size).ok_or(MalformedRow)?;
                offset += plan.size;
                if plan.data_type.is_variable_length() {
                    return Ok((column, Some(indirect_cell(cell, row.indirect)?)));
                }
                Ok((column, Some(cell)))
            },
        )
    }

    /// The cell of one column: `None` if the row has none, `Some(None)` if it is NULL.
    pub(crate) fn cell(&self, column: usize) -> Option<Option<&'a [u8]>> {
        self.cells().map_while(Result::ok).find(|(index, _)| *index == column).map(|(_, cell)| cell)
    }

    fn set_bits(&self) -> &'a [u8] {
        &self.bytes[1..1 + self.layout.bitmap_bytes]
    }

    fn null_bits(&self) -> &'a [u8] {
        &self.bytes[1 + self.layout.bitmap_bytes..self.layout.header_bytes]
    }
}

/// Bytes of the first row of `rows`.
fn row_length(layout: &RowLayout, rows: &[u8]) -> Option<usize> {
    let header = rows.get(..layout.header_bytes)?;
    let (set, null) = header[1..].split_at(layout.bitmap_bytes);
    let cells: usize = layout
        .columns
        .iter()
        .enumerate()
        .filter(|(column, _)| has_bit(set, *column) && !has_bit(null, *column))
        .map(|(_, plan)| plan.size)
        .sum();
    let length = layout.header_bytes + cells;
    (length <= rows.len()).then_some(length)
}

fn has_bit(bitmap: &[u8], column: usize) -> bool {
    bitmap.get(column / 8).is_some_and(|byte| byte >> (column % 8) & 1 == 1)
}

fn indirect_cell<'a>(cell: &[u8], indirect: &'a [u8]) -> Result<&'a [u8], MalformedRow> {
    let (words, _) = cell.as_chunks::<8>();
    let [offset, length] = words else { return Err(MalformedRow) };
    let offset = usize::try_from(u64::from_le_bytes(*offset)).map_err(|_| MalformedRow)?;
    let length = usize::try_from(u64::from_le_bytes(*length)).map_err(|_| MalformedRow)?;
    let end = offset.checked_add(length).ok_or(MalformedRow)?;
    indirect.get(offset..end).ok_or(MalformedRow)
}
