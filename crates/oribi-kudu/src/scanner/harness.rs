//! What the crate's `harness` needs of the decoders; see there.

pub(crate) use super::batch::Block;
pub(crate) use super::columnar::ColumnarBlock;
pub(crate) use super::rowwise::RowwiseBlock;
