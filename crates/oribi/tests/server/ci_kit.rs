//! The recipes of docs/ci-kit.md as far as they need no container: the initial state of the page,
//! the administrator from the environment, and the requests that set up mapped ports.

use std::path::Path;

use oribi_protocol::status::Status;
use oribi_testkit::http::HttpClient;
use oribi_testkit::{RawConnection, Request, ServerOptions, ServerProcess};
use serde_json::json;
use tempfile::TempDir;

use crate::fixture::{ORIBI, expect};

const PAGE: &str = include_str!("../../../../docs/ci-kit.md");
const ADMINISTRATOR: (&str, &str) = ("ci", "secret-ci");
const EXTERNAL: &str = "/node/controller/setupAlternateAddresses/external";

/// The block of the page that it says to be this file.
fn file_of_page(name: &str) -> &'static str {
    let (_, rest) = PAGE.split_once(&format!("<!-- file: {name} -->")).unwrap();
    let (_, rest) = rest.split_once("```toml\n").unwrap();
    rest.split_once("```").unwrap().0
}

/// A server as the page starts it, except that it listens on loopback.
fn start(directory: &Path) -> ServerProcess {
    std::fs::write(directory.join("init.toml"), file_of_page("init.toml")).unwrap();
    let options = ServerOptions::new(ORIBI, directory.join("data"))
        .setting("init", directory.join("init.toml").display())
        .environment("ORIBI_ADMIN_USER", ADMINISTRATOR.0)
        .environment("ORIBI_ADMIN_PASSWORD", ADMINISTRATOR.1);
    ServerProcess::start(options).unwrap()
}

fn admin(server: &ServerProcess) -> HttpClient {
    HttpClient::new(server.admin_port()).with_credentials(ADMINISTRATOR.0, ADMINISTRATOR.1)
}

#[test]
fn the_pages_initial_state_exists_when_ready() {
    let directory = TempDir::new().unwrap();
    let mut server = start(directory.path());
    for _ in 0..2 {
        let bucket = admin(&server).get("/pools/default/buckets/shop").unwrap().json().unwrap();
        assert_eq!(bucket["quota"]["ram"], 128 << 20);
        let scopes = admin(&server).get("/pools/default/buckets/shop/scopes").unwrap().text();
        assert!(scopes.contains("\"sessions\"") && scopes.contains("3600"), "{scopes}");
        let app = admin(&server).get("/settings/rbac/users/local/app").unwrap().json().unwrap();
        assert_eq!(app["roles"][1]["collection_name"], "orders");

        let order = "/pools/default/buckets/shop/scopes/eu/collections/orders/docs/order-1";
        let app = HttpClient::new(server.admin_port()).with_credentials("app", "secret-app");
        let order = app.get(order).unwrap().json().unwrap();
        assert_eq!(order["text"], "{\"lines\":[\"a\",\"b\"],\"total\":12}", "{order}");
        // A memcached client selects nothing.
        let mut php = RawConnection::connect(server.port()).unwrap();
        assert_eq!(php.sasl_plain("php", "secret-php").unwrap(), Status::Success);
        expect(php.call(&Request::set("k", "v")).unwrap(), Status::Success);
        assert_eq!(expect(php.call(&Request::get("k")).unwrap(), Status::Success).text(), "v");
        server.terminate().unwrap();
        server.assert_no_unlisted_warnings(&[]);
        server = start(directory.path());
    }
}

#[test]
fn the_map_names_the_configured_ports() {
    let directory = TempDir::new().unwrap();
    let server = start(directory.path());
    let form = b"hostname=localhost&kv=21210&mgmt=28091";
    let put = admin(&server).request("PUT", EXTERNAL, "", form).unwrap();
    assert_eq!(put.status, 200, "{}", put.text());
    let map = admin(&server).get("/pools/default/b/shop").unwrap().json().unwrap();
    let external = json!({ "hostname": "localhost", "ports": { "kv": 21210, "mgmt": 28091 } });
    assert_eq!(map["nodesExt"][0]["alternateAddresses"]["external"], external);
    assert_eq!(map["nodesExt"][0]["services"]["kv"], server.port());
}

#[test]
fn advertised_ports_are_those_of_the_map() {
    let fixture = crate::fixture::Fixture::start_with(|options| {
        options.setting("advertise-port", 21210).setting("advertise-admin-port", 28091)
    });
    let map = fixture.admin().get("/pools/default/b/default").unwrap().json().unwrap();
    let node = &map["nodesExt"][0];
    assert_eq!(node["services"], json!({ "kv": 21210, "mgmt": 28091 }));
    assert!(node.get("hostname").is_none(), "{node}");
}

#[test]
fn every_variable_of_the_page_is_a_setting() {
    let printed = std::process::Command::new(ORIBI).args(["serve", "--help"]).output().unwrap();
    let help = String::from_utf8(printed.stdout).unwrap();
    let words = PAGE.split(|c: char| !(c.is_ascii_uppercase() || c == '_'));
    let names: Vec<&str> = words.filter(|word| word.starts_with("ORIBI_")).collect();
    assert!(names.len() > 10, "{names:?}");
    // Passwords are no settings, which are printed.
    for name in names.into_iter().filter(|name| !name.ends_with("_PASSWORD")) {
        let flag = name.trim_start_matches("ORIBI_").to_ascii_lowercase().replace('_', "-");
        assert!(help.contains(&format!("--{flag} ")), "{name}");
    }
}
