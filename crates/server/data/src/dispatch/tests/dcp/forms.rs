//! The forms of a document on the wire: attributes, compression, expirations.

use oribi_engine::compression::inflate;
use oribi_protocol::limits::VALUE_BYTES_MAX;
use oribi_types::Datatype;

use super::*;
use crate::dispatch::tests::about;

const PLAIN_CONSUMER: [u16; 6] = [6, 7, 8, 0x0b, 0x10, 0x12];

const INCLUDE_XATTRS: u32 = 0x04;
const NO_VALUE: u32 = 0x08;
const INCLUDE_DELETE_TIMES: u32 = 0x20;
const NO_VALUE_WITH_DATATYPE: u32 = 0x40;

const JSON: u8 = Datatype::JSON.0;
const SNAPPY: u8 = Datatype::SNAPPY.0;
const XATTR: u8 = Datatype::XATTR.0;

/// A document that compresses well.
fn long() -> Vec<u8> {
    format!(r#"{{"text":"{}"}}"#, "again and ".repeat(2_000)).into_bytes()
}

fn compressed(plain: &[u8]) -> Vec<u8> {
    snap::raw::Encoder::new().compress_vec(plain).unwrap()
}

impl Client {
    fn write_as(&mut self, key: &[u8], value: &[u8], datatype: u8, expiry_s: u32) {
        let mut extras = [0; 8];
        extras[4..].copy_from_slice(&expiry_s.to_be_bytes());
        let set = RequestParts {
            vbid: Vbid(0),
            extras: &extras,
            value,
            datatype,
            ..about(Opcode::Set, key)
        };
        assert_eq!(self.ask(&set).status, Status::Success);
    }

    /// Sets the attribute `tag` to `"v"`.
    fn tag(&mut self, key: &[u8]) {
        let upsert = RequestParts {
            vbid: Vbid(0),
            // A path of three bytes, of an attribute.
            extras: &[0, 3, 0x04],
            value: br#"tag"v""#,
            ..about(Opcode::SubdocDictUpsert, key)
        };
        assert_eq!(self.ask(&upsert).status, Status::Success);
    }

    /// Opens a stream of vbucket 0 and returns the value and the datatype of the last mutation.
    fn last_mutation(&mut self, key: &[u8]) -> (Vec<u8>, u8) {
        let (reply, all) = self.stream(0, &EVERYTHING, "");
        assert_eq!(reply.status, Status::Success);
        let mut mutations = all.iter().filter_map(|got| match got.told() {
            DcpEvent::Mutation { key: found, value, datatype, .. } if found.ends_with(key) => {
                Some((value.clone(), *datatype))
            }
            _ => None,
        });
        mutations.next_back().expect("the document comes")
    }
}

/// The block of attributes that [`Client::tag`] makes.
fn tag_block() -> Vec<u8> {
    let pair = b"tag\0\"v\"\0";
    let mut block = (pair.len() as u32 + 4).to_be_bytes().to_vec();
    block.extend_from_slice(&(pair.len() as u32).to_be_bytes());
    block.extend_from_slice(pair);
    block
}

#[test]
fn xattrs_come_before_the_body_on_request() {
    let mut writer = Client::modern();
    writer.write_as(b"k", b"{}", 0, 0);
    writer.tag(b"k");
    let both = [&tag_block()[..], b"{}"].concat();
    for (flags, expected, datatype) in [
        (0, &b"{}"[..], JSON),
        (INCLUDE_XATTRS, &both[..], JSON | XATTR),
        (INCLUDE_XATTRS | NO_VALUE, &tag_block()[..], XATTR),
    ] {
        for features in [&CONSUMER[..], &PLAIN_CONSUMER] {
            let mut consumer = writer.consumer(features, 1 | flags);
            let got = consumer.last_mutation(b"k");
            assert_eq!(got, (expected.to_vec(), datatype), "{flags:#x}");
        }
    }
}

#[test]
fn consumers_without_snappy_get_inflated_documents() {
    let mut writer = Client::modern();
    writer.write_as(b"k", &compressed(&long()), SNAPPY, 0);
    let (value, datatype) = writer.consumer(&CONSUMER, 1).last_mutation(b"k");
    assert_eq!(datatype, JSON | SNAPPY);
    assert!(value.len() < long().len() / 2, "as it is stored");
    assert!(inflate(&value, VALUE_BYTES_MAX).unwrap() == long());
    let (value, datatype) = writer.consumer(&PLAIN_CONSUMER, 1).last_mutation(b"k");
    assert_eq!(datatype, JSON);
    assert!(value == long());

    // Attributes are never compressed alone, so the body after them is inflated.
    writer.tag(b"k");
    for features in [&CONSUMER[..], &PLAIN_CONSUMER] {
        let (value, datatype) = writer.consumer(features, 1 | INCLUDE_XATTRS).last_mutation(b"k");
        assert_eq!(datatype, JSON | XATTR);
        assert!(value == [tag_block(), long()].concat());
    }
}

/// The datatype is the stored body's, but what comes is not compressed.
#[test]
fn attributes_without_a_body_are_plain() {
    let mut writer = Client::modern();
    writer.write_as(b"k", &compressed(&long()), SNAPPY, 0);
    let mut consumer = writer.consumer(&CONSUMER, 1 | INCLUDE_XATTRS | NO_VALUE_WITH_DATATYPE);
    assert_eq!(consumer.last_mutation(b"k"), (Vec::new(), JSON | SNAPPY));
    writer.tag(b"k");
    let mut consumer = writer.consumer(&CONSUMER, 1 | INCLUDE_XATTRS | NO_VALUE_WITH_DATATYPE);
    assert_eq!(consumer.last_mutation(b"k"), (tag_block(), JSON | XATTR));
}

#[test]
fn values_are_compressed_on_request_if_smaller() {
    let mut writer = Client::modern();
    writer.write_as(b"long", &long(), 0, 0);
    writer.write_as(b"short", b"1", 0, 0);
    let mut consumer = writer.consumer(&CONSUMER, 1);
    assert_eq!(consumer.last_mutation(b"long"), (long(), JSON), "not unless it is chosen");
    let mut consumer = writer.consumer(&CONSUMER, 1);
    consumer.choose("force_value_compression", "true");
    let (value, datatype) = consumer.last_mutation(b"long");
    assert_eq!(datatype, JSON | SNAPPY);
    assert!(inflate(&value, VALUE_BYTES_MAX).unwrap() == long());
    let mut consumer = writer.consumer(&CONSUMER, 1);
    consumer.choose("force_value_compression", "true");
    assert_eq!(consumer.last_mutation(b"short"), (b"1".to_vec(), JSON));
    let mut consumer = writer.consumer(&PLAIN_CONSUMER, 1);
    assert_eq!(consumer.control("force_value_compression", "true"), Status::Einval);
}

// Compat (Change streams): CONTROL
#[test]
fn large_values_are_not_compressed_for_a_stream() {
    let mut writer = Client::modern();
    let large = format!(r#"{{"text":"{}"}}"#, "again and ".repeat(60_000)).into_bytes();
    writer.write_as(b"k", &large, 0, 0);
    let mut consumer = writer.consumer(&CONSUMER, 1);
    consumer.choose("force_value_compression", "true");
    let (value, datatype) = consumer.last_mutation(b"k");
    assert_eq!(datatype, JSON);
    assert!(value == large);
}

/// An expiration has its own message only with the option and with delete times.
#[test]
fn expirations_have_their_opcode_if_negotiated() {
    let mut writer = Client::modern();
    writer.write_as(b"k", b"1", 0, 1);
    writer.write_as(b"deleted", b"1", 0, 0);
    let delete = RequestParts { vbid: Vbid(0), ..about(Opcode::Delete, b"deleted") };
    assert_eq!(writer.ask(&delete).status, Status::Success);
    writer.harness.advance_ms(5_000);
    let get = RequestParts { vbid: Vbid(0), ..about(Opcode::Get, b"k") };
    assert_eq!(writer.ask(&get).status, Status::KeyEnoent);
    for (flags, has_opcode) in
        [(INCLUDE_DELETE_TIMES, true), (0, true), (INCLUDE_DELETE_TIMES, false)]
    {
        let mut consumer = writer.consumer(&CONSUMER, 1 | flags);
        if has_opcode {
            consumer.choose("enable_expiry_opcode", "true");
        }
        let (reply, all) = consumer.stream(0, &EVERYTHING, "");
        assert_eq!(reply.status, Status::Success);
        let expired: Vec<&DcpEvent> = all
            .iter()
            .map(ServerFrame::told)
            .filter(|told| match told {
                DcpEvent::Expiration { key, .. } | DcpEvent::Deletion { key, .. } => key == b"\0k",
                _ => false,
            })
            .collect();
        let is_expiration = matches!(expired[..], [DcpEvent::Expiration { .. }]);
        assert_eq!(expired.len(), 1, "{all:?}");
        assert_eq!(is_expiration, has_opcode && flags != 0, "{all:?}");
        let is_plain = |got: &ServerFrame| matches!(got.told(), DcpEvent::Deletion { key, .. } if key == b"\0deleted");
        assert!(all.iter().any(is_plain), "a client's deletion is none: {all:?}");
    }
}
