//! The two look-ups by primary key that a store prepares when it is opened.

use oribi_kudu::{PointLookup, ReadMode, Table};
use oribi_storage::StoreError;

use crate::failure::of_kudu;
use crate::layout::{COLUMNS, column};

/// The look-ups of a table.
#[derive(Debug)]
pub(crate) struct Lookups {
    /// All columns of a document except its key.
    pub(crate) document: PointLookup,
    /// The body of a row that is not a document.
    pub(crate) named: PointLookup,
}

impl Lookups {
    pub(crate) fn of(table: &Table) -> Result<Lookups, StoreError> {
        let of_columns = |columns: &[&str]| {
            let lookup = table.point_lookup().columns(columns.iter().copied());
            lookup.read_mode(ReadMode::AtSnapshot(None)).build().map_err(|error| of_kudu(&error))
        };
        Ok(Lookups {
            document: of_columns(&COLUMNS[column::CAS..])?,
            named: of_columns(&[COLUMNS[column::BODY]])?,
        })
    }
}
