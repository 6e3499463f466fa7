//! Encodes documents and keys for the pages of a range scan.
//!
//! Layout of a key: its length as LEB128, its bytes. Layout of a document: flags u32, expiry u32,
//! seqno u64, CAS u64 and datatype u8, big-endian. Key and value follow, each after its length as
//! LEB128.
//!
//! Attributes are left out, or precede the body as in the store. A compressed body is inflated for
//! clients that have not negotiated compression. It is also inflated when attributes are included,
//! because the wire compresses both as one stream.

use oribi_engine::compression::inflate_into;
use oribi_protocol::leb128;
use oribi_protocol::limits::VALUE_BYTES_MAX;
use oribi_storage::Record;
use oribi_subdoc::xattr;
use oribi_types::Datatype;

use super::request::Content;

/// The datatype bits that the client of a page understands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct AcceptedDatatypes(pub u8);

/// Appends a document, or its key.
pub(super) fn append(
    page: &mut Vec<u8>,
    record: &Record<'_>,
    content: Content,
    shown: AcceptedDatatypes,
) {
    if content == Content::Keys {
        return append_bytes(page, record.key.key);
    }
    let (attributes, body) = parts_of(record);
    let attributes = if content == Content::WithAttributes { attributes } else { &[] };
    let mut plain = Vec::new();
    let (mut body, mut bits) = (body, record.datatype.0 & shown.0);
    let is_compressed = record.datatype.contains(Datatype::SNAPPY);
    let is_inflated = !attributes.is_empty() || bits & Datatype::SNAPPY.0 == 0;
    // A damaged body is sent as it is, because the client can do more with it than with none.
    if is_compressed && is_inflated && inflate_into(body, VALUE_BYTES_MAX, &mut plain).is_ok() {
        (body, bits) = (&plain, bits & !Datatype::SNAPPY.0);
    }
    bits &= !Datatype::XATTR.0;
    if !attributes.is_empty() {
        bits |= Datatype::XATTR.0;
    }
    page.extend_from_slice(&record.flags.to_be_bytes());
    page.extend_from_slice(&record.expiry.to_be_bytes());
    page.extend_from_slice(&record.seqno.0.to_be_bytes());
    page.extend_from_slice(&record.cas.0.to_be_bytes());
    page.push(bits);
    append_bytes(page, record.key.key);
    append_length(page, attributes.len() + body.len());
    debug_assert_eq!(
        bits & Datatype::XATTR.0 != 0,
        !attributes.is_empty(),
        "the datatype says that attributes follow"
    );
    page.extend_from_slice(attributes);
    page.extend_from_slice(body);
}

/// The block of attributes, which may be empty, and the body.
fn parts_of<'a>(record: &Record<'a>) -> (&'a [u8], &'a [u8]) {
    let body = match record.datatype.contains(Datatype::XATTR) {
        false => record.value,
        true => xattr::body_of(record.value).unwrap_or_default(),
    };
    (&record.value[..record.value.len() - body.len()], body)
}

fn append_bytes(page: &mut Vec<u8>, bytes: &[u8]) {
    append_length(page, bytes.len());
    page.extend_from_slice(bytes);
}

fn append_length(page: &mut Vec<u8>, bytes: usize) {
    let length = u32::try_from(bytes).expect("keys and documents are far shorter than 4 GiB");
    let (encoded, used) = leb128::encode_u32(length);
    debug_assert!(0 < used && used <= encoded.len(), "a length has a byte");
    page.extend_from_slice(&encoded[..used]);
}
