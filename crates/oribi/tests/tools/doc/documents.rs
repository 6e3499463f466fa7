//! get, cat, set, rm and touch: hits, misses, mismatches, and keys and values of every kind.

use serde_json::Value;

use crate::doc::{Fixture, stderr, stdout};

fn fails(fixture: &Fixture, arguments: &[&str], reason: &str) {
    let output = fixture.doc(arguments);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}");
    assert!(stderr(&output).contains(reason), "{arguments:?}: {}", stderr(&output));
}

fn json(fixture: &Fixture, arguments: &[&str]) -> Value {
    serde_json::from_str(&stdout(&fixture.doc(arguments))).expect("it is JSON")
}

#[test]
fn a_document_is_written_read_and_removed() {
    let fixture = Fixture::start();
    let key = "a key with spaces, \u{e4} and \u{1f98c}";
    fails(&fixture, &["get", key], "no document \"a key with spaces");
    fails(&fixture, &["set", key, "1", "--replace"], "no document");
    let cas = stdout(&fixture.doc(&["set", key, r#"{"n":1}"#, "--add"]));
    let cas = cas.trim();
    fails(&fixture, &["set", key, "1", "--add"], "exists already in _default._default");
    let described = json(&fixture, &["get", key, "--json"]);
    assert_eq!(described["key"], key);
    assert_eq!(described["value"]["n"], 1);
    assert_eq!(described["cas"], cas);
    assert_eq!(described["flags"], 0x0200_0006);
    assert_eq!(described["expiry"], 0);
    assert_eq!(described["datatype"], "json");

    fails(&fixture, &["set", key, "2", "--cas", "1"], "has another CAS than 1");
    let written = json(
        &fixture,
        &["set", key, "text", "--cas", cas, "--expiry", "2h", "--durability", "persist", "--json"],
    );
    assert_eq!(written["mutation_token"]["seqno"], "2");
    assert_ne!(written["cas"], cas);
    let described = json(&fixture, &["get", key, "--json"]);
    assert_eq!(described["value_base64"], "dGV4dA==");
    assert_eq!(described["flags"], 0x0300_0000);
    assert_eq!(described["datatype"], "raw");
    assert!(described["expiry"].as_u64().is_some_and(|expiry| expiry > 1_700_000_000));

    fails(&fixture, &["rm", key, "--cas", cas], "has another CAS");
    stdout(&fixture.doc(&["rm", key, "--cas", written["cas"].as_str().unwrap()]));
    fails(&fixture, &["rm", key], "no document");
    stdout(&fixture.doc(&["rm", key, "--ignore-missing"]));
    fails(&fixture, &["rm", "a", "b", "--cas", "1"], "--cas goes with one key");
}

#[test]
fn values_come_from_everywhere_and_stay_exact() {
    let fixture = Fixture::start();
    let path = fixture.directory.path().join("value");
    let path_text = path.to_str().unwrap();
    let binary = [0, 255, 10, 13, 0];
    for value in [&binary[..], b"", b"\n"] {
        std::fs::write(&path, value).unwrap();
        stdout(&fixture.doc(&["set", "k", "--file", path_text]));
        assert_eq!(fixture.doc(&["cat", "k"]).stdout, value);
        std::fs::write(&path, "something else").unwrap();
        stdout(&fixture.doc(&["get", "k", "--output", path_text]));
        assert_eq!(std::fs::read(&path).unwrap(), value);
    }
    stdout(&fixture.doc(&["set", "k", "17", "--raw"]));
    assert_eq!(json(&fixture, &["get", "k", "--json"])["flags"], 0x0300_0000);
    stdout(&fixture.doc(&["set", "k", "-17", "--flags", "0x10"]));
    let described = json(&fixture, &["get", "k", "--json"]);
    assert_eq!((&described["flags"], &described["value"]), (&16.into(), &(-17).into()));
    // Standard input is empty in these tests.
    stdout(&fixture.doc(&["set", "k", "-"]));
    assert_eq!(fixture.doc(&["get", "k"]).stdout, b"\n");

    std::fs::write(&path, vec![b'x'; 20 * 1024 * 1024]).unwrap();
    stdout(&fixture.doc(&["set", "large", "--file", path_text]));
    assert_eq!(fixture.doc(&["cat", "large"]).stdout.len(), 20 * 1024 * 1024);
    std::fs::write(&path, vec![b'x'; 20 * 1024 * 1024 + 1]).unwrap();
    fails(&fixture, &["set", "large", "--file", path_text], "than the 20971520 bytes");
    fails(&fixture, &["set", "k", "--file", "nowhere"], "cannot open nowhere");
    fails(&fixture, &["set", &"k".repeat(251), "1"], "1 to 250 bytes, this one has 251");
    fails(&fixture, &["set", "", "1"], "1 to 250 bytes, this one has 0");
    fails(&fixture, &["get", &"k".repeat(251)], "this one has 251");
    for wrong in [&["set", "k"][..], &["set", "k", "1", "--add", "--cas", "1"]] {
        assert_eq!(fixture.doc(wrong).status.code(), Some(2), "{wrong:?}");
    }
}

#[test]
fn several_documents_are_touched_printed_and_removed() {
    let fixture = Fixture::start();
    fixture.create_collection();
    let at = |arguments: &[&str]| {
        fixture.doc(&[arguments, &["--collection", "debian.packages"]].concat())
    };
    for (key, value) in [("a", "one"), ("b", "two\n"), ("c", "")] {
        stdout(&at(&["set", key, value]));
    }
    let output = at(&["cat", "b", "missing", "c", "a"]);
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(1), &b"two\none"[..]));
    assert!(stderr(&output).contains("no document \"missing\" in debian.packages"));
    assert_eq!(stdout(&at(&["cat", "a", "a"])), "oneone");

    let output = at(&["touch", "a", "missing", "b", "--expiry", "@4000000000"]);
    assert_eq!(output.status.code(), Some(1));
    for key in ["a", "b"] {
        let described: Value = serde_json::from_str(&stdout(&at(&["get", key, "--json"]))).unwrap();
        assert_eq!(described["expiry"], 4_000_000_000_u32);
    }
    assert_eq!(at(&["touch", "a"]).status.code(), Some(2), "--expiry is required");
    assert_eq!(at(&["touch", "a", "--expiry", "soon"]).status.code(), Some(2));
    stdout(&at(&["touch", "a", "missing", "--expiry", "0", "--ignore-missing"]));

    let output = at(&["rm", "a", "missing", "b"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("no document \"missing\""));
    assert_eq!(at(&["get", "a"]).status.code(), Some(1));
    assert_eq!(at(&["get", "b"]).status.code(), Some(1));
    stdout(&at(&["get", "c"]));
}
