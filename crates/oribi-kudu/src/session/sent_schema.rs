//! The schema that servers are told with every Write, and the way from the program's rows to it.
//!
//! They are the same until the table is altered. A server refuses a whole batch when the schema names a
//! column that it does not have; the session then asks for the table's schema and encodes the batch again,
//! and every later one, until the program opens the table anew. Rows that use a dropped column cannot be
//! saved that way and fail one by one.

use std::sync::Arc;

use bytes::Bytes;

use crate::row_operation::RowLayout;
use crate::schema::Schema;

use super::write_request::schema_field;

/// A schema that is sent.
#[derive(Debug)]
pub(super) struct SentSchema {
    pub layout: Arc<RowLayout>,
    /// The schema as it is sent.
    pub field: Bytes,
    /// Rows are sent as the program's layout has them.
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

    /// A schema that the table has got meanwhile.
    pub(super) fn altered(schema: &Schema) -> SentSchema {
        let layout = Arc::new(RowLayout::new(schema.clone()));
        SentSchema { field: schema_field(schema), layout, is_as_described: false }
    }
}
