//! Arbitrary bytes, split into numbers, pieces and schemas.
//!
//! Invariant: there is always a result. Reads beyond the end give zero or nothing, so every input
//! is a test case. The checks call it.

use bytes::Bytes;

use crate::proto::common::{ColumnSchemaPb, SchemaPb};

/// The rest of an input.
pub(super) struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) fn u8(&mut self) -> u8 {
        match self.0.split_first() {
            Some((byte, rest)) => {
                self.0 = rest;
                *byte
            }
            None => 0,
        }
    }

    pub(super) fn bool(&mut self) -> bool {
        self.u8() & 1 == 1
    }

    pub(super) fn u16(&mut self) -> u16 {
        u16::from_le_bytes([self.u8(), self.u8()])
    }

    /// At most this many bytes.
    pub(super) fn take(&mut self, bytes: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(bytes.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// A piece with a length prefix.
    pub(super) fn piece(&mut self) -> Bytes {
        let bytes = usize::from(self.u16());
        Bytes::copy_from_slice(self.take(bytes))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All remaining bytes.
    pub(super) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    /// The message of a schema of a few columns; the first one is the key.
    pub(super) fn schema_pb(&mut self) -> SchemaPb {
        const COLUMNS_MAX: u8 = 12;
        const DATA_TYPES: u8 = 21;
        let columns = (0..1 + self.u8() % COLUMNS_MAX)
            .map(|index| {
                let choice = self.u8();
                ColumnSchemaPb {
                    id: Some(index.into()),
                    name: format!("c{index}"),
                    r#type: (choice % DATA_TYPES).into(),
                    is_key: Some(index == 0),
                    is_nullable: Some(index > 0 && choice >= 128),
                    ..ColumnSchemaPb::default()
                }
            })
            .collect();
        SchemaPb { columns }
    }
}
