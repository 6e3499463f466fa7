//! Tests of the status table.
