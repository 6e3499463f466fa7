//! A server with and without TLS, and a connection to it that negotiates what a row of the matrix
//! says.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use oribi_config::Settings;
use oribi_protocol::feature::Feature;
use oribi_protocol::frame::{DecodedFrame, decode};
use oribi_protocol::hash::vbucket_of;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::{RequestParts, encode_request};
use oribi_protocol::status::Status;
use oribi_server::{Addresses, Server};
use oribi_tls::testing::{Authority, Owner};
use oribi_types::Vbid;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

const PATIENCE: Duration = Duration::from_secs(60);
const VBUCKETS: u16 = 4;
const SNAPPY: u8 = 2;

/// How a connection speaks.
#[derive(Clone, Copy, Debug)]
pub struct Transport {
    pub tls: bool,
    pub collections: bool,
    pub xattr: bool,
    pub json: bool,
    pub snappy: bool,
}

impl Transport {
    pub fn all() -> impl Iterator<Item = Transport> {
        (0..32_u8).map(|bits| {
            let has = |bit: u8| bits >> bit & 1 == 1;
            let (tls, collections, xattr, json) = (has(0), has(1), has(2), has(3));
            Transport { tls, collections, xattr, json, snappy: has(4) }
        })
    }

    fn features(self) -> Vec<Feature> {
        let mut features = vec![Feature::XError, Feature::SelectBucket, Feature::MutationSeqno];
        let optional = [
            (self.collections, Feature::Collections),
            (self.xattr, Feature::Xattr),
            (self.json, Feature::Json),
            (self.snappy, Feature::Snappy),
        ];
        features.extend(optional.iter().filter(|(asked, _)| *asked).map(|(_, feature)| *feature));
        features
    }
}

/// A running server and what is needed to trust it.
pub struct Fixture {
    server: Option<Server>,
    client: Arc<ClientConfig>,
    _scratch: tempfile::TempDir,
}

impl Fixture {
    pub fn start() -> Fixture {
        let scratch = tempfile::tempdir().unwrap();
        let path = |name: &str| scratch.path().join(name);
        let authority = Authority::new("test");
        authority.issue(&Owner::server("db.test")).write(&path("server.pem"), &path("server.key"));
        let settings = Settings {
            data_dir: path("data"),
            port: 0,
            admin_port: 0,
            tls_port: 0,
            tls_admin_port: 0,
            tls_certificate: Some(path("server.pem")),
            tls_key: Some(path("server.key")),
            workers: 1,
            vbuckets: VBUCKETS,
            memory_quota_mib: Some(1024),
            ..Settings::default()
        };
        let server = Some(Server::start(&settings).unwrap());
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(authority.pem().as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        Fixture { server, client: Arc::new(client), _scratch: scratch }
    }

    fn addresses(&self) -> Addresses {
        self.server.as_ref().expect("it is taken at the end only").addresses()
    }

    pub fn connect(&self, transport: Transport) -> Connection {
        let addresses = self.addresses();
        let stream: Box<dyn Stream> = match transport.tls {
            false => Box::new(open(addresses.kv)),
            true => {
                let name = ServerName::try_from("db.test").unwrap();
                let session = ClientConnection::new(Arc::clone(&self.client), name).unwrap();
                let stream = open(addresses.tls.expect("TLS is set up").kv);
                Box::new(StreamOwned::new(session, stream))
            }
        };
        let mut connection = Connection { stream, transport, received: Vec::new() };
        connection.set_up();
        connection
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            server.shutdown().unwrap();
        }
    }
}

fn open(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

trait Stream: Read + Write {}
impl<S: Read + Write> Stream for S {}

/// One decoded answer, its value inflated.
#[derive(Debug)]
pub struct Reply {
    pub status: Status,
    pub datatype: u8,
    pub key: Vec<u8>,
    pub value: Vec<u8>,
}

pub struct Connection {
    stream: Box<dyn Stream>,
    transport: Transport,
    received: Vec<u8>,
}

impl Connection {
    fn set_up(&mut self) {
        let features = self.transport.features();
        let codes: Vec<u8> =
            features.iter().flat_map(|feature| feature.code().to_be_bytes()).collect();
        let hello =
            RequestParts { key: b"test", value: &codes, ..RequestParts::new(Opcode::Hello) };
        assert_eq!(self.ask(&hello).value.len(), codes.len(), "every feature is granted");
        let value = b"\0Administrator\0password";
        let plain = RequestParts { key: b"PLAIN", value, ..RequestParts::new(Opcode::SaslAuth) };
        assert_eq!(self.ask(&plain).status, Status::Success);
        let select = RequestParts { key: b"default", ..RequestParts::new(Opcode::SelectBucket) };
        assert_eq!(self.ask(&select).status, Status::Success);
    }

    /// The key field of a document: with the prefix of the default collection where that is spoken.
    pub fn key_field(&self, key: &str) -> Vec<u8> {
        let prefix: &[u8] = if self.transport.collections { &[0] } else { &[] };
        [prefix, key.as_bytes()].concat()
    }

    /// Sends a request about a document.
    pub fn document(&mut self, key: &str, parts: &RequestParts<'_>) -> Reply {
        let (field, vbid) = (self.key_field(key), vbucket_of(key.as_bytes(), VBUCKETS));
        self.ask(&RequestParts { key: &field, vbid, ..*parts })
    }

    /// Sends a request and reads its answer.
    pub fn ask(&mut self, parts: &RequestParts<'_>) -> Reply {
        let mut bytes = Vec::new();
        encode_request(&mut bytes, &RequestParts { vbid: Vbid(parts.vbid.0), ..*parts });
        self.stream.write_all(&bytes).unwrap();
        let mut piece = vec![0; 1 << 20];
        loop {
            if let DecodedFrame::Complete { frame, consumed } = decode(&self.received).unwrap() {
                assert_eq!(frame.header.opcode, parts.opcode as u8);
                let datatype = frame.header.datatype;
                let value = match datatype & SNAPPY {
                    0 => frame.value.to_vec(),
                    _ => snap::raw::Decoder::new().decompress_vec(frame.value).unwrap(),
                };
                let reply = Reply {
                    status: Status::from_u16(frame.header.vbucket_or_status).unwrap(),
                    datatype,
                    key: frame.key.to_vec(),
                    value,
                };
                self.received.drain(..consumed);
                return reply;
            }
            let received = self.stream.read(&mut piece).unwrap();
            assert_ne!(received, 0, "closed instead of an answer to {:?}", parts.opcode);
            self.received.extend_from_slice(&piece[..received]);
        }
    }

    /// The connection still answers.
    pub fn assert_usable(&mut self) {
        assert_eq!(self.ask(&RequestParts::new(Opcode::Noop)).status, Status::Success);
    }
}

pub fn compressed(plain: &[u8]) -> Vec<u8> {
    snap::raw::Encoder::new().compress_vec(plain).unwrap()
}
