//! The request of a lookup, laid out by hand in one piece of memory.
//!
//! Only the tablet, the token, the timestamp and the key differ between lookups; columns and
//! options are encoded once. Invariant: the bytes equal those of the message [`ScanRequestPb`]; a
//! test compares the two.

use bytes::Bytes;
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint};

use crate::proto::common::{OrderModePb, ReadModePb};
use crate::proto::tserver::{NewScanRequestPb, ScanRequestPb};
use crate::retry::Attempt;
use crate::scanner::{Projection, ReadMode};

use super::key::LookupKey;

/// Field numbers of the request and, inside it, of the new scan.
mod field {
    pub const NEW_SCAN: u32 = 2;
    pub const TABLET_ID: u32 = 1;
    pub const PROPAGATED_TIMESTAMP: u32 = 7;
    pub const START_PRIMARY_KEY: u32 = 8;
    pub const STOP_PRIMARY_KEY: u32 = 9;
    pub const AUTHZ_TOKEN: u32 = 15;
}

/// The parts of the request that are the same for all keys.
#[derive(Debug)]
pub(super) struct RequestTemplate {
    /// Fields of the new scan.
    new_scan: Vec<u8>,
    /// Fields of the request.
    request: Vec<u8>,
}

impl RequestTemplate {
    pub(super) fn new(projection: &Projection, read_mode: ReadMode) -> RequestTemplate {
        let (mode, snap_timestamp) = match read_mode {
            ReadMode::Latest => (ReadModePb::ReadLatest, None),
            ReadMode::AtSnapshot(timestamp) => (ReadModePb::ReadAtSnapshot, timestamp),
            ReadMode::YourWrites => (ReadModePb::ReadYourWrites, None),
        };
        let new_scan = NewScanRequestPb {
            limit: Some(1),
            projected_columns: projection.to_pb(),
            read_mode: Some(mode.into()),
            snap_timestamp,
            order_mode: Some(OrderModePb::Unordered.into()),
            ..NewScanRequestPb::default()
        };
        let request = ScanRequestPb {
            call_seq_id: Some(0),
            close_scanner: Some(true),
            ..ScanRequestPb::default()
        };
        // A required field is written even when it is empty, and the tablet follows with each key.
        let empty_tablet_id = NewScanRequestPb::default().encoded_len();
        let new_scan = new_scan.encode_to_vec().split_off(empty_tablet_id);
        RequestTemplate { new_scan, request: request.encode_to_vec() }
    }

    /// The request for one key in one tablet. `stop` is the key's successor.
    pub(super) fn request(
        &self,
        attempt: &Attempt<'_>,
        key: &LookupKey,
        stop: Option<&[u8]>,
    ) -> Bytes {
        let token_bytes = attempt.authz_token.map(Message::encoded_len);
        let delimited = |bytes: usize| 1 + encoded_len_varint(bytes as u64) + bytes;
        let new_scan_bytes = delimited(attempt.tablet_id.len())
            + attempt.propagated_timestamp.map_or(0, |_| 9)
            + delimited(key.encoded().len())
            + stop.map_or(0, |stop| delimited(stop.len()))
            + token_bytes.map_or(0, delimited)
            + self.new_scan.len();
        let mut body = Vec::with_capacity(delimited(new_scan_bytes) + self.request.len());
        encode_key(field::NEW_SCAN, WireType::LengthDelimited, &mut body);
        encode_varint(new_scan_bytes as u64, &mut body);
        put_bytes(field::TABLET_ID, attempt.tablet_id.as_bytes(), &mut body);
        if let Some(timestamp) = attempt.propagated_timestamp {
            encode_key(field::PROPAGATED_TIMESTAMP, WireType::SixtyFourBit, &mut body);
            body.extend_from_slice(&timestamp.to_le_bytes());
        }
        put_bytes(field::START_PRIMARY_KEY, key.encoded(), &mut body);
        if let Some(stop) = stop {
            put_bytes(field::STOP_PRIMARY_KEY, stop, &mut body);
        }
        if let Some(token) = attempt.authz_token {
            encode_key(field::AUTHZ_TOKEN, WireType::LengthDelimited, &mut body);
            encode_varint(token.encoded_len() as u64, &mut body);
            token.encode(&mut body).expect("a vector grows");
        }
        body.extend_from_slice(&self.new_scan);
        body.extend_from_slice(&self.request);
        Bytes::from(body)
    }
}

fn put_bytes(field: u32, bytes: &[u8], body: &mut Vec<u8>) {
    encode_key(field, WireType::LengthDelimited, body);
    encode_varint(bytes.len() as u64, body);
    body.extend_from_slice(bytes);
}
