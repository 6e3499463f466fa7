//! The program's subcommands and the client library against a server that speaks TLS.

// What sets a test up and fails, fails its test, which is all that `unwrap` does.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Output};

use bytes::Bytes;
use oribi_client::{
    Client, ClientTls, ConnectOptions, Connection, DcpEvent, DcpStreamOptions, TlsOptions,
    WriteOptions,
};
use oribi_protocol::hash::vbucket_of;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::RequestParts;
use oribi_testkit::http::HttpClient;
use oribi_testkit::{PATIENCE, ServerOptions, ServerProcess, poll_until};
use oribi_tls::testing::{Authority, Owner};

// The client's example is run here, against a real server.
#[path = "../../../tools/client/examples/cluster_tls.rs"]
#[allow(dead_code)]
mod cluster_tls;

const ORIBI: &str = env!("CARGO_BIN_EXE_oribi");
const ROLE: &str = "read-write+change-streams:default";

struct Fixture {
    server: ServerProcess,
    authority: Authority,
    tls_port: u16,
    scratch: tempfile::TempDir,
}

impl Fixture {
    fn start(settings: &[(&str, &str)]) -> Fixture {
        let scratch = tempfile::tempdir().unwrap();
        let path = |name: &str| scratch.path().join(name);
        let authority = Authority::new("test");
        authority.write(&path("ca.pem"));
        let server = Owner::server("localhost");
        authority.issue(&server).write(&path("server.pem"), &path("server.key"));
        let data_dir = path("data");
        let add = ["user", "add", "alice", "--role", ROLE, "--data-dir"];
        fs::create_dir(&data_dir).unwrap();
        let mut add_user = Command::new(ORIBI);
        add_user.args(add).arg(&data_dir).env("ORIBI_PASSWORD", "secret1");
        // Without users the server is in development mode, where certificates prove nothing.
        let added = add_user.output().unwrap();
        assert!(added.status.success(), "{}", String::from_utf8_lossy(&added.stderr));
        let mut options = ServerOptions::new(ORIBI, data_dir)
            .setting("tls-certificate", path("server.pem").display())
            .setting("tls-key", path("server.key").display())
            .setting("tls-client-ca", path("ca.pem").display())
            .setting("tls-port", 0)
            .setting("tls-admin-port", 0);
        for (name, value) in settings {
            options = options.setting(name, value);
        }
        let server = ServerProcess::start(options).unwrap();
        let tls_port = tls_port(&server);
        Fixture { server, authority, tls_port, scratch }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(ORIBI);
        command.args(arguments).env("ORIBI_PASSWORD", "secret1").output().expect("it runs")
    }

    fn options(&self, tls: &TlsOptions) -> ConnectOptions {
        ConnectOptions::new("alice", "secret1", "default")
            .host("localhost")
            .port(self.tls_port)
            .tls(ClientTls::load(tls).unwrap())
            .operation_timeout(PATIENCE)
    }

    fn trusting(&self) -> TlsOptions {
        TlsOptions::new().ca(self.path("ca.pem"))
    }
}

/// The port that the server says it listens on with TLS.
fn tls_port(server: &ServerProcess) -> u16 {
    // It says so just after it has written the file that says that it is ready.
    let address = poll_until(PATIENCE, || {
        let log = server.log();
        let (_, rest) = log.split_once("listening with TLS on ")?;
        Some(rest.split_once(' ')?.0.to_owned())
    });
    let address: SocketAddr = address.expect("it says so").parse().unwrap();
    address.port()
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", stderr(output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn advertised_ports_with_tls_are_those_of_the_map() {
    let ports = [("advertise-tls-port", "31207"), ("advertise-tls-admin-port", "38091")];
    let fixture = Fixture::start(&ports);
    let admin = HttpClient::new(fixture.server.admin_port()).with_credentials("alice", "secret1");
    let map = admin.get("/pools/default/b/default").unwrap().json().unwrap();
    let services = &map["nodesExt"][0]["services"];
    assert_eq!((&services["kvSSL"], &services["mgmtSSL"]), (&31207.into(), &38091.into()));
    assert_eq!(services["kv"], fixture.server.port());
}

#[test]
fn subcommands_speak_tls_and_verify_the_server() {
    let fixture = Fixture::start(&[]);
    let host = format!("couchbases://localhost:{}", fixture.tls_port);
    let ca = fixture.path("ca.pem");
    let trust = ["--user", "alice", "--host", &host, "--tls-ca", ca.to_str().unwrap()];
    let run = |arguments: &[&str]| fixture.run(&[arguments, &trust].concat());
    stdout(&run(&["ping"]));
    stdout(&run(&["doc", "set", "k", "{\"a\":1}"]));
    assert!(stdout(&run(&["doc", "get", "k"])).contains("\"a\""));
    let stats = stdout(&run(&["stats", "--raw"]));
    assert!(stats.contains("tls_handshakes"), "{stats}");
    stdout(&run(&["perf", "kv", "-I", "500", "-c", "20"]));

    // Without the authority, or with one that vouches for others, the server is not trusted.
    let port = fixture.tls_port.to_string();
    let plain = ["--user", "alice", "--host", "localhost", "--port", &port, "--timeout", "2"];
    Authority::new("other").write(&fixture.path("other.pem"));
    let other = fixture.path("other.pem");
    let output = fixture
        .run(&[&["ping"][..], &plain, &["--tls", "--tls-ca", other.to_str().unwrap()]].concat());
    assert!(!output.status.success());
    assert!(stderr(&output).contains("invalid peer certificate"), "{}", stderr(&output));
    let output = fixture.run(&[&["ping"][..], &plain, &["--tls-insecure"]].concat());
    stdout(&output);
    assert!(stderr(&output).contains("NOT verified"), "{}", stderr(&output));
}

#[tokio::test]
async fn the_client_routes_and_comes_back_over_tls() {
    let fixture = Fixture::start(&[]);
    let client = Client::connect(fixture.options(&fixture.trusting())).await.unwrap();
    let (default, write) = (client.default_collection(), WriteOptions::default());
    let value = Bytes::from((0..3_000_000_u32).map(|i| (i * 13) as u8).collect::<Vec<u8>>());
    client.upsert(default, b"big", value.clone(), &write).await.unwrap();
    assert!(client.get(default, b"big").await.unwrap().expect("a hit").value == value);
    let many = (0..500).map(|index| {
        let (client, default, write) = (&client, &default, &write);
        async move {
            let key = format!("k-{index}").into_bytes();
            client.upsert(default, &key, Bytes::from(key.clone()), write).await.unwrap();
            assert_eq!(client.get(default, &key).await.unwrap().expect("a hit").value, key);
        }
    });
    futures_util::future::join_all(many).await;
}

/// A small window, so that the server waits for acknowledgements between the records of TLS, and a
/// value of many records.
#[tokio::test]
async fn changes_are_streamed_over_tls() {
    const SMALL: usize = 300;
    let fixture = Fixture::start(&[]);
    let client = Client::connect(fixture.options(&fixture.trusting())).await.unwrap();
    let (default, write) = (client.default_collection(), WriteOptions::default());
    let large = Bytes::from((0..3_000_000_u32).map(|i| (i * 13) as u8).collect::<Vec<u8>>());
    let value_of =
        |key: &[u8]| if key == b"large" { large.clone() } else { Bytes::copy_from_slice(key) };
    let mut expected = std::collections::BTreeSet::new();
    for index in 0..SMALL {
        let key = format!("k-{index}").into_bytes();
        client.upsert(default, &key, value_of(&key), &write).await.unwrap();
        expected.insert(key);
        if index == SMALL / 2 {
            client.upsert(default, b"large", large.clone(), &write).await.unwrap();
            expected.insert(b"large".to_vec());
        }
    }
    let options = DcpStreamOptions::new().from_beginning().window_bytes(8 * 1024);
    let mut changes = client.dcp_stream(&options).await.unwrap();
    let mut live = None;
    while !expected.is_empty() {
        let next = tokio::time::timeout(PATIENCE, changes.next()).await.expect("changes come");
        let Some(DcpEvent::Change(change)) = next.unwrap() else { continue };
        assert!(expected.remove(&change.key[..]), "each of them once: {:?}", change.key);
        assert!(change.value().unwrap() == value_of(&change.key), "{:?}", change.key);
        if expected.is_empty() && live.is_none() {
            // One more, while the stream waits.
            live = Some(client.upsert(default, b"live", value_of(b"live"), &write).await.unwrap());
            expected.insert(b"live".to_vec());
        }
    }
}

#[tokio::test]
async fn a_batch_that_fills_both_sockets_passes() {
    let fixture = Fixture::start(&[]);
    let options = fixture.options(&fixture.trusting());
    let mut connection = Connection::open(&options).await.unwrap();
    let value = Bytes::from(vec![7_u8; 200_000]);
    // An echo of sorts: the server answers while it still receives.
    for opaque in 0..100 {
        let set = RequestParts {
            opaque,
            key: b"\0k",
            extras: &[0; 8],
            vbid: vbucket_of(b"k", 64),
            ..RequestParts::new(Opcode::Set)
        };
        connection.push_value(&set, &value);
        connection
            .push(&RequestParts { extras: &[], ..RequestParts { opcode: Opcode::Get, ..set } });
    }
    connection.flush().await.unwrap();
    for opaque in 0..100 {
        assert_eq!(connection.next().await.unwrap().header.opaque, opaque);
        let frame = connection.next().await.unwrap();
        assert!(frame.header.opaque == opaque && frame.value == value);
    }
}

#[tokio::test]
async fn the_example_of_a_cluster_with_tls_runs() {
    let fixture = Fixture::start(&[]);
    let options = fixture.options(&fixture.trusting()).seed("localhost", fixture.tls_port);
    cluster_tls::run(options).await.expect("cluster_tls");
}

#[tokio::test]
async fn a_certificate_is_all_that_a_client_needs() {
    let fixture = Fixture::start(&[("tls-client-certificates", "mandatory")]);
    let files = (fixture.path("alice.pem"), fixture.path("alice.key"));
    fixture.authority.issue(&Owner::client("alice")).write(&files.0, &files.1);
    let tls = fixture.trusting().identity(&files.0, &files.1);
    let mut options = fixture.options(&tls);
    options.password = "wrong".to_owned();
    let client = Client::connect(options).await.unwrap();
    let default = client.default_collection();
    client.upsert(default, b"k", Bytes::from_static(b"v"), &WriteOptions::default()).await.unwrap();
    let refused = Connection::open(&fixture.options(&fixture.trusting())).await;
    refused.map(drop).expect_err("no certificate");

    let host = format!("couchbases://localhost:{}", fixture.tls_port);
    let [ca, certificate, key] = [&fixture.path("ca.pem"), &files.0, &files.1]
        .map(|path| path.to_str().expect("a plain path").to_owned());
    let tls = ["--tls-ca", &ca, "--tls-certificate", &certificate, "--tls-key", &key];
    let output = fixture.run(&[&["doc", "get", "k", "--host", &host][..], &tls].concat());
    assert!(stdout(&output).contains('v'));
}

#[test]
fn sighup_makes_the_server_read_its_certificate_again() {
    let fixture = Fixture::start(&[]);
    let owner = Owner::server("localhost");
    let issued = fixture.authority.issue(&owner);
    issued.write(&fixture.path("server.pem"), &fixture.path("server.key"));
    let pid = fixture.server.pid().to_string();
    assert!(Command::new("kill").args(["-HUP", &pid]).status().unwrap().success());
    let is_read = || fixture.server.log().contains("TLS certificates reloaded").then_some(());
    poll_until(PATIENCE, is_read).expect("the certificate is read again");
    let ca = fixture.path("ca.pem");
    let host = format!("couchbases://localhost:{}", fixture.tls_port);
    let arguments = ["ping", "--user", "alice", "--host", &host, "--tls-ca", ca.to_str().unwrap()];
    stdout(&fixture.run(&arguments));
}
