//! The schema in every Write, and the mapping from the program's rows to it.
//!
//! Both are the same until the table is altered. A server refuses a whole batch when the schema
//! names a column that it does not have. The session then fetches the table's schema, and encodes
//! this batch and every later one again, until the program reopens the table. Rows that use a
//! dropped column fail one by one.

use std::sync::Arc;

use bytes::Bytes;

use crate::row_operation::RowLayout;
use crate::schema::Schema;

use super::write_request::schema_field;

/// A schema to send.
#[derive(Debug)]
pub(super) struct SentSchema {
    pub layout: Arc<RowLayout>,
    /// The encoded schema.
    pub field: Bytes,
    /// The session sends rows in the program's own layout.
    pub is_as_described: bool,
}

impl SentSchema {
    /// The schema that the program knows.
    pub(super) fn described(layout: &Arc<RowLayout>) -> SentSchema {
        SentSchema {
            layout: layout.clone(),
            field: schema_field(&layout.schema),
            is_as_described: true,
        }
    }

    /// A newer schema of the table.
    pub(super) fn altered(schema: &Schema) -> SentSchema {
        let layout = Arc::new(RowLayout::new(schema.clone()));
        SentSchema { field: schema_field(schema), layout, is_as_described: false }
    }
}
