//! The log store: conformance, crashes at every step, damage, its parts.

mod conformance;
