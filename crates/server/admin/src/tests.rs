//! Route tests over real sockets against a whole server in this process.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use oribi_auth::{Role, StoredUser, UserFile};
use oribi_config::Settings;
use oribi_system::data_dir::DataDir;
use oribi_testkit::ReservedPort;
use serde_json::{Value, json};

use oribi_server::Server;

mod auditing;
mod changes;
#[cfg(feature = "console")]
mod console;
mod crowds;
mod documents;
mod https;
mod metrics;
mod monitoring;
#[cfg(feature = "query")]
mod query_bad_input;
#[cfg(feature = "query")]
mod query_consistency;
#[cfg(feature = "query")]
mod query_index_feed;
#[cfg(feature = "query")]
mod query_indexes;
#[cfg(feature = "query")]
mod query_memory;
#[cfg(feature = "query")]
mod query_port;
#[cfg(feature = "query")]
mod query_queue;
#[cfg(feature = "query")]
mod query_ranges;
#[cfg(feature = "query")]
mod query_service;
#[cfg(all(feature = "console", feature = "query"))]
mod route_statuses;
mod routes;
mod settings;
mod setup;
mod users;
mod xdcr;

const ADMIN: &str = "Administrator:password";

/// A server with its own directory.
struct Fixture {
    server: Option<Server>,
    settings: Settings,
    admin: SocketAddr,
    _query_port: Option<ReservedPort>,
    _scratch: tempfile::TempDir,
}

struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {:?}", self.body))
    }
}

impl Fixture {
    fn start(prepare: impl FnOnce(&std::path::Path), flush_enabled: bool) -> Fixture {
        let scratch = tempfile::tempdir().unwrap();
        DataDir::prepare(scratch.path()).unwrap();
        prepare(scratch.path());
        let settings = Settings {
            data_dir: scratch.path().to_owned(),
            port: 0,
            admin_port: 0,
            query_port: 0,
            workers: 1,
            vbuckets: 4,
            flush_enabled,
            memory_quota_mib: Some(1024),
            ..Settings::default()
        };
        let server = crate::start_server(&settings, None).unwrap();
        let admin = server.addresses().admin;
        Fixture { server: Some(server), settings, admin, _query_port: None, _scratch: scratch }
    }

    fn restart(&mut self) {
        self.server.take().unwrap().shutdown().unwrap();
        let server = crate::start_server(&self.settings, None).unwrap();
        self.admin = server.addresses().admin;
        self.server = Some(server);
    }

    fn development() -> Fixture {
        Fixture::start(|_| {}, false)
    }

    fn ask(&self, method: &str, path: &str, credentials: &str, form: &str) -> Answer {
        self.ask_as(method, path, &basic(credentials), form)
    }

    /// [`Fixture::ask`] with any `Authorization`; none when it is empty.
    fn ask_as(&self, method: &str, path: &str, authorization: &str, form: &str) -> Answer {
        let mut stream = self.connect_as(method, path, authorization, form);
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Answer { status, head: head.to_owned(), body: body.to_owned() }
    }

    fn connect(&self, method: &str, path: &str, credentials: &str, form: &str) -> TcpStream {
        self.connect_as(method, path, &basic(credentials), form)
    }

    fn connect_as(&self, method: &str, path: &str, authorization: &str, form: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.admin).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(90))).unwrap();
        let login = match authorization {
            "" => String::new(),
            _ => format!("Authorization: {authorization}\r\n"),
        };
        let length = form.len();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: localhost:8091\r\nConnection: close\r\n{login}\
             Content-Length: {length}\r\n\r\n{form}"
        )
        .unwrap();
        stream
    }

    fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, ADMIN, "")
    }

    fn post(&self, path: &str, form: &str) -> Answer {
        self.ask("POST", path, ADMIN, form)
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            server.shutdown().unwrap();
        }
    }
}

/// `Authorization` of a name and password; empty for none.
fn basic(credentials: &str) -> String {
    match credentials {
        "" => String::new(),
        _ => format!("Basic {}", BASE64.encode(credentials)),
    }
}

fn add_user(data_dir: &std::path::Path, name: &str, roles: &[&str]) {
    let roles = roles.iter().map(|role| role.parse::<Role>().unwrap()).collect();
    let user = StoredUser::new(name, b"secret1", roles).unwrap();
    assert!(UserFile::edit(data_dir, |file| file.put(user)).unwrap());
}

// Compat (Admin HTTP): `GET /`, `/whoami`, `/pools`, `/pools/default`,
// `/pools/default/nodeServices`
// Compat (Admin HTTP): `GET /pools/nodes`
// Compat (Admin HTTP): `GET /pools/default/buckets/B/ddocs`
#[test]
fn pings_and_bootstraps_are_answered() {
    let fixture = Fixture::development();
    assert_eq!(fixture.ask("GET", "/", "", "").status, 200);
    assert_eq!(fixture.ask("GET", "/pools", "", "").json()["isAdminCreds"], false);
    assert_eq!(fixture.get("/pools").json()["isAdminCreds"], true);
    assert_eq!(fixture.get("/whoami").json()["id"], "Administrator");
    let no_views = fixture.get("/pools/default/buckets/default/ddocs");
    assert_eq!((no_views.status, &no_views.json()["error"]), (400, &json!("no_ddocs_service")));
    assert_eq!(fixture.get("/pools/default/buckets/nope/ddocs").status, 404);
    assert_eq!(fixture.get("/nodes/self/xdcrSSLPorts").json(), json!({}));
    assert_eq!(fixture.get("/pools/default/certificate").status, 404);

    let node = &fixture.get("/pools/default").json()["nodes"][0];
    assert_eq!(node["hostname"], format!("localhost:{}", fixture.admin.port()));
    assert!(node["uptime"].is_string());

    let services = fixture.get("/pools/default/nodeServices").json();
    assert_eq!(services["nodesExt"][0]["services"]["mgmt"], fixture.admin.port());
    let terse = fixture.get("/pools/default/b/default").json();
    assert_eq!(terse["vBucketServerMap"]["vBucketMap"].as_array().unwrap().len(), 4);
    assert_eq!(fixture.get("/pools/default/b/nope").status, 404);
    assert_eq!(fixture.get("/nope").body, "Not found.");
    assert_eq!(fixture.get("/%zz").status, 404);
}

// Compat (Admin HTTP): `GET /metrics`, `/healthz`, `/readyz`
#[test]
fn health_follows_the_buckets() {
    let fixture = Fixture::development();
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let answer = fixture.ask("GET", "/healthz", "", "");
        if answer.status == 200 {
            let ready = fixture.ask("GET", "/readyz", "", "");
            assert_eq!((ready.status, ready.body.as_str()), (200, "{\"status\":\"ok\"}"));
            assert_eq!(answer.json()["status"], "ok");
            return;
        }
        assert_eq!(answer.status, 503);
        assert!(answer.json().get("bucket").is_none(), "names are not for everybody");
        assert!(Instant::now() < deadline, "{}", answer.body);
    }
}

// Compat (Admin HTTP): `POST /pools/default/buckets/B` (change)
// Compat (Admin HTTP): `POST /pools/default/buckets/B/controller/compactBucket`
// Compat (Buckets over HTTP): `flushIntervalMs`
#[test]
fn a_bucket_is_changed_while_it_is_open() {
    let mut fixture = Fixture::development();
    let path = "/pools/default/buckets/small";
    let form = "name=small&ramQuotaMB=128&evictionPolicy=fullEviction&numVBuckets=4";
    assert_eq!(fixture.post("/pools/default/buckets", form).status, 202);
    assert_eq!(fixture.get(path).json()["evictionPolicy"], "fullEviction");
    assert_eq!(fixture.get(path).json()["compressionMode"], "passive");
    assert_eq!(fixture.get(path).json()["memoryTier"], "dense");
    for (form, field) in [
        ("ramQuotaMB=120&evictionPolicy=nruEviction", "evictionPolicy"),
        ("ramQuotaMB=120&flushIntervalMs=0", "flushIntervalMs"),
        ("ramQuotaMB=120&storage=memory", "storage"),
        ("ramQuotaMB=120&conflictResolutionType=lww", "conflictResolutionType"),
        ("ramQuotaMB=120&name=other", "name"),
        ("numVBuckets=8", "numVBuckets"),
        ("bucketType=ephemeral", "bucketType"),
        ("ramQuotaMB=0", "ramQuota"),
        ("compressionMode=always", "compressionMode"),
        ("memoryTier=tape", "memoryTier"),
        ("ramQuotaMB=120&flushEnabled=maybe", "flushEnabled"),
        ("durabilityMinLevel=persist", "durabilityMinLevel"),
    ] {
        let refused = fixture.post(path, form);
        assert_eq!(refused.status, 400, "{form}: {}", refused.body);
        assert!(refused.json()["errors"][field].is_string(), "{form}: {}", refused.body);
    }
    assert_eq!(fixture.get(path).json()["quota"]["ram"], 128u64 << 20, "nothing was changed");
    assert_eq!(fixture.get(path).json()["flushIntervalMs"], 20);
    let form = "ramQuotaMB=120&flushEnabled=1&evictionPolicy=valueOnly&bucketType=membase\
                &compressionMode=active&memoryTier=off&flushIntervalMs=250&storage=log";
    assert_eq!(fixture.post(path, form).status, 200);
    assert_eq!(fixture.post("/pools/default/buckets/nope", form).status, 404);
    let changed = fixture.get(path).json();
    assert_eq!(changed["quota"]["ram"], 120u64 << 20);
    assert_eq!(changed["compressionMode"], "active");
    assert_eq!(changed["evictionPolicy"], "valueOnly");
    assert_eq!(changed["flushIntervalMs"], 250);
    assert!(changed["controllers"]["flush"].is_string());
    assert_eq!(fixture.post(&format!("{path}/controller/doFlush"), "").status, 200);

    fixture.restart();
    let again = fixture.get(path).json();
    assert_eq!(
        (&again["quota"], &again["evictionPolicy"], &again["compressionMode"]),
        (&changed["quota"], &changed["evictionPolicy"], &changed["compressionMode"])
    );
    assert_eq!(again["flushIntervalMs"], 250);
    assert_eq!((&changed["memoryTier"], &again["memoryTier"]), (&"off".into(), &"off".into()));
    assert_eq!(fixture.get("/pools/default/buckets/default").json()["flushIntervalMs"], 20);
    let compact = |path: &str| fixture.post(&format!("{path}/controller/compactBucket"), "").status;
    assert_eq!((compact(path), compact("/pools/default/buckets/nope")), (200, 404));
    assert!(again["controllers"]["flush"].is_string());
}

// Compat (Buckets over HTTP): `bucketType`
// Compat (Buckets over HTTP): `evictionPolicy`, `compressionMode`, `conflictResolutionType`
// (`seqno`, `lww`)
#[test]
fn eviction_fits_the_type_of_bucket() {
    let fixture = Fixture::development();
    let create = |name: &str, rest: &str| {
        fixture.post("/pools/default/buckets", &format!("name={name}&numVBuckets=4&{rest}"))
    };
    for rest in [
        "evictionPolicy=nruEviction",
        "evictionPolicy=lru",
        "bucketType=ephemeral&evictionPolicy=valueOnly",
    ] {
        let refused = create("refused", rest);
        assert_eq!(refused.status, 400, "{rest}");
        assert!(refused.body.contains("evictionPolicy"), "{}", refused.body);
    }
    assert_eq!(create("gone", "bucketType=ephemeral&evictionPolicy=nruEviction").status, 202);
    assert_eq!(create("cache", "bucketType=ephemeral").status, 202);
    let policy = |name: &str| {
        let bucket = fixture.get(&format!("/pools/default/buckets/{name}")).json();
        bucket["evictionPolicy"].as_str().unwrap().to_owned()
    };
    assert_eq!(
        [policy("gone"), policy("cache"), policy("default")],
        ["nruEviction", "noEviction", "valueOnly"]
    );
    let quota = fixture.get("/pools/default/buckets/cache").json()["quota"]["ram"].as_u64();
    assert_eq!(quota, Some(100 << 20), "the rest is with the first bucket");
}

#[test]
fn a_bucket_has_what_client_libraries_read() {
    let fixture = Fixture::development();
    let answer = fixture.get("/pools/default/buckets/default");
    assert!(answer.head.contains("application/json"));
    let bucket = answer.json();
    assert_eq!(bucket["name"], "default");
    assert_eq!(bucket["uuid"].as_str().unwrap().len(), 32);
    assert_eq!(bucket["bucketType"], "membase");
    assert_eq!(bucket["quota"]["rawRAM"], 1u64 << 30);
    assert_eq!(bucket["replicaNumber"], 0);
    assert_eq!(bucket["numVBuckets"], 4);
    assert!(bucket["controllers"].get("flush").is_none());
    let node = &bucket["nodes"][0];
    for text in ["status", "hostname", "version"] {
        assert!(node[text].is_string(), "{text}");
    }
    assert!(node["ports"]["direct"].is_u64() && node["services"] == json!(["kv"]));
    assert_eq!(fixture.get("/pools/default/buckets").json().as_array().unwrap().len(), 1);
}

// Compat (Differences): vbuckets
// Compat (Admin HTTP): `GET /pools/default/buckets`, `POST` to create, `GET` and `DELETE` of one
// Compat (Buckets over HTTP): `name`, `ramQuota`, `ramQuotaMB`, `flushEnabled`, `numVBuckets`
#[test]
fn buckets_are_created_and_deleted() {
    let fixture = Fixture::development();
    let buckets = "/pools/default/buckets";
    let form = "name=orders&ramQuotaMB=128&flushEnabled=1&replicaNumber=1&bucketType=couchbase\
                &numVBuckets=8&durabilityMinLevel=none&conflictResolutionType=lww&replicaIndex=0";
    assert_eq!(fixture.post(buckets, form).status, 202);
    let bucket = fixture.get("/pools/default/buckets/orders").json();
    assert_eq!(
        (&bucket["numVBuckets"], &bucket["quota"]["ram"]),
        (&json!(8), &json!(128u64 << 20))
    );
    assert_eq!(bucket["conflictResolutionType"], "lww");
    assert_eq!(bucket["controllers"]["flush"], "/pools/default/buckets/orders/controller/doFlush");

    let again = fixture.post(buckets, form);
    assert_eq!(again.status, 400);
    assert_eq!(again.json()["errors"]["name"], "Bucket with given name already exists");
    let refused = [
        ("name=a%20b", "name"),
        ("", "name"),
        ("name=x&numVBuckets=48", "numVBuckets"),
        ("name=x&ramQuota=-1", "ramQuota"),
        ("name=x&ramQuotaMB=lots", "ramQuotaMB"),
        ("name=x&bucketType=memcached", "bucketType"),
        ("name=x&durabilityMinLevel=persist", "durabilityMinLevel"),
        (
            "name=x&bucketType=ephemeral&durabilityMinLevel=majorityAndPersistActive",
            "durabilityMinLevel",
        ),
        ("name=x&maxTTL=-1", "maxTTL"),
        ("name=x&maxTTL=2147483648", "maxTTL"),
        ("name=x&ramQuotaMB=10", "ramQuota"),
        ("name=x&replicaNumber=4", "replicaNumber"),
        ("name=x&conflictResolutionType=custom", "conflictResolutionType"),
        ("name=x&flushEnabled=maybe", "flushEnabled"),
    ];
    for (form, field) in refused {
        let answer = fixture.post(buckets, form);
        assert_eq!(answer.status, 400, "{form}");
        assert!(answer.json()["errors"][field].is_string(), "{form}: {}", answer.body);
    }

    let flush = fixture.post("/pools/default/buckets/orders/controller/doFlush", "");
    assert_eq!(flush.status, 200, "{}", flush.body);
    let flush = fixture.post("/pools/default/buckets/default/controller/doFlush", "");
    assert_eq!(
        (flush.status, &flush.json()["_"]),
        (400, &json!("Flush is disabled for the bucket"))
    );

    assert_eq!(fixture.ask("DELETE", "/pools/default/buckets/orders", ADMIN, "").status, 200);
    for (method, path) in [
        ("GET", "/pools/default/buckets/orders"),
        ("DELETE", "/pools/default/buckets/orders"),
        ("POST", "/pools/default/buckets/orders/controller/doFlush"),
        ("GET", "/pools/default/buckets/orders/scopes"),
        ("POST", "/pools/default/buckets/orders/scopes"),
    ] {
        let answer = fixture.ask(method, path, ADMIN, "name=x");
        assert_eq!(answer.status, 404, "{method} {path}");
        assert!(answer.body.starts_with("Requested resource not found."), "{}", answer.body);
    }
}

// Compat (Admin HTTP): `/pools/default/buckets/B/scopes` and below
#[test]
fn collection_errors_have_the_words_of_clients() {
    let fixture = Fixture::development();
    let scopes = "/pools/default/buckets/default/scopes";
    let shop = "/pools/default/buckets/default/scopes/shop";
    let collections = "/pools/default/buckets/default/scopes/shop/collections";
    let orders = "/pools/default/buckets/default/scopes/shop/collections/orders";

    let missing = fixture.post(collections, "name=orders");
    assert_eq!(missing.status, 404);
    assert_eq!(missing.json()["errors"]["_"], "Scope with name \"shop\" is not found");

    assert_eq!(fixture.post(scopes, "name=shop").json()["uid"], "1");
    let again = fixture.post(scopes, "name=shop");
    assert_eq!(again.status, 400);
    assert_eq!(again.json()["errors"]["_"], "Scope with name \"shop\" already exists");

    assert_eq!(fixture.post(collections, "name=orders&maxTTL=60&history=false").json()["uid"], "2");
    let again = fixture.post(collections, "name=orders");
    assert_eq!(again.status, 400);
    let expected = "Collection with name \"orders\" in scope \"shop\" already exists";
    assert_eq!(again.json()["errors"]["_"], expected);
    for form in ["name=_x", "name=", "name=a/b"] {
        assert_eq!(fixture.post(collections, form).status, 400, "{form}");
    }
    for form in ["name=y&maxTTL=-2", "name=y&maxTTL=x", "name=y&history=true"] {
        assert_eq!(fixture.post(collections, form).status, 400, "{form}");
    }

    let manifest = fixture.get(scopes).json();
    assert_eq!(manifest["uid"], "2");
    let listed = &manifest["scopes"][1];
    assert_eq!(
        (&listed["name"], &listed["collections"][0]["maxTTL"]),
        (&json!("shop"), &json!(60))
    );

    assert_eq!(fixture.ask("PATCH", orders, ADMIN, "maxTTL=0").json()["uid"], "3");
    let listed = &fixture.get(scopes).json()["scopes"][1]["collections"][0];
    assert_eq!(listed["maxTTL"], 0, "{listed}");
    assert_eq!(fixture.post(&format!("{scopes}/@ensureManifest/3"), "").status, 200);
    assert_eq!(fixture.post(&format!("{scopes}/@ensureManifest/4"), "").status, 504);
    assert_eq!(fixture.post(&format!("{scopes}/@ensureManifest/x"), "").status, 400);

    assert_eq!(fixture.ask("DELETE", orders, ADMIN, "").json()["uid"], "4");
    let missing = fixture.ask("DELETE", orders, ADMIN, "");
    assert_eq!(missing.status, 404);
    let expected = "Collection with name \"orders\" in scope \"shop\" is not found";
    assert_eq!(missing.json()["errors"]["_"], expected);
    assert_eq!(fixture.ask("DELETE", shop, ADMIN, "").json()["uid"], "5");
    let missing = fixture.ask("DELETE", shop, ADMIN, "");
    assert_eq!(missing.json()["errors"]["_"], "Scope with name \"shop\" is not found");
    let default = "/pools/default/buckets/default/scopes/_default";
    assert_eq!(fixture.ask("DELETE", default, ADMIN, "").status, 400);
}

// Compat (Admin HTTP): `GET /pools/default/b/B`, `/pools/default/bs/B`,
// `/pools/default/bucketsStreaming/B`
#[test]
fn a_stream_sends_each_new_configuration() {
    let fixture = Fixture::development();
    let mut stream = fixture.connect("GET", "/pools/default/bs/default", ADMIN, "");
    let mut text = String::new();
    let mut read_until = |wanted: &str, count: usize| {
        while text.matches(wanted).count() < count {
            let mut piece = [0u8; 4096];
            let length = stream.read(&mut piece).unwrap();
            assert!(length > 0, "the stream ended early: {text}");
            text.push_str(std::str::from_utf8(&piece[..length]).unwrap());
        }
    };
    read_until("\n\n\n\n", 1);
    fixture.post("/pools/default/buckets/default/scopes", "name=shop");
    read_until("\"collectionsManifestUid\":\"1\"", 1);
    read_until("\n\n\n\n", 2);
}

// Compat (Admin HTTP): `GET /pools` with a wrong password
#[test]
fn roles_decide_who_sees_and_changes_what() {
    let prepare = |data_dir: &std::path::Path| {
        add_user(data_dir, "root", &["admin"]);
        add_user(data_dir, "reader", &["read-only:default"]);
        add_user(data_dir, "other", &["read-write:elsewhere"]);
        add_user(data_dir, "operator", &["stats:*"]);
    };
    let fixture = Fixture::start(prepare, false);
    let status = |method: &str, path: &str, user: &str| {
        let credentials = format!("{user}:secret1");
        fixture.ask(method, path, &credentials, "name=shop").status
    };
    let (bucket, scopes) =
        ("/pools/default/buckets/default", "/pools/default/buckets/default/scopes");
    for path in [bucket, scopes, "/pools/default/b/default"] {
        assert_eq!(status("GET", path, "reader"), 200, "{path}");
        assert_eq!(status("GET", path, "root"), 200, "{path}");
        assert_eq!(status("GET", path, "other"), 403, "{path}");
        assert_eq!(status("GET", path, "nobody"), 401, "{path}");
        assert_eq!(fixture.ask("GET", path, "reader:wrong", "").status, 401);
        assert_eq!(fixture.ask("GET", path, ADMIN, "").status, 401, "not development mode");
        let anonymous = fixture.ask("GET", path, "", "");
        assert_eq!(anonymous.status, 401);
        assert!(anonymous.head.to_lowercase().contains("www-authenticate: basic"));
    }
    assert_eq!(fixture.ask("GET", "/pools", "reader:wrong", "").status, 401);
    assert_eq!(fixture.ask("GET", "/pools", "", "").status, 200);
    // Both names of a stream check the rights; one of them once did not.
    for path in ["/pools/default/bs/default", "/pools/default/bucketsStreaming/default"] {
        assert_eq!(status("GET", path, "other"), 403, "{path}");
    }
    assert_eq!(status("POST", scopes, "reader"), 403);
    assert_eq!(status("DELETE", bucket, "other"), 403);
    assert_eq!(status("GET", "/metrics", "reader"), 403, "figures of all buckets");
    assert_eq!(status("GET", "/metrics", "operator"), 200);
    let listed = fixture.ask("GET", "/pools/default/buckets", "other:secret1", "").json();
    assert_eq!(listed, json!([]));
    assert_eq!(status("POST", scopes, "root"), 200);
}

#[test]
fn a_page_of_another_site_changes_nothing() {
    let fixture = Fixture::development();
    let scopes = "/pools/default/buckets/default/scopes";
    let post_from = |origin: &str| {
        // The path carries one more header line into the request.
        let path = format!("{scopes} HTTP/1.1\r\nOrigin: {origin}\r\nX-Rest:");
        fixture.post(&path, "name=shop").status
    };
    assert_eq!(post_from("http://evil.example"), 403);
    assert_eq!(post_from("null"), 403);
    assert_eq!(post_from("http://localhost:8091"), 200);
}

// Compat (Admin HTTP): `GET /metrics`, `/healthz`, `/readyz`
#[test]
fn metrics_are_open_metrics_text() {
    let fixture = Fixture::development();
    let answer = fixture.get("/metrics");
    assert!(answer.head.contains("application/openmetrics-text"), "{}", answer.head);
    for line in [
        "# TYPE oribi_bucket_items gauge",
        "oribi_bucket_items{bucket=\"default\"} 0",
        "# TYPE oribi_cmd_get counter",
        "oribi_cmd_get_total 0",
        "oribi_connections 0",
        "oribi_auth_failures_total 0",
        "# TYPE oribi_kept_block_bytes gauge",
    ] {
        assert!(answer.body.lines().any(|found| found == line), "{line:?} in {}", answer.body);
    }
    assert!(!answer.body.contains("_total_total"), "{}", answer.body);
    assert!(answer.body.ends_with("# EOF\n"));
}

#[test]
fn oversized_and_malformed_requests_are_refused() {
    let fixture = Fixture::development();
    let scopes = "/pools/default/buckets/default/scopes";
    let answer = fixture.post(scopes, &format!("name={}", "x".repeat(100_000)));
    assert_eq!(answer.status, 413);
    assert_eq!(fixture.post(scopes, "name=%zz").status, 400);
    assert_eq!(fixture.post(scopes, "name=%ff").status, 400);

    let mut stream = TcpStream::connect(fixture.admin).unwrap();
    stream.write_all(b"\x80\x1f\x00\x00garbage\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 400"), "{:?}", String::from_utf8_lossy(&answer));
    // Other clients are unharmed.
    assert_eq!(fixture.get("/whoami").status, 200);
}
