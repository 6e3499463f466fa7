//! From an operation to its request, on the terms of one connection.
//!
//! Owns the buffers that requests are put together in, reused from one operation to the next.

use bytes::Bytes;
use oribi_protocol::feature::Feature;
use oribi_protocol::frame_info::{encode_durability, encode_preserve_expiry};
use oribi_protocol::leb128;
use oribi_protocol::request::RequestParts;
use oribi_types::{CollectionId, Datatype, Vbid};

use super::Operation;
use crate::compression;
use crate::error::ClientError;
use crate::features::FeatureSet;

/// A connection's features, as far as requests depend on them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct EncodingTerms {
    /// Keys begin with the id of their collection.
    pub collections: bool,
    /// Requests may have framing extras.
    pub framing: bool,
    /// Values are compressed when that pays.
    pub compress: bool,
}

impl EncodingTerms {
    /// The terms of a connection with `granted` features. `compress_writes` is what the client
    /// wishes.
    pub fn of(granted: FeatureSet, compress_writes: bool) -> EncodingTerms {
        EncodingTerms {
            collections: granted.has(Feature::Collections),
            framing: granted.has(Feature::AltRequest),
            compress: compress_writes && granted.has(Feature::Snappy),
        }
    }
}

/// See the module text.
#[derive(Default)]
pub(crate) struct Encoder {
    framing: Vec<u8>,
    extras: Vec<u8>,
    key: Vec<u8>,
    compressed: Bytes,
}

impl Encoder {
    /// The request for a checked operation, and its value apart.
    pub fn encode<'e>(
        &'e mut self,
        operation: &'e Operation<'_>,
        vbid: Vbid,
        collection: CollectionId,
        terms: EncodingTerms,
    ) -> Result<(RequestParts<'e>, &'e Bytes), ClientError> {
        let options = &operation.options;
        self.framing.clear();
        encode_durability(options.durability, options.durability_timeout_ms, &mut self.framing);
        if options.preserve_expiry {
            encode_preserve_expiry(&mut self.framing);
        }
        if !self.framing.is_empty() && !terms.framing {
            return Err(ClientError::NotOffered("durability or preserved expiry"));
        }
        self.extras.clear();
        operation.write_extras(&mut self.extras);
        self.key.clear();
        if terms.collections {
            let (bytes, len) = leb128::encode_u32(collection.0);
            self.key.extend_from_slice(&bytes[..len]);
        } else if collection != CollectionId::DEFAULT {
            return Err(ClientError::NotOffered("collections"));
        }
        self.key.extend_from_slice(operation.key);
        let mut datatype = operation.datatype();
        let mut value = &operation.value;
        if terms.compress
            && operation.has_document_value()
            && let Some(compressed) = compression::compress(value)
        {
            self.compressed = compressed;
            datatype = Datatype::SNAPPY;
            value = &self.compressed;
        }
        let parts = RequestParts {
            vbid,
            cas: options.cas.0,
            datatype: datatype.0,
            framing: &self.framing,
            extras: &self.extras,
            key: &self.key,
            ..RequestParts::new(operation.opcode())
        };
        Ok((parts, value))
    }
}
