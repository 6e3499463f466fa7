//! Scans.

#[cfg(feature = "arrow")]
mod arrow;
mod batch;
mod block;
mod bloom_filter;
mod cell;
mod columnar;
mod error;
mod key_bound;
mod operand;
mod predicate;
mod projection;
mod pruning;
mod rowwise;
#[cfg(test)]
mod tests;
