//! Filling rows of any table with generated values.
//!
//! Invariants: cells take numbers from their generator in the order of the columns, one each, but
//! for cells that get a fixed text and take none, as the other tool does it; key columns and the
//! rest have a generator each, so that the keys alone can be made again for deleting. A column that
//! the server fills by itself is left out. A column's type is resolved once and not for each row.

use anyhow::Result;
use oribi_kudu::{ColumnSchema, DataType, RowWriter, Schema};

use super::generator::RowGenerator;

/// Largest day number of a DATE column: the last day of the year 9999.
const DATE_MAX: i32 = 2_932_896;

/// How the cell of one column is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cell {
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    Float,
    Double,
    UnixtimeMicros,
    Date,
    /// From a number of 31 bits; with the largest that the column holds.
    Decimal32(i32),
    /// From a number of 63 bits.
    Decimal64(i64),
    /// Always zero, as in rows of the other tool, which cuts its number to no bits at all.
    Decimal128,
    String,
    Binary,
}

/// Makes the rows of one thread.
pub struct RowFiller {
    /// Column numbers of the key and how they are filled.
    keys: Vec<(usize, Cell)>,
    /// The same of all other columns.
    others: Vec<(usize, Cell)>,
    key_generator: RowGenerator,
    other_generator: RowGenerator,
    /// For all strings, unless it is empty.
    fixed: String,
}

impl RowFiller {
    /// For rows of this schema.
    pub fn new(
        schema: &Schema,
        key_generator: RowGenerator,
        other_generator: RowGenerator,
        fixed: &str,
    ) -> RowFiller {
        let key_columns = schema.num_key_columns();
        let mut cells = schema
            .columns()
            .iter()
            .enumerate()
            .filter(|(_, column)| !column.is_auto_incrementing())
            .map(|(index, column)| (index, Cell::of(column)))
            .collect::<Vec<_>>();
        let first_other = cells.partition_point(|(index, _)| *index < key_columns);
        let others = cells.split_off(first_other);
        RowFiller { keys: cells, others, key_generator, other_generator, fixed: fixed.to_owned() }
    }

    pub fn fill(&mut self, row: &mut RowWriter<'_>) -> Result<()> {
        self.fill_key(row)?;
        fill(&self.others, &mut self.other_generator, &self.fixed, row)
    }

    /// Sets the columns of the key only.
    pub fn fill_key(&mut self, row: &mut RowWriter<'_>) -> Result<()> {
        fill(&self.keys, &mut self.key_generator, &self.fixed, row)
    }
}

fn fill(
    cells: &[(usize, Cell)],
    generator: &mut RowGenerator,
    fixed: &str,
    row: &mut RowWriter<'_>,
) -> Result<()> {
    for &(column, cell) in cells {
        match cell {
            Cell::Bool => row.set_bool(column, generator.next_bool())?,
            Cell::Int8 => row.set_i8(column, generator.next_i8())?,
            Cell::Int16 => row.set_i16(column, generator.next_i16())?,
            Cell::Int32 => row.set_i32(column, generator.next_i32())?,
            Cell::Int64 => row.set_i64(column, generator.next_i64())?,
            Cell::Float => row.set_f32(column, generator.next_u64() as f32)?,
            Cell::Double => row.set_f64(column, generator.next_u64() as f64)?,
            Cell::UnixtimeMicros => row.set_unixtime_micros(column, generator.next_i64())?,
            Cell::Date => row.set_date(column, generator.next_i32().min(DATE_MAX))?,
            Cell::Decimal32(max) => {
                row.set_decimal(column, i128::from(generator.next_i32().min(max)))?
            }
            Cell::Decimal64(max) => {
                row.set_decimal(column, i128::from(generator.next_i64().min(max)))?
            }
            Cell::Decimal128 => {
                generator.next_u64();
                row.set_decimal(column, 0)?
            }
            Cell::String if fixed.is_empty() => row.set_string(column, generator.next_text())?,
            Cell::String => row.set_string(column, fixed)?,
            Cell::Binary if fixed.is_empty() => {
                row.set_binary(column, generator.next_text().as_bytes())?
            }
            Cell::Binary => row.set_binary(column, fixed.as_bytes())?,
        };
    }
    Ok(())
}

impl Cell {
    fn of(column: &ColumnSchema) -> Cell {
        let precision = u32::from(column.type_attributes().precision.unwrap_or(38));
        // Ten to the power of 38 has space in 127 bits, and the narrower types have fewer digits.
        let unscaled_max = 10i128.pow(precision.min(38)) - 1;
        match column.data_type() {
            DataType::Bool => Cell::Bool,
            DataType::Int8 => Cell::Int8,
            DataType::Int16 => Cell::Int16,
            DataType::Int32 => Cell::Int32,
            DataType::Int64 => Cell::Int64,
            DataType::Float => Cell::Float,
            DataType::Double => Cell::Double,
            DataType::UnixtimeMicros => Cell::UnixtimeMicros,
            DataType::Date => Cell::Date,
            DataType::Decimal32 => Cell::Decimal32(unscaled_max.try_into().unwrap_or(i32::MAX)),
            DataType::Decimal64 => Cell::Decimal64(unscaled_max.try_into().unwrap_or(i64::MAX)),
            DataType::Decimal128 => Cell::Decimal128,
            DataType::String | DataType::Varchar => Cell::String,
            // A cell of a type that this tool does not know is refused when it is set.
            _ => Cell::Binary,
        }
    }
}

#[cfg(test)]
mod tests {
    //! Columns are distinguished; what ends up in rows is tested against the other tool.

    use super::*;

    #[test]
    fn decimals_stay_within_their_digits() {
        let decimal = |precision, data_type| {
            let attributes = oribi_kudu::ColumnTypeAttributes::decimal(precision, 0);
            let column = ColumnSchema::builder("d", data_type).type_attributes(attributes);
            Cell::of(&column.build().unwrap())
        };
        assert_eq!(decimal(9, DataType::Decimal32), Cell::Decimal32(999_999_999));
        assert_eq!(decimal(3, DataType::Decimal32), Cell::Decimal32(999));
        assert_eq!(decimal(18, DataType::Decimal64), Cell::Decimal64(999_999_999_999_999_999));
        assert_eq!(decimal(38, DataType::Decimal128), Cell::Decimal128);
    }

    #[test]
    fn keys_and_the_rest_have_generators_of_their_own() {
        let schema = Schema::builder()
            .column(ColumnSchema::builder("a", DataType::Int64).key())
            .column(ColumnSchema::builder("b", DataType::String).key())
            .column(ColumnSchema::builder("c", DataType::Double))
            .build()
            .unwrap();
        let generator = RowGenerator::sequential(0, 4);
        let filler = RowFiller::new(&schema, generator.clone(), generator, "");
        assert_eq!(filler.keys, [(0, Cell::Int64), (1, Cell::String)]);
        assert_eq!(filler.others, [(2, Cell::Double)]);
    }
}
