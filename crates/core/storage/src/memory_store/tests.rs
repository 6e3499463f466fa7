//! The conformance suite on the store in memory.

use std::sync::Arc;

use super::MemoryMedium;
use crate::conformance;

#[test]
fn passes_the_conformance_suite() {
    conformance::run(&|| Box::new(Arc::<MemoryMedium>::default()));
}
