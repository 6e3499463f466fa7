//! Files that are no JSON lines, keys made from fields, and readers that go away.

use std::io::{BufRead, BufReader, Read};

use serde_json::Value;

use crate::doc::{Fixture, stderr, stdout};

fn file(fixture: &Fixture, name: &str, content: &str) -> String {
    let path = fixture.directory.path().join(name);
    std::fs::write(&path, content).expect("a temporary directory is writable");
    path.to_str().expect("temporary paths are text").to_owned()
}

fn exported(fixture: &Fixture) -> Vec<String> {
    let text = stdout(&fixture.doc(&["export", "-"]));
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort_unstable();
    lines
}

#[test]
fn arrays_and_csv_are_imported() {
    let fixture = Fixture::start();
    let array = file(
        &fixture,
        "array.json",
        "\n[\n  {\"_key\": \"a\",\n   \"n\": 1},\n {\"_key\":\"b\"}]\n",
    );
    stdout(&fixture.doc(&["import", &array]));
    let csv = file(&fixture, "c.csv", "id,name,n\r\nc1,\"x, \"\"y\"\"\r\nz\",7\r\nc2,,08\r\n");
    stdout(&fixture.doc(&["import", &csv, "--key-field", "id", "--drop-key"]));
    let tsv = file(&fixture, "t.tsv", "id\tn\nt1\t7\n");
    let typed = ["--key", "{id}-{n}", "--infer-types", "--omit-empty"];
    stdout(&fixture.doc(&[&["import", &tsv][..], &typed].concat()));
    assert_eq!(
        exported(&fixture),
        [
            r#"{"_key":"a",   "n": 1}"#,
            r#"{"_key":"b"}"#,
            r#"{"_key":"c1","name":"x, \"y\"\r\nz","n":"7"}"#,
            r#"{"_key":"c2","name":"","n":"08"}"#,
            r#"{"_key":"t1-7","id":"t1","n":7}"#,
        ]
    );
}

#[test]
fn errors_in_a_file_name_the_line() {
    let fixture = Fixture::start();
    let array = "[{\"_key\":\"a\"},\n\n17,\n{\"id\":1},{\"_key\":\"b\"}\n]";
    let array = file(&fixture, "array.json", array);
    let output = fixture.doc(&["import", &array, "--skip-bad", "--json"]);
    let summary: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    assert_eq!((&summary["documents"], &summary["skipped"]), (&2.into(), &2.into()));
    let said = stderr(&output);
    assert!(said.contains("line 3 skipped: not a JSON object"), "{said}");
    assert!(said.contains("line 4 skipped: no field \"_key\""), "{said}");

    let lines = "{\"type\":\"t\",\"id\":1}\n{\"type\":\"t\"}\n{\"type\":[],\"id\":1}\n";
    let lines = file(&fixture, "lines", lines);
    let template = ["--key", "{type}::{id}", "--skip-bad"];
    let output = fixture.doc(&[&["import", &lines][..], &template].concat());
    let said = stderr(&output);
    assert!(said.contains("line 2 skipped: no field \"id\""), "{said}");
    let kind = "line 3 skipped: field \"type\" is neither a string nor a whole number";
    assert!(said.contains(kind), "{said}");
    assert_eq!(stdout(&fixture.doc(&["get", "t::1"])).trim(), r#"{"type":"t","id":1}"#);
    let usage = fixture.doc(&["import", &lines, "--key", "{type"]);
    assert_eq!(usage.status.code(), Some(2));
    assert!(stderr(&usage).contains("a brace without its partner"), "{}", stderr(&usage));

    let csv = file(&fixture, "c.csv", "id,n\n1,2\n\"3\n\",\"\n4,5\n");
    let output = fixture.doc(&["import", &csv, "--key-field", "id"]);
    assert!(stderr(&output).contains("line 3: a quote has no end"), "{}", stderr(&output));
    let csv = file(&fixture, "d.csv", "id,n\n1,2\n3\n");
    let output = fixture.doc(&["import", &csv, "--key-field", "id"]);
    let said = stderr(&output);
    assert!(said.contains("line 3: 1 fields, and the first line names 2"), "{said}");
}

/// The import stops at a bad element; the file is fixed after it, and the rest comes.
#[test]
fn the_import_of_an_array_is_resumed() {
    let fixture = Fixture::start();
    let element = |number: usize| format!("{{\"_key\":\"k{number:03}\",\n\"n\":{number}}}");
    let elements: Vec<String> = (0..300).map(element).collect();
    let bad = format!("[{},17,{}]", elements[..200].join(",\n"), elements[200..].join(","));
    let array = file(&fixture, "array", &bad);
    let output = fixture.doc(&["import", &array]);
    assert!(stderr(&output).contains("line 400: not a JSON object"), "{}", stderr(&output));
    let mended = format!("[{}]", elements.join(",\n"));
    file(&fixture, "array", &mended);
    let output = fixture.doc(&["import", &array, "--resume", "--json"]);
    let summary: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    assert_eq!(summary["documents"], 100);
    assert_eq!(exported(&fixture).len(), 300);
}

/// As in `oribi doc export - | head -1`.
#[test]
fn an_export_whose_reader_goes_away_ends_quietly() {
    let fixture = Fixture::start();
    let lines: String = (0..60)
        .map(|number| format!("{{\"_key\":\"k{number}\",\"text\":\"{}\"}}\n", "x".repeat(100_000)))
        .collect();
    let path = file(&fixture, "lines", &lines);
    stdout(&fixture.doc(&["import", &path]));
    let mut child = fixture.spawn_doc(&["export", "-"]);
    let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut line = String::new();
    output.read_line(&mut line).expect("a line");
    assert!(line.starts_with("{\"_key\""));
    drop(output);
    let mut said = String::new();
    child.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
    let status = child.wait().expect("it ends");
    assert_eq!((status.code(), said.as_str()), (Some(0), ""));
}

#[test]
fn keys_are_listed_by_patterns() {
    let fixture = Fixture::start();
    fixture.create_collection();
    let place = ["--collection", "debian.packages"];
    for key in ["user:1", "user:2", "order:1"] {
        stdout(&fixture.doc(&["set", key, "{}"]));
    }
    stdout(&fixture.doc(&[&["set", "user:3", "{}"], &place[..]].concat()));
    let sorted = |arguments: &[&str]| {
        let text = stdout(&fixture.doc(&[&["ls"], arguments].concat()));
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort_unstable();
        lines
    };
    assert_eq!(sorted(&[]), ["order:1", "user:1", "user:2"]);
    assert_eq!(sorted(&["user:*"]), ["user:1", "user:2"]);
    assert_eq!(
        sorted(&["?????:1", "--json"]),
        [r#"{"collection":"_default._default","key":"order:1"}"#]
    );
    let all = ["*er:[1-3]", "*:3", "--all-collections"];
    assert_eq!(sorted(&all[1..]), ["debian.packages\tuser:3"]);
    assert!(sorted(&all[..1]).is_empty(), "brackets are themselves");
}
