//! The codec against bytes that a real server accepted, against prost's encoding of the messages,
//! and against invalid bytes.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use proptest::prelude::*;
use prost::Message;

use super::*;
use crate::proto::rpc::{
    ErrorStatusPb, RemoteMethodPb, RequestHeaderPb, RequestIdPb, ResponseHeaderPb,
};
use crate::rpc::limits::MESSAGE_BYTES_MAX;

const PING: Method = Method { service: "kudu.tserver.TabletServerService", name: "Ping" };

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits
        .chunks(2)
        .map(|pair| {
            u8::from_str_radix(std::str::from_utf8(pair).expect("ASCII"), 16).expect("digits")
        })
        .collect()
}

/// A frame as a server would send it.
pub(crate) fn reply(header: &ResponseHeaderPb, body: &[u8]) -> Bytes {
    let mut rest = header.encode_length_delimited_to_vec();
    encode_varint(body.len() as u64, &mut rest);
    rest.extend_from_slice(body);
    let mut frame = BytesMut::new();
    frame.put_u32(rest.len() as u32);
    frame.extend_from_slice(&rest);
    frame.freeze()
}

fn header(call_id: i32, sidecar_offsets: &[u32]) -> ResponseHeaderPb {
    ResponseHeaderPb {
        call_id: Some(call_id),
        is_error: None,
        sidecar_offsets: sidecar_offsets.to_vec(),
    }
}

#[test]
fn a_call_has_the_bytes_that_a_server_accepted() {
    let mut frame = BytesMut::new();
    let header = CallHeader {
        call_id: 0,
        method: Some(&PING),
        timeout: Some(Duration::from_secs(3)),
        required_feature_flags: &[],
        request_id: None,
    };
    let bytes = header.encode(0, MESSAGE_BYTES_MAX, &mut frame).expect("small");
    let expected = hex(
        "00000031 2f 1800 32 28 0a20 6b7564752e747365727665722e5461626c657453657276657253657276696365
         1204 50696e67 50b817 00",
    );
    assert_eq!(frame, expected);
    assert_eq!(bytes, expected.len());
}

#[test]
fn the_context_has_the_bytes_that_a_server_accepted() {
    let mut frame = BytesMut::new();
    CallHeader::of_negotiation(CONNECTION_CONTEXT_CALL_ID)
        .encode(0, MESSAGE_BYTES_MAX, &mut frame)
        .expect("small");
    assert_eq!(frame, hex("0000000d 0b 18fdffffffffffffffff01 00"));
}

#[test]
fn a_call_never_says_that_it_has_no_deadline() {
    assert_eq!(timeout_millis(Duration::ZERO), 1);
    assert_eq!(timeout_millis(Duration::from_micros(10)), 1);
    assert_eq!(timeout_millis(Duration::from_millis(1500)), 1500);
    assert_eq!(timeout_millis(Duration::MAX), u64::from(u32::MAX));
}

#[test]
fn an_oversized_call_is_rejected_before_any_write() {
    let mut frame = BytesMut::new();
    let header = CallHeader::of_negotiation(1);
    let head_bytes = header.encode(0, MESSAGE_BYTES_MAX, &mut frame).expect("small");
    frame.clear();
    // The length of a large body takes three bytes more than that of an empty one.
    let largest = MESSAGE_BYTES_MAX - head_bytes - 3;
    assert_eq!(header.encode(largest, MESSAGE_BYTES_MAX, &mut frame), Ok(MESSAGE_BYTES_MAX));
    frame.clear();
    assert_eq!(
        header.encode(largest + 1, MESSAGE_BYTES_MAX, &mut frame),
        Err(FrameError::TooLarge { bytes: MESSAGE_BYTES_MAX + 1, bytes_max: MESSAGE_BYTES_MAX })
    );
    assert!(header.encode(usize::MAX, MESSAGE_BYTES_MAX, &mut frame).is_err());
    assert!(frame.is_empty());
}

#[test]
fn lengths_are_checked_before_use() {
    assert_eq!(frame_bytes([0, 0, 0, 49], 53), Ok(53));
    assert_eq!(
        frame_bytes([0, 0, 0, 49], 52),
        Err(FrameError::TooLarge { bytes: 53, bytes_max: 52 })
    );
    assert!(frame_bytes([0xff; 4], MESSAGE_BYTES_MAX).is_err());
}

#[test]
fn sidecars_are_slices_of_the_frame() {
    let frame = reply(&header(7, &[3, 3, 5]), b"pbbXXzzz");
    let block = frame.as_ptr_range();
    let (message, sidecars) = ReplyFrame::parse(frame).expect("valid").into_parts().expect("valid");
    assert_eq!(message, "pbb".as_bytes());
    assert_eq!(sidecars, ["".as_bytes(), b"XX", b"zzz"]);
    for part in sidecars.iter().filter(|part| !part.is_empty()).chain([&message]) {
        assert!(block.contains(&part.as_ptr()), "no part is a copy");
    }
}

#[test]
fn sidecars_of_either_encoding_are_read() {
    // Field 3 packed: key 0x1a, 2 bytes, offsets 1 and 2.
    let packed = hex("1a02 0102");
    let mut bytes = header(7, &[]).encode_to_vec();
    bytes.extend_from_slice(&packed);
    let decoded = ResponseHeaderPb::decode(&bytes[..]).expect("valid");
    assert_eq!(decoded, header(7, &[1, 2]));
}

#[test]
fn offsets_outside_of_the_body_are_refused() {
    for (offsets, index, offset) in
        [(&[9][..], 0, 9), (&[5, 4], 1, 4), (&[0, u32::MAX], 1, u32::MAX)]
    {
        let frame = ReplyFrame::parse(reply(&header(7, offsets), b"12345678")).expect("a frame");
        assert_eq!(frame.into_parts(), Err(FrameError::BadSidecarOffset { index, offset }));
    }
    let many = vec![0; SIDECARS_MAX + 1];
    let frame = ReplyFrame::parse(reply(&header(7, &many), b"")).expect("a frame");
    assert_eq!(frame.into_parts(), Err(FrameError::TooManySidecars(SIDECARS_MAX + 1)));
}

#[test]
fn a_frame_ends_with_its_body() {
    let frame = reply(&header(7, &[]), b"body");
    for bytes in 0..frame.len() {
        assert!(
            matches!(ReplyFrame::parse(frame.slice(..bytes)), Err(FrameError::Truncated(_))),
            "{bytes} bytes"
        );
    }
    let mut longer = frame.to_vec();
    longer.push(0);
    assert_eq!(ReplyFrame::parse(longer.into()), Err(FrameError::TrailingBytes(1)));
}

#[test]
fn a_header_without_a_call_id_is_not_call_0() {
    let header = ResponseHeaderPb { call_id: None, is_error: Some(true), sidecar_offsets: vec![] };
    assert_eq!(ReplyFrame::parse(reply(&header, b"")), Err(FrameError::NoCallId));
}

#[test]
fn an_error_without_a_known_code_is_taken_for_fatal() {
    use crate::proto::rpc::RpcErrorCodePb;
    use crate::rpc::error::{decode_status, is_fatal};
    for code in [None, Some(999), Some(-1)] {
        let status =
            ErrorStatusPb { message: "?".to_owned(), code, unsupported_feature_flags: vec![] };
        let (code, _) = decode_status(status.encode_to_vec().into()).expect("decodes");
        assert_eq!(code, RpcErrorCodePb::FatalUnknown);
        assert!(is_fatal(code));
    }
    assert!(!is_fatal(RpcErrorCodePb::ErrorServerTooBusy));
    assert!(!is_fatal(RpcErrorCodePb::ErrorInvalidAuthorizationToken));
    assert!(is_fatal(RpcErrorCodePb::FatalInvalidAuthenticationToken));
}

proptest! {
    #[test]
    fn a_header_is_what_prost_would_write(
        call_id in any::<i32>(),
        with_method in any::<bool>(),
        timeout_ms in proptest::option::of(1..u32::MAX),
        flags in proptest::collection::vec(any::<u32>(), 0..4),
        request_id in proptest::option::of((".{0,40}", any::<i64>(), any::<i64>(), 0..9i64)),
        body_bytes in 0..3_000_000usize,
    ) {
        let request_id = request_id.map(|(client_id, seq_no, first_incomplete_seq_no, attempt_no)| {
            RequestIdPb { client_id, seq_no, first_incomplete_seq_no, attempt_no }
        });
        let header = CallHeader {
            call_id,
            method: with_method.then_some(&PING),
            timeout: timeout_ms.map(|ms| Duration::from_millis(ms.into())),
            required_feature_flags: &flags,
            request_id: request_id.as_ref(),
        };
        let mut frame = BytesMut::new();
        let bytes = header.encode(body_bytes, MESSAGE_BYTES_MAX, &mut frame).expect("small");
        let mut frame = frame.freeze();
        let length = frame.split_to(LENGTH_BYTES);
        let length: [u8; LENGTH_BYTES] = length[..].try_into().expect("4 bytes");
        prop_assert_eq!(frame_bytes(length, MESSAGE_BYTES_MAX), Ok(bytes));
        prop_assert_eq!(bytes, LENGTH_BYTES + frame.len() + body_bytes);
        let decoded = RequestHeaderPb::decode_length_delimited(&mut frame).expect("decodes");
        prop_assert_eq!(prost::decode_length_delimiter(&mut frame).expect("a length"), body_bytes);
        prop_assert!(frame.is_empty());
        prop_assert_eq!(decoded, RequestHeaderPb {
            call_id,
            remote_method: with_method.then(|| RemoteMethodPb {
                service_name: PING.service.to_owned(),
                method_name: PING.name.to_owned(),
            }),
            timeout_millis: timeout_ms,
            required_feature_flags: flags.clone(),
            request_id,
            sidecar_offsets: vec![],
        });
    }

    #[test]
    fn a_reply_comes_apart_as_it_was_put_together(
        call_id in any::<i32>(),
        is_error in proptest::option::of(any::<bool>()),
        parts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..50), 1..6),
    ) {
        let mut body = Vec::new();
        let mut sidecar_offsets = Vec::new();
        for part in &parts {
            if !body.is_empty() || !sidecar_offsets.is_empty() {
                sidecar_offsets.push(body.len() as u32);
            }
            body.extend_from_slice(part);
        }
        prop_assume!(sidecar_offsets.len() + 1 == parts.len());
        let header = ResponseHeaderPb { call_id: Some(call_id), is_error, sidecar_offsets };
        let frame = ReplyFrame::parse(reply(&header, &body)).expect("valid");
        prop_assert_eq!(frame.call_id, call_id);
        prop_assert_eq!(frame.is_error, is_error.unwrap_or(false));
        let (message, sidecars) = frame.into_parts().expect("valid");
        prop_assert_eq!(&message[..], &parts[0][..]);
        prop_assert_eq!(sidecars.len(), parts.len() - 1);
        for (sidecar, part) in sidecars.iter().zip(&parts[1..]) {
            prop_assert_eq!(&sidecar[..], &part[..]);
        }
    }

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(frame) = ReplyFrame::parse(bytes.into()) {
            let _ = frame.into_parts();
        }
    }
}
