//! Importing files: good ones, bad lines, duplicates, and what is left after a kill.

use std::path::PathBuf;

use crate::doc::{Fixture, stderr, stdout};

/// Writes an import file of these lines.
fn file(fixture: &Fixture, lines: &[String]) -> PathBuf {
    let path = fixture.directory.path().join("import.jsonl");
    std::fs::write(&path, lines.join("\n")).expect("a temporary directory is writable");
    path
}

fn row(number: usize) -> String {
    // Some values are above the size from which they are sent without being copied.
    let padding = "x".repeat(if number.is_multiple_of(100) { 10_000 } else { number % 300 });
    format!(r#"{{"n":{number},"_key":"row:{number}","padding":"{padding}"}}"#)
}

/// The document of a row.
fn document(number: usize) -> String {
    row(number).replacen(&format!(r#""_key":"row:{number}","#), "", 1)
}

#[test]
fn imports_into_a_collection_and_reads_back() {
    let fixture = Fixture::start();
    fixture.create_collection();
    let rows: Vec<String> = (0..3000).map(row).collect();
    let path = file(&fixture, &rows);
    let path = path.to_str().unwrap();
    let collection = ["--collection", "debian.packages"];
    let output = fixture.doc(&[&["import", path, "--json"], &collection[..]].concat());
    let summary: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(summary["documents"], 3000);
    assert_eq!(summary["skipped"], 0);
    let documents: Vec<String> = (0..3000).map(document).collect();
    let bytes: usize = documents.iter().map(String::len).sum();
    assert_eq!(summary["bytes"], bytes);
    for number in [0, 1, 299, 2900, 2999] {
        let key = format!("row:{number}");
        let output = fixture.doc(&[&["get", &key], &collection[..]].concat());
        assert_eq!(stdout(&output).trim_end(), documents[number], "the line without its key");
    }
    let output = fixture.doc(&["get", "row:1"]);
    assert!(!output.status.success());
    assert!(stderr(&output).contains("no document \"row:1\" in _default._default"));
}

#[test]
fn the_last_of_several_lines_with_one_key_wins() {
    let fixture = Fixture::start();
    for durability in ["none", "persist"] {
        let rows: Vec<String> =
            (0..400).map(|n| format!(r#"{{"_key":"{durability}:{}","n":{n}}}"#, n % 4)).collect();
        let path = file(&fixture, &rows);
        let arguments = ["import", path.to_str().unwrap(), "--durability", durability];
        let output = stdout(&fixture.doc(&arguments));
        assert!(output.starts_with("imported 400 documents"), "{output}");
        for last in 396..400 {
            let output = fixture.doc(&["get", &format!("{durability}:{}", last % 4)]);
            assert!(stdout(&output).contains(&format!("\"n\":{last}")), "{}", stdout(&output));
        }
    }
}

/// Writes acknowledged as persisted survive a kill of the server.
#[test]
fn durable_imports_survive_a_kill() {
    let mut fixture = Fixture::start();
    let rows: Vec<String> = (0..500).map(row).collect();
    let path = file(&fixture, &rows);
    stdout(&fixture.doc(&["import", path.to_str().unwrap(), "--durability", "persist"]));
    fixture.server.kill().unwrap();
    fixture.server.restart().unwrap();
    for number in (0..500).step_by(50) {
        let output = fixture.doc(&["get", &format!("row:{number}")]);
        assert_eq!(stdout(&output).trim_end(), document(number));
    }
}

#[test]
fn bad_lines_are_named() {
    let fixture = Fixture::start();
    let long_key = "k".repeat(251);
    let rows = [
        r#"{"_key":"a"}"#.to_owned(),
        String::new(),
        r#"{"id":"b"}"#.to_owned(),
        "not json".to_owned(),
        format!(r#"{{"_key":"{long_key}"}}"#),
        r#"{"_key":"c"}"#.to_owned(),
    ];
    let path = file(&fixture, &rows);
    let path = path.to_str().unwrap();
    let output = fixture.doc(&["import", path]);
    assert!(!output.status.success());
    let text = stderr(&output);
    assert!(text.contains("line 3: no field \"_key\""), "{text}");

    let output = fixture.doc(&["import", path, "--skip-bad"]);
    assert!(stdout(&output).contains("imported 2 documents"), "{}", stdout(&output));
    assert!(stdout(&output).contains("3 skipped"), "{}", stdout(&output));
    let text = stderr(&output);
    for reason in [
        "line 3 skipped: no field \"_key\"",
        "line 4 skipped: not a JSON object",
        "line 5 skipped: a key has 1 to 250 bytes, this one has 251",
    ] {
        assert!(text.contains(reason), "{text}");
    }

    let output = fixture.doc(&["import", path, "--key-field", "id"]);
    assert!(stderr(&output).contains("line 1: no field \"id\""), "{}", stderr(&output));
}

#[test]
fn says_why_it_cannot_begin() {
    let fixture = Fixture::start();
    let path = file(&fixture, &[row(1)]);
    let path = path.to_str().unwrap();
    for (arguments, reason) in [
        (&["import", "nowhere.jsonl"][..], "cannot open nowhere.jsonl"),
        (&["import", path, "--collection", "a.b"], "`oribi collection create` creates it"),
        (&["import", path, "--bucket", "nope"], "cannot open bucket \"nope\""),
        (&["import", path, "--bucket", "nope"], "no such bucket, or no right in it"),
        (&["import", path, "--password", "wrong"], "wrong name or password"),
    ] {
        let output = fixture.doc(arguments);
        assert!(!output.status.success());
        assert!(stderr(&output).contains(reason), "{}", stderr(&output));
    }
}
