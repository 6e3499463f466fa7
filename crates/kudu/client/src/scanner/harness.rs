//! The parts of the decoders that the crate's `harness` calls.

pub(crate) use super::batch::BatchBlock;
pub(crate) use super::columnar::ColumnarBlock;
pub(crate) use super::rowwise::RowwiseBlock;
