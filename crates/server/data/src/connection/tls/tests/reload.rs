//! Replacement of certificates while clients are connected.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use oribi_tls::testing::Owner;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};

use super::{Client, Fixture, PATIENCE, ask, connect, get, set};

/// The certificate that the server presents.
fn certificate(client: &Client) -> Vec<u8> {
    client.conn.peer_certificates().unwrap()[0].to_vec()
}

impl Fixture {
    fn replace(&self, owner: &Owner) {
        self.authority.issue(owner).write(&self.path("server.pem"), &self.path("server.key"));
    }

    /// One request to the admin HTTP with TLS; returns the status line and the rest.
    fn https(&self, method: &str, path: &str) -> String {
        let address = self.server().addresses().tls.unwrap().admin;
        let name = ServerName::try_from("db.test").unwrap();
        let session = ClientConnection::new(Arc::new(self.config(None)), name).unwrap();
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut stream = StreamOwned::new(session, stream);
        let login = "Authorization: Basic QWRtaW5pc3RyYXRvcjpwYXNzd29yZA==";
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{login}\r\n\
             Content-Length: 0\r\n\r\n"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

// Compat (Admin HTTP): `POST /node/controller/reloadCertificate`
#[test]
fn new_certificates_apply_bad_ones_never() {
    let fixture = Fixture::start(|_| {});
    let mut old = fixture.connect();
    let first = certificate(&old);
    let tls = fixture.server().context().tls().unwrap();

    fixture.replace(&Owner::server("db.test"));
    tls.reload().unwrap();
    let second = certificate(&fixture.connect());
    assert_ne!(first, second);
    assert_eq!(ask(&mut old, &set(b"k", b"v")).0, 0, "what is connected stays");

    fixture.replace(&Owner::server("db.test").expired());
    let refused = tls.reload().unwrap_err().to_string();
    assert!(refused.contains("expired"), "{refused}");
    std::fs::write(fixture.path("server.pem"), "nothing").unwrap();
    let refused = tls.reload().unwrap_err().to_string();
    assert!(refused.contains("no certificate"), "{refused}");
    let answer = fixture.https("POST", "/node/controller/reloadCertificate");
    assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("no certificate"), "{answer}");
    assert_eq!(certificate(&fixture.connect()), second);

    fixture.replace(&Owner::server("db.test"));
    let answer = fixture.https("POST", "/node/controller/reloadCertificate");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_ne!(certificate(&fixture.connect()), second);
}

#[test]
fn admin_http_is_served_over_tls_with_its_ports() {
    let fixture = Fixture::start(|_| {});
    let answer = fixture.https("GET", "/pools/default/nodeServices");
    let ports = fixture.server().addresses().tls.unwrap();
    assert!(answer.contains(&format!("\"kvSSL\":{}", ports.kv.port())), "{answer}");
    assert!(answer.contains(&format!("\"mgmtSSL\":{}", ports.admin.port())), "{answer}");
    let metrics = fixture.https("GET", "/metrics");
    for name in ["tls_certificate_not_after_seconds", "tls_handshakes_total"] {
        assert!(metrics.contains(&format!("\noribi_{name} ")), "{name} in {metrics}");
    }
}

#[test]
fn files_are_watched_while_clients_come_and_go() {
    let fixture = Fixture::start(|_| {});
    let mut client = fixture.connect();
    let first = certificate(&client);
    let (address, config) = (fixture.address(), fixture.config(None));
    let done = Arc::new(AtomicBool::new(false));
    let served = Arc::new(AtomicU64::new(0));
    let traffic = {
        let (done, served) = (Arc::clone(&done), Arc::clone(&served));
        std::thread::spawn(move || {
            while !done.load(Ordering::Relaxed) {
                let mut client = connect(address, config.clone()).expect("connections go on");
                assert_eq!(ask(&mut client, &set(b"k", &[7; 5000])).0, 0);
                served.fetch_add(1, Ordering::Relaxed);
            }
        })
    };
    fixture.replace(&Owner::server("db.test"));
    let begun = Instant::now();
    while certificate(&fixture.connect()) == first {
        assert!(begun.elapsed() < PATIENCE, "the change was not seen");
        assert_eq!(ask(&mut client, &get(b"none")).0, 1);
    }
    let before = served.load(Ordering::Relaxed);
    while served.load(Ordering::Relaxed) < before + 5 {
        assert!(begun.elapsed() < PATIENCE, "connections do not go on");
        std::thread::yield_now();
    }
    done.store(true, Ordering::Relaxed);
    traffic.join().unwrap();
}

// Compat (Admin HTTP): `GET /pools/default/certificate`
// Compat (Admin HTTP): `GET /nodes/self/xdcrSSLPorts`
/// Suites and other clusters fetch what they have to trust.
#[test]
fn the_certificate_of_the_issuer_is_served() {
    let fixture = Fixture::start(|_| {});
    let answer = fixture.https("GET", "/pools/default/certificate");
    let pem = |name: &str| std::fs::read_to_string(fixture.path(name)).unwrap();
    let lines = |text: &str| text.lines().map(str::trim).collect::<Vec<_>>().join("\n");
    let served = |answer: &str| lines(answer.split_once("\r\n\r\n").unwrap().1);
    assert_eq!(served(&answer), lines(&pem("server.pem")), "there is no other in the file");
    let chain = pem("server.pem") + &pem("ca.pem");
    std::fs::write(fixture.path("server.pem"), chain).unwrap();
    fixture.server().context().tls().unwrap().reload().unwrap();
    let answer = fixture.https("GET", "/pools/default/certificate");
    assert_eq!(served(&answer), lines(&pem("ca.pem")));
    let ports = fixture.https("GET", "/nodes/self/xdcrSSLPorts");
    let port = fixture.server().addresses().tls.unwrap().admin.port();
    assert!(ports.ends_with(&format!("{{\"httpsMgmt\":{port}}}")), "{ports}");
}
