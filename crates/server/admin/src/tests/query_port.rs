//! The ports for queries: what they serve, and what clients are told of them.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;

use oribi_config::Settings;
use oribi_system::data_dir::DataDir;
use oribi_testkit::ReservedPort;
use serde_json::json;

use super::crowds::allow_files;
use super::{ADMIN, Answer, Fixture, add_user, basic};

impl Fixture {
    /// A server with a separate port for queries.
    pub(super) fn with_queries(prepare: impl FnOnce(&Path)) -> Fixture {
        let port = ReservedPort::new().unwrap();
        let mut fixture = Fixture::with_query_port(port.number(), prepare);
        assert_ne!(fixture.query_address(), fixture.admin, "the port was taken");
        fixture._query_port = Some(port);
        fixture
    }

    fn with_query_port(query_port: u16, prepare: impl FnOnce(&Path)) -> Fixture {
        let scratch = tempfile::tempdir().unwrap();
        DataDir::prepare(scratch.path()).unwrap();
        prepare(scratch.path());
        let settings = Settings {
            data_dir: scratch.path().to_owned(),
            port: 0,
            admin_port: 0,
            query_port,
            workers: 1,
            vbuckets: 4,
            memory_quota_mib: Some(1024),
            ..Settings::default()
        };
        let server = crate::start_server(&settings, None).unwrap();
        let admin = server.addresses().admin;
        Fixture { server: Some(server), settings, admin, _query_port: None, _scratch: scratch }
    }

    pub(super) fn query_address(&self) -> SocketAddr {
        self.server.as_ref().unwrap().addresses().query.unwrap()
    }

    /// The same server, asked at its port for queries.
    fn ask_query_port(&self, method: &str, path: &str, credentials: &str, form: &str) -> Answer {
        exchange(self.query_address(), method, path, credentials, form)
    }
}

fn exchange(to: SocketAddr, method: &str, path: &str, credentials: &str, form: &str) -> Answer {
    let mut stream = TcpStream::connect(to).unwrap();
    let login = match credentials {
        "" => String::new(),
        credentials => format!("Authorization: {}\r\n", basic(credentials)),
    };
    let length = form.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{login}\
         Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {length}\r\n\r\n{form}"
    )
    .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { status, head: head.to_owned(), body: body.to_owned() }
}

// Compat (SQL++ over HTTP): announced to SDKs, port 8093
#[test]
fn the_query_port_serves_queries_only() {
    let fixture = Fixture::with_queries(|_| {});
    let ping = fixture.ask_query_port("GET", "/admin/ping", "", "");
    assert_eq!((ping.status, ping.json()), (200, json!({ "status": "OK" })));
    let statement = "statement=SELECT+RAW+40%2B2";
    let answer = fixture.ask_query_port("POST", "/query/service", ADMIN, statement);
    assert!(answer.status == 200 && answer.body.contains("42"), "{}", answer.body);
    for path in ["/pools/default", "/metrics", "/console/", "/whoami"] {
        assert_eq!(fixture.ask_query_port("GET", path, ADMIN, "").status, 404, "{path}");
    }
    assert_eq!(fixture.ask_query_port("POST", "/settings/web", ADMIN, "").status, 404);
    assert_eq!(fixture.ask_query_port("POST", "/query/service", "", statement).status, 401);
    let wrong = fixture.ask_query_port("POST", "/query/service", "Administrator:no", statement);
    assert_eq!(wrong.status, 401);
}

/// The login of development mode has a public password.
#[test]
fn development_is_for_loopback_at_the_query_port() {
    let fixture = Fixture::with_queries(|_| {});
    let status = |fixture: &Fixture, host: &str| {
        let mut stream = TcpStream::connect(fixture.query_address()).unwrap();
        let login = basic(ADMIN);
        write!(
            stream,
            "GET /query/service?statement=SELECT+1 HTTP/1.1\r\nHost: {host}\r\n\
             Connection: close\r\nAuthorization: {login}\r\n\r\n"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.split(' ').nth(1).unwrap().parse::<u16>().unwrap()
    };
    assert!(fixture.query_address().ip().is_loopback());
    assert_eq!(status(&fixture, "localhost:8093"), 200);
    assert_eq!(status(&fixture, "evil.example:8093"), 421);
    let settings = Settings {
        admin_listen: Some("0.0.0.0".parse().unwrap()),
        query_port: 8093,
        data_dir: fixture.settings.data_dir.join("other"),
        ..fixture.settings.clone()
    };
    DataDir::prepare(&settings.data_dir).unwrap();
    let Err(refused) = crate::start_server(&settings, None) else { panic!("it listens to all") };
    assert!(refused.to_string().contains("0.0.0.0"), "{refused}");
    let with_users = Fixture::with_queries(|data_dir| add_user(data_dir, "root", &["admin"]));
    assert_eq!(status(&with_users, "db.example:8093"), 401);
}

#[test]
fn clients_are_told_of_the_query_port() {
    let fixture = Fixture::with_queries(|_| {});
    let port = fixture.query_address().port();
    for path in ["/pools/default/nodeServices", "/pools/default/b/default"] {
        let config = fixture.get(path).json();
        let services = &config["nodesExt"][0]["services"];
        assert_eq!((&services["n1ql"], services.get("n1qlSSL")), (&json!(port), None), "{config}");
        assert_eq!(services["indexAdmin"], fixture.admin.port(), "{config}");
        let expected = json!({ "n1ql": ["enhancedPreparedStatements"] });
        assert_eq!(config["clusterCapabilities"], expected, "{config}");
    }
    let pool = fixture.get("/pools/default").json();
    assert_eq!(pool["nodes"][0]["services"], json!(["index", "kv", "n1ql"]), "{pool}");
    let services = "/node/controller/setupServices";
    assert_eq!(fixture.post(services, "services=kv,n1ql,index").status, 200);
    let refused = fixture.post(services, "services=kv,n1ql,fts");
    assert!(refused.status == 400 && refused.body.contains("no service fts"), "{}", refused.body);
}

#[test]
fn a_mapped_admin_port_serves_queries_outside() {
    let fixture = Fixture::with_queries(|_| {});
    let external = "/node/controller/setupAlternateAddresses/external";
    let outside = |form: &str| {
        assert_eq!(fixture.ask("PUT", external, ADMIN, form).status, 200, "{form}");
        let config = fixture.get("/pools/default/nodeServices").json();
        config["nodesExt"][0]["alternateAddresses"]["external"]["ports"].clone()
    };
    let own = outside("hostname=localhost&kv=1&mgmt=2&n1ql=3&n1qlSSL=4");
    assert_eq!(own, json!({ "kv": 1, "mgmt": 2, "n1ql": 3, "n1qlSSL": 4 }));
    assert_eq!(outside("hostname=localhost&kv=1&mgmt=2")["n1ql"], 2);
    assert!(outside("hostname=localhost&kv=1").get("n1ql").is_none());
}

#[test]
fn a_taken_query_port_leaves_the_admin_port() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let fixture = Fixture::with_query_port(port, |_| {});
    assert_eq!(fixture.query_address(), fixture.admin);
    let config = fixture.get("/pools/default/nodeServices").json();
    assert_eq!(config["nodesExt"][0]["services"]["n1ql"], fixture.admin.port());
    assert_eq!(fixture.get("/admin/ping").json(), json!({ "status": "OK" }));
    let off = Fixture::with_query_port(0, |_| {});
    let config = off.get("/pools/default/nodeServices").json();
    assert!(config["nodesExt"][0]["services"].get("n1ql").is_none(), "{config}");
    assert_eq!(config["clusterCapabilities"], json!({}));
}

/// Connections of one user, each with a statement. None of them counts at the admin port.
#[test]
fn a_thousand_connections_each_run_a_statement() {
    const CONNECTIONS: usize = 1_000;
    allow_files();
    let fixture = Fixture::with_queries(|data_dir| {
        add_user(data_dir, "root", &["admin"]);
        add_user(data_dir, "app", &["read-write:default"]);
    });
    let login = basic("app:secret1");
    let warm =
        fixture.ask_query_port("POST", "/query/service", "app:secret1", "statement=SELECT+1");
    assert_eq!(warm.status, 200, "{}", warm.body);
    let connect = |_| TcpStream::connect(fixture.query_address()).unwrap();
    let mut streams: Vec<TcpStream> = (0..CONNECTIONS).map(connect).collect();
    for (number, stream) in streams.iter_mut().enumerate() {
        let body = json!({ "statement": "SELECT RAW $1", "args": [number] }).to_string();
        let length = body.len();
        write!(
            stream,
            "POST /query/service HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
             Authorization: {login}\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\n\r\n{body}"
        )
        .unwrap();
    }
    assert_eq!(fixture.ask("GET", "/pools/default", "root:secret1", "").status, 200);
    for (number, stream) in streams.iter_mut().enumerate() {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{number}: {answer}");
        assert!(answer.contains(&format!("[\n{number}\n]")), "{number}: {answer}");
    }
}
