//! The negotiation with a TLS server in memory. Its certificate has no matching name, like those of
//! Kudu. Session tickets follow a TLS 1.3 handshake as bare records, as Kudu's servers send them.

use std::io::{Read, Write};
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, SupportedProtocolVersion};

use super::*;

/// A cluster's authority and a server's certificate.
struct Cluster {
    ca_der: Vec<u8>,
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
}

impl Cluster {
    fn new() -> Self {
        let ca_key = KeyPair::generate().expect("a key");
        let mut ca = CertificateParams::new(Vec::new()).expect("parameters");
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca_der = ca.self_signed(&ca_key).expect("a certificate").der().to_vec();
        let key = KeyPair::generate().expect("a key");
        let server =
            CertificateParams::new(vec!["elsewhere.example.com".to_owned()]).expect("parameters");
        let certificate =
            server.signed_by(&key, &Issuer::new(ca, ca_key)).expect("a certificate").der().clone();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        Self { ca_der, certificate, key }
    }
}

/// A server that has accepted TLS.
struct Server {
    session: ServerConnection,
    /// The client's messages inside TLS.
    plaintext: Vec<u8>,
}

impl Server {
    fn new(cluster: &Cluster, version: &'static SupportedProtocolVersion) -> Self {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])
            .expect("the provider has suites")
            .with_no_client_auth()
            .with_single_cert(vec![cluster.certificate.clone()], cluster.key.clone_key())
            .expect("a good certificate");
        config.send_tls13_tickets = 2;
        let session = ServerConnection::new(Arc::new(config)).expect("a session");
        Self { session, plaintext: Vec::new() }
    }

    /// Takes records, returns records.
    fn take(&mut self, mut records: &[u8]) -> Vec<u8> {
        while !records.is_empty() {
            self.session.read_tls(&mut records).expect("a slice reads");
            self.session.process_new_packets().expect("good records");
        }
        let mut piece = [0; 4096];
        while let Ok(bytes @ 1..) = self.session.reader().read(&mut piece) {
            self.plaintext.extend_from_slice(&piece[..bytes]);
        }
        self.records()
    }

    fn records(&mut self) -> Vec<u8> {
        let mut records = Vec::new();
        while self.session.wants_write() {
            self.session.write_tls(&mut records).expect("a Vec grows");
        }
        records
    }

    fn seal(&mut self, plaintext: &[u8]) -> Vec<u8> {
        self.session.writer().write_all(plaintext).expect("buffered");
        self.records()
    }

    /// Answers the client until the handshake is over, and then takes the client's bytes inside
    /// TLS. Returns the bytes outside the negotiation's messages: session tickets.
    fn shake(&mut self, negotiation: &mut Negotiation) -> Result<Vec<u8>, NegotiationError> {
        loop {
            let output = negotiation.take_output();
            let (message, rest) = first_message(&output);
            assert_eq!(message.step, Some(NegotiateStepPb::TlsHandshake as i32));
            let records = self.take(&message.tls_handshake.expect("records"));
            let done = !self.session.is_handshaking();
            if done && self.session.protocol_version() == Some(rustls::ProtocolVersion::TLSv1_3) {
                self.take(rest);
                return Ok(records);
            }
            let answer = NegotiatePb {
                tls_handshake: Some(records.into()),
                ..step(NegotiateStepPb::TlsHandshake)
            };
            receive(negotiation, &answer)?;
            if done {
                self.take(&negotiation.take_output());
                return Ok(Vec::new());
            }
        }
    }
}

fn first_message(output: &[u8]) -> (NegotiatePb, &[u8]) {
    let (length, rest) = output.split_first_chunk().expect("a length");
    let (frame, rest) = rest.split_at(u32::from_be_bytes(*length) as usize);
    let mut messages = frames(&[&length[..], frame].concat());
    (messages.remove(0).1, rest)
}

fn token() -> SignedTokenPb {
    SignedTokenPb { token_data: Some(Bytes::from_static(b"a token")), ..SignedTokenPb::default() }
}

/// A client that has sent its features, and a server that has answered with TLS and this choice.
fn client(
    cluster: &Cluster,
    tls: TlsOffer,
    flags: &[RpcFeatureFlagPb],
    kind: AuthenticationType,
) -> Result<Negotiation, NegotiationError> {
    let mut offer = offer(tls);
    offer.authn_token = Some(token());
    offer.tls_configs = TlsConfigs::new(&[b"no certificate".to_vec(), cluster.ca_der.clone()]);
    let mut negotiation = Negotiation::new(offer);
    negotiation.take_output();
    receive(&mut negotiation, &NegotiatePb { authn_types: chosen(kind), ..features(flags) })?;
    Ok(negotiation)
}

const VERSIONS: [&SupportedProtocolVersion; 2] = [&rustls::version::TLS12, &rustls::version::TLS13];

#[test]
fn tokens_go_through_tls_to_cluster_servers() {
    let cluster = Cluster::new();
    for version in VERSIONS {
        let mut server = Server::new(&cluster, version);
        let token_chosen = AuthenticationType::Token(EmptyPb {});
        let mut negotiation =
            client(&cluster, TlsOffer::Required, &[RpcFeatureFlagPb::Tls], token_chosen)
                .expect("as expected");
        let tickets = server.shake(&mut negotiation).expect("a handshake");
        let (_, sent) = frames(&server.plaintext).remove(0);
        assert_eq!(sent.step, Some(NegotiateStepPb::TokenExchange as i32));
        assert_eq!(sent.authn_token, Some(token()));
        assert_eq!(tickets.is_empty(), version.version != rustls::ProtocolVersion::TLSv1_3);
        negotiation.receive(&tickets).expect("tickets are records like others");
        assert!(!negotiation.is_done());
        let done = answer(&step(NegotiateStepPb::TokenExchange).encode_to_vec());
        for byte in server.seal(&done) {
            negotiation.receive(&[byte]).expect("as expected");
        }
        assert!(negotiation.is_done());
        server.plaintext.clear();
        server.take(&negotiation.take_output());
        assert_eq!(frames(&server.plaintext)[0].0, CONNECTION_CONTEXT_CALL_ID);
        assert!(negotiation.finish().expect("nothing is left over").is_some());
    }
}

#[test]
fn a_token_is_not_sent_to_a_server_of_another_cluster() {
    for version in VERSIONS {
        let mut server = Server::new(&Cluster::new(), version);
        let token_chosen = AuthenticationType::Token(EmptyPb {});
        let mut negotiation =
            client(&Cluster::new(), TlsOffer::Required, &[RpcFeatureFlagPb::Tls], token_chosen)
                .expect("as expected");
        let result = server.shake(&mut negotiation);
        assert!(matches!(result, Err(NegotiationError::Tls(_))), "{result:?}");
        assert!(negotiation.take_output().is_empty());
    }
}

#[test]
fn a_user_name_goes_through_tls_to_any_server() {
    for version in VERSIONS {
        let mut server = Server::new(&Cluster::new(), version);
        let sasl = AuthenticationType::Sasl(EmptyPb {});
        let mut negotiation =
            client(&Cluster::new(), TlsOffer::Optional, &[RpcFeatureFlagPb::Tls], sasl)
                .expect("as expected");
        server.shake(&mut negotiation).expect("a handshake");
        let (_, sent) = frames(&server.plaintext).remove(0);
        assert_eq!(sent.token.as_deref(), Some(&b"\0u\0"[..]));
    }
}

#[test]
fn plain_text_resumes_only_if_both_sides_agree() {
    let both = [RpcFeatureFlagPb::Tls, RpcFeatureFlagPb::TlsAuthenticationOnly];
    for (tls, plain) in [(TlsOffer::AuthenticationOnly, true), (TlsOffer::Optional, false)] {
        let cluster = Cluster::new();
        let mut server = Server::new(&cluster, &rustls::version::TLS12);
        let sasl = AuthenticationType::Sasl(EmptyPb {});
        let mut negotiation = client(&cluster, tls, &both, sasl).expect("as expected");
        loop {
            let (message, rest) = {
                let output = negotiation.take_output();
                let (message, rest) = first_message(&output);
                (message, rest.to_vec())
            };
            assert!(rest.is_empty());
            let records = server.take(&message.tls_handshake.expect("records"));
            let answer = NegotiatePb {
                tls_handshake: Some(records.into()),
                ..step(NegotiateStepPb::TlsHandshake)
            };
            receive(&mut negotiation, &answer).expect("as expected");
            if !server.session.is_handshaking() {
                break;
            }
        }
        let output = negotiation.take_output();
        if !plain {
            server.take(&output);
        }
        let sent = if plain { frames(&output) } else { frames(&server.plaintext) };
        assert_eq!(sent[0].1.step, Some(NegotiateStepPb::SaslInitiate as i32));
        let success = answer(&step(NegotiateStepPb::SaslSuccess).encode_to_vec());
        let success = if plain { success } else { server.seal(&success) };
        negotiation.receive(&success).expect("as expected");
        assert_eq!(negotiation.finish().expect("nothing is left over").is_none(), plain);
    }
}

#[test]
fn a_broken_handshake_is_an_error() {
    let cluster = Cluster::new();
    let sasl = AuthenticationType::Sasl(EmptyPb {});
    for records in [&b""[..], b"\x16\x03\x03\x00\x04abcd", b"hrpc"] {
        let mut negotiation =
            client(&cluster, TlsOffer::Required, &[RpcFeatureFlagPb::Tls], sasl.clone())
                .expect("as expected");
        negotiation.take_output();
        let message = NegotiatePb {
            tls_handshake: Some(Bytes::copy_from_slice(records)),
            ..step(NegotiateStepPb::TlsHandshake)
        };
        let result = receive(&mut negotiation, &message);
        assert!(!negotiation.is_done());
        // Empty input is no progress and ends with the negotiation's timeout; the rest fails at
        // once.
        assert_eq!(result.is_err(), !records.is_empty(), "{result:?}");
    }
}
