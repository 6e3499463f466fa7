//! The operators of expressions, on values.
//!
//! They know neither expressions nor frames: `eval` and `functions` both call them.

pub mod arithmetic;
pub mod containment;
pub mod logic;
pub mod navigation;
