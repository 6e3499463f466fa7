//! Keys and their successors, and requests compared with the equivalent message.

use bytes::Bytes;
use proptest::prelude::*;
use prost::Message;

use super::key::LookupKey;
use super::request::RequestTemplate;
use crate::key_encoding::KeyCells;
use crate::proto::common::{OrderModePb, ReadModePb};
use crate::proto::rpc::SignedTokenPb;
use crate::proto::tserver::{NewScanRequestPb, ScanRequestPb};
use crate::retry::Attempt;
use crate::scanner::{Projection, ReadMode};
use crate::schema::{ColumnSchema, DataType, Schema, Value};

fn schema(types: &[DataType]) -> Schema {
    let column = |(index, data_type): (usize, &DataType)| {
        ColumnSchema::builder(format!("c{index}"), *data_type).key()
    };
    types
        .iter()
        .enumerate()
        .map(column)
        .fold(Schema::builder(), |schema, column| schema.column(column))
        .build()
        .unwrap()
}

/// Number, text and number: together they have every way to count up.
const MIXED: [DataType; 3] = [DataType::Int8, DataType::String, DataType::Int16];

fn mixed_key(a: i8, b: &str, c: i16) -> LookupKey {
    LookupKey::new(&schema(&MIXED), &[Value::Int8(a), Value::String(b), Value::Int16(c)]).unwrap()
}

#[test]
fn a_successor_counts_the_last_column_up_and_carries() {
    let successor = |a, b, c| mixed_key(a, b, c).successor(&schema(&MIXED));
    assert_eq!(successor(1, "x", 5), Some(mixed_key(1, "x", 6).encoded().to_vec()));
    assert_eq!(successor(1, "x", i16::MAX), Some(mixed_key(1, "x\0", i16::MIN).encoded().to_vec()));
    let text = schema(&[DataType::String]);
    let last = LookupKey::new(&text, &[Value::String("ab")]).unwrap();
    assert_eq!(last.successor(&text), Some(b"ab\0".to_vec()));
    let numbers = schema(&[DataType::Int64, DataType::Int8]);
    let key = |a, b| LookupKey::new(&numbers, &[Value::Int64(a), Value::Int8(b)]).unwrap();
    assert_eq!(key(7, i8::MAX).successor(&numbers), Some(key(8, i8::MIN).encoded().to_vec()));
    assert_eq!(key(i64::MAX, i8::MAX).successor(&numbers), None);
}

#[test]
fn a_key_has_a_value_for_every_column() {
    let schema = schema(&MIXED);
    assert!(LookupKey::new(&schema, &[Value::Int8(1), Value::String("x")]).is_err());
    assert!(LookupKey::new(&schema, &[Value::Int8(1), Value::String("x"), Value::Null]).is_err());
    assert!(LookupKey::new(&schema, &[Value::Int8(1), Value::Int16(1), Value::Int16(1)]).is_err());
    let key = mixed_key(-1, "text", 258);
    assert_eq!(key.cell(0), Some(&[0xff][..]));
    assert_eq!(key.cell(1), Some(&b"text"[..]));
    assert_eq!(key.cell(2), Some(&[2, 1][..]));
    assert_eq!(key.cell(3), None);
}

proptest! {
    #[test]
    fn no_key_is_between_a_key_and_its_successor(
        one in (prop::sample::select(vec![i8::MIN, 0, i8::MAX]), "[a\\x00]{0,3}", prop::sample::select(vec![i16::MIN, 0, i16::MAX])),
        other in (prop::sample::select(vec![i8::MIN, 0, i8::MAX]), "[a\\x00]{0,3}", prop::sample::select(vec![i16::MIN, 0, i16::MAX])),
    ) {
        let (key, other_key) = (mixed_key(one.0, &one.1, one.2), mixed_key(other.0, &other.1, other.2));
        let successor = key.successor(&schema(&MIXED));
        prop_assert_eq!(key.encoded().cmp(other_key.encoded()), one.cmp(&other));
        if let Some(successor) = successor {
            prop_assert!(key.encoded() < &successor[..]);
            if key.encoded() < other_key.encoded() {
                prop_assert!(&successor[..] <= other_key.encoded());
            }
        }
    }
}

#[test]
fn a_request_is_the_message_that_it_stands_for() {
    let schema = schema(&MIXED);
    let projection = Projection::of_table(&schema, None).unwrap();
    let key = mixed_key(1, "key", 2);
    let stop = key.successor(&schema);
    let token = SignedTokenPb {
        token_data: Some(Bytes::from_static(b"right")),
        ..SignedTokenPb::default()
    };
    for (read_mode, mode, snapshot) in [
        (ReadMode::Latest, ReadModePb::ReadLatest, None),
        (ReadMode::YourWrites, ReadModePb::ReadYourWrites, None),
        (ReadMode::AtSnapshot(Some(77)), ReadModePb::ReadAtSnapshot, Some(77)),
    ] {
        for (token, timestamp) in [(None, None), (Some(&token), Some(u64::MAX))] {
            let attempt = Attempt {
                tablet_id: "0123456789abcdef0123456789abcdef",
                authz_token: token,
                propagated_timestamp: timestamp,
            };
            let body = RequestTemplate::new(&projection, read_mode).request(
                &attempt,
                &key,
                stop.as_deref(),
            );
            let expected = ScanRequestPb {
                new_scan_request: Some(NewScanRequestPb {
                    tablet_id: Bytes::from_static(b"0123456789abcdef0123456789abcdef"),
                    limit: Some(1),
                    projected_columns: projection.to_pb(),
                    read_mode: Some(mode.into()),
                    snap_timestamp: snapshot,
                    propagated_timestamp: timestamp,
                    start_primary_key: Some(Bytes::copy_from_slice(key.encoded())),
                    stop_primary_key: stop.clone().map(Bytes::from),
                    order_mode: Some(OrderModePb::Unordered.into()),
                    authz_token: token.cloned(),
                    ..NewScanRequestPb::default()
                }),
                call_seq_id: Some(0),
                close_scanner: Some(true),
                ..ScanRequestPb::default()
            };
            assert_eq!(ScanRequestPb::decode(&body[..]), Ok(expected.clone()));
            assert_eq!(body.len(), expected.encoded_len());
        }
    }
}
