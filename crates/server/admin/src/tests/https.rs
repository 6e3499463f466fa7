//! The admin HTTP with TLS, to a client that uses rustls directly.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use oribi_config::Settings;
use oribi_system::data_dir::DataDir;
use oribi_testkit::ReservedPort;
use oribi_tls::testing::{Authority, Owner};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::{ADMIN, Fixture, basic};

/// A server with TLS in a scratch directory that also holds the certificates.
struct TlsFixture {
    plain: Fixture,
    authority: Authority,
}

impl TlsFixture {
    fn start() -> TlsFixture {
        TlsFixture::with_query_port(0)
    }

    fn with_query_port(tls_query_port: u16) -> TlsFixture {
        let scratch = tempfile::tempdir().unwrap();
        let path = |name: &str| scratch.path().join(name);
        let authority = Authority::new("test");
        authority.write(&path("ca.pem"));
        authority.issue(&Owner::server("db.test")).write(&path("server.pem"), &path("server.key"));
        DataDir::prepare(&path("data")).unwrap();
        let settings = Settings {
            data_dir: path("data"),
            port: 0,
            admin_port: 0,
            query_port: 0,
            tls_port: 0,
            tls_admin_port: 0,
            tls_query_port,
            tls_certificate: Some(path("server.pem")),
            tls_key: Some(path("server.key")),
            workers: 1,
            vbuckets: 4,
            ..Settings::default()
        };
        let server = crate::start_server(&settings, None).unwrap();
        let admin = server.addresses().admin;
        let plain =
            Fixture { server: Some(server), settings, admin, _query_port: None, _scratch: scratch };
        TlsFixture { plain, authority }
    }

    fn server(&self) -> &oribi_server::Server {
        self.plain.server.as_ref().unwrap()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.plain._scratch.path().join(name)
    }

    fn replace(&self, owner: &Owner) {
        self.authority.issue(owner).write(&self.path("server.pem"), &self.path("server.key"));
    }

    /// One request; returns the certificate that the server presents, and the whole answer.
    fn exchange(&self, method: &str, path: &str) -> (Vec<u8>, String) {
        let admin = self.server().addresses().tls.unwrap().admin;
        let stream = TcpStream::connect(admin).unwrap();
        self.exchange_on(stream, method, path, "")
    }

    fn exchange_on(
        &self,
        stream: TcpStream,
        method: &str,
        path: &str,
        form: &str,
    ) -> (Vec<u8>, String) {
        let mut roots = RootCertStore::empty();
        let authority = CertificateDer::from_pem_slice(self.authority.pem().as_bytes()).unwrap();
        roots.add(authority).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from("db.test").unwrap();
        let session = ClientConnection::new(Arc::new(config), name).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let mut stream = StreamOwned::new(session, stream);
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
             Authorization: {}\r\nContent-Type: application/x-www-form-urlencoded\r\n\
             Content-Length: {}\r\n\r\n{form}",
            basic(ADMIN),
            form.len()
        )
        .unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let certificate = stream.conn.peer_certificates().unwrap()[0].to_vec();
        (certificate, String::from_utf8_lossy(&answer).into_owned())
    }

    fn ask(&self, method: &str, path: &str) -> String {
        self.exchange(method, path).1
    }
}

// Compat (Admin HTTP): `POST /node/controller/reloadCertificate`
#[test]
fn a_reload_takes_new_files_and_refuses_bad_ones() {
    let fixture = TlsFixture::start();
    let presented = || fixture.exchange("GET", "/healthz").0;
    let first = presented();
    std::fs::write(fixture.path("server.pem"), "nothing").unwrap();
    let answer = fixture.ask("POST", "/node/controller/reloadCertificate");
    assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("no certificate"), "{answer}");
    assert_eq!(presented(), first);

    fixture.replace(&Owner::server("db.test"));
    let answer = fixture.ask("POST", "/node/controller/reloadCertificate");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_ne!(presented(), first);
}

#[test]
fn admin_http_is_served_over_tls_with_its_ports() {
    let fixture = TlsFixture::start();
    let answer = fixture.ask("GET", "/pools/default/nodeServices");
    let ports = fixture.server().addresses().tls.unwrap();
    assert!(answer.contains(&format!("\"kvSSL\":{}", ports.kv.port())), "{answer}");
    assert!(answer.contains(&format!("\"mgmtSSL\":{}", ports.admin.port())), "{answer}");
    let metrics = fixture.ask("GET", "/metrics");
    for name in ["tls_certificate_not_after_seconds", "tls_handshakes_total"] {
        assert!(metrics.contains(&format!("\noribi_{name} ")), "{name} in {metrics}");
    }
}

#[test]
fn queries_are_served_over_tls_at_their_port() {
    let reserved = ReservedPort::new().unwrap();
    let port = reserved.number();
    let fixture = TlsFixture::with_query_port(port);
    let services = fixture.ask("GET", "/pools/default/nodeServices");
    assert!(services.contains(&format!("\"n1qlSSL\":{port}")), "{services}");
    let ask = |method: &str, path: &str, form: &str| {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        fixture.exchange_on(stream, method, path, form)
    };
    let (certificate, answer) = ask("POST", "/query/service", "statement=SELECT+RAW+40%2B2");
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("42"), "{answer}");
    assert_eq!(certificate, fixture.exchange("GET", "/healthz").0);
    assert!(ask("GET", "/admin/ping", "").1.starts_with("HTTP/1.1 200"));
    // It serves nothing else, and nothing without TLS.
    let other = ask("GET", "/pools/default", "").1;
    assert!(other.starts_with("HTTP/1.1 404"), "{other}");
    let mut plain = TcpStream::connect(("127.0.0.1", port)).unwrap();
    plain.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    plain.write_all(b"GET /admin/ping HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    // The server may reset the connection.
    let _ = plain.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP/1.1"), "{}", String::from_utf8_lossy(&answer));
}

// Compat (Admin HTTP): `GET /pools/default/certificate`
// Compat (Admin HTTP): `GET /nodes/self/xdcrSSLPorts`
/// Suites and other clusters fetch what they have to trust.
#[test]
fn the_certificate_of_the_issuer_is_served() {
    let fixture = TlsFixture::start();
    let answer = fixture.ask("GET", "/pools/default/certificate");
    let pem = |name: &str| std::fs::read_to_string(fixture.path(name)).unwrap();
    let lines = |text: &str| text.lines().map(str::trim).collect::<Vec<_>>().join("\n");
    let served = |answer: &str| lines(answer.split_once("\r\n\r\n").unwrap().1);
    assert_eq!(served(&answer), lines(&pem("server.pem")), "there is no other in the file");
    let chain = pem("server.pem") + &pem("ca.pem");
    std::fs::write(fixture.path("server.pem"), chain).unwrap();
    fixture.server().context().access.tls.as_ref().unwrap().reload().unwrap();
    let answer = fixture.ask("GET", "/pools/default/certificate");
    assert_eq!(served(&answer), lines(&pem("ca.pem")));
    let ports = fixture.ask("GET", "/nodes/self/xdcrSSLPorts");
    let port = fixture.server().addresses().tls.unwrap().admin.port();
    assert!(ports.ends_with(&format!("{{\"httpsMgmt\":{port}}}")), "{ports}");
}

/// The line of each event of a stream of changes over HTTPS.
#[test]
fn changes_over_http_arrive_over_tls() {
    const DOCUMENTS: usize = 200;
    let fixture = TlsFixture::start();
    for number in 0..DOCUMENTS {
        fixture.plain.put(&format!("key{number}"), &[b'v'; 2000]);
    }
    let path = "/pools/default/buckets/default/changes?from=beginning&until-now&with-values";
    let answer = fixture.ask("GET", path);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let mutations = answer.matches(r#""type":"mutation""#).count();
    assert_eq!(mutations, DOCUMENTS);
    assert!(answer.contains(r#"{"type":"end","reason":"complete"}"#), "it ends by itself");
}
