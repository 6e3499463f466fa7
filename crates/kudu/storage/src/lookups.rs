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
    /// The body of a vbucket's state, and the number that the last removal of rows left next to it.
    pub(crate) state: PointLookup,
}

impl Lookups {
    pub(crate) fn of(table: &Table) -> Result<Lookups, StoreError> {
        let state = [COLUMNS[column::BODY], COLUMNS[column::CAS]];
        Ok(Lookups {
            document: Lookups::document_at(table, None)?,
            state: lookup(table, &state, None)?,
        })
    }

    /// The look-up of documents as they were at a hybrid time.
    pub(crate) fn document_at(
        table: &Table,
        snapshot: Option<u64>,
    ) -> Result<PointLookup, StoreError> {
        lookup(table, &COLUMNS[column::CAS..], snapshot)
    }
}

fn lookup(
    table: &Table,
    columns: &[&str],
    snapshot: Option<u64>,
) -> Result<PointLookup, StoreError> {
    let lookup = table.point_lookup().columns(columns.iter().copied());
    lookup.read_mode(ReadMode::AtSnapshot(snapshot)).build().map_err(|error| of_kudu(&error))
}
