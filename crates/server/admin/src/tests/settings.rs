//! Settings of managers and tools, written and read back.

use serde_json::Value;

use super::Fixture;

// Compat (Admin HTTP): `POST /pools/default`
#[test]
fn a_cluster_is_named_and_stays_named() {
    let mut fixture = Fixture::development();
    let shown = |fixture: &Fixture, path: &str| fixture.get(path).json()["clusterName"].clone();
    assert_eq!(shown(&fixture, "/pools/default"), "");
    let before = fixture.get("/pools/default/b/default").json();
    assert_eq!(fixture.post("/pools/default", "clusterName=blue+one").status, 200);
    for path in ["/pools/default", "/pools/default/b/default", "/pools/default/nodeServices"] {
        assert_eq!(shown(&fixture, path), "blue one", "{path}");
    }
    let after = fixture.get("/pools/default/b/default").json();
    assert!(after["rev"].as_u64() > before["rev"].as_u64(), "clients would not look");
    let uuid = after["clusterUUID"].as_str().unwrap().to_owned();
    assert_eq!((uuid.len(), &fixture.get("/pools").json()["uuid"]), (32, &uuid.as_str().into()));

    fixture.restart();
    let again = fixture.get("/pools/default/b/default").json();
    assert_eq!((&again["clusterName"], &again["clusterUUID"]), (&"blue one".into(), &uuid.into()));

    for form in [format!("clusterName={}", "x".repeat(257)), "clusterName=a%0Ab".to_owned()] {
        let refused = fixture.post("/pools/default", &form);
        assert_eq!(refused.status, 400);
        assert!(refused.json()["errors"]["clusterName"].is_string());
    }
    let unknown = fixture.post("/pools/default", "clusterName=green&colour=red");
    assert_eq!(unknown.status, 400);
    assert_eq!(unknown.json()["errors"]["colour"], "Unsupported key");
    assert_eq!(shown(&fixture, "/pools/default"), "blue one", "nothing was changed");
    // An empty name removes the name.
    assert_eq!(fixture.post("/pools/default", "clusterName=").status, 200);
    assert_eq!(shown(&fixture, "/pools/default"), "");
}

#[test]
fn nodes_say_how_they_are_configured() {
    let fixture = Fixture::development();
    let expected = format!("127.0.0.1:{}", fixture.admin.port());
    for path in ["/pools/default", "/pools/nodes", "/pools/default/buckets/default"] {
        let node = &fixture.get(path).json()["nodes"][0];
        assert_eq!(node["configuredHostname"], expected, "{path}");
        assert_eq!(node["serverGroup"], "Group 1", "{path}");
    }
}

// Compat (Buckets over HTTP): `durabilityMinLevel`
#[test]
fn the_least_durability_is_read_back_as_set() {
    let mut fixture = Fixture::development();
    let path = "/pools/default/buckets/durable";
    let shown = |fixture: &Fixture| fixture.get(path).json()["durabilityMinLevel"].clone();
    let form = "name=durable&ramQuotaMB=120&durabilityMinLevel=majority";
    assert_eq!(fixture.post("/pools/default/buckets", form).status, 202);
    assert_eq!(shown(&fixture), "majority");
    assert_eq!(fixture.get("/pools/default/buckets/default").json()["durabilityMinLevel"], "none");
    fixture.restart();
    assert_eq!(shown(&fixture), "majority");
    for level in ["majorityAndPersistActive", "persistToMajority"] {
        assert_eq!(fixture.post(path, &format!("durabilityMinLevel={level}")).status, 200);
        fixture.restart();
        assert_eq!(shown(&fixture), level);
    }
    let form = "name=memory&ramQuotaMB=100&bucketType=ephemeral";
    assert_eq!(fixture.post("/pools/default/buckets", form).status, 202);
    let refused =
        fixture.post("/pools/default/buckets/memory", "durabilityMinLevel=persistToMajority");
    assert_eq!(refused.status, 400, "{}", refused.body);
    assert_eq!(fixture.post(path, "durabilityMinLevel=none").status, 200);
    assert_eq!(shown(&fixture), "none");
    fixture.restart();
    assert_eq!(shown(&fixture), "none");
}

impl Fixture {
    /// Mutations of the bucket `default`, and those that the store has.
    fn written_and_stored(&self) -> (u64, u64) {
        let bucket = self.server.as_ref().unwrap().context().buckets.get("default").unwrap();
        let stats = bucket.bucket().vbuckets().iter().map(|vbucket| vbucket.stats());
        stats.fold((0, 0), |(written, stored), it| {
            (written + it.high_seqno.0, stored + it.persisted_seqno.0)
        })
    }
}

// Compat (Buckets over HTTP): `durabilityMinLevel`
#[test]
fn http_writes_are_as_durable_as_their_bucket() {
    let fixture = Fixture::development();
    let (path, doc) = ("/pools/default/buckets/default", "/pools/default/buckets/default/docs/a");
    // Only a durable write is flushed within this test.
    assert_eq!(fixture.post(path, "flushIntervalMs=3600000").status, 200);
    assert_eq!(fixture.ask("PUT", doc, super::ADMIN, "{}").status, 200);
    assert_eq!(fixture.written_and_stored(), (1, 0), "a plain write waits for the flusher");
    assert_eq!(fixture.post(path, "durabilityMinLevel=majority").status, 200);
    assert_eq!(fixture.ask("PUT", doc, super::ADMIN, "{}").status, 200);
    assert_eq!(fixture.written_and_stored(), (2, 0), "one node is a majority of one");
    assert_eq!(fixture.post(path, "durabilityMinLevel=persistToMajority").status, 200);
    assert_eq!(fixture.ask("PUT", doc, super::ADMIN, "{}").status, 200);
    assert_eq!(fixture.written_and_stored(), (3, 3));
    assert_eq!(fixture.ask("DELETE", doc, super::ADMIN, "").status, 200);
    assert_eq!(fixture.written_and_stored(), (4, 4));
    assert_eq!(fixture.ask("DELETE", doc, super::ADMIN, "").status, 404);
}

// Compat (Buckets over HTTP): `durabilityMinLevel`
#[cfg(feature = "query")]
#[test]
fn statements_are_as_durable_as_their_bucket() {
    let fixture = Fixture::development();
    let form = "flushIntervalMs=3600000&durabilityMinLevel=majorityAndPersistActive";
    assert_eq!(fixture.post("/pools/default/buckets/default", form).status, 200);
    for (at, statement) in [
        r#"INSERT INTO `default` (KEY, VALUE) VALUES ("a", {"n": 1})"#,
        r#"UPSERT INTO `default` (KEY, VALUE) VALUES ("a", {"n": 2})"#,
        r#"UPDATE `default` USE KEYS "a" SET n = 3"#,
        r#"DELETE FROM `default` USE KEYS "a""#,
    ]
    .into_iter()
    .enumerate()
    {
        let answer = fixture.statement(statement);
        assert_eq!(answer["metrics"]["mutationCount"], 1, "{statement}: {answer}");
        let written = at as u64 + 1;
        assert_eq!(fixture.written_and_stored(), (written, written), "{statement}");
    }
}

// Compat (Buckets over HTTP): `maxTTL`
#[test]
fn a_longest_life_is_read_back_and_kept() {
    let mut fixture = Fixture::development();
    let path = "/pools/default/buckets/short";
    let shown = |fixture: &Fixture| fixture.get(path).json()["maxTTL"].clone();
    let form = "name=short&ramQuotaMB=100&maxTTL=60";
    assert_eq!(fixture.post("/pools/default/buckets", form).status, 202);
    assert_eq!(shown(&fixture), 60);
    assert_eq!(fixture.get("/pools/default/buckets/default").json()["maxTTL"], 0);
    fixture.restart();
    assert_eq!(shown(&fixture), 60);
    assert_eq!(fixture.post(path, "maxTTL=2147483647").status, 200);
    assert_eq!(fixture.post(path, "ramQuotaMB=120").status, 200);
    assert_eq!(shown(&fixture), i32::MAX, "a form without it changes nothing");
    fixture.restart();
    assert_eq!(shown(&fixture), i32::MAX);
    assert_eq!(fixture.post(path, "maxTTL=0").status, 200);
    assert_eq!(shown(&fixture), 0);
}

// Compat (Buckets over HTTP): `authType`, `saslPassword`
#[test]
fn settings_of_old_servers_are_ignored() {
    let fixture = Fixture::development();
    let form = "name=old&ramQuotaMB=100&authType=none&saslPassword=secret&replicaNumber=3";
    assert_eq!(fixture.post("/pools/default/buckets", form).status, 202);
    let bucket = fixture.get("/pools/default/buckets/old").json();
    assert_eq!((&bucket["replicaNumber"], &bucket["saslPassword"]), (&0.into(), &Value::Null));
}

#[test]
fn a_small_quota_may_stay_but_not_be_chosen() {
    let fixture = Fixture::development();
    let path = "/pools/default/buckets/default";
    let server = fixture.server.as_ref().unwrap().context();
    let handle = server.buckets.get("default").unwrap();
    handle.bucket().set_memory_quota(64 << 20);
    assert_eq!(fixture.post(path, "ramQuotaMB=64&flushEnabled=1").status, 200);
    for quota in ["63", "99"] {
        let refused = fixture.post(path, &format!("ramQuotaMB={quota}"));
        assert_eq!(refused.status, 400);
        assert_eq!(refused.json()["errors"]["ramQuota"], "RAM quota cannot be less than 100 MiB");
    }
}

// Compat (Buckets over HTTP): replicas, storage backend, `threadsNumber`, `rank`
// Compat (Buckets over HTTP): settings that Oribi does not know
#[test]
fn settings_that_are_not_known_are_refused_by_name() {
    let fixture = Fixture::development();
    for (path, form) in [
        ("/pools/default/buckets", "name=x&ramQuotaMB=120&flushEnable=1&proxyPort=0"),
        ("/pools/default/buckets/default", "flushEnable=1&proxyPort=0"),
    ] {
        let refused = fixture.post(path, form);
        assert_eq!(refused.status, 400, "{path}");
        let errors = &refused.json()["errors"];
        assert_eq!(errors.as_object().unwrap().len(), 2, "{errors}");
        assert_eq!(errors["flushEnable"], "Unsupported key");
        assert_eq!(errors["proxyPort"], "Unsupported key");
    }
    assert_eq!(fixture.get("/pools/default/buckets/x").status, 404);
    // The fields that client libraries send with every bucket.
    let form = "name=x&ramQuotaMB=120&bucketType=membase&replicaNumber=0&replicaIndex=0&flushEnabled=0\
                &evictionPolicy=valueOnly&compressionMode=passive&maxTTL=0&storageBackend=couchstore\
                &conflictResolutionType=seqno&durabilityMinLevel=none";
    assert_eq!(fixture.post("/pools/default/buckets", form).status, 202);
    assert_eq!(fixture.post("/pools/default/buckets/x", form).status, 200);
    let refused = fixture.post("/pools/default/buckets/x", "conflictResolutionType=lww");
    assert!(refused.json()["errors"]["conflictResolutionType"].is_string());
}

#[test]
fn collections_are_listed_with_every_field() {
    let fixture = Fixture::development();
    let scopes = "/pools/default/buckets/default/scopes";
    assert_eq!(fixture.post(scopes, "name=shop").status, 200);
    let collections = format!("{scopes}/shop/collections");
    for form in ["name=plain", "name=short&maxTTL=60", "name=endless&maxTTL=-1"] {
        assert_eq!(fixture.post(&collections, form).status, 200);
    }
    let listed = fixture.get(scopes).json();
    let mut seen = Vec::new();
    for collection in listed["scopes"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|scope| scope["collections"].as_array().unwrap())
    {
        assert_eq!(collection["history"], false, "{collection}");
        assert!(collection["uid"].is_string());
        seen.push((
            collection["name"].as_str().unwrap().to_owned(),
            collection["maxTTL"].as_i64().unwrap(),
        ));
    }
    seen.sort();
    let expected = [("_default", 0), ("endless", -1), ("plain", 0), ("short", 60)];
    assert_eq!(seen, expected.map(|(name, ttl)| (name.to_owned(), ttl)));
}
