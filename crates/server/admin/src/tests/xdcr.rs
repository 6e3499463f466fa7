//! A Couchbase cluster that replicates into this server: the requests of goxdcr, in its order, with
//! the credentials that it sends, and the fields that it reads.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use oribi_auth::testing::{scram_final, scram_first};
use serde_json::json;

use super::{Answer, Fixture, add_user};

const NAME: &str = "sender";

fn fixture() -> Fixture {
    let prepare = |data_dir: &std::path::Path| {
        add_user(data_dir, "root", &["admin"]);
        add_user(data_dir, NAME, &["meta+simple-stats:default"]);
    };
    Fixture::start(prepare, false)
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        let line = |line: &'_ str| -> bool {
            line.split(':').next().is_some_and(|other| other.eq_ignore_ascii_case(name))
        };
        let line = self.head.lines().find(|one| line(one))?;
        Some(line.split_once(':')?.1.trim())
    }
}

impl Fixture {
    /// A request with a message of SCRAM.
    fn with_message(&self, path: &str, sid: &str, message: &str) -> Answer {
        let sid = if sid.is_empty() { String::new() } else { format!("sid={sid},") };
        let message = BASE64.encode(message);
        self.ask_as("GET", path, &format!("SCRAM-SHA-512 {sid}data={message}"), "")
    }

    /// Id and server-first message of a new exchange.
    fn begin_scram(&self, path: &str) -> (String, String) {
        let challenge = self.with_message(path, "", &scram_first(NAME));
        assert_eq!((challenge.status, challenge.body.as_str()), (401, ""));
        let challenge = challenge.header("www-authenticate").unwrap();
        let (sid, data) = challenge
            .strip_prefix("SCRAM-SHA-512 sid=")
            .and_then(|rest| rest.split_once(",data="))
            .unwrap_or_else(|| panic!("{challenge}"));
        (sid.to_owned(), String::from_utf8(BASE64.decode(data).unwrap()).unwrap())
    }

    /// A request whose client proves that it knows the password, and which checks the same of the
    /// server.
    fn get_by_scram(&self, path: &str) -> Answer {
        let (sid, server_first) = self.begin_scram(path);
        let (client_final, server_final) = scram_final(NAME, "secret1", &server_first);
        let answer = self.with_message(path, &sid, &client_final);
        let expected = format!("sid={sid},data={}", BASE64.encode(server_final));
        assert_eq!(
            answer.header("authentication-info"),
            Some(expected.as_str()),
            "{}",
            answer.head
        );
        answer
    }
}

// Compat (Admin HTTP): XDCR into Oribi
#[test]
fn a_cluster_finds_what_it_replicates_into() {
    let fixture = fixture();
    let ports = fixture.ask("GET", "/nodes/self/xdcrSSLPorts", "", "");
    assert_eq!((ports.status, ports.json()), (200, json!({})), "there is no TLS");

    let pools = fixture.get_by_scram("/pools").json();
    let pool = fixture.get_by_scram("/pools/default").json();
    // The uuid is everything after the last "uuid=".
    let (_, uuid) = pool["buckets"]["uri"].as_str().unwrap().rsplit_once("uuid=").unwrap();
    assert_eq!(pools["uuid"], uuid);
    let node = &pool["nodes"][0];
    assert_eq!(
        (&node["status"], &node["clusterMembership"]),
        (&json!("healthy"), &json!("active"))
    );
    assert!(node["hostname"].is_string() && node["clusterCompatibility"].is_u64());
    let nodes = fixture.get_by_scram("/pools/nodes").json();
    assert_eq!(nodes["nodes"][0]["hostname"], node["hostname"]);
    let services = fixture.get_by_scram("/pools/default/nodeServices").json();
    assert!(services["nodesExt"][0]["services"]["kv"].is_u64());

    let buckets = fixture.get_by_scram("/pools/default/buckets/").json();
    let bucket = fixture.get_by_scram("/pools/default/buckets/default").json();
    assert_eq!(buckets[0]["uuid"], bucket["uuid"]);
    for text in ["bucketType", "conflictResolutionType", "evictionPolicy", "storageBackend"] {
        assert!(bucket[text].is_string(), "{text}");
    }
    assert_eq!(bucket["vBucketServerMap"]["vBucketMap"].as_array().unwrap().len(), 4);
    assert!(bucket["nodes"][0]["clusterCompatibility"].is_u64());
    let capabilities = bucket["bucketCapabilities"].as_array().unwrap();
    assert!(capabilities.contains(&json!("collections")));
    let manifest = fixture.get_by_scram("/pools/default/buckets/default/scopes").json();
    assert_eq!(manifest["uid"], bucket["collectionsManifestUid"]);
}

// Compat (Admin HTTP): `Authorization: SCRAM-SHA-512`, `-256`, `-1` (RFC 7804)
#[test]
fn scram_proves_both_sides_or_nothing() {
    let fixture = fixture();
    let whoami = fixture.get_by_scram("/whoami");
    assert_eq!((whoami.status, &whoami.json()["id"]), (200, &json!(NAME)));
    let forbidden = fixture.get_by_scram("/settings/rbac/users");
    assert_eq!(forbidden.status, 403, "it is proven, and lacks the right");

    let (sid, server_first) = fixture.begin_scram("/whoami");
    let (wrong, _) = scram_final(NAME, "secret2", &server_first);
    let refused = fixture.with_message("/whoami", &sid, &wrong);
    assert_eq!(refused.status, 401);
    assert!(refused.header("authentication-info").is_none(), "{}", refused.head);
    let (right, _) = scram_final(NAME, "secret1", &server_first);
    let again = fixture.with_message("/whoami", &sid, &right);
    assert_eq!(again.status, 401, "an exchange has one final message");
    let unknown = fixture.with_message("/whoami", "no-such-exchange", &right);
    assert_eq!(unknown.status, 401);
    assert_eq!(fixture.with_message("/whoami", "", "nonsense").status, 401);
}

/// The requests that a client library or a page sends with Basic are those of SCRAM.
#[test]
fn a_wrong_password_over_scram_is_401_everywhere() {
    let fixture = fixture();
    for path in ["/pools", "/pools/default", "/pools/default/buckets/default"] {
        let (sid, server_first) = fixture.begin_scram(path);
        let (wrong, _) = scram_final(NAME, "secret2", &server_first);
        assert_eq!(fixture.with_message(path, &sid, &wrong).status, 401, "{path}");
    }
}
