//! The rows for one tablet, byte for byte as the session sends them.
//!
//! They are two buffers and a count, for any number of rows. Dropping a batch walks nothing, and a
//! row allocates nothing while there is space. Buffers grow by an eighth instead of doubling,
//! because buffered rows dominate a client's memory. Once a tablet's buffers have the size of its
//! batches, they are reused and grow no more.

use std::sync::Arc;

use bytes::Bytes;

/// Rows and the bytes that their strings point at.
#[derive(Debug, Default)]
pub(crate) struct RowBuffers {
    pub rows: Vec<u8>,
    pub indirect: Vec<u8>,
    pub row_count: usize,
}

impl RowBuffers {
    /// Bytes of the rows with their strings.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.rows.len() + self.indirect.len()
    }

    /// Bytes of allocated memory.
    pub(crate) fn capacity(&self) -> usize {
        self.rows.capacity() + self.indirect.capacity()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.row_count == 0
    }

    /// Empties the buffers and keeps their memory.
    pub(crate) fn clear(&mut self) {
        self.rows.clear();
        self.indirect.clear();
        self.row_count = 0;
    }

    /// The rows, as a piece of a request that shares this memory.
    pub(crate) fn rows_piece(self: &Arc<Self>) -> Bytes {
        struct Rows(Arc<RowBuffers>);
        impl AsRef<[u8]> for Rows {
            fn as_ref(&self) -> &[u8] {
                &self.0.rows
            }
        }
        Bytes::from_owner(Rows(self.clone()))
    }

    /// The strings, as a piece of a request that shares this memory.
    pub(crate) fn indirect_piece(self: &Arc<Self>) -> Bytes {
        struct Indirect(Arc<RowBuffers>);
        impl AsRef<[u8]> for Indirect {
            fn as_ref(&self) -> &[u8] {
                &self.0.indirect
            }
        }
        Bytes::from_owner(Indirect(self.clone()))
    }
}
