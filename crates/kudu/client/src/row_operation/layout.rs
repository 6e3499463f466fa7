//! The precomputed layout of a schema's rows.
//!
//! It owns offsets, sizes and sets of columns, so encoding a cell is one lookup of its plan and one
//! store. A row with every cell and no NULL has each cell at a fixed offset. The encoder builds
//! rows in that image and squeezes out missing cells; most rows have none. The layout is immutable,
//! and a session shares it with its rows, batches and errors.

use crate::schema::{DataType, Schema};

/// Columns per word in a set of columns.
const WORD_BITS: usize = 64;

/// The layout of a schema's rows.
#[derive(Debug)]
pub(crate) struct RowLayout {
    pub schema: Schema,
    pub columns: Box<[ColumnPlan]>,
    /// Bytes of one bitmap.
    pub bitmap_bytes: usize,
    /// Bytes of the bitmap of NULLs: 0 when no column can be NULL.
    pub null_bitmap_bytes: usize,
    /// Operation and bitmaps.
    pub header_bytes: usize,
    /// Header and every cell.
    pub full_row_bytes: usize,
    /// Every column.
    pub all: ColumnSet,
    /// The primary key.
    pub key: ColumnSet,
    /// The columns that a new row must have.
    pub required: ColumnSet,
    /// The column that the server assigns.
    pub auto_incrementing: ColumnSet,
}

/// The encoder's plan for one column.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ColumnPlan {
    /// The offset of the cell in a full row.
    pub offset: usize,
    /// Bytes of the cell.
    pub size: usize,
    /// The word of its bit in a set of columns.
    pub word: usize,
    /// Its bit in that word.
    pub bit: u64,
    pub data_type: DataType,
    pub is_nullable: bool,
}

/// A set of columns, a bit for each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ColumnSet {
    pub words: Box<[u64]>,
}

impl RowLayout {
    pub(crate) fn new(schema: Schema) -> RowLayout {
        let count = schema.columns().len();
        let bitmap_bytes = count.div_ceil(8);
        let has_nullable = schema.columns().iter().any(|column| column.is_nullable());
        let null_bitmap_bytes = if has_nullable { bitmap_bytes } else { 0 };
        let header_bytes = 1 + bitmap_bytes + null_bitmap_bytes;
        let mut offset = header_bytes;
        let columns = schema
            .columns()
            .iter()
            .enumerate()
            .map(|(index, column)| {
                let plan = ColumnPlan {
                    offset,
                    size: column.data_type().size(),
                    word: index / WORD_BITS,
                    bit: 1 << (index % WORD_BITS),
                    data_type: column.data_type(),
                    is_nullable: column.is_nullable(),
                };
                offset += plan.size;
                plan
            })
            .collect();
        let set = |belongs: &dyn Fn(usize) -> bool| ColumnSet::new(count, belongs);
        let column = |index: usize| &schema.columns()[index];
        RowLayout {
            columns,
            bitmap_bytes,
            null_bitmap_bytes,
            header_bytes,
            full_row_bytes: offset,
            all: set(&|_| true),
            key: set(&|index| column(index).is_key()),
            required: set(&|index| !column(index).is_optional()),
            auto_incrementing: set(&|index| column(index).is_auto_incrementing()),
            schema: schema.clone(),
        }
    }

    /// Name of a column, for messages.
    pub(crate) fn name(&self, column: usize) -> String {
        self.schema.columns()[column].name().to_owned()
    }
}

impl ColumnSet {
    pub(crate) fn new(count: usize, belongs: impl Fn(usize) -> bool) -> ColumnSet {
        let mut words = vec![0_u64; count.div_ceil(WORD_BITS)].into_boxed_slice();
        for index in (0..count).filter(|index| belongs(*index)) {
            words[index / WORD_BITS] |= 1 << (index % WORD_BITS);
        }
        ColumnSet { words }
    }

    /// The first column that is in this set and not in `present`.
    pub(crate) fn first_missing(&self, present: &[u64]) -> Option<usize> {
        first_bit(self.words.iter().zip(present).map(|(wanted, present)| wanted & !present))
    }

    /// The first column that is in `present` and not in this set.
    pub(crate) fn first_foreign(&self, present: &[u64]) -> Option<usize> {
        first_bit(self.words.iter().zip(present).map(|(known, present)| present & !known))
    }

    /// The first column that is in this set and in `present`.
    pub(crate) fn first_common(&self, present: &[u64]) -> Option<usize> {
        first_bit(self.words.iter().zip(present).map(|(wanted, present)| wanted & present))
    }
}

fn first_bit(words: impl Iterator<Item = u64>) -> Option<usize> {
    words
        .enumerate()
        .find(|(_, word)| *word != 0)
        .map(|(index, word)| index * WORD_BITS + word.trailing_zeros() as usize)
}
