//! A whole server with TLS. The clients use rustls directly, so that both ends do not share
//! mistakes.

mod clients;
mod reload;
mod traffic;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use oribi_auth::{Role, StoredUser, UserFile};
use oribi_config::Settings;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::RequestParts;
use oribi_system::data_dir::DataDir;
use oribi_tls::testing::{Authority, IssuedCertificate, Owner};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::Server;
use crate::runtime::worker::tests::{get, read_frames, request, set};

const PATIENCE: Duration = Duration::from_secs(30);

type Client = StreamOwned<ClientConnection, TcpStream>;

/// A server in a scratch directory that also holds the certificates.
struct Fixture {
    server: Option<Server>,
    authority: Authority,
    scratch: tempfile::TempDir,
}

impl Fixture {
    fn start(change: impl FnOnce(&mut Settings)) -> Fixture {
        let scratch = tempfile::tempdir().unwrap();
        let path = |name: &str| scratch.path().join(name);
        let authority = Authority::new("test");
        authority.write(&path("ca.pem"));
        authority.issue(&Owner::server("db.test")).write(&path("server.pem"), &path("server.key"));
        let data_dir = path("data");
        DataDir::prepare(&data_dir).unwrap();
        let mut settings = Settings {
            data_dir,
            port: 0,
            admin_port: 0,
            tls_port: 0,
            tls_admin_port: 0,
            tls_certificate: Some(path("server.pem")),
            tls_key: Some(path("server.key")),
            tls_client_ca: Some(path("ca.pem")),
            workers: 1,
            vbuckets: 4,
            ..Settings::default()
        };
        change(&mut settings);
        let server = Server::start(&settings).unwrap();
        Fixture { server: Some(server), authority, scratch }
    }

    fn server(&self) -> &Server {
        self.server.as_ref().expect("it is taken at the end only")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    fn address(&self) -> SocketAddr {
        self.server().addresses().tls.expect("TLS is set up").kv
    }

    fn config(&self, identity: Option<&IssuedCertificate>) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        let authority = CertificateDer::from_pem_slice(self.authority.pem().as_bytes()).unwrap();
        roots.add(authority).unwrap();
        let builder = builder(rustls::DEFAULT_VERSIONS).with_root_certificates(roots);
        with_identity(builder, identity)
    }

    fn connect(&self) -> Client {
        self.connect_as(self.config(None)).unwrap()
    }

    fn connect_as(&self, config: ClientConfig) -> std::io::Result<Client> {
        connect(self.address(), config)
    }

    /// Waits until a counter of the workers has a value.
    fn await_counter(&self, name: &str, value: u64) {
        let begun = Instant::now();
        let context = self.server().context();
        let now = || {
            let entries = context.diagnostics.counters.totals().entries();
            entries.into_iter().find(|entry| entry.0 == name).expect("there is such a counter").1
        };
        while now() < value {
            assert!(begun.elapsed() < PATIENCE, "{name} stays at {}", now());
            std::thread::yield_now();
        }
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            server.shutdown().unwrap();
        }
    }
}

fn builder(
    versions: &[&'static rustls::SupportedProtocolVersion],
) -> rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    ClientConfig::builder_with_provider(provider).with_protocol_versions(versions).unwrap()
}

fn with_identity(
    builder: rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert>,
    identity: Option<&IssuedCertificate>,
) -> ClientConfig {
    let Some(identity) = identity else { return builder.with_no_client_auth() };
    let chain = vec![CertificateDer::from_pem_slice(identity.certificate.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).unwrap();
    builder.with_client_auth_cert(chain, key).unwrap()
}

/// Connects and sends NOOP: a client of TLS 1.3 learns only from the first answer whether the
/// server accepts its certificate.
fn connect(address: SocketAddr, config: ClientConfig) -> std::io::Result<Client> {
    let name = ServerName::try_from("db.test").unwrap();
    let session = ClientConnection::new(Arc::new(config), name).map_err(std::io::Error::other)?;
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut client = StreamOwned::new(session, stream);
    client.write_all(&request(&RequestParts::new(Opcode::Noop)))?;
    let mut answer = [0; 24];
    client.read_exact(&mut answer)?;
    assert_eq!(answer[..2], [0x81, Opcode::Noop as u8]);
    Ok(client)
}

fn ask(client: &mut Client, bytes: &[u8]) -> (u16, Vec<u8>) {
    client.write_all(bytes).unwrap();
    read_frames(client, 1).remove(0)
}

fn add_user(settings: &Settings, name: &str, roles: &[&str]) {
    let roles = roles.iter().map(|role| role.parse::<Role>().unwrap()).collect();
    let user = StoredUser::new(name, b"secret1", roles).unwrap();
    assert!(UserFile::edit(&settings.data_dir, |file| file.put(user)).unwrap());
}
