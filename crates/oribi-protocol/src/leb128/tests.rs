//! Tests of collection prefixes.
