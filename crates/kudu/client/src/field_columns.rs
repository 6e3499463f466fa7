//! Maps the fields of a struct to the columns of a table or of a scan.

use crate::row_operation::RowError;
use crate::scan_error::ScanError;
use crate::scanner::Projection;
use crate::schema::Schema;

/// The column of each field.
#[derive(Clone, Debug, Default)]
pub(crate) struct FieldColumns {
    names: &'static [&'static str],
    columns: Vec<usize>,
}

impl FieldColumns {
    /// The fields of these names in a table.
    pub(crate) fn in_schema(
        names: &'static [&'static str],
        schema: &Schema,
    ) -> Result<FieldColumns, RowError> {
        let column = |name: &&str| {
            schema
                .column_index(name)
                .ok_or_else(|| RowError::UnknownColumn { column: (*name).to_owned() })
        };
        Ok(FieldColumns { names, columns: names.iter().map(column).collect::<Result<_, _>>()? })
    }

    /// The fields of these names in a scan's rows.
    pub(crate) fn in_projection(
        names: &'static [&'static str],
        projection: &Projection,
    ) -> Result<FieldColumns, ScanError> {
        let column = |name: &&str| {
            projection
                .index_of(name)
                .ok_or_else(|| ScanError::UnknownColumn { column: (*name).to_owned() })
        };
        Ok(FieldColumns { names, columns: names.iter().map(column).collect::<Result<_, _>>()? })
    }

    /// Whether these are the columns of fields with these names. The names are usually the same
    /// constant.
    #[inline]
    pub(crate) fn are_of(&self, names: &'static [&'static str]) -> bool {
        std::ptr::eq(self.names, names) || self.names == names
    }

    #[inline]
    pub(crate) fn column(&self, field: usize) -> usize {
        self.columns[field]
    }

    pub(crate) fn name(&self, field: usize) -> &'static str {
        self.names[field]
    }
}
