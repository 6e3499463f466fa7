//! Tests of request encoding and extras.
