//! Any answer is decoded or refused.

use oribi_protocol::frame::Header;
use oribi_protocol::response::{ResponseParts, write_response};
use oribi_protocol::status::Status;
use proptest::prelude::*;

use super::*;
use crate::config::ClusterMap;
use crate::persistence::ObservedSeqno;
use crate::subdocument::{LookupInReply, MutateInReply};

fn response(parts: &ResponseParts<'_>) -> Response {
    let mut wire = Vec::new();
    write_response(&mut wire, parts);
    let (header, body) = wire.split_first_chunk::<24>().expect("a header comes first");
    let header = Header::decode(header).expect("it was just written");
    Response::new(header, Bytes::copy_from_slice(body))
}

#[test]
fn metadata_may_be_longer_than_is_known() {
    let mut extras = [0; 21];
    extras[..20].copy_from_slice(b"\0\0\0\x01\0\0\0\x02\0\0\0\x03\0\0\0\x04\0\0\0\x05");
    let parts = ResponseParts::new(Opcode::GetMeta as u8, Status::Success, 0);
    let parts = ResponseParts { cas: 9, extras: &extras, ..parts };
    let reply = Reply::from_response(response(&parts), Vbid(1)).unwrap();
    let rev_seqno = RevSeqno(4 << 32 | 5);
    let expected = DocumentMeta { cas: Cas(9), is_deleted: true, flags: 2, expiry: 3, rev_seqno };
    assert_eq!(reply.meta(), Some(expected));
    let short = ResponseParts { extras: &extras[..19], ..parts };
    Reply::from_response(response(&short), Vbid(1)).unwrap_err();
}

proptest! {
    /// Whatever a server answers, nothing panics.
    #[test]
    fn any_answer_is_decoded_or_refused(
        opcode in prop_oneof![Just(0xc5), Just(0xcf), Just(0xd0), Just(0xd1), Just(0xa0), any::<u8>()],
        status in prop::sample::select(Status::all()),
        datatype in 0..4_u8,
        extras in prop::collection::vec(any::<u8>(), 0..40),
        key in prop::collection::vec(any::<u8>(), 0..5),
        value in prop::collection::vec(any::<u8>(), 0..60),
        paths in 0..20_usize,
    ) {
        let parts = ResponseParts {
            datatype,
            extras: &extras,
            key: &key,
            value: &value,
            ..ResponseParts::new(opcode, status, 0)
        };
        let response = response(&parts);
        prop_assert_eq!(response.extras(), &extras[..]);
        prop_assert_eq!(response.key(), &key[..]);
        prop_assert_eq!(&response.value()[..], &value[..]);
        if let Ok(reply) = Reply::from_response(response, Vbid(0)) {
            let _ = (reply.counter_value(), reply.meta());
            let _ = LookupInReply::decode(reply.clone(), paths);
            let _ = MutateInReply::decode(reply, paths);
        }
        let _ = ObservedSeqno::decode(value.clone().into(), (Vbid(0), VbUuid(0)));
        let _ = ClusterMap::parse(&value, "h");
    }
}
