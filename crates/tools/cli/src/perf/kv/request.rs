//! Requests of the load, encoded straight into a connection's buffer, in the protocol of it.

use bytes::Bytes;
use oribi_client::{Connection, FLAGS_JSON};
use oribi_protocol::frame_info::encode_durability;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::{RequestParts, SetExtras};
use oribi_types::{Datatype, DurabilityLevel, Vbid};

use super::operation::{KvOperation, OperationKind};
use super::value::{KvValueForm, KvValues, ValueIdentity, ValuePieces};
use super::wire::Wire;

/// Common parts of all writes of a run, and buffers that are used again for each.
pub struct RequestEncoder {
    values: KvValues,
    framing: Vec<u8>,
    extras: SetExtras,
    extras_bytes: [u8; SetExtras::BYTES],
    compressor: Option<Compressor>,
}

/// Where a request goes.
pub struct Address<'a> {
    /// Vbucket of the key; 0 for a server that has none.
    pub vbid: Vbid,
    /// Key with collection prefix, if there is one.
    pub field: &'a [u8],
    pub seed: u32,
}

impl RequestEncoder {
    /// Writes are sent with `expiry` and `durability`, and compressed if that makes them smaller
    /// and `compress` is set.
    pub fn new(
        values: KvValues,
        form: KvValueForm,
        expiry: u32,
        durability: DurabilityLevel,
        compress: bool,
    ) -> RequestEncoder {
        let mut framing = Vec::new();
        encode_durability(durability, None, &mut framing);
        let flags = if form == KvValueForm::Json { FLAGS_JSON } else { 0 };
        let extras = SetExtras { flags, expiry };
        RequestEncoder {
            values,
            framing,
            extras,
            extras_bytes: extras.encode(),
            compressor: compress.then(Compressor::new),
        }
    }

    /// Queues an operation; returns the bytes of the value that will be sent.
    pub fn push(
        &mut self,
        wire: &mut Wire,
        operation: &KvOperation,
        address: &Address<'_>,
        opaque: u32,
    ) -> usize {
        let text = match wire {
            Wire::Binary(connection) => {
                return self.push_frame(connection, operation, address, opaque);
            }
            Wire::Text(text) => text,
        };
        match operation.kind {
            OperationKind::Get => {
                text.push_get(operation, address.field, opaque);
                0
            }
            OperationKind::Set => {
                let composed = compose(&mut self.values, operation, address);
                let SetExtras { flags, expiry } = self.extras;
                text.push_set(operation, address.field, opaque, (flags, expiry), &composed);
                operation.value_bytes as usize
            }
        }
    }

    fn push_frame(
        &mut self,
        connection: &mut Connection,
        operation: &KvOperation,
        address: &Address<'_>,
        opaque: u32,
    ) -> usize {
        let opcode = match operation.kind {
            OperationKind::Get => Opcode::Get,
            OperationKind::Set => Opcode::Set,
        };
        let parts = RequestParts {
            vbid: address.vbid,
            opaque,
            key: address.field,
            ..RequestParts::new(opcode)
        };
        if operation.kind == OperationKind::Get {
            connection.push(&parts);
            return 0;
        }
        let parts = RequestParts { framing: &self.framing, extras: &self.extras_bytes, ..parts };
        let composed = compose(&mut self.values, operation, address);
        if let Some(packed) = self.compressor.as_mut().and_then(|it| it.pack(&composed)) {
            let datatype = Datatype::SNAPPY.0;
            connection.push(&RequestParts { datatype, value: packed, ..parts });
            return packed.len();
        }
        connection.push_pieces(&parts, composed.head(), &composed.body, composed.tail);
        operation.value_bytes as usize
    }
}

fn compose(values: &mut KvValues, operation: &KvOperation, address: &Address<'_>) -> ValuePieces {
    let identity = ValueIdentity { index: operation.index, seed: address.seed };
    values.compose(identity, operation.version, operation.value_bytes as usize)
}

/// Snappy with buffers that are kept.
struct Compressor {
    encoder: snap::raw::Encoder,
    whole: Vec<u8>,
    packed: Vec<u8>,
}

impl Compressor {
    fn new() -> Compressor {
        Compressor { encoder: snap::raw::Encoder::new(), whole: Vec::new(), packed: Vec::new() }
    }

    /// The value compressed, if that makes it smaller.
    fn pack(&mut self, value: &ValuePieces) -> Option<&[u8]> {
        self.whole.clear();
        let body: &Bytes = &value.body;
        for piece in [value.head(), body, value.tail] {
            self.whole.extend_from_slice(piece);
        }
        let room = snap::raw::max_compress_len(self.whole.len());
        if self.packed.len() < room {
            self.packed.resize(room, 0);
        }
        let packed_bytes = self.encoder.compress(&self.whole, &mut self.packed).ok()?;
        (packed_bytes < self.whole.len()).then(|| &self.packed[..packed_bytes])
    }
}

#[cfg(test)]
mod tests {
    //! Compression is used when it helps, and gives back what was put in.

    use super::*;

    #[test]
    fn values_are_packed_when_that_makes_them_smaller() {
        let identity = ValueIdentity { index: 1, seed: 2 };
        let mut compressor = Compressor::new();
        let mut wordy = KvValues::new(KvValueForm::Binary, 0..=5000, false, 1);
        let mut random = KvValues::new(KvValueForm::Binary, 0..=5000, true, 1);
        for bytes in [5000, 500] {
            let packed = compressor.pack(&wordy.compose(identity, 1, bytes)).unwrap();
            assert!(packed.len() < bytes);
            let whole = snap::raw::Decoder::new().decompress_vec(packed).unwrap();
            assert_eq!((wordy.verify(identity, &whole), whole.len()), (Ok(()), bytes));
            assert_eq!(compressor.pack(&random.compose(identity, 1, bytes)), None);
        }
        assert_eq!(compressor.pack(&wordy.compose(identity, 1, 0)), None);
    }
}
