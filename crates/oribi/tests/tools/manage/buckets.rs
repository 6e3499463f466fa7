//! Buckets, scopes, collections and nodes.

use crate::manage::{Fixture, json, refusal, stderr, stdout};

#[test]
fn buckets_are_created_changed_emptied_and_dropped() {
    let fixture = Fixture::start();
    let create = ["bucket", "create", "shop", "--memory-quota-mib", "100", "--eviction", "full"];
    let fixed = ["--compression", "active", "--flush-enabled", "--vbuckets", "16"];
    let output = fixture.run(&[&create[..], &fixed].concat());
    assert_eq!((stdout(&output).as_str(), stderr(&output).as_str()), ("", "created bucket shop\n"));
    let error = refusal(&fixture.run(&create));
    assert!(error.contains("name: Bucket with given name already exists"), "{error}");

    let listed = json(&fixture.run(&["bucket", "list", "--json"]));
    let shop = listed.as_array().unwrap().iter().find(|bucket| bucket["name"] == "shop").unwrap();
    assert_eq!(
        (&shop["evictionPolicy"], &shop["compressionMode"]),
        (&"fullEviction".into(), &"active".into())
    );
    assert_eq!((&shop["numVBuckets"], &shop["quota"]["ram"]), (&16.into(), &(100 << 20).into()));
    let change = ["bucket", "change", "shop", "--memory-quota-mib", "120"];
    let further = ["--compression", "off", "--eviction", "value", "--max-ttl", "7d"];
    stdout(&fixture.run(&[&change[..], &further].concat()));
    let listed = json(&fixture.run(&["bucket", "list", "--json"]));
    let shop = listed.as_array().unwrap().iter().find(|bucket| bucket["name"] == "shop").unwrap();
    assert_eq!(shop["maxTTL"], 7 * 24 * 60 * 60);
    let table = stdout(&fixture.run(&["bucket", "ls"]));
    let shop = table.lines().find(|line| line.starts_with("shop ")).expect("a line");
    assert!(shop.contains("120.00 MiB") && shop.contains("valueOnly  off"), "{table}");
    assert!(table.starts_with("NAME "), "{table}");
    let nothing = fixture.run(&["bucket", "change", "shop"]);
    let error = crate::manage::stderr(&nothing);
    assert_eq!(nothing.status.code(), Some(2), "{error}");
    assert!(error.contains("<--memory-quota-mib <MIB>|--eviction"), "{error}");

    stdout(&fixture.run(&["doc", "set", "k", "1", "--bucket", "shop"]));
    let error = refusal(&fixture.run(&["bucket", "flush", "shop"]));
    assert!(error.contains("removes all documents of bucket shop: --yes is needed"), "{error}");
    stdout(&fixture.run(&["bucket", "flush", "shop", "--yes"]));
    assert_eq!(fixture.run(&["doc", "get", "k", "--bucket", "shop"]).status.code(), Some(1));
    stdout(&fixture.run(&["bucket", "compact", "shop"]));
    stdout(&fixture.run(&["bucket", "change", "shop", "--flush-enabled=false"]));
    let error = refusal(&fixture.run(&["bucket", "flush", "shop", "--yes"]));
    assert!(error.to_lowercase().contains("flush"), "{error}");
    stdout(&fixture.run(&["bucket", "change", "shop", "--flush-enabled"]));
    stdout(&fixture.run(&["bucket", "flush", "shop", "--yes"]));

    let error = refusal(&fixture.run(&["bucket", "drop", "shop"]));
    assert!(error.contains("--yes is needed"), "{error}");
    stdout(&fixture.run(&["bucket", "drop", "shop", "-y"]));
    for arguments in [
        &["bucket", "drop", "shop", "--yes"][..],
        &["bucket", "compact", "shop"],
        &["scope", "list", "--bucket", "shop"],
        &["scope", "create", "s", "--bucket", "shop"],
        &["collection", "create", "s.c", "--bucket", "shop"],
    ] {
        let error = refusal(&fixture.run(arguments));
        assert!(error.contains("there is no bucket \"shop\""), "{error}");
    }
}

#[test]
fn collections_are_created_changed_and_dropped() {
    let fixture = Fixture::start();
    stdout(&fixture.run(&["scope", "create", "eu"]));
    stdout(&fixture.run(&["collection", "create", "eu.orders", "--max-ttl", "2h"]));
    stdout(&fixture.run(&["collection", "create", "eu.carts"]));
    let error = refusal(&fixture.run(&["collection", "create", "us.carts"]));
    assert!(error.contains("Scope with name \"us\" is not found"), "{error}");
    let scopes = stdout(&fixture.run(&["scope", "list"]));
    assert!(scopes.lines().any(|line| line == "eu        2"), "{scopes}");
    let listed = json(&fixture.run(&["collection", "list", "--json", "--scope", "eu"]));
    let mut found: Vec<(&str, i64)> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["name"].as_str().unwrap(), one["maxTTL"].as_i64().unwrap_or(0)))
        .collect();
    found.sort_unstable();
    assert_eq!(found, [("carts", 0), ("orders", 7200)]);
    stdout(&fixture.run(&["collection", "change", "eu.orders", "--max-ttl", "60"]));
    let table = stdout(&fixture.run(&["collection", "list"]));
    assert!(
        table.lines().any(|line| line.starts_with("eu.orders ") && line.ends_with(" 60 s")),
        "{table}"
    );

    let error = refusal(&fixture.run(&["collection", "drop", "eu.orders"]));
    assert!(error.contains("drops collection eu.orders"), "{error}");
    stdout(&fixture.run(&["collection", "drop", "eu.orders", "--yes"]));
    stdout(&fixture.run(&["scope", "drop", "eu", "--yes"]));
    let scopes = json(&fixture.run(&["scope", "list", "--json"]));
    assert!(scopes.as_array().unwrap().iter().all(|scope| scope["name"] != "eu"), "{scopes}");
    assert_eq!(fixture.run(&["collection", "drop", "eu", "--yes"]).status.code(), Some(2));
}

#[test]
fn nodes_are_listed_and_changed() {
    let fixture = Fixture::start();
    let nodes = json(&fixture.run(&["node", "list", "--json"]));
    assert_eq!((&nodes[0]["status"], nodes.as_array().unwrap().len()), (&"healthy".into(), 1));
    let table = stdout(&fixture.run(&["node", "list"]));
    assert!(table.starts_with("HOST") && table.contains("healthy"), "{table}");
    stdout(&fixture.run(&["node", "reload-certificate"]));
    stdout(&fixture.run(&["node", "change", "--cluster-name", "blue"]));
}
