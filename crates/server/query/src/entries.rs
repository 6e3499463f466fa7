//! The sorted entries of an index, and the bytes that sort as values do.
//!
//! [`encoding`] makes bytes of values, [`value_range`] bounds of conditions, [`sorted`] keeps
//! entries in the blocks of [`block`], whose memory [`memory`] counts.

pub mod block;
pub mod encoding;
pub mod memory;
pub mod sorted;
pub mod value_range;
