//! Servers set up by the requests that Testcontainers' Couchbase modules and the scripts of
//! Couchbase's images send, in their order.

use serde_json::{Value, json};

use super::{Fixture, add_user};

const ROOT: &str = "root:secret1";
const WEB: &str = "/settings/web";
const SERVICES: &str = "/node/controller/setupServices";
const RENAME: &str = "/node/controller/rename";
const EXTERNAL: &str = "/node/controller/setupAlternateAddresses/external";
/// The address of a container, as the modules find it out.
const INSIDE: &str = "172.17.0.2";

impl Fixture {
    /// The status of a request without credentials.
    fn bare(&self, path: &str, form: &str) -> u16 {
        self.ask("POST", path, "", form).status
    }

    fn nodes_ext(&self, login: &str) -> Value {
        let services = self.ask("GET", "/pools/default/nodeServices", login, "");
        services.json()["nodesExt"][0].clone()
    }
}

fn with_root() -> Fixture {
    Fixture::start(|data_dir| add_user(data_dir, "root", &["admin"]), false)
}

// Compat (Admin HTTP): `POST /settings/web`
// Compat (Admin HTTP): `POST /node/controller/rename`, `PUT` and `DELETE
// /node/controller/setupAlternateAddresses/external`
/// Requests of the modules for Java and Node to a new server, and the additional ones of that for
/// Go.
#[test]
fn a_module_of_testcontainers_sets_up_a_new_server() {
    let mut fixture = Fixture::development();
    let login = "Admin:sesame-street";
    assert_eq!(fixture.ask("GET", "/pools", "", "").status, 200);
    assert_eq!(fixture.ask("GET", "/pools", login, "").json()["isEnterprise"], false);
    assert_eq!(fixture.bare(RENAME, &format!("hostname={INSIDE}")), 200);
    assert_eq!(fixture.bare(SERVICES, "services=kv"), 200);
    assert_eq!(fixture.bare("/pools/default", "memoryQuota=256"), 200);
    let web = "username=Admin&password=sesame-street&port=8091";
    let answer = fixture.ask("POST", WEB, "", web);
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert!(answer.json()["newBaseUri"].as_str().unwrap().starts_with("http://localhost:"));
    let ports =
        "hostname=localhost&mgmt=32768&mgmtSSL=32769&kv=32770&kvSSL=32771&capi=32772&capiSSL=32773";
    let put = fixture.ask("PUT", EXTERNAL, login, ports);
    assert_eq!(put.status, 200, "{}", put.body);
    let indexes = fixture.ask("POST", "/settings/indexes", login, "storageMode=forestdb");
    assert_eq!(indexes.status, 200, "{}", indexes.body);
    let pool = fixture.ask("GET", "/pools/default", login, "").json();
    assert_eq!(pool["nodes"][0]["status"], "healthy");
    let bucket = "name=mybucket&ramQuotaMB=100&flushEnabled=0&replicaNumber=0";
    assert_eq!(fixture.ask("POST", "/pools/default/buckets", login, bucket).status, 202);
    let expected = json!({ "external": {
        "hostname": "localhost",
        "ports": { "kv": 32770, "mgmt": 32768, "kvSSL": 32771, "mgmtSSL": 32769 },
    } });
    let terse = fixture.ask("GET", "/pools/default/b/mybucket", login, "").json();
    let node = &terse["nodesExt"][0];
    assert!(node["services"]["kv"].is_u64());
    assert_eq!((&node["hostname"], &node["alternateAddresses"]), (&json!(INSIDE), &expected));

    // The development mode is over, also for the requests of a set-up.
    assert_eq!(fixture.get("/whoami").status, 401);
    assert_eq!(fixture.bare(WEB, "username=Mallory&password=sesame-street&port=SAME"), 401);
    fixture.restart();
    assert_eq!(fixture.nodes_ext(login)["alternateAddresses"], expected, "it is durable");
    assert_eq!(fixture.ask("DELETE", EXTERNAL, login, "").status, 200);
    let node = fixture.nodes_ext(login);
    assert!(node.get("alternateAddresses").is_none() && node.get("hostname").is_none(), "{node}");
}

/// The order of scripts around Couchbase's images: users and buckets with curl.
#[test]
fn a_script_sets_up_a_new_server() {
    let fixture = Fixture::development();
    let login = "Administrator:secret-enough";
    assert_eq!(fixture.bare("/pools/default", "memoryQuota=512&indexMemoryQuota=256"), 200);
    assert_eq!(fixture.bare(SERVICES, "services=kv"), 200);
    assert_eq!(fixture.bare(WEB, "port=8091&username=Administrator&password=secret-enough"), 200);
    let bucket = "name=shop&bucketType=couchbase&ramQuotaMB=128&authType=sasl";
    assert_eq!(fixture.ask("POST", "/pools/default/buckets", login, bucket).status, 202);
    let user = "password=secret-too&roles=bucket_full_access[shop]";
    let path = "/settings/rbac/users/local/shop";
    assert_eq!(fixture.ask("PUT", path, login, user).status, 200);
    assert_eq!(fixture.ask("GET", "/pools/default/b/shop", "shop:secret-too", "").status, 200);
}

// Compat (Admin HTTP): set-up requests without credentials
// Invariant: Without credentials, a set-up request to a server with users succeeds only if it
// changes nothing.
#[test]
fn no_credentials_change_no_server_with_users() {
    let fixture = with_root();
    let same = [
        (WEB, "username=root&password=secret1&port=8091"),
        (SERVICES, "services=kv"),
        ("/pools/default", "memoryQuota=256"),
        (RENAME, "hostname=127.0.0.1"),
    ];
    for (path, form) in same {
        assert_eq!(fixture.bare(path, form), 200, "{path}: it is so already");
    }
    let other = [
        (WEB, "username=root&password=wrong-one&port=8091"),
        (WEB, "username=new&password=secret1&port=8091"),
        (WEB, "username=root"),
        (RENAME, "hostname=172.17.0.2"),
        (RENAME, ""),
        ("/pools/default", "clusterName=mine"),
        ("/settings/indexes", "storageMode=plasma"),
        ("/pools/default/buckets", "name=x"),
    ];
    for (path, form) in other {
        let answer = fixture.ask("POST", path, "", form);
        assert_eq!(answer.status, 401, "{path} {form}: {}", answer.body);
        assert!(answer.head.to_lowercase().contains("www-authenticate: basic"), "{}", answer.head);
    }
    let refused = fixture.ask("POST", WEB, "", "username=new&password=secret1");
    assert!(refused.body.contains("credentials of an administrator"), "{}", refused.body);
    assert_eq!(fixture.ask("PUT", EXTERNAL, "", "hostname=localhost").status, 401);
    assert_eq!(fixture.ask("GET", "/whoami", "new:secret1", "").status, 401);
    assert!(fixture.nodes_ext(ROOT).get("hostname").is_none());
    let users = fixture.ask("GET", "/settings/rbac/users", ROOT, "").json();
    assert_eq!(users.as_array().unwrap().len(), 1);
}

#[test]
fn an_ordinary_user_proves_nothing_to_the_set_up() {
    let fixture = Fixture::start(
        |data_dir| {
            add_user(data_dir, "root", &["admin"]);
            add_user(data_dir, "alice", &["read-write:*"]);
        },
        false,
    );
    assert_eq!(fixture.bare(WEB, "username=alice&password=secret1&port=8091"), 401);
    for (method, path) in [("POST", WEB), ("POST", RENAME), ("PUT", EXTERNAL), ("DELETE", EXTERNAL)]
    {
        assert_eq!(fixture.ask(method, path, "alice:secret1", "").status, 403, "{path}");
    }
}

// Compat (Admin HTTP): `POST /node/controller/setupServices`
// Compat (Admin HTTP): `POST /settings/indexes`
#[test]
fn missing_services_are_rejected_by_name() {
    let fixture = with_root();
    let refused = [
        ("POST", SERVICES, "services=kv,n1ql,index,fts", "services"),
        ("POST", SERVICES, "", "services"),
        ("POST", SERVICES, "services=kv&colour=red", "colour"),
        ("POST", WEB, "username=a", "password"),
        ("POST", WEB, "password=secret1", "username"),
        ("POST", WEB, "username=a&password=x", "password"),
        ("POST", WEB, "username=a&password=secret1&port=http", "port"),
        ("POST", RENAME, "hostname=a/b", "hostname"),
        ("PUT", EXTERNAL, "kv=1", "hostname"),
        ("PUT", EXTERNAL, "hostname=localhost&kv=0", "kv"),
        ("PUT", EXTERNAL, "hostname=localhost&mgmt=99999", "mgmt"),
        ("PUT", EXTERNAL, "hostname=localhost&n1ql=x", "n1ql"),
        ("PUT", EXTERNAL, "hostname=localhost&kvport=1", "kvport"),
        ("POST", "/pools/default", "memoryQuota=much", "memoryQuota"),
        ("POST", "/settings/indexes", "storageMode=paper", "storageMode"),
    ];
    for (method, path, form, field) in refused {
        let answer = fixture.ask(method, path, ROOT, form);
        assert_eq!(answer.status, 400, "{path} {form}: {}", answer.body);
        assert!(answer.json()["errors"][field].is_string(), "{path} {form}: {}", answer.body);
    }
    let named = fixture.ask("POST", SERVICES, ROOT, "services=kv,n1ql,index");
    assert!(named.body.contains("n1ql, index"), "{}", named.body);
}

#[test]
fn a_page_of_another_site_sets_up_nothing() {
    use std::io::{Read, Write};
    let fixture = Fixture::development();
    let form = "username=Mallory&password=secret1&port=SAME";
    let mut stream = std::net::TcpStream::connect(fixture.admin).unwrap();
    let length = form.len();
    write!(
        stream,
        "POST {WEB} HTTP/1.1\r\nHost: localhost:8091\r\nOrigin: http://evil.example\r\n\
         Connection: close\r\nContent-Length: {length}\r\n\r\n{form}"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
    assert_eq!(fixture.get("/whoami").status, 200, "still in development mode");
}
