//! Everything that needs a real Kudu. Without one these tests print `SKIPPED` and pass.
//!
//! One test program for all of them, because linking is what costs. The tests of a module share a
//! Kudu cluster.

mod bucket;
mod cluster;
mod tools;
