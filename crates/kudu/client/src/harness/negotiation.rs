//! The client's side of a negotiation, against arbitrary bytes from the server.

use std::net::Ipv4Addr;

use super::input::Input;
use crate::proto::rpc::SignedTokenPb;
use crate::rpc::negotiation::{Negotiation, NegotiationOffer, TlsOffer};
use crate::rpc::tls::TlsConfigs;

/// Checks that a negotiation ends the same way however the server's bytes are split. The first byte
/// selects the offer, the second the size of the pieces.
///
/// # Panics
/// When an invariant is violated.
pub fn check(input: &[u8]) {
    let mut input = Input::new(input);
    let tls = match input.u8() % 4 {
        0 => TlsOffer::None,
        1 => TlsOffer::AuthenticationOnly,
        2 => TlsOffer::Optional,
        _ => TlsOffer::Required,
    };
    let piece_bytes = usize::from(input.u8()) + 1;
    let stream = input.rest();
    let pieces = negotiate(tls, stream, piece_bytes);
    if tls == TlsOffer::None {
        // With TLS the client's part is random, and so may be its verdict on the server's part.
        assert_eq!(negotiate(tls, stream, stream.len().max(1)), pieces);
    }
}

/// The result: done with nothing left over, or the error; `None` if it needs more bytes.
fn negotiate(tls: TlsOffer, stream: &[u8], piece_bytes: usize) -> Option<Result<(), String>> {
    let mut negotiation = Negotiation::new(NegotiationOffer {
        user: "fuzz".to_owned(),
        tls,
        authn_token: Some(SignedTokenPb::default()),
        tls_configs: TlsConfigs::new(&[]),
        peer: Ipv4Addr::LOCALHOST.into(),
    });
    for piece in stream.chunks(piece_bytes) {
        if let Err(error) = negotiation.receive(piece) {
            return Some(Err(error.to_string()));
        }
        negotiation.take_output();
    }
    if !negotiation.is_done() {
        return None;
    }
    assert!(negotiation.take_output().is_empty(), "all output has been taken");
    Some(negotiation.finish().map(|_| ()).map_err(|error| error.to_string()))
}
