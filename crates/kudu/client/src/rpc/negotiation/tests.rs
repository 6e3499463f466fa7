//! The negotiation against a scripted server, with TLS against a real TLS session in memory.

use proptest::prelude::*;
use prost::Message;

use super::*;
use crate::proto::rpc::{ErrorStatusPb, RequestHeaderPb, ResponseHeaderPb, RpcErrorCodePb};
use crate::rpc::frame::FrameError;

mod tls;

fn offer(tls: TlsOffer) -> NegotiationOffer {
    NegotiationOffer {
        user: "u".to_owned(),
        tls,
        authn_token: None,
        tls_configs: TlsConfigs::new(&[]),
        peer: IpAddr::from([127, 0, 0, 1]),
    }
}

/// A negotiation frame of the server.
fn answer(body: &[u8]) -> Vec<u8> {
    answer_to(NEGOTIATION_CALL_ID, false, body)
}

fn answer_to(call_id: i32, is_error: bool, body: &[u8]) -> Vec<u8> {
    let header = ResponseHeaderPb {
        call_id: Some(call_id),
        is_error: Some(is_error),
        sidecar_offsets: vec![],
    };
    let mut rest = header.encode_length_delimited_to_vec();
    prost::encoding::encode_varint(body.len() as u64, &mut rest);
    rest.extend_from_slice(body);
    [&(rest.len() as u32).to_be_bytes()[..], &rest].concat()
}

fn step(step: NegotiateStepPb) -> NegotiatePb {
    NegotiatePb { step: Some(step as i32), ..NegotiatePb::default() }
}

/// The messages of a server that wants PLAIN.
fn features(flags: &[RpcFeatureFlagPb]) -> NegotiatePb {
    NegotiatePb {
        supported_features: flags.iter().map(|flag| *flag as i32).collect(),
        sasl_mechanisms: vec![SaslMechanismPb { mechanism: PLAIN.to_owned() }],
        ..step(NegotiateStepPb::Negotiate)
    }
}

fn chosen(kind: AuthenticationType) -> Vec<AuthenticationTypePb> {
    vec![AuthenticationTypePb { kind: Some(kind) }]
}

fn receive(negotiation: &mut Negotiation, message: &NegotiatePb) -> Result<(), NegotiationError> {
    negotiation.receive(&answer(&message.encode_to_vec()))
}

#[test]
fn without_tls_everything_goes_out_at_once() {
    let mut negotiation = Negotiation::new(offer(TlsOffer::None));
    let expected = concat!(
        "68727063090000",
        "0000001e0b18dfffffffffffffffff01111001080122071205504c41494e3a020a00",
        "0000001d0b18dfffffffffffffffff011010021a0300750022071205504c41494e",
        "0000000d0b18fdffffffffffffffff0100",
    );
    let output = negotiation.take_output();
    assert_eq!(output[..CONNECTION_HEADER.len()], CONNECTION_HEADER);
    // The order of fields is free and differs, so the test compares messages instead of bytes.
    assert_eq!(frames(&output[CONNECTION_HEADER.len()..]), frames(&hex(expected)[7..]));

    receive(&mut negotiation, &features(&[])).expect("as expected");
    assert!(!negotiation.is_done());
    receive(&mut negotiation, &step(NegotiateStepPb::SaslSuccess)).expect("as expected");
    assert!(negotiation.is_done());
    assert!(negotiation.take_output().is_empty(), "there is nothing left to say");
    assert!(negotiation.finish().expect("nothing is left over").is_none());
}

fn hex(text: &str) -> Vec<u8> {
    let digit = |digit: u8| char::from(digit).to_digit(16).expect("a digit") as u8;
    text.as_bytes().chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

/// The call ids and the messages of a client's frames; the connection's context decodes as an empty
/// message.
fn frames(mut bytes: &[u8]) -> Vec<(i32, NegotiatePb)> {
    let mut frames = Vec::new();
    while !bytes.is_empty() {
        let (length, rest) = bytes.split_first_chunk().expect("a length");
        let (mut frame, rest) = rest.split_at(u32::from_be_bytes(*length) as usize);
        bytes = rest;
        let header = RequestHeaderPb::decode_length_delimited(&mut frame).expect("a header");
        let message = NegotiatePb::decode_length_delimited(frame).expect("a message");
        frames.push((header.call_id, message));
    }
    frames
}

#[test]
fn the_servers_bytes_may_come_one_by_one() {
    let mut negotiation = Negotiation::new(offer(TlsOffer::None));
    let mut bytes = answer(&features(&[]).encode_to_vec());
    bytes.extend(answer(&step(NegotiateStepPb::SaslSuccess).encode_to_vec()));
    for byte in &bytes {
        assert!(!negotiation.is_done());
        negotiation.receive(&[*byte]).expect("as expected");
    }
    assert!(negotiation.is_done());
}

// Compat (Apache Kudu): encryption
#[test]
fn plain_servers_are_rejected_if_tls_is_required() {
    let mut negotiation = Negotiation::new(offer(TlsOffer::Required));
    assert_eq!(receive(&mut negotiation, &features(&[])), Err(NegotiationError::NoTls));

    let mut negotiation = Negotiation::new(offer(TlsOffer::Optional));
    negotiation.take_output();
    receive(&mut negotiation, &features(&[])).expect("as expected");
    assert!(!negotiation.take_output().is_empty(), "the user's name follows");
    receive(&mut negotiation, &step(NegotiateStepPb::SaslSuccess)).expect("as expected");
    assert!(!negotiation.take_output().is_empty(), "the context follows");
    assert!(negotiation.finish().expect("nothing is left over").is_none());
}

#[test]
fn no_token_is_offered_to_an_unverified_server() {
    for tls in [TlsOffer::None, TlsOffer::Optional, TlsOffer::Required] {
        let mut offer = offer(tls);
        offer.authn_token = Some(SignedTokenPb::default());
        let mut negotiation = Negotiation::new(offer);
        let mut answer = features(&[RpcFeatureFlagPb::Tls]);
        answer.authn_types = chosen(AuthenticationType::Token(EmptyPb {}));
        let result = receive(&mut negotiation, &answer);
        assert_eq!(result, Err(NegotiationError::UnofferedAuthentication), "{tls:?}");
    }
}

#[test]
fn mechanisms_not_offered_are_rejected() {
    for kind in [AuthenticationType::Certificate(EmptyPb {}), AuthenticationType::Jwt(EmptyPb {})] {
        let mut negotiation = Negotiation::new(offer(TlsOffer::None));
        let mut answer = features(&[]);
        answer.authn_types = chosen(kind);
        let result = receive(&mut negotiation, &answer);
        assert_eq!(result, Err(NegotiationError::UnofferedAuthentication));
    }
    let mut negotiation = Negotiation::new(offer(TlsOffer::None));
    let mut answer = features(&[]);
    answer.sasl_mechanisms[0].mechanism = "GSSAPI".to_owned();
    assert_eq!(receive(&mut negotiation, &answer), Err(NegotiationError::NoPlain));
}

#[test]
fn a_refusal_keeps_the_servers_code_and_words() {
    let status = ErrorStatusPb {
        message: "encryption is required".to_owned(),
        code: Some(RpcErrorCodePb::FatalUnauthorized as i32),
        unsupported_feature_flags: vec![],
    };
    let mut negotiation = Negotiation::new(offer(TlsOffer::None));
    let result =
        negotiation.receive(&answer_to(NEGOTIATION_CALL_ID, true, &status.encode_to_vec()));
    let code = RpcErrorCodePb::FatalUnauthorized;
    assert_eq!(result, Err(NegotiationError::Refused { code, message: status.message }));
}

#[test]
fn a_step_that_is_not_due_is_refused() {
    use NegotiateStepPb::{Negotiate, SaslSuccess, TlsHandshake, TokenExchange};
    for first in [SaslSuccess, TlsHandshake, TokenExchange] {
        let mut negotiation = Negotiation::new(offer(TlsOffer::None));
        let result = receive(&mut negotiation, &step(first));
        assert_eq!(result, Err(NegotiationError::UnexpectedStep(Some(first as i32))));
    }
    for second in [Negotiate, TlsHandshake, TokenExchange] {
        let mut negotiation = Negotiation::new(offer(TlsOffer::None));
        receive(&mut negotiation, &features(&[])).expect("as expected");
        assert!(receive(&mut negotiation, &step(second)).is_err(), "{second:?}");
    }
}

#[test]
fn an_unknown_or_missing_step_is_not_success() {
    for unknown in [None, Some(8), Some(-1), Some(999)] {
        let mut negotiation = Negotiation::new(offer(TlsOffer::None));
        receive(&mut negotiation, &features(&[])).expect("as expected");
        let message = NegotiatePb { step: unknown, ..NegotiatePb::default() };
        let result = receive(&mut negotiation, &message);
        assert_eq!(result, Err(NegotiationError::UnexpectedStep(unknown)));
    }
}

#[test]
fn foreign_and_oversized_frames_are_rejected() {
    let mut negotiation = Negotiation::new(offer(TlsOffer::None));
    let result = negotiation.receive(&answer_to(0, false, &features(&[]).encode_to_vec()));
    assert_eq!(result, Err(NegotiationError::UnexpectedCallId(0)));

    let mut negotiation = Negotiation::new(offer(TlsOffer::None));
    let result = negotiation.receive(&[0x17, 3, 3, 0]);
    assert!(
        matches!(result, Err(NegotiationError::Malformed(FrameError::TooLarge { .. }))),
        "{result:?}"
    );
}

#[test]
fn bytes_behind_the_end_are_refused() {
    let mut negotiation = Negotiation::new(offer(TlsOffer::None));
    receive(&mut negotiation, &features(&[])).expect("as expected");
    let mut bytes = answer(&step(NegotiateStepPb::SaslSuccess).encode_to_vec());
    bytes.push(0);
    negotiation.receive(&bytes).expect("as expected");
    assert_eq!(negotiation.finish().err(), Some(NegotiationError::TrailingBytes));
}

proptest! {
    #[test]
    fn no_messages_panic(
        with_tls in any::<bool>(),
        messages in proptest::collection::vec(
            (0..9i32, proptest::collection::vec(any::<u8>(), 0..60), 0..4i32, any::<bool>()),
            0..5,
        ),
    ) {
        let tls = if with_tls { TlsOffer::AuthenticationOnly } else { TlsOffer::None };
        let mut negotiation = Negotiation::new(offer(tls));
        for (step, bytes, feature, tail) in messages {
            let message = NegotiatePb {
                supported_features: vec![feature, 3],
                step: Some(step),
                tls_handshake: Some(bytes.clone().into()),
                sasl_mechanisms: vec![SaslMechanismPb { mechanism: PLAIN.to_owned() }],
                ..NegotiatePb::default()
            };
            let _ = receive(&mut negotiation, &message);
            if tail {
                let _ = negotiation.receive(&bytes);
            }
            negotiation.take_output();
        }
    }
}
