//! Tests of response encoding.
