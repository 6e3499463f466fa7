//! Exports, and that what they wrote can be imported again.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use oribi_testkit::http::HttpClient;
use oribi_testkit::raw_connection::{DEVELOPMENT_PASSWORD, DEVELOPMENT_USER};
use oribi_testkit::{PATIENCE, TcpProxy, poll_until};
use oribi_types::Vbid;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::doc::{Fixture, stderr, stdout};

const DOCUMENTS: usize = 3000;

/// Key and line of `export --meta` without the CAS, for documents of every kind.
fn lines() -> BTreeMap<String, String> {
    let line = |number: usize| {
        let key = format!("key {number} \u{e9}");
        let (flags, expiry) = (number as u32 * 7, [0, 4_000_000_000_u32][number % 2]);
        let value = match number % 5 {
            0 => format!(r#""n":{number},"list":[1.50,null]"#),
            1 => format!(r#""_json":[{number}]"#),
            2 => r#""_base64":"AP8KDQ==""#.to_owned(),
            3 => format!(r#""_json":{{"_key":"{number}"}}"#),
            _ => r#""_base64":"""#.to_owned(),
        };
        let line = format!(r#"{{"_key":"{key}","_flags":{flags},"_expiry":{expiry},{value}}}"#);
        (key, line)
    };
    (0..DOCUMENTS).map(line).collect()
}

fn without_cas(exported: &str) -> BTreeMap<String, String> {
    let line = |line: &str| {
        let value: Value = serde_json::from_str(line).expect("it is JSON");
        let cas = format!(r#""_cas":"{}","#, value["_cas"].as_str().expect("a string"));
        (value["_key"].as_str().expect("a string").to_owned(), line.replacen(&cas, "", 1))
    };
    exported.lines().map(line).collect()
}

fn write_lines(fixture: &Fixture, name: &str, lines: impl Iterator<Item = String>) -> PathBuf {
    let path = fixture.directory.path().join(name);
    std::fs::write(&path, lines.map(|line| line + "\n").collect::<String>())
        .expect("the directory is writable");
    path
}

fn text(path: &Path) -> &str {
    path.to_str().expect("temporary paths are text")
}

#[test]
fn documents_survive_export_and_import() {
    let mut fixture = Fixture::start();
    fixture.create_collection();
    let expected = lines();
    let source = write_lines(&fixture, "source", expected.values().cloned());
    let keys = write_lines(&fixture, "keys", expected.keys().cloned());
    stdout(&fixture.doc(&["import", text(&source), "--meta"]));

    let exported = fixture.directory.path().join("exported");
    let arguments = ["export", text(&exported), "--keys", text(&keys), "--meta", "--json"];
    let summary: Value = serde_json::from_str(&stdout(&fixture.doc(&arguments))).unwrap();
    assert_eq!(summary["documents"], DOCUMENTS);
    let by_keys = std::fs::read_to_string(&exported).unwrap();
    assert_eq!(without_cas(&by_keys), expected);
    let order = by_keys.lines().map(|line| line[9..].split('"').next().unwrap());
    assert!(order.eq(expected.keys()), "the order is that of the list");
    assert!(!fixture.directory.path().join("exported.part").exists());

    let collection = ["--collection", "debian.packages"];
    stdout(&fixture.doc(&[&["import", text(&exported), "--meta"], &collection[..]].concat()));
    stdout(&fixture.doc(&["rm", "key 0 \u{e9}"]));
    let data_dir = fixture.server.data_dir().to_owned();
    let from_files = ["export", "-", "--data-dir", text(&data_dir), "--meta"];
    let output = fixture.doc(&from_files);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("is in use by process"), "{}", stderr(&output));

    assert!(fixture.server.terminate().unwrap().success());
    let output = fixture.doc(&[&from_files[..], &collection[..]].concat());
    assert_eq!(without_cas(&stdout(&output)), expected);
    let remaining = without_cas(&stdout(&fixture.doc(&from_files)));
    assert_eq!(remaining.len(), DOCUMENTS - 1, "removed documents are not exported");

    // Reading changed nothing that the server would mind.
    fixture.server.restart().unwrap();
    stdout(&fixture.doc(&["get", "key 1 \u{e9}"]));
}

/// All documents that were acknowledged come, each once, whether they were on disk already or not.
#[test]
fn a_server_exports_all_documents_of_a_collection() {
    let fixture = Fixture::start();
    fixture.create_collection();
    let expected = lines();
    let source = write_lines(&fixture, "source", expected.values().cloned());
    let collection = ["--collection", "debian.packages"];
    stdout(&fixture.doc(&[&["import", text(&source), "--meta"], &collection[..]].concat()));
    stdout(&fixture.doc(&["set", "elsewhere", "{}"]));
    // A document that is longer than a page, and one that is gone.
    let long = format!("{{\"text\":\"{}\"}}", "x".repeat(300_000));
    let long =
        write_lines(&fixture, "long", [format!("{{\"_key\":\"long\",{}", &long[1..])].into_iter());
    stdout(&fixture.doc(&[&["import", text(&long)], &collection[..]].concat()));
    stdout(&fixture.doc(&[&["rm", "key 0 \u{e9}"], &collection[..]].concat()));

    let exported = fixture.directory.path().join("exported");
    let arguments = [&["export", text(&exported), "--meta", "--json"], &collection[..]].concat();
    let summary: Value = serde_json::from_str(&stdout(&fixture.doc(&arguments))).unwrap();
    assert_eq!((&summary["documents"], &summary["missing"]), (&DOCUMENTS.into(), &0.into()));
    let exported = std::fs::read_to_string(&exported).unwrap();
    assert_eq!(exported.lines().count(), DOCUMENTS, "each comes once");
    let mut exported = without_cas(&exported);
    assert!(exported.remove("long").is_some_and(|line| line.len() > 300_000));
    let mut wanted = expected;
    wanted.remove("key 0 \u{e9}");
    assert_eq!(exported, wanted);
    assert_eq!(stdout(&fixture.doc(&["export", "-"])), "{\"_key\":\"elsewhere\"}\n");
}

/// The scan of a vbucket is longer than all that waits between server and file, so that it stands
/// in its middle when the connections end; what comes then begins after the last key.
#[test]
fn a_scan_resumes_after_its_last_key() {
    const COUNT: usize = 80;
    let fixture = Fixture::start();
    // Of one vbucket, however many there are up to 1024.
    let vbucket = |key: &str| oribi_protocol::hash::vbucket_of(key.as_bytes(), 1024);
    let keys = (0..).map(|number| format!("k{number}"));
    let keys: Vec<String> = keys.filter(|key| vbucket(key) == Vbid(7)).take(COUNT).collect();
    let value = "x".repeat(300_000);
    let line = |key: &String| format!("{{\"_key\":\"{key}\",\"value\":\"{value}\"}}");
    let source = write_lines(&fixture, "source", keys.iter().map(line));
    stdout(&fixture.doc(&["import", text(&source)]));

    let proxy = TcpProxy::start(fixture.server.port()).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_oribi"))
        .args(["doc", "export", "-", "--json", "--port", &proxy.port().to_string()])
        .args(["--user", DEVELOPMENT_USER])
        .env("ORIBI_PASSWORD", DEVELOPMENT_PASSWORD)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut exported = BufReader::new(child.stdout.take().unwrap());
    let mut lines = String::new();
    exported.read_line(&mut lines).unwrap();
    // Mending closes every connection there is.
    proxy.mend();
    exported.read_to_string(&mut lines).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let mut found: Vec<&str> = lines.lines().collect();
    let mut wanted: Vec<String> = keys.iter().map(line).collect();
    found.sort_unstable();
    wanted.sort_unstable();
    assert!(found == wanted, "{} lines, each document comes once", found.len());
}

#[test]
fn a_bucket_in_memory_is_exported_like_any_other() {
    let fixture = Fixture::start();
    let admin = HttpClient::new(fixture.server.admin_port())
        .with_credentials(DEVELOPMENT_USER, DEVELOPMENT_PASSWORD);
    let form = [("name", "cache"), ("ramQuotaMB", "100"), ("storage", "memory")];
    assert_eq!(admin.post_form("/pools/default/buckets", &form).unwrap().status, 202);
    let cache = ["--bucket", "cache"];
    stdout(&fixture.doc(&[&["set", "a", r#"{"n":1}"#], &cache[..]].concat()));
    let exported = stdout(&fixture.doc(&[&["export", "-"], &cache[..]].concat()));
    assert_eq!(exported, "{\"_key\":\"a\",\"n\":1}\n");
}

#[test]
fn a_plain_round_trip_gives_the_same_documents() {
    let fixture = Fixture::start();
    for (key, value) in [("a", r#"{"n":1}"#), ("b", r#"{"n":2,"_key":"b"}"#), ("c", "raw")] {
        stdout(&fixture.doc(&["set", key, value]));
    }
    let keys =
        write_lines(&fixture, "keys", ["a", "", "b", "nope", "c"].map(str::to_owned).into_iter());
    let exported = fixture.directory.path().join("exported");
    let arguments = ["export", text(&exported), "--keys", text(&keys)];
    let output = fixture.doc(&arguments);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("no document \"nope\""), "{}", stderr(&output));
    let expected = "{\"_key\":\"a\",\"n\":1}\n{\"_key\":\"b\",\"_json\":{\"n\":2,\"_key\":\"b\"}}\n{\"_key\":\"c\",\"_base64\":\"cmF3\"}\n";
    assert_eq!(std::fs::read_to_string(&exported).unwrap(), expected);
    let output = fixture.doc(&[&arguments[..], &["--ignore-missing"]].concat());
    assert!(stdout(&output).starts_with("exported 3 documents"), "{}", stdout(&output));
    assert!(stdout(&output).contains("1 key without a document"), "{}", stdout(&output));

    stdout(&fixture.doc(&["rm", "a", "b", "c"]));
    stdout(&fixture.doc(&["import", text(&exported), "--expiry", "1h"]));
    let expected = "{\"n\":1}{\"n\":2,\"_key\":\"b\"}raw";
    assert_eq!(stdout(&fixture.doc(&["cat", "a", "b", "c"])), expected);
    let described: Value =
        serde_json::from_str(&stdout(&fixture.doc(&["get", "c", "--json"]))).unwrap();
    assert!(described["expiry"].as_u64().is_some_and(|expiry| expiry > 1_700_000_000));
    stdout(&fixture.doc(&["import", text(&exported), "--keep-key"]));
    assert_eq!(stdout(&fixture.doc(&["cat", "a"])), "{\"_key\":\"a\",\"n\":1}");
}

#[test]
fn says_why_it_cannot_export() {
    let mut fixture = Fixture::start();
    let keys = write_lines(&fixture, "keys", [format!("ok\n{}", "k".repeat(251))].into_iter());
    let fails = |fixture: &Fixture, arguments: &[&str], reason: &str| {
        let output = fixture.doc(&[&["export", "-"], arguments].concat());
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(stderr(&output).contains(reason), "{}", stderr(&output));
    };
    fails(&fixture, &["--keys", text(&keys)], "line 2: a key has 1 to 250 bytes");
    fails(&fixture, &["--keys", "nowhere"], "cannot open nowhere");
    fails(&fixture, &["--collection", "a.b"], "collection \"a.b\"");
    let both = ["export", "-", "--keys", text(&keys), "--data-dir", "."];
    assert_eq!(fixture.doc(&both).status.code(), Some(2));
    fixture.server.terminate().unwrap();
    let data_dir = fixture.server.data_dir().to_owned();
    let scratch = text(fixture.directory.path()).to_owned();
    fails(&fixture, &["--data-dir", &scratch], "is not a data directory of Oribi");
    let absent = format!("{scratch}/absent");
    fails(&fixture, &["--data-dir", &absent], "is not a data directory of Oribi");
    assert!(!Path::new(&absent).exists());
    fails(&fixture, &["--data-dir", text(&data_dir), "--bucket", "b"], "there is no bucket \"b\"");
    let unknown = ["--data-dir", text(&data_dir), "--collection", "a.b"];
    fails(&fixture, &unknown, "collection \"a.b\": unknown scope");
}

/// Ctrl-C while keys are still to come leaves the part and no file of the final name.
#[test]
fn an_interrupted_export_leaves_its_part() {
    let fixture = Fixture::start();
    stdout(&fixture.doc(&["set", "a", "1"]));
    let exported = fixture.directory.path().join("exported");
    let part = fixture.directory.path().join("exported.part");
    let mut child = fixture.spawn_doc(&["export", text(&exported), "--keys", "-"]);
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"a\n").unwrap();
    poll_until(PATIENCE, || part.exists().then_some(())).expect("the export begins");
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    drop(stdin);
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    assert!(stderr(&output).contains("exported.part"), "{}", stderr(&output));
    assert!(part.exists() && !exported.exists());
}

/// Durable writes of a killed server are exported, and the server finds them all again.
#[test]
fn the_files_of_a_killed_server_can_be_exported() {
    let mut fixture = Fixture::start();
    let expected: Vec<String> =
        (0..500).map(|number| format!(r#"{{"_key":"k{number:03}","n":{number}}}"#)).collect();
    let source = write_lines(&fixture, "source", expected.iter().cloned());
    stdout(&fixture.doc(&["import", text(&source), "--durability", "persist"]));
    fixture.server.kill().unwrap();
    let data_dir = fixture.server.data_dir().to_owned();
    let exported = fixture.directory.path().join("exported");
    let arguments = ["export", text(&exported), "--data-dir", text(&data_dir), "--json"];
    for _ in 0..2 {
        let summary: Value = serde_json::from_str(&stdout(&fixture.doc(&arguments))).unwrap();
        assert_eq!((&summary["documents"], &summary["missing"]), (&500.into(), &0.into()));
        let exported = std::fs::read_to_string(&exported).unwrap();
        let mut lines: Vec<&str> = exported.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, expected);
    }
    fixture.server.restart().unwrap();
    assert_eq!(stdout(&fixture.doc(&["cat", "k123"])), "{\"n\":123}");
}

/// A file that was there before is replaced by a complete export only.
#[test]
fn a_failed_export_leaves_part_and_old_file() {
    let fixture = Fixture::start();
    stdout(&fixture.doc(&["set", "ok", "{}"]));
    let keys = ["ok".to_owned(), "k".repeat(251)];
    let keys = write_lines(&fixture, "keys", keys.into_iter());
    let exported = write_lines(&fixture, "exported", ["before".to_owned()].into_iter());
    let output = fixture.doc(&["export", text(&exported), "--keys", text(&keys)]);
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output);
    assert!(said.contains("exported.part"), "{said}");
    assert!(said.contains("keys: line 2: a key has 1 to 250 bytes"), "{said}");
    assert_eq!(std::fs::read_to_string(&exported).unwrap(), "before\n");
}
