//! Documents and keys as the pages of a range scan carry them.
//!
//! Layout of a key: its length as LEB128, its bytes. Of a document: flags u32, expiry u32, seqno u64, CAS u64 and
//! datatype u8, big-endian, then key and value, each behind its length as LEB128. Attributes are left away, and a compressed
//! body is inflated for clients that have not negotiated compression.

use oribi_engine::compression::inflate_into;
use oribi_protocol::leb128;
use oribi_protocol::limits::VALUE_BYTES_MAX;
use oribi_storage::Record;
use oribi_subdoc::xattr;
use oribi_types::Datatype;

/// The datatype bits that the client of a page understands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Shown(pub u8);

/// Appends a document, or its key.
pub(super) fn append(page: &mut Vec<u8>, record: &Record<'_>, only_keys: bool, shown: Shown) {
    if only_keys {
        return append_bytes(page, record.key.key);
    }
    let mut plain = Vec::new();
    let mut body = body_of(record);
    let is_inflated = record.datatype.0 & Datatype::SNAPPY.0 & !shown.0 != 0;
    // A body that is damaged is sent as it is, which is more than nothing.
    if is_inflated && inflate_into(body, VALUE_BYTES_MAX, &mut plain).is_ok() {
        body = &plain;
    }
    page.extend_from_slice(&record.flags.to_be_bytes());
    page.extend_from_slice(&record.expiry.to_be_bytes());
    page.extend_from_slice(&record.seqno.0.to_be_bytes());
    page.extend_from_slice(&record.cas.0.to_be_bytes());
    page.push(record.datatype.0 & shown.0 & !Datatype::XATTR.0);
    append_bytes(page, record.key.key);
    append_bytes(page, body);
}

/// The body without attributes.
fn body_of<'a>(record: &Record<'a>) -> &'a [u8] {
    match record.datatype.0 & Datatype::XATTR.0 {
        0 => record.value,
        _ => xattr::body_of(record.value).unwrap_or_default(),
    }
}

fn append_bytes(page: &mut Vec<u8>, bytes: &[u8]) {
    let length = u32::try_from(bytes.len()).expect("keys and bodies are far shorter than 4 GiB");
    let (encoded, used) = leb128::encode_u32(length);
    page.extend_from_slice(&encoded[..used]);
    page.extend_from_slice(bytes);
}
