//! Checks of the decoders against themselves, shared by unit tests and the fuzz targets.
//!
//! Each check takes arbitrary bytes, as a broken or hostile server might send them, and panics when
//! an invariant of this crate does not hold. A decoder that refuses bytes violates none. Compiled
//! only for tests and under the `harness` feature.

mod frames;
mod input;
mod negotiation;
mod rows;
mod scan;
mod table;

pub use frames::check as check_frames;
pub use negotiation::check as check_negotiation;
pub use rows::check as check_rows;
pub use scan::check as check_scan;
pub use table::check as check_table;

#[cfg(test)]
mod tests;
