//! Access with TLS: versions, strangers, certificates and their users.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::RequestParts;
use oribi_tls::MinimumVersion;
use oribi_tls::server::ClientCertificates;
use oribi_tls::testing::{Authority, Owner};
use rustls::ProtocolVersion;

use super::{
    Client, Fixture, add_user, ask, builder, connect, get, read_frames, request, set, with_identity,
};

fn select(client: &mut Client, bucket: &[u8]) -> u16 {
    ask(client, &request(&RequestParts { key: bucket, ..RequestParts::new(Opcode::SelectBucket) }))
        .0
}

/// Negotiates XERROR, so that a refusal is answered.
fn greeted(mut client: Client) -> Client {
    let hello = RequestParts { value: &[0, 7], ..RequestParts::new(Opcode::Hello) };
    assert_eq!(ask(&mut client, &request(&hello)).0, 0);
    client
}

fn login(client: &mut Client, name: &str) -> u16 {
    let value = format!("\0{name}\0secret1");
    let parts = RequestParts {
        key: b"PLAIN",
        value: value.as_bytes(),
        ..RequestParts::new(Opcode::SaslAuth)
    };
    ask(client, &request(&parts)).0
}

/// The description of the caller's connection, fetched with rights that development mode lacks.
fn description(client: &mut Client) -> String {
    let parts = RequestParts { key: b"connections", ..RequestParts::new(Opcode::Stat) };
    client.write_all(&request(&parts)).unwrap();
    let frames = read_frames(client, 2);
    String::from_utf8(frames[0].1.clone()).unwrap()
}

#[test]
fn tls_1_2_is_spoken_unless_1_3_is_the_minimum() {
    let fixture = Fixture::start(|_| {});
    let mut old = fixture.config(None);
    let mut client = fixture.connect();
    assert_eq!(client.conn.protocol_version(), Some(ProtocolVersion::TLSv1_3));
    assert_eq!(ask(&mut client, &set(b"k", b"v")).0, 0);

    let roots = |fixture: &Fixture| {
        let mut roots = rustls::RootCertStore::empty();
        let pem = fixture.authority.pem();
        let der = rustls::pki_types::pem::PemObject::from_pem_slice(pem.as_bytes()).unwrap();
        roots.add(der).unwrap();
        roots
    };
    let only_old = |fixture: &Fixture| {
        let builder = builder(&[&rustls::version::TLS12]).with_root_certificates(roots(fixture));
        with_identity(builder, None)
    };
    old.clone_from(&only_old(&fixture));
    let mut client = fixture.connect_as(old).unwrap();
    assert_eq!(client.conn.protocol_version(), Some(ProtocolVersion::TLSv1_2));
    assert_eq!(ask(&mut client, &get(b"k")).1, b"v");

    let strict = Fixture::start(|s| s.tls_minimum_version = MinimumVersion::Tls13);
    strict.connect();
    strict.connect_as(only_old(&strict)).map(drop).expect_err("too old");
    strict.await_counter("tls_handshake_failures", 1);
}

#[test]
fn strangers_are_turned_away_and_the_server_goes_on() {
    let fixture = Fixture::start(|_| {});
    // A client without TLS.
    let mut plain = TcpStream::connect(fixture.address()).unwrap();
    plain.write_all(&request(&RequestParts::new(Opcode::Noop))).unwrap();
    let mut answer = Vec::new();
    plain.read_to_end(&mut answer).unwrap();
    assert_eq!(answer.first(), Some(&0x15), "an alert");
    fixture.await_counter("tls_handshake_failures", 1);
    // A client with TLS on the other port.
    let address = fixture.server().addresses().kv;
    connect(address, fixture.config(None)).map(drop).expect_err("no TLS there");
    // A client that does not trust the server.
    let other = Fixture::start(|_| {});
    fixture.connect_as(other.config(None)).map(drop).expect_err("not trusted");
    fixture.connect();
    fixture.await_counter("tls_handshakes", 1);
}

#[test]
fn statistics_tell_the_version_and_the_cipher() {
    let fixture = Fixture::start(|settings| add_user(settings, "root", &["admin"]));
    let mut client = fixture.connect();
    assert_eq!(login(&mut client, "root"), 0);
    let text = description(&mut client);
    assert!(
        text.contains("\"ssl\":true") && text.contains("\"tls_version\":\"TLSv1.3\""),
        "{text}"
    );
}

#[test]
fn a_certificate_says_who_the_client_is() {
    let fixture = Fixture::start(|settings| {
        settings.tls_client_certificates = ClientCertificates::Enable;
        settings.tls_client_names = vec!["san.email||@".to_owned(), "subject.cn|svc-".to_owned()];
        settings.buckets = vec!["orders".to_owned(), "other".to_owned()];
        add_user(settings, "alice", &["read-write:orders"]);
        add_user(settings, "billing", &["read-only:orders"]);
    });
    let of = |owner: Owner| fixture.config(Some(&fixture.authority.issue(&owner)));

    let emails = vec!["alice@example.org".to_owned()];
    let config = of(Owner { emails, ..Owner::client("svc-billing") });
    let mut client = greeted(fixture.connect_as(config).unwrap());
    assert_eq!((select(&mut client, b"orders"), select(&mut client, b"other")), (0, 0x24));
    assert_eq!(ask(&mut client, &set(b"k", b"v")).0, 0);

    // A resumed session has the same identity.
    let config = of(Owner::client("svc-billing"));
    for _ in 0..2 {
        let mut client = greeted(fixture.connect_as(config.clone()).unwrap());
        assert_eq!(select(&mut client, b"orders"), 0);
        assert_eq!(ask(&mut client, &set(b"k", b"v")).0, 0x24, "read only");
    }

    // A client without a certificate, or with one of an unknown user, may still log in.
    for config in [fixture.config(None), of(Owner::client("svc-nobody"))] {
        let mut client = greeted(fixture.connect_as(config).unwrap());
        assert_eq!(select(&mut client, b"orders"), 0x24);
        assert_eq!(login(&mut client, "alice"), 0);
        assert_eq!(select(&mut client, b"orders"), 0);
    }

    let stranger = Authority::new("other").issue(&Owner::client("svc-billing"));
    fixture
        .connect_as(fixture.config(Some(&stranger)))
        .map(drop)
        .expect_err("an unknown authority");
    let expired = of(Owner::client("svc-billing").expired());
    fixture.connect_as(expired).map(drop).expect_err("expired");
    let server = fixture.authority.issue(&Owner::server("svc-billing"));
    fixture.connect_as(fixture.config(Some(&server))).map(drop).expect_err("not for clients");
    fixture.await_counter("tls_handshake_failures", 3);
}

#[test]
fn mandatory_certificates_reject_others() {
    let fixture = Fixture::start(|settings| {
        settings.tls_client_certificates = ClientCertificates::Mandatory;
        add_user(settings, "alice", &["read-write:default"]);
    });
    fixture.connect_as(fixture.config(None)).map(drop).expect_err("no certificate");
    let of = |name| fixture.config(Some(&fixture.authority.issue(&Owner::client(name))));
    fixture.connect_as(of("bob")).map(drop).expect_err("no such user");
    let mut client = fixture.connect_as(of("alice")).unwrap();
    assert_eq!(select(&mut client, b"default"), 0);
}

#[test]
fn openssl_is_a_client_too() {
    let fixture = Fixture::start(|_| {});
    for version in ["-tls1_2", "-tls1_3"] {
        let command = Command::new("openssl")
            .args(["s_client", "-quiet", "-verify_return_error", "-servername", "db.test", version])
            .arg("-CAfile")
            .arg(fixture.path("ca.pem"))
            .args(["-connect", &fixture.address().to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let Ok(mut process) = command else { return };
        let mut input = process.stdin.take().unwrap();
        let value = vec![b'x'; 100_000];
        let quit = request(&RequestParts::new(Opcode::Quit));
        input.write_all(&[set(b"k", &value), get(b"k"), quit].concat()).unwrap();
        let frames = read_frames(process.stdout.as_mut().unwrap(), 3);
        assert!(frames.iter().all(|frame| frame.0 == 0) && frames[1].1 == value);
        // The server sent close_notify, so the process ends by itself.
        assert!(process.wait().unwrap().success());
    }
}
