//! Two sessions over a fake wire: every fragmentation, every end, and inputs that must not panic.

use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;
use rustls::pki_types::ServerName;

use super::Session;
use crate::client::ClientOptions;
use crate::server::{ClientCertificates, ServerOptions, ServerTls};
use crate::testing::{Authority, Owner};
use crate::{MinimumVersion, SealedBytes};

/// One end with the data it has received.
struct End {
    session: Session,
    block: Vec<u8>,
    received: Vec<u8>,
}

impl End {
    fn new(session: Session) -> End {
        End { session, block: Vec::new(), received: Vec::new() }
    }

    /// Processes received bytes; returns the bytes to send in response.
    fn open(&mut self, bytes: &[u8]) -> Result<Vec<u8>, rustls::Error> {
        let mut out = SealedBytes::default();
        self.session.room(&mut self.block, bytes.len()).copy_from_slice(bytes);
        let received = &mut self.received;
        let deliver = |plain: &[u8]| received.extend_from_slice(plain);
        self.session.open(&mut self.block, bytes.len(), &mut out, deliver)?;
        Ok(out.pending().to_vec())
    }

    fn seal(&mut self, plain: &[u8]) -> Vec<u8> {
        let mut out = SealedBytes::default();
        self.session.seal(plain, &mut out).unwrap();
        out.pending().to_vec()
    }

    fn close(&mut self) -> Vec<u8> {
        let mut out = SealedBytes::default();
        self.session.close(&mut out);
        out.pending().to_vec()
    }
}

struct Files {
    scratch: tempfile::TempDir,
}

impl Files {
    fn new() -> Files {
        let scratch = tempfile::tempdir().unwrap();
        let authority = Authority::new("test");
        authority.write(&scratch.path().join("ca.pem"));
        for (name, owner) in
            [("server", Owner::server("localhost")), ("client", Owner::client("alice"))]
        {
            let [certificate, key] =
                ["pem", "key"].map(|end| scratch.path().join(format!("{name}.{end}")));
            authority.issue(&owner).write(&certificate, &key);
        }
        Files { scratch }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.scratch.path().join(name)
    }

    fn server(&self, minimum_version: MinimumVersion) -> ServerTls {
        let options = ServerOptions {
            certificate: self.path("server.pem"),
            key: self.path("server.key"),
            client_ca: Some(self.path("ca.pem")),
            client_certificates: ClientCertificates::Enable,
            minimum_version,
        };
        options.load().unwrap()
    }

    fn pair(&self, has_certificate: bool) -> (End, End) {
        let identity = (self.path("client.pem"), self.path("client.key"));
        let options = ClientOptions {
            ca: Some(self.path("ca.pem")),
            identity: has_certificate.then_some(identity),
            ..ClientOptions::default()
        };
        let server = Session::server(self.server(MinimumVersion::Tls12).config).unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let client = Session::client(options.load().unwrap(), name).unwrap();
        (End::new(server), End::new(client))
    }
}

fn write(directory: &Path, name: &str, text: &str) {
    std::fs::write(directory.join(name), text).unwrap();
}

/// Exchanges bytes in pieces until neither end has more to send.
fn shake_hands(server: &mut End, client: &mut End, piece: usize) {
    let mut to_server = client.open(&[]).unwrap();
    while !to_server.is_empty() {
        let mut to_client = Vec::new();
        for bytes in to_server.chunks(piece) {
            to_client.extend(server.open(bytes).unwrap());
        }
        to_server.clear();
        for bytes in to_client.chunks(piece) {
            to_server.extend(client.open(bytes).unwrap());
        }
    }
    assert!(!server.session.is_handshaking() && !client.session.is_handshaking());
}

#[test]
fn records_may_be_cut_at_every_byte() {
    let files = Files::new();
    for piece in [1, 2, 3, 5, 7, 100, 1_000_000] {
        let (mut server, mut client) = files.pair(true);
        shake_hands(&mut server, &mut client, piece);
        let der = server.session.peer_certificate().unwrap();
        let name = crate::certificate::read(der).unwrap().common_name;
        assert_eq!(name.as_deref(), Some("alice"));
    }
    let (mut server, mut client) = files.pair(false);
    shake_hands(&mut server, &mut client, 1000);
    let pair_bytes = client.seal(b"hello, ").len() + client.seal(b"server").len();
    for cut in 0..=pair_bytes {
        let (mut server, mut client) = files.pair(false);
        shake_hands(&mut server, &mut client, 1000);
        let sealed = [client.seal(b"hello, "), client.seal(b"server"), client.close()].concat();
        server.open(&sealed[..cut]).unwrap();
        server.open(&sealed[cut..]).unwrap();
        assert_eq!(server.received, b"hello, server");
        assert!(server.session.is_peer_done());
        assert_eq!(server.session.partial_bytes(), 0);
        // The other direction is still open.
        assert!(!server.seal(b"and back").is_empty());
    }
}

#[test]
fn large_values_pass_in_both_directions() {
    let files = Files::new();
    let (mut server, mut client) = files.pair(false);
    shake_hands(&mut server, &mut client, 4096);
    assert_eq!(server.session.version(), Some("TLSv1.3"));
    assert!(server.session.cipher_suite().is_some_and(|name| name.contains("GCM")));
    let value: Vec<u8> = (0..3_000_000_u32).map(|index| (index * 31) as u8).collect();
    let sealed = server.seal(&value);
    for bytes in sealed.chunks(40_000) {
        client.open(bytes).unwrap();
        assert!(client.session.partial_bytes() < 17_000);
    }
    assert!(client.received == value);
    let sealed = client.seal(&value);
    server.open(&sealed).unwrap();
    assert!(server.received == value);
}

#[test]
fn plain_bytes_are_an_error_with_an_alert() {
    let files = Files::new();
    let (mut server, _) = files.pair(false);
    let mut out = SealedBytes::default();
    let noop = [0x80, 0x0a, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    server.session.room(&mut server.block, noop.len()).copy_from_slice(&noop);
    server
        .session
        .open(&mut server.block, noop.len(), &mut out, |_| panic!("nothing was agreed on"))
        .expect_err("not TLS");
    // An alert record, and the session stays unusable.
    assert_eq!(out.pending().first(), Some(&0x15));
    server.open(&[]).expect_err("over");
    server.session.seal(b"x", &mut out).expect_err("over");
}

#[test]
fn sealing_needs_an_open_tls_session() {
    let files = Files::new();
    let (mut server, mut client) = files.pair(false);
    let mut out = SealedBytes::default();
    server.session.seal(b"early", &mut out).expect_err("nothing was agreed on");
    server.session.close(&mut out);
    assert!(out.is_empty());
    shake_hands(&mut server, &mut client, 1000);
    assert!(!server.close().is_empty());
    server.session.seal(b"late", &mut out).expect_err("closed");
    assert!(server.close().is_empty());
}

#[test]
fn a_server_needs_a_matching_key_and_certificate() {
    let files = Files::new();
    let good = ServerOptions {
        certificate: files.path("server.pem"),
        key: files.path("server.key"),
        client_ca: None,
        client_certificates: ClientCertificates::Off,
        minimum_version: MinimumVersion::Tls13,
    };
    assert_eq!(good.load().unwrap().certificate.common_name.as_deref(), Some("localhost"));
    write(files.scratch.path(), "empty.pem", "nothing here\n");
    let damaged = "-----BEGIN CERTIFICATE-----\n!!!\n-----END CERTIFICATE-----\n";
    write(files.scratch.path(), "damaged.pem", damaged);
    let cases = [
        (ServerOptions { key: files.path("client.key"), ..good.clone() }, "server.pem"),
        (ServerOptions { key: files.path("none.key"), ..good.clone() }, "none.key"),
        (ServerOptions { key: files.path("empty.pem"), ..good.clone() }, "no private key"),
        (ServerOptions { certificate: files.path("empty.pem"), ..good.clone() }, "no certificate"),
        (ServerOptions { certificate: files.path("damaged.pem"), ..good }, "damaged.pem"),
    ];
    for (options, expected) in cases {
        let error = options.load().unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn old_clients_and_foreign_authorities_fail() {
    let files = Files::new();
    let other = Files::new();
    let name = ServerName::try_from("localhost").unwrap();
    let options = ClientOptions { ca: Some(other.path("ca.pem")), ..ClientOptions::default() };
    let mut client = End::new(Session::client(options.load().unwrap(), name.clone()).unwrap());
    let mut server = files.pair(false).0;
    let hello = client.open(&[]).unwrap();
    let answer = server.open(&hello).unwrap();
    client.open(&answer).expect_err("an unknown authority");

    let mut roots = rustls::RootCertStore::empty();
    roots.add(crate::files::certificates(&files.path("ca.pem")).unwrap().remove(0)).unwrap();
    let old = rustls::ClientConfig::builder_with_provider(crate::provider())
        .with_protocol_versions(&[&rustls::version::TLS12])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let mut client = End::new(Session::client(Arc::new(old.clone()), name.clone()).unwrap());
    let strict = files.server(MinimumVersion::Tls13);
    let mut server = End::new(Session::server(strict.config).unwrap());
    server.open(&client.open(&[]).unwrap()).expect_err("too old");

    let mut client = End::new(Session::client(Arc::new(old), name).unwrap());
    let lenient = files.server(MinimumVersion::Tls12);
    let mut server = End::new(Session::server(lenient.config).unwrap());
    shake_hands(&mut server, &mut client, 7);
    assert_eq!(server.session.version(), Some("TLSv1.2"));
    let sealed = client.seal(b"old but good");
    server.open(&sealed).unwrap();
    assert_eq!(server.received, b"old but good");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_pieces_of_any_messages_arrive_whole(
        messages in proptest::collection::vec(1_usize..40_000, 1..6),
        pieces in proptest::collection::vec(1_usize..20_000, 1..8),
    ) {
        let files = Files::new();
        let (mut server, mut client) = files.pair(false);
        shake_hands(&mut server, &mut client, pieces[0]);
        let mut sent = Vec::new();
        let mut wire = Vec::new();
        for (index, bytes) in messages.into_iter().enumerate() {
            let message = vec![index as u8 + 1; bytes];
            wire.extend(client.seal(&message));
            sent.extend(message);
        }
        let mut rest = &wire[..];
        let mut pieces = pieces.iter().cycle();
        while !rest.is_empty() {
            let (piece, behind) = rest.split_at((*pieces.next().unwrap()).min(rest.len()));
            server.open(piece).unwrap();
            rest = behind;
        }
        prop_assert!(server.received == sent);
    }

    #[test]
    fn damaged_streams_end_and_never_panic(
        flips in proptest::collection::vec((any::<usize>(), any::<u8>()), 1..4),
        piece in 1_usize..3000,
        during_handshake in any::<bool>(),
    ) {
        let files = Files::new();
        let (mut server, mut client) = files.pair(true);
        let mut wire = client.open(&[]).unwrap();
        if !during_handshake {
            let (mut other_server, mut other_client) = files.pair(true);
            shake_hands(&mut other_server, &mut other_client, 999);
            wire = other_client.seal(&[7; 20_000]);
            server = other_server;
        }
        for (position, byte) in flips {
            let position = position % wire.len();
            wire[position] = byte;
        }
        for bytes in wire.chunks(piece) {
            if server.open(bytes).is_err() {
                break;
            }
        }
        // The delivered bytes are a prefix of the sent ones, whatever was damaged.
        prop_assert!(server.received.iter().all(|byte| *byte == 7));
        prop_assert!(server.received.len() <= 20_000);
    }
}
