//! Requests and answers, byte by byte as the layouts of the protocol say.

use oribi_protocol::frame::Header;
use oribi_protocol::response::{ResponseParts, write_response};
use oribi_protocol::status::Status;
use oribi_types::{Cas, Vbid};

use super::*;
use crate::error::PathError;
use crate::reply::Reply;
use crate::response::Response;
use crate::response::ResponseError;

fn lookup(paths: &[Lookup<'_>], access_deleted: bool) -> (Opcode, Vec<u8>, Bytes) {
    let (head, value) = encode_lookup(paths, &LookupInOptions { access_deleted }).unwrap();
    assert!(head.is_read);
    (head.opcode, head.extras().to_vec(), value)
}

fn mutation(paths: &[PathMutation<'_>], options: &MutateInOptions) -> (Opcode, Vec<u8>, Bytes) {
    let (head, value) = encode_mutation(paths, options).unwrap();
    assert!(!head.is_read);
    (head.opcode, head.extras().to_vec(), value)
}

#[test]
fn one_path_is_an_operation_of_its_own() {
    let expected = (Opcode::SubdocGet, vec![0, 3, 0], Bytes::from_static(b"a.b"));
    assert_eq!(lookup(&[Lookup::get("a.b")], false), expected);
    let expected = (Opcode::SubdocExists, vec![0, 1, 0x04, 0x04], Bytes::from_static(b"x"));
    assert_eq!(lookup(&[Lookup::exists("x").xattr()], true), expected);
    let (opcode, _, _) = lookup(&[Lookup::count("x")], false);
    assert_eq!(opcode, Opcode::SubdocGetCount);

    let options = MutateInOptions::default();
    let expected = (Opcode::SubdocDictUpsert, vec![0, 3, 0x01], Bytes::from_static(b"a.b17"));
    let paths = [PathMutation::upsert("a.b", b"17").create_path()];
    assert_eq!(mutation(&paths, &options), expected);
    let full = MutateInOptions {
        expiry: Some(0x0102),
        document: DocumentPolicy::MustBeCreated,
        create_as_deleted: true,
        access_deleted: true,
        ..options
    };
    let (opcode, extras, value) = mutation(&[PathMutation::counter("n", -5)], &full);
    assert_eq!((opcode, &value[..]), (Opcode::SubdocCounter, &b"n-5"[..]));
    assert_eq!(extras, [0, 1, 0, 0, 0, 1, 2, 0x0e]);
}

#[test]
fn several_paths_and_whole_documents_are_specs() {
    let paths = [Lookup::get("t").xattr(), Lookup::exists("a"), Lookup::document()];
    let (opcode, extras, value) = lookup(&paths, false);
    assert_eq!((opcode, extras), (Opcode::SubdocMultiLookup, vec![]));
    assert_eq!(&value[..], b"\xc5\x04\x00\x01t\xc6\x00\x00\x01a\x00\x00\x00\x00");
    let (opcode, extras, _) = lookup(&[Lookup::document()], true);
    assert_eq!((opcode, extras), (Opcode::SubdocMultiLookup, vec![0x04]));

    let paths = [
        PathMutation::upsert("t", br#""${Mutation.CAS}""#).expand_macros(),
        PathMutation::remove("a"),
        PathMutation::set_document(b"{}"),
    ];
    let options = MutateInOptions {
        expiry: Some(7),
        document: DocumentPolicy::CreateIfMissing,
        revive: true,
        ..MutateInOptions::default()
    };
    let (opcode, extras, value) = mutation(&paths, &options);
    assert_eq!((opcode, extras), (Opcode::SubdocMultiMutation, vec![0, 0, 0, 7, 0x15]));
    let mut expected = b"\xc8\x14\x00\x01\x00\x00\x00\x11t\"${Mutation.CAS}\"".to_vec();
    expected.extend_from_slice(b"\xc9\x00\x00\x01\x00\x00\x00\x00a");
    expected.extend_from_slice(b"\x01\x00\x00\x00\x00\x00\x00\x02{}");
    assert_eq!(value, expected);
}

#[test]
fn every_change_has_its_opcode() {
    let options = MutateInOptions::default();
    for (change, code, value) in [
        (PathMutation::insert("p", b"1"), 0xc7, "p1"),
        (PathMutation::upsert("p", b"1"), 0xc8, "p1"),
        (PathMutation::remove("p"), 0xc9, "p"),
        (PathMutation::replace("p", b"1"), 0xca, "p1"),
        (PathMutation::array_append("p", b"1,2"), 0xcb, "p1,2"),
        (PathMutation::array_prepend("p", b"1"), 0xcc, "p1"),
        (PathMutation::array_insert("p[0]", b"1"), 0xcd, "p[0]1"),
        (PathMutation::array_add_unique("p", b"1"), 0xce, "p1"),
        (PathMutation::counter("p", 5), 0xcf, "p5"),
    ] {
        let (opcode, _, sent) = mutation(&[change], &options);
        assert_eq!((opcode as u8, &sent[..]), (code, value.as_bytes()));
    }
    let binary = [PathMutation::upsert("p", b"\xff").binary(), PathMutation::remove_document()];
    let (_, _, sent) = mutation(&binary, &options);
    assert_eq!(&sent[..], b"\xc8\x24\x00\x01\x00\x00\x00\x01p\xff\x04\x00\x00\x00\x00\x00\x00\x00");
}

#[test]
fn lists_that_no_server_accepts_are_not_sent() {
    let options = LookupInOptions::default();
    let long = "p".repeat(PATH_BYTES_MAX + 1);
    let long = long.as_str();
    assert!(encode_lookup(&[Lookup::get(&long[1..])], &options).is_ok());
    assert!(encode_lookup(&[Lookup::get("p"); PATHS_MAX], &options).is_ok());
    let wrong: [&[Lookup<'_>]; 4] = [
        &[],
        &[Lookup::get("p"); PATHS_MAX + 1],
        &[Lookup::get(long)],
        &[Lookup::get("p"), Lookup::get("p").xattr()],
    ];
    for paths in wrong {
        let error = encode_lookup(paths, &options).unwrap_err();
        assert!(matches!(error, ClientError::InvalidArgument(_)), "{error}");
    }
    encode_mutation(&[], &MutateInOptions::default()).unwrap_err();
}

/// An answer as it comes from the wire.
fn reply(opcode: Opcode, status: Status, value: &[u8]) -> Result<Reply, ResponseError> {
    let mut wire = Vec::new();
    let parts = ResponseParts { value, cas: 3, ..ResponseParts::new(opcode as u8, status, 0) };
    write_response(&mut wire, &parts);
    let (header, body) = wire.split_first_chunk::<24>().unwrap();
    let header = Header::decode(header).unwrap();
    Reply::from_response(Response::new(header, Bytes::copy_from_slice(body)), Vbid(0))
}

#[test]
fn lookups_have_an_outcome_for_each_path() {
    let value = b"\x00\x00\x00\x00\x00\x0217\x00\xc0\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00";
    for (status, is_deleted) in
        [(Status::SubdocMultiPathFailure, false), (Status::SubdocMultiPathFailureDeleted, true)]
    {
        let reply = reply(Opcode::SubdocMultiLookup, status, value).unwrap();
        let decoded = LookupInReply::decode(reply.clone(), 3).unwrap();
        let expected =
            vec![Ok(Bytes::from_static(b"17")), Err(PathError::NotFound), Ok(Bytes::new())];
        assert_eq!(decoded, LookupInReply { cas: Cas(3), is_deleted, values: expected });
        LookupInReply::decode(reply, 2).unwrap_err();
    }
    for (status, value) in [
        (Status::Success, Ok(Bytes::from_static(b"17"))),
        (Status::SubdocSuccessDeleted, Ok(Bytes::from_static(b"17"))),
        (Status::SubdocPathMismatch, Err(PathError::Mismatch)),
        (Status::SubdocDocNotJson, Err(PathError::NotJson)),
    ] {
        let reply = reply(Opcode::SubdocGet, status, b"17").unwrap();
        let decoded = LookupInReply::decode(reply, 1).unwrap();
        assert_eq!(decoded.values, [value]);
        assert_eq!(decoded.is_deleted, status == Status::SubdocSuccessDeleted);
    }
    let refused = reply(Opcode::SubdocMultiLookup, Status::NotSupported, b"").unwrap_err();
    assert!(matches!(refused, ResponseError::Error(ClientError::Rejected(_))));
    let refused = reply(Opcode::SubdocGet, Status::SubdocInvalidCombo, b"").unwrap_err();
    assert!(matches!(refused, ResponseError::Error(ClientError::Rejected(_))));
}

#[test]
fn writes_return_the_values_that_there_are() {
    let value = b"\x00\x00\x00\x00\x00\x00\x015\x02\x00\x00\x00\x00\x00\x0210";
    let multi = reply(Opcode::SubdocMultiMutation, Status::Success, value).unwrap();
    let decoded = MutateInReply::decode(multi.clone(), 3).unwrap();
    let expected = [(0, "5"), (2, "10")]
        .map(|(index, value)| PathValue { index, value: Bytes::from_static(value.as_bytes()) });
    assert_eq!(decoded.values, expected);
    MutateInReply::decode(multi, 2).unwrap_err();
    let single = reply(Opcode::SubdocCounter, Status::Success, b"5").unwrap();
    assert_eq!(MutateInReply::decode(single, 1).unwrap().values, expected[..1]);
    let single = reply(Opcode::SubdocDelete, Status::Success, b"").unwrap();
    assert!(MutateInReply::decode(single, 1).unwrap().values.is_empty());
}

#[test]
fn a_failed_write_names_the_path() {
    let failed = |opcode, status, value: &[u8]| match reply(opcode, status, value).unwrap_err() {
        ResponseError::Error(ClientError::Path { index, error }) => Some((index, error)),
        ResponseError::Error(_) | ResponseError::Malformed(_) => None,
    };
    let multi = Opcode::SubdocMultiMutation;
    let at_two = failed(multi, Status::SubdocMultiPathFailure, b"\x02\x00\xc9");
    assert_eq!(at_two, Some((2, PathError::Exists)));
    let single = failed(Opcode::SubdocReplace, Status::SubdocPathEnoent, b"");
    assert_eq!(single, Some((0, PathError::NotFound)));
    assert_eq!(failed(multi, Status::SubdocMultiPathFailure, b"\x02\x00"), None);
    assert_eq!(failed(multi, Status::KeyEnoent, b""), None);
}

#[test]
fn cut_off_answers_are_malformed() {
    let lookup = b"\x00\x00\x00\x00\x00\x0217";
    let mutation = b"\x00\x00\x00\x00\x00\x00\x0217";
    for cut in 1..lookup.len() {
        let reply = reply(Opcode::SubdocMultiLookup, Status::Success, &lookup[..cut]).unwrap();
        LookupInReply::decode(reply, 1).unwrap_err();
    }
    for cut in 1..mutation.len() {
        let reply = reply(Opcode::SubdocMultiMutation, Status::Success, &mutation[..cut]).unwrap();
        MutateInReply::decode(reply, 1).unwrap_err();
    }
}
