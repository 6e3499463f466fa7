//! Values at the size limit and one byte over it: accepted or refused with the right status, and
//! the connection stays usable.

use oribi_protocol::limits::VALUE_BYTES_MAX;
use oribi_protocol::opcode::Opcode::{Append, Get, Set, SubdocDictUpsert, SubdocGet};
use oribi_protocol::request::RequestParts;
use oribi_protocol::status::Status;

use crate::transport::connection::{Connection, Fixture, Transport, compressed};
use crate::transport::{SET_EXTRAS, SNAPPY, XATTR_PATH};

/// The stored value, and its form.
struct Case {
    name: &'static str,
    value: Vec<u8>,
    datatype: u8,
    wanted: Status,
    /// Length of the document afterwards, when it was stored.
    stored_bytes: usize,
}

fn cases() -> Vec<Case> {
    let limit = VALUE_BYTES_MAX;
    let case = |name, value, datatype, wanted, stored_bytes| Case {
        name,
        value,
        datatype,
        wanted,
        stored_bytes,
    };
    let (plain, over) = (vec![b'x'; limit], vec![b'x'; limit + 1]);
    let (small, small_over) = (compressed(&plain), compressed(&over));
    // Streams that only announce: what they would become is never made room for.
    let bomb = b"\xff\xff\xff\xff\x0f\xfe\x01\0".to_vec();
    let mut forged = compressed(b"x");
    forged.splice(..1, [0x80, 0x80, 0x80, 0x0a]);
    vec![
        case("the limit", plain, 0, Status::Success, limit),
        case("one byte over", over, 0, Status::E2big, 0),
        case("the limit, compressed", small, SNAPPY, Status::Success, limit),
        case("one byte over, compressed", small_over, SNAPPY, Status::E2big, 0),
        case("a bomb", bomb, SNAPPY, Status::E2big, 0),
        case("a forged length", forged, SNAPPY, Status::Einval, 0),
        case("no stream", vec![b'x'; limit], SNAPPY, Status::Einval, 0),
    ]
}

fn set(connection: &mut Connection, key: &str, value: &[u8], datatype: u8) -> Status {
    let parts = RequestParts { extras: SET_EXTRAS, value, datatype, ..RequestParts::new(Set) };
    connection.document(key, &parts).status
}

fn check(connection: &mut Connection, case: &Case, with_attributes: bool) {
    let context = format!("{}, attributes {with_attributes}", case.name);
    let key = if with_attributes { "attributed" } else { "bare" };
    assert_eq!(set(connection, key, b"before", 0), Status::Success);
    if with_attributes {
        let (extras, value) = ([0, 1, XATTR_PATH], b"a12");
        let parts = RequestParts { extras: &extras, value, ..RequestParts::new(SubdocDictUpsert) };
        assert_eq!(connection.document(key, &parts).status, Status::Success);
    }
    assert_eq!(set(connection, key, &case.value, case.datatype), case.wanted, "{context}");
    connection.assert_usable();
    let reply = connection.document(key, &RequestParts::new(Get));
    let is_stored = case.wanted == Status::Success;
    let bytes = if is_stored { case.stored_bytes } else { b"before".len() };
    assert_eq!(reply.value.len(), bytes, "{context}");
    if is_stored {
        // Not one byte more, compressed or not.
        let parts = RequestParts { value: b"x", ..RequestParts::new(Append) };
        assert_eq!(connection.document(key, &parts).status, Status::E2big, "{context}");
    }
    if with_attributes {
        let extras = [0, 1, XATTR_PATH];
        let parts = RequestParts { extras: &extras, value: b"a", ..RequestParts::new(SubdocGet) };
        assert_eq!(connection.document(key, &parts).value, b"12", "{context}");
    }
    connection.assert_usable();
}

#[test]
fn values_at_the_limit_and_beyond() {
    let fixture = Fixture::start();
    let all = cases();
    // Twenty megabytes take their time in a debug build, so not everything is combined with
    // everything.
    for (tls, with_attributes, cases) in
        [(false, false, &all[..]), (false, true, &all[2..]), (true, true, &all[1..3])]
    {
        let transport = Transport { tls, collections: true, xattr: true, json: true, snappy: true };
        let mut connection = fixture.connect(transport);
        for case in cases {
            check(&mut connection, case, with_attributes);
        }
    }
}

#[test]
fn the_longest_value_is_inflated_without_snappy() {
    let fixture = Fixture::start();
    for tls in [false, true] {
        let writer = Transport { tls, collections: true, xattr: true, json: true, snappy: true };
        let small = compressed(&vec![b'x'; VALUE_BYTES_MAX]);
        assert_eq!(set(&mut fixture.connect(writer), "k", &small, SNAPPY), Status::Success);
        let mut reader = fixture.connect(Transport { snappy: false, ..writer });
        let reply = reader.document("k", &RequestParts::new(Get));
        assert_eq!((reply.value.len(), reply.datatype), (VALUE_BYTES_MAX, 0));
        assert!(reply.value.iter().all(|byte| *byte == b'x'));
        reader.assert_usable();
    }
}
