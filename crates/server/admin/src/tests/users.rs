//! Users over HTTP: what the client libraries' user managers send, and what they read of the
//! answers.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Fixture, add_user};

const ROOT: &str = "root:secret1";
const USERS: &str = "/settings/rbac/users/local";

fn with_root() -> Fixture {
    Fixture::start(|data_dir| add_user(data_dir, "root", &["admin"]), false)
}

impl Fixture {
    fn as_root(&self, method: &str, path: &str, form: &str) -> (u16, String) {
        let answer = self.ask(method, path, ROOT, form);
        (answer.status, answer.body)
    }

    /// Creates the collection `shop.orders`.
    fn create_orders(&self) {
        let scopes = "/pools/default/buckets/default/scopes";
        assert_eq!(self.as_root("POST", scopes, "name=shop").0, 200);
        let collections = format!("{scopes}/shop/collections");
        assert_eq!(self.as_root("POST", &collections, "name=orders").0, 200);
    }

    fn user(&self, name: &str) -> Value {
        self.ask("GET", &format!("{USERS}/{name}"), ROOT, "").json()
    }
}

// Compat (Admin HTTP): `/settings/rbac/users`, `/settings/rbac/users/local` and `/NAME` below it:
// `GET`, `PUT`, `PATCH`, `DELETE`
#[test]
fn a_user_is_created_listed_changed_and_dropped() {
    let mut fixture = with_root();
    fixture.create_orders();
    let alice = format!("{USERS}/alice");
    assert_eq!(fixture.as_root("GET", &alice, "").0, 404);
    let form = "name=Alice+A&password=wonderland&roles=data_reader%5Bdefault%3Ashop%3Aorders%5D%2C\
                data_writer%5Bdefault%5D";
    assert_eq!(fixture.as_root("PUT", &alice, form), (200, String::new()));
    let expected = json!({
        "id": "alice", "domain": "local", "name": "Alice A", "groups": [], "external_groups": [],
        "roles": [
            { "role": "data_reader", "bucket_name": "default", "scope_name": "shop",
              "collection_name": "orders", "origins": [{ "type": "user" }] },
            { "role": "data_writer", "bucket_name": "default", "scope_name": "*",
              "collection_name": "*", "origins": [{ "type": "user" }] },
        ],
    });
    let dated = |mut user: Value| {
        let date = user.as_object_mut().unwrap().remove("password_change_date").unwrap();
        assert!(date.as_str().unwrap().ends_with(".000Z"), "{date}");
        user
    };
    assert_eq!(dated(fixture.user("alice")), expected);
    for path in ["/settings/rbac/users", USERS] {
        let list = fixture.ask("GET", path, ROOT, "").json();
        assert_eq!((dated(list[0].clone()), &list[1]["id"]), (expected.clone(), &json!("root")));
    }
    let login = "alice:wonderland";
    assert_eq!(fixture.ask("GET", "/whoami", login, "").json()["roles"][1]["role"], "data_writer");

    assert_eq!(fixture.as_root("PUT", &alice, "name=&roles=data_reader[default]").0, 200);
    assert_eq!(fixture.user("alice")["name"], "");
    assert_eq!(fixture.as_root("PATCH", &alice, "name=Al").0, 200);
    let user = fixture.user("alice");
    assert_eq!((&user["name"], &user["roles"][0]["role"]), (&json!("Al"), &json!("data_reader")));
    assert_eq!(fixture.ask("GET", "/whoami", login, "").status, 200, "the password stays");
    assert_eq!(fixture.as_root("PATCH", &alice, "password=looking-glass").0, 200);
    assert_eq!(fixture.ask("GET", "/whoami", login, "").status, 401, "and changes at once");

    let user = fixture.user("alice");
    fixture.restart();
    assert_eq!(fixture.user("alice"), user, "users are durable");
    assert_eq!(fixture.ask("GET", "/whoami", "alice:looking-glass", "").status, 200);
    assert_eq!(fixture.as_root("DELETE", &alice, ""), (200, String::new()));
    assert_eq!(fixture.ask("GET", "/whoami", "alice:looking-glass", "").status, 401);
    // The SDK for Python compares the body, which has to be a JSON text.
    for method in ["GET", "DELETE", "PATCH"] {
        let expected = (404, "\"Unknown user.\"".to_owned());
        assert_eq!(fixture.as_root(method, &alice, ""), expected, "{method}");
    }
}

// Compat (Admin HTTP): `GET /settings/rbac/roles`
// Compat (Admin HTTP): groups and external users
#[test]
fn invalid_user_changes_are_refused_by_name() {
    let fixture = with_root();
    let bob = format!("{USERS}/bob");
    let refused = [
        ("roles=admin", "password"),
        ("password=short&roles=admin", "password"),
        ("password=long-enough&roles=query_select[default]", "roles"),
        ("password=long-enough&roles=data_reader[default],ro_admin", "roles"),
        ("password=long-enough&roles=data_reader", "roles"),
        ("password=long-enough&roles=data_reader[missing]", "roles"),
        ("password=long-enough&roles=admin,data_reader[default:missing]", "roles"),
        ("password=long-enough&roles=data_reader[default:_default:missing]", "roles"),
        ("password=long-enough&roles=read-write[missing]", "roles"),
        ("password=long-enough&roles=&groups=staff", "groups"),
        ("password=long-enough&roles=&height=2", "height"),
        ("password=long-enough&roles=&name=%07", "name"),
        ("password=long-enough&roles=&memcachedBucket=default", "memcachedBucket"),
        ("password=long-enough&roles=&memcachedCollection=x", "memcachedCollection"),
    ];
    for (form, field) in refused {
        let answer = fixture.ask("PUT", &bob, ROOT, form);
        assert_eq!(answer.status, 400, "{form}: {}", answer.body);
        assert!(answer.json()["errors"][field].is_string(), "{form}: {}", answer.body);
    }
    let (_, named) = fixture.as_root("PUT", &bob, "password=long-enough&roles=ro_admin,admin");
    assert!(named.contains("undefined: [ro_admin]"), "{named}");
    let colon = fixture.as_root("PUT", &format!("{USERS}/a%3Ab"), "password=long-enough&roles=");
    assert!(colon.0 == 400 && colon.1.contains("colon"), "{colon:?}");
    assert_eq!(fixture.as_root("GET", &bob, "").0, 404, "nothing was added");

    for (method, path, status) in [
        ("PUT", "/settings/rbac/users/external/bob", 400),
        ("DELETE", "/settings/rbac/users/external/bob", 404),
        ("GET", "/settings/rbac/users/external/bob", 404),
        ("PUT", "/settings/rbac/groups/staff", 400),
        ("DELETE", "/settings/rbac/groups/staff", 404),
        ("GET", "/settings/rbac/groups/staff", 404),
        ("GET", "/settings/rbac/nonsense", 404),
        ("POST", USERS, 404),
    ] {
        assert_eq!(fixture.as_root(method, path, "").0, status, "{method} {path}");
    }
    assert_eq!(fixture.ask("GET", "/settings/rbac/groups", ROOT, "").json(), json!([]));
    let roles = fixture.ask("GET", "/settings/rbac/roles", ROOT, "").json();
    assert!(roles.as_array().unwrap().iter().any(|role| role["role"] == "data_dcp_reader"));
}

// Compat (Admin HTTP): `/settings/rbac/users`, `/settings/rbac/users/local` and `/NAME` below it:
// `GET`, `PUT`, `PATCH`, `DELETE`
// Invariant: A change of users over HTTP leaves an administrator.
#[test]
fn an_administrator_always_remains() {
    let fixture = with_root();
    let root = format!("{USERS}/root");
    let last = [("DELETE", ""), ("PUT", "roles=data_reader[*]"), ("PATCH", "roles=")];
    for (method, form) in last {
        let (status, body) = fixture.as_root(method, &root, form);
        assert!(status == 400 && body.contains("role admin"), "{method}: {status} {body}");
    }
    let other = "password=secret2&roles=admin";
    assert_eq!(fixture.as_root("PUT", &format!("{USERS}/other"), other).0, 200);
    assert_eq!(fixture.as_root("DELETE", &root, "").0, 200);
    assert_eq!(fixture.ask("GET", "/whoami", ROOT, "").status, 401);
    assert_eq!(fixture.ask("GET", "/whoami", "other:secret2", "").status, 200);
}

#[test]
fn a_user_may_have_no_roles() {
    let fixture = with_root();
    let alice = format!("{USERS}/alice");
    assert_eq!(fixture.as_root("PUT", &alice, "password=wonderland").0, 200);
    assert_eq!(fixture.user("alice")["roles"], json!([]));
    assert_eq!(fixture.as_root("PUT", &alice, "roles=data_reader[*]").0, 200);
    assert_eq!(fixture.as_root("PATCH", &alice, "name=Alice").0, 200);
    assert_eq!(fixture.user("alice")["roles"][0]["role"], "data_reader");
    assert_eq!(fixture.as_root("PUT", &alice, "name=Alice").0, 200);
    assert_eq!(fixture.user("alice")["roles"], json!([]), "a PUT states the whole user");
}

#[test]
fn roles_may_be_earlier_or_later_than_buckets() {
    let fixture = with_root();
    let (alice, early) = (format!("{USERS}/alice"), "password=secret2&roles=data_reader[orders]");
    assert_eq!(fixture.as_root("PUT", &alice, early).0, 400);
    assert_eq!(fixture.as_root("PUT", &alice, &format!("{early}&allowMissing=true")).0, 200);
    assert_eq!(fixture.user("alice")["roles"][0]["bucket_name"], "orders");
    // A role that the user has already is not new.
    assert_eq!(fixture.as_root("PUT", &alice, "name=Al&roles=data_reader[orders],admin").0, 200);
    assert_eq!(fixture.as_root("PUT", &alice, "name=Al&roles=data_writer[orders]").0, 400);
}

#[test]
fn a_password_has_the_date_of_its_last_change() {
    let prepare = |data_dir: &std::path::Path| {
        add_user(data_dir, "root", &["admin"]);
        // A user of a version that kept no dates.
        let path = data_dir.join("users.json");
        let text = std::fs::read_to_string(&path).unwrap();
        let mut file: Value = serde_json::from_str(&text).unwrap();
        file["users"][0].as_object_mut().unwrap().remove("password_changed_unix_s").unwrap();
        std::fs::write(&path, file.to_string()).unwrap();
    };
    let fixture = Fixture::start(prepare, false);
    let root = format!("{USERS}/root");
    assert!(fixture.user("root").get("password_change_date").is_none());
    assert_eq!(fixture.as_root("PATCH", &root, "name=Root").0, 200);
    assert!(fixture.user("root").get("password_change_date").is_none());
    assert_eq!(fixture.as_root("PATCH", &root, "password=secret1").0, 200);
    assert!(fixture.user("root")["password_change_date"].is_string());
}

// Compat (Admin HTTP): `/settings/rbac/users`, `/settings/rbac/users/local` and `/NAME` below it:
// `GET`, `PUT`, `PATCH`, `DELETE`
/// Suites drop all local users before each test.
#[test]
fn the_administrator_of_the_setup_is_not_local() {
    let mut fixture = Fixture::development();
    let (web, login) = ("username=root&password=secret1&port=SAME", ROOT);
    assert_eq!(fixture.ask("POST", "/settings/web", "", web).status, 200);
    assert_eq!(fixture.as_root("PUT", &format!("{USERS}/alice"), "password=secret2").0, 200);
    for _ in 0..2 {
        let local = fixture.ask("GET", USERS, login, "").json();
        assert_eq!((local.as_array().unwrap().len(), &local[0]["id"]), (1, &json!("alice")));
        let all = fixture.ask("GET", "/settings/rbac/users", login, "").json();
        assert_eq!((&all[1]["id"], &all[1]["domain"]), (&json!("root"), &json!("admin")));
        assert_eq!(fixture.as_root("PATCH", &format!("{USERS}/root"), "password=secret1").0, 200);
        fixture.restart();
    }
}

#[test]
fn development_mode_ends_with_an_administrator_only() {
    let fixture = Fixture::development();
    let user = format!("{USERS}/root");
    assert_eq!(fixture.get(USERS).json(), json!([]));
    let refused = fixture.ask("PUT", &user, super::ADMIN, "password=secret1&roles=data_reader[*]");
    let why = refused.json()["errors"]["roles"].as_str().unwrap().to_owned();
    assert!(refused.status == 400 && why.contains("--admin-user"), "{}", refused.body);
    assert_eq!(fixture.get("/whoami").status, 200, "the development mode goes on");
    let added = fixture.ask("PUT", &user, super::ADMIN, "password=secret1&roles=admin");
    assert_eq!((added.status, fixture.get("/whoami").status), (200, 401));
    assert!(added.body.contains("development mode has ended: log in as root"), "{}", added.body);
    assert_eq!(fixture.user("root")["roles"][0]["role"], "admin");
    let more = fixture.as_root("PUT", &format!("{USERS}/other"), "password=secret2&roles=admin");
    assert_eq!(more, (200, String::new()));
}

/// A connection to a server in development mode, with the login of that mode.
struct Developer(TcpStream);

impl Developer {
    fn connect(fixture: &Fixture) -> Developer {
        let stream = TcpStream::connect(fixture.admin).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Developer(stream)
    }

    fn send_head(&mut self, method: &str, path: &str, more: &str) {
        let login = super::basic(super::ADMIN);
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: {login}\r\n{more}\r\n"
        );
        self.0.write_all(head.as_bytes()).unwrap();
    }

    /// Reads an answer, which has a body of known length; returns its status.
    fn status(&mut self) -> u16 {
        let (mut text, mut byte) = (String::new(), [0]);
        while !text.ends_with("\r\n\r\n") {
            self.0.read_exact(&mut byte).unwrap();
            text.push(char::from(byte[0]));
        }
        let length =
            |line: &str| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok();
        let length: usize = text.lines().find_map(length).unwrap_or(0);
        self.0.read_exact(&mut vec![0; length]).unwrap();
        text.split(' ').nth(1).unwrap().parse().unwrap()
    }

    fn ask(&mut self, method: &str, path: &str, form: &str) -> u16 {
        self.send_head(method, path, &format!("Content-Length: {}\r\n", form.len()));
        self.0.write_all(form.as_bytes()).unwrap();
        self.status()
    }
}

/// An SDK sends its next request over the same connection.
#[test]
fn the_connection_that_ends_development_stays() {
    let root = format!("{USERS}/root");
    let web = ("POST", "/settings/web", "username=root&password=secret1&port=SAME");
    for (method, path, form) in [("PUT", &root[..], "password=secret1&roles=admin"), web] {
        let fixture = Fixture::development();
        let mut developer = Developer::connect(&fixture);
        assert_eq!(developer.ask(method, path, form), 200, "{path}");
        assert_eq!(fixture.get("/whoami").status, 401, "another connection");
        assert_eq!(developer.ask("GET", "/whoami", ""), 200, "{path}");
        assert_eq!(developer.ask("GET", &root, ""), 200, "{path}");
        assert_eq!(fixture.ask("GET", "/whoami", ROOT, "").status, 200);
    }
}

/// A change that another connection had begun ends nothing, so its login is refused as any other.
#[test]
fn a_change_under_way_keeps_no_development_login() {
    let fixture = Fixture::development();
    let mut developer = Developer::connect(&fixture);
    let form = "clusterName=x";
    let expect = format!("Content-Length: {}\r\nExpect: 100-continue\r\n", form.len());
    developer.send_head("POST", "/pools/default", &expect);
    assert_eq!(developer.status(), 100, "the server has checked the login");
    let root = format!("{USERS}/root");
    assert_eq!(fixture.ask("PUT", &root, super::ADMIN, "password=secret1&roles=admin").status, 200);
    developer.0.write_all(form.as_bytes()).unwrap();
    assert_eq!(developer.status(), 200);
    assert_eq!(developer.ask("GET", "/whoami", ""), 401);
}

// Compat (Admin HTTP): `POST /controller/changePassword`
#[test]
fn only_administrators_change_other_users() {
    let fixture = with_root();
    let (alice, own) = (format!("{USERS}/alice"), "/controller/changePassword");
    assert_eq!(
        fixture.as_root("PUT", &alice, "password=secret2&roles=bucket_full_access[*]").0,
        200
    );
    let login = "alice:secret2";
    for (method, path) in [
        ("GET", USERS),
        ("GET", &alice),
        ("GET", "/settings/rbac/roles"),
        ("PUT", &alice),
        ("PATCH", &alice),
        ("DELETE", &alice),
    ] {
        assert_eq!(fixture.ask(method, path, login, "roles=admin").status, 403, "{method} {path}");
        assert_eq!(fixture.ask(method, path, "", "roles=admin").status, 401, "{method} {path}");
    }
    assert_eq!(fixture.ask("POST", own, "", "password=secret3").status, 401);
    for form in ["", "password=x", "password=secret3&roles=admin"] {
        assert_eq!(fixture.ask("POST", own, login, form).status, 400, "{form}");
    }
    assert_eq!(fixture.ask("POST", own, login, "password=secret3").status, 200);
    assert_eq!(fixture.ask("GET", "/whoami", login, "").status, 401);
    assert_eq!(fixture.ask("GET", "/whoami", "alice:secret3", "").status, 200);
}

#[test]
fn memcached_clients_use_their_users_bucket() {
    let fixture = with_root();
    let php = format!("{USERS}/php");
    let form = "password=secret2&roles=read-write[default]&memcachedBucket=default\
                &memcachedCollection=web.pages";
    assert_eq!(fixture.as_root("PUT", &php, form).0, 200);
    let user = fixture.user("php");
    assert_eq!(user["roles"][0]["role"], "read-write");
    assert_eq!(
        (&user["memcachedBucket"], &user["memcachedCollection"]),
        (&json!("default"), &json!("web.pages"))
    );
    assert_eq!(
        fixture.as_root("PUT", &php, "roles=read-write[*]&memcachedBucket=&memcachedCollection=").0,
        200
    );
    let user = fixture.user("php");
    assert!(user.get("memcachedBucket").is_none() && user.get("memcachedCollection").is_none());
}

#[test]
fn connections_of_a_dropped_user_end() {
    use std::io::{Read, Write};
    let fixture = with_root();
    let alice = format!("{USERS}/alice");
    assert_eq!(fixture.as_root("PUT", &alice, "password=secret2&roles=data_reader[*]").0, 200);
    let address = fixture.server.as_ref().unwrap().addresses().kv;
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut login = Vec::new();
    oribi_protocol::request::encode_request(
        &mut login,
        &super::auditing::plain(b"\0alice\0secret2"),
    );
    stream.write_all(&login).unwrap();
    let mut answer = [0; 24];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer[6..8], [0, 0], "logged in");
    assert_eq!(fixture.as_root("DELETE", &alice, "").0, 200);
    let started = Instant::now();
    stream.read_to_end(&mut Vec::new()).expect("the server closes the connection");
    assert!(started.elapsed() < Duration::from_secs(20));
}

// Compat (Admin HTTP): `/settings/rbac/backup`: `GET`, `PUT`
#[test]
fn only_administrators_back_up_and_restore_users() {
    const BACKUP: &str = "/settings/rbac/backup";
    let fixture = with_root();
    let alice = format!("{USERS}/alice");
    let form = "password=secret2&roles=bucket_full_access[*]";
    assert_eq!(fixture.as_root("PUT", &alice, form).0, 200);
    for (method, login, status) in
        [("GET", "alice:secret2", 403), ("PUT", "alice:secret2", 403), ("GET", "", 401)]
    {
        assert_eq!(fixture.ask(method, BACKUP, login, "").status, status, "{method} {login}");
    }
    let (status, copy) = fixture.as_root("GET", BACKUP, "");
    assert!(status == 200 && copy.contains("stored_key"), "{status}: {copy}");
    let escaped =
        |text: &str| -> String { text.bytes().map(|byte| format!("%{byte:02X}")).collect() };

    assert_eq!(fixture.as_root("DELETE", &alice, "").0, 200);
    assert_eq!(fixture.as_root("PATCH", &format!("{USERS}/root"), "name=Root").0, 200);
    let put = |copy: &str, options: &str| {
        fixture.ask("PUT", BACKUP, ROOT, &format!("backup={}{options}", escaped(copy)))
    };
    let restored = put(&copy, "").json();
    let expected =
        json!({ "usersCreated": ["alice"], "usersOverwritten": [], "usersSkipped": ["root"] });
    assert_eq!(restored, expected);
    assert_eq!(fixture.user("root")["name"], "Root");
    assert_eq!(fixture.ask("GET", "/whoami", "alice:secret2", "").status, 200);
    let restored = put(&copy, "&canOverwrite=true").json();
    assert_eq!(restored["usersOverwritten"], json!(["alice", "root"]));
    assert_eq!(fixture.user("root")["name"], "");

    // Many users are more than another form may have.
    let mut many: Value = serde_json::from_str(&copy).unwrap();
    let (user, users) = (many["users"][0].clone(), many["users"].as_array_mut().unwrap());
    for number in 0..200 {
        let mut user = user.clone();
        user["name"] = json!(format!("user{number}"));
        users.push(user);
    }
    assert_eq!(put(&many.to_string(), "").json()["usersCreated"].as_array().unwrap().len(), 200);

    // What is damaged, or leaves no administrator, changes nothing.
    let before = fixture.as_root("GET", BACKUP, "").1;
    let mut unreadable: Value = serde_json::from_str(&copy).unwrap();
    unreadable["users"][0]["display_name"] = json!("a\u{1b}[2Jb");
    let no_admin = copy.replace("\"admin\"", "\"read-only:*\"");
    for (form, field) in [
        ("".to_owned(), "backup"),
        ("backup=%7B%7D".to_owned(), "backup"),
        (format!("backup={}", escaped(&copy[1..])), "backup"),
        (format!("backup={}", escaped(&copy.replace("stored_key", "key"))), "backup"),
        (format!("backup={}", escaped(&unreadable.to_string())), "backup"),
        (format!("backup={}&canOverwrite=1", escaped(&copy)), "canOverwrite"),
        (format!("backup={}&height=1", escaped(&copy)), "height"),
        (format!("backup={}&canOverwrite=true", escaped(&no_admin)), "roles"),
    ] {
        let answer = fixture.ask("PUT", BACKUP, ROOT, &form);
        assert_eq!(answer.status, 400, "{field}: {}", answer.body);
        assert!(answer.json()["errors"][field].is_string(), "{field}: {}", answer.body);
    }
    assert_eq!(fixture.as_root("GET", BACKUP, "").1, before);
}
