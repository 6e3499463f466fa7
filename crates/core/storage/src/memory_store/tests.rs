//! The conformance suite on the store in memory.

use std::sync::Arc;

use super::MemoryMedium;
use crate::conformance;

// Invariant: A scan by seqno shows one moment and reports high seqno and purge seqno before the
// first record.
#[test]
fn passes_the_conformance_suite() {
    conformance::run(&|| Box::new(Arc::<MemoryMedium>::default()));
}
