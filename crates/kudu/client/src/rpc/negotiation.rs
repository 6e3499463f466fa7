//! The negotiation before the first call, as a state machine without I/O.
//!
//! The caller sends the bytes of [`Negotiation::take_output`] and feeds the server's bytes to
//! [`Negotiation::receive`], until [`Negotiation::is_done`]. Without TLS the client sends
//! everything at once and needs only one round trip, because it offers only PLAIN. With TLS, its
//! records travel inside negotiation messages until the handshake ends. Everything after that is
//! inside TLS, unless both sides want TLS for authentication only.
//!
//! Invariants: the client offers an authentication method only if it can complete it, because the
//! server picks the strongest one. It sends a token only inside TLS, to a server with a verified
//! certificate. The server's bytes never panic, and none of them may be left over. The link calls
//! it. It does not know about time or sockets.

use std::net::IpAddr;

use bytes::{Bytes, BytesMut};
use prost::Message;
use rustls::ClientConnection;

use super::error::{NegotiationError, decode_status};
use super::frame::{
    CONNECTION_CONTEXT_CALL_ID, CONNECTION_HEADER, CallHeader, LENGTH_BYTES, NEGOTIATION_CALL_ID,
    ReplyFrame, frame_bytes,
};
use super::limits::NEGOTIATION_MESSAGE_BYTES_MAX;
use super::tls::TlsConfigs;
use crate::proto::rpc::authentication_type_pb::Type as AuthenticationType;
use crate::proto::rpc::{
    AuthenticationTypePb, ConnectionContextPb, EmptyPb, NegotiatePb, NegotiateStepPb,
    RpcFeatureFlagPb, SaslMechanismPb, SignedTokenPb,
};

mod secure;

use secure::SecureChannel;

/// The client's only SASL mechanism. Kerberos would need GSSAPI.
const PLAIN: &str = "PLAIN";

/// The client's offer to a server.
#[derive(Clone, Debug)]
pub(crate) struct NegotiationOffer {
    /// The user name for PLAIN.
    pub user: String,
    pub tls: TlsOffer,
    /// Sent only if the client offers TLS and has the cluster's authority.
    pub authn_token: Option<SignedTokenPb>,
    pub tls_configs: TlsConfigs,
    /// The server's address.
    pub peer: IpAddr,
}

/// The client's TLS policy in the offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TlsOffer {
    /// No TLS: the connection stays in plain text.
    None,
    /// TLS if the server supports it, perhaps for authentication only.
    AuthenticationOnly,
    /// TLS if the server supports it.
    Optional,
    /// TLS is required.
    Required,
}

/// The expected next message of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Features,
    TlsHandshake,
    Authentication,
    Done,
}

/// The authentication method that the server chose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Authentication {
    Plain,
    Token,
}

/// The client's side of a negotiation.
#[derive(Debug)]
pub(crate) struct Negotiation {
    offer: NegotiationOffer,
    step: Step,
    authentication: Authentication,
    /// Both sides go back to plain text after the handshake.
    plain_after_handshake: bool,
    tls: Option<SecureChannel>,
    /// True from the end of a handshake on: then bytes on the socket are TLS records.
    secured: bool,
    /// The server's bytes, outside TLS or decrypted, that are not a whole frame yet.
    input: BytesMut,
    /// Bytes for the socket.
    output: BytesMut,
}

impl Negotiation {
    /// Starts a negotiation; the first output is ready at once.
    pub(crate) fn new(offer: NegotiationOffer) -> Self {
        let mut negotiation = Self {
            offer,
            step: Step::Features,
            authentication: Authentication::Plain,
            plain_after_handshake: false,
            tls: None,
            secured: false,
            input: BytesMut::new(),
            output: BytesMut::from(&CONNECTION_HEADER[..]),
        };
        negotiation.send_features();
        if negotiation.offer.tls == TlsOffer::None {
            negotiation.send_authentication();
        }
        negotiation
    }

    /// Removes the bytes to send now.
    pub(crate) fn take_output(&mut self) -> Bytes {
        self.output.split().freeze()
    }

    /// True when calls may follow, after the last output is sent.
    pub(crate) fn is_done(&self) -> bool {
        self.step == Step::Done
    }

    /// Takes bytes from the server, in pieces of any size.
    pub(crate) fn receive(&mut self, bytes: &[u8]) -> Result<(), NegotiationError> {
        if self.secured {
            self.receive_secured(bytes)?;
        } else {
            self.input.extend_from_slice(bytes);
        }
        while let Some(frame) = self.next_frame()? {
            self.receive_frame(ReplyFrame::parse(frame)?)?;
        }
        Ok(())
    }

    /// Ends the negotiation. Returns the TLS session of an encrypted connection.
    pub(crate) fn finish(self) -> Result<Option<Box<ClientConnection>>, NegotiationError> {
        assert!(self.is_done(), "only a finished negotiation is taken apart");
        if !self.input.is_empty() {
            return Err(NegotiationError::TrailingBytes);
        }
        Ok(self.tls.filter(|_| self.secured).map(SecureChannel::into_session))
    }

    fn receive_secured(&mut self, bytes: &[u8]) -> Result<(), NegotiationError> {
        let tls = self.tls.as_mut().expect("a secured connection has a session");
        tls.receive(bytes)?;
        tls.take_plaintext(&mut self.input, NEGOTIATION_MESSAGE_BYTES_MAX)
    }

    /// Splits a complete frame off the input. Nothing may follow the frame that ends the
    /// negotiation.
    fn next_frame(&mut self) -> Result<Option<Bytes>, NegotiationError> {
        if self.step == Step::Done {
            return Ok(None);
        }
        let Some(length) = self.input.first_chunk::<LENGTH_BYTES>() else {
            return Ok(None);
        };
        let bytes = frame_bytes(*length, NEGOTIATION_MESSAGE_BYTES_MAX)?;
        Ok((bytes <= self.input.len()).then(|| self.input.split_to(bytes).freeze()))
    }

    fn receive_frame(&mut self, frame: ReplyFrame) -> Result<(), NegotiationError> {
        if frame.call_id != NEGOTIATION_CALL_ID {
            return Err(NegotiationError::UnexpectedCallId(frame.call_id));
        }
        let is_error = frame.is_error;
        let (body, _) = frame.into_parts()?;
        if is_error {
            let (code, status) = decode_status(body)?;
            return Err(NegotiationError::Refused { code, message: status.message });
        }
        let message = NegotiatePb::decode(body)
            .map_err(|_| super::frame::FrameError::Undecodable("negotiation message"))?;
        let step = message.step.and_then(|step| NegotiateStepPb::try_from(step).ok());
        match (self.step, step) {
            (Step::Features, Some(NegotiateStepPb::Negotiate)) => self.receive_features(&message),
            (Step::TlsHandshake, Some(NegotiateStepPb::TlsHandshake)) => {
                self.receive_tls_handshake(&message)
            }
            (Step::Authentication, Some(NegotiateStepPb::SaslSuccess))
                if self.authentication == Authentication::Plain =>
            {
                self.authenticated();
                Ok(())
            }
            (Step::Authentication, Some(NegotiateStepPb::TokenExchange))
                if self.authentication == Authentication::Token =>
            {
                self.authenticated();
                Ok(())
            }
            _ => Err(NegotiationError::UnexpectedStep(message.step)),
        }
    }

    /// Handles the server's features and its choice of authentication.
    fn receive_features(&mut self, message: &NegotiatePb) -> Result<(), NegotiationError> {
        self.authentication = self.chosen_authentication(message)?;
        let has = |flag: RpcFeatureFlagPb| message.supported_features.contains(&(flag as i32));
        let use_tls = self.offer.tls != TlsOffer::None && has(RpcFeatureFlagPb::Tls);
        if !use_tls {
            if self.offer.tls == TlsOffer::Required {
                return Err(NegotiationError::NoTls);
            }
            if self.authentication == Authentication::Token {
                return Err(NegotiationError::UnofferedAuthentication);
            }
            if self.offer.tls != TlsOffer::None {
                self.send_authentication();
            }
            self.step = Step::Authentication;
            return Ok(());
        }
        self.plain_after_handshake = self.offer.tls == TlsOffer::AuthenticationOnly
            && has(RpcFeatureFlagPb::TlsAuthenticationOnly);
        let verify = self.authentication == Authentication::Token;
        let mut tls = SecureChannel::new(self.offer.tls_configs.connect(self.offer.peer, verify)?);
        let hello = tls.take_records()?;
        self.tls = Some(tls);
        self.send_tls_handshake(hello);
        self.step = Step::TlsHandshake;
        Ok(())
    }

    fn chosen_authentication(
        &self,
        message: &NegotiatePb,
    ) -> Result<Authentication, NegotiationError> {
        let chosen = message.authn_types.first().and_then(|chosen| chosen.kind.as_ref());
        match chosen {
            // A server that names no choice supports only SASL.
            None | Some(AuthenticationType::Sasl(_)) => {
                let plain =
                    message.sasl_mechanisms.iter().any(|offered| offered.mechanism == PLAIN);
                if plain { Ok(Authentication::Plain) } else { Err(NegotiationError::NoPlain) }
            }
            Some(AuthenticationType::Token(_)) if self.offers_token() => Ok(Authentication::Token),
            _ => Err(NegotiationError::UnofferedAuthentication),
        }
    }

    fn receive_tls_handshake(&mut self, message: &NegotiatePb) -> Result<(), NegotiationError> {
        let tls = self.tls.as_mut().expect("a handshake has begun");
        tls.receive(message.tls_handshake.as_deref().unwrap_or_default())?;
        let records = tls.take_records()?;
        let ended = !tls.is_handshaking();
        if !records.is_empty() {
            self.send_tls_handshake(records);
        }
        if ended {
            self.step = Step::Authentication;
            self.secured = !self.plain_after_handshake;
            // The bytes after the last handshake message are already a record.
            let early = if self.secured { self.input.split() } else { BytesMut::new() };
            self.send_authentication();
            self.receive_early(&early)?;
        }
        Ok(())
    }

    fn receive_early(&mut self, early: &[u8]) -> Result<(), NegotiationError> {
        if early.is_empty() { Ok(()) } else { self.receive_secured(early) }
    }

    fn authenticated(&mut self) {
        self.step = Step::Done;
        // Without TLS the context has already been sent.
        if self.offer.tls != TlsOffer::None {
            self.send_connection_context();
        }
    }

    fn offers_token(&self) -> bool {
        self.offer.tls != TlsOffer::None
            && self.offer.authn_token.is_some()
            && self.offer.tls_configs.knows_cluster()
    }

    fn send_features(&mut self) {
        let mut supported_features = vec![RpcFeatureFlagPb::ApplicationFeatureFlags as i32];
        if self.offer.tls != TlsOffer::None {
            supported_features.push(RpcFeatureFlagPb::Tls as i32);
        }
        if self.offer.tls == TlsOffer::AuthenticationOnly {
            supported_features.push(RpcFeatureFlagPb::TlsAuthenticationOnly as i32);
        }
        let mut kinds = vec![AuthenticationType::Sasl(EmptyPb {})];
        if self.offers_token() {
            kinds.push(AuthenticationType::Token(EmptyPb {}));
        }
        self.send(&NegotiatePb {
            supported_features,
            step: Some(NegotiateStepPb::Negotiate as i32),
            sasl_mechanisms: vec![SaslMechanismPb { mechanism: PLAIN.to_owned() }],
            authn_types: kinds
                .into_iter()
                .map(|kind| AuthenticationTypePb { kind: Some(kind) })
                .collect(),
            ..NegotiatePb::default()
        });
    }

    fn send_tls_handshake(&mut self, records: Bytes) {
        self.send(&NegotiatePb {
            step: Some(NegotiateStepPb::TlsHandshake as i32),
            tls_handshake: Some(records),
            ..NegotiatePb::default()
        });
    }

    /// Sends the authentication message. If no reply can come in between, it also sends the end of
    /// the negotiation.
    fn send_authentication(&mut self) {
        match self.authentication {
            Authentication::Plain => {
                // No authorisation identity, the user, an empty password.
                let token = format!("\0{}\0", self.offer.user);
                self.send(&NegotiatePb {
                    step: Some(NegotiateStepPb::SaslInitiate as i32),
                    token: Some(Bytes::from(token)),
                    sasl_mechanisms: vec![SaslMechanismPb { mechanism: PLAIN.to_owned() }],
                    ..NegotiatePb::default()
                });
            }
            Authentication::Token => {
                let authn_token = self.offer.authn_token.clone();
                self.send(&NegotiatePb {
                    step: Some(NegotiateStepPb::TokenExchange as i32),
                    authn_token,
                    ..NegotiatePb::default()
                });
            }
        }
        if self.offer.tls == TlsOffer::None {
            self.send_connection_context();
        }
    }

    fn send_connection_context(&mut self) {
        self.send_frame(CONNECTION_CONTEXT_CALL_ID, &ConnectionContextPb {}.encode_to_vec());
    }

    fn send(&mut self, message: &NegotiatePb) {
        self.send_frame(NEGOTIATION_CALL_ID, &message.encode_to_vec());
    }

    fn send_frame(&mut self, call_id: i32, body: &[u8]) {
        let mut frame = BytesMut::new();
        CallHeader::of_negotiation(call_id)
            .encode(body.len(), usize::MAX, &mut frame)
            .expect("a message of the negotiation is shorter than 4 GiB");
        frame.extend_from_slice(body);
        match &mut self.tls {
            Some(tls) if self.secured => tls.seal(&frame, &mut self.output),
            _ => self.output.extend_from_slice(&frame),
        }
    }
}

#[cfg(test)]
mod tests;
