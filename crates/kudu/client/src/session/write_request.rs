//! The body of a Write, laid out around the buffers that hold the encoded rows.
//!
//! Invariant: the pieces, end to end, are the message `WriteRequestPb`; a test decodes them. Rows
//! are never copied. Each attempt makes only the few dozen bytes before and between the two
//! buffers, because the tablet, the token and the timestamp can differ.

use std::sync::Arc;

use bytes::{BufMut, Bytes};
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint, key_len};

use crate::proto::rpc::SignedTokenPb;
use crate::schema::Schema;

use super::row_buffers::RowBuffers;

const TABLET_ID: u32 = 1;
const SCHEMA: u32 = 2;
const ROW_OPERATIONS: u32 = 3;
const PROPAGATED_TIMESTAMP: u32 = 5;
const AUTHZ_TOKEN: u32 = 6;
/// Fields of the row operations.
const ROWS: u32 = 2;
const INDIRECT_DATA: u32 = 3;

/// Most bytes of a request besides rows and schema: an authorization token has some hundred bytes,
/// the rest and the header of the call fewer.
pub(super) const OVERHEAD_BYTES_MAX: usize = 64 << 10;

/// One batch of rows for a tablet.
#[derive(Clone, Debug)]
pub(crate) struct WriteRequest {
    schema_field: Bytes,
    rows: Bytes,
    indirect: Bytes,
}

impl WriteRequest {
    /// A request for rows encoded by the schema in `schema_field`.
    pub(crate) fn new(schema_field: Bytes, buffers: &Arc<RowBuffers>) -> WriteRequest {
        WriteRequest {
            schema_field,
            rows: buffers.rows_piece(),
            indirect: buffers.indirect_piece(),
        }
    }

    /// The approximate size of the body.
    pub(crate) fn body_bytes(&self) -> usize {
        self.schema_field.len() + self.rows.len() + self.indirect.len()
    }

    /// The body for one attempt.
    pub(crate) fn pieces(
        &self,
        tablet_id: &str,
        authz_token: Option<&SignedTokenPb>,
        propagated_timestamp: Option<u64>,
    ) -> Vec<Bytes> {
        let mut head = Vec::with_capacity(96);
        put_length_field(TABLET_ID, tablet_id.len(), &mut head);
        head.put_slice(tablet_id.as_bytes());
        if let Some(timestamp) = propagated_timestamp {
            encode_key(PROPAGATED_TIMESTAMP, WireType::SixtyFourBit, &mut head);
            head.put_u64_le(timestamp);
        }
        if let Some(token) = authz_token {
            put_length_field(AUTHZ_TOKEN, token.encoded_len(), &mut head);
            token.encode_raw(&mut head);
        }
        let indirect_head = length_field(INDIRECT_DATA, self.indirect.len());
        let rows_head = length_field(ROWS, self.rows.len());
        let operations =
            rows_head.len() + self.rows.len() + indirect_head.len() + self.indirect.len();
        put_length_field(ROW_OPERATIONS, operations, &mut head);
        head.extend_from_slice(&rows_head);
        let (rows, indirect) = (self.rows.clone(), self.indirect.clone());
        vec![
            self.schema_field.clone(),
            Bytes::from(head),
            rows,
            Bytes::from(indirect_head),
            indirect,
        ]
    }
}

/// A schema as the field of a Write, encoded once and sent with every batch.
pub(super) fn schema_field(schema: &Schema) -> Bytes {
    let pb = schema.to_pb();
    let mut field = length_field(SCHEMA, pb.encoded_len());
    pb.encode_raw(&mut field);
    Bytes::from(field)
}

fn length_field(number: u32, length: usize) -> Vec<u8> {
    let mut field = Vec::with_capacity(key_len(number) + encoded_len_varint(length as u64));
    put_length_field(number, length, &mut field);
    field
}

fn put_length_field(number: u32, length: usize, buffer: &mut Vec<u8>) {
    encode_key(number, WireType::LengthDelimited, buffer);
    encode_varint(length as u64, buffer);
}
