//! Imports that end in the middle and continue: by Ctrl-C, by a server that dies, and what is
//! refused.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Output};

use oribi_testkit::{PATIENCE, poll_until};
use rustix::process::{Pid, Signal, kill_process};

use crate::doc::{Fixture, stderr, stdout};

const ROWS: usize = 20_000;

fn row(number: usize) -> String {
    format!(r#"{{"_key":"row:{number}","n":{number}}}"#)
}

fn file(fixture: &Fixture) -> PathBuf {
    let path = fixture.directory.path().join("rows.jsonl");
    let rows: Vec<String> = (0..ROWS).map(row).collect();
    std::fs::write(&path, rows.join("\n")).expect("the directory is writable");
    path
}

fn state_path(path: &Path) -> PathBuf {
    PathBuf::from(format!("{}.oribi-import", path.display()))
}

/// A durable import with few writes in flight, which takes seconds; returned once it has begun.
fn begin_slow_import(fixture: &Fixture, path: &str) -> Child {
    let arguments =
        ["import", path, "--durability", "persist", "--in-flight", "2", "--timeout", "3"];
    let child = fixture.spawn_doc(&arguments);
    let begun =
        poll_until(PATIENCE, || fixture.doc(&["get", "row:100"]).status.success().then_some(()));
    begun.expect("the import begins");
    child
}

fn end(child: Child) -> Output {
    child.wait_with_output().expect("the import ends")
}

/// Exactly the file's documents are there.
fn assert_imported(fixture: &Fixture) {
    let keys = fixture.directory.path().join("keys");
    // One key more than the file has.
    let names: Vec<String> = (0..=ROWS).map(|number| format!("row:{number}")).collect();
    std::fs::write(&keys, names.join("\n")).expect("the directory is writable");
    let output =
        fixture.doc(&["export", "-", "--keys", keys.to_str().expect("temporary paths are text")]);
    assert!(
        stderr(&output).contains(&format!("no document \"row:{ROWS}\"")),
        "{}",
        stderr(&output)
    );
    let text = String::from_utf8(output.stdout).expect("JSON is text");
    let expected: Vec<String> = (0..ROWS).map(row).collect();
    assert!(text.lines().eq(expected.iter().map(String::as_str)));
}

#[test]
fn an_interrupted_import_goes_on_where_it_was() {
    let fixture = Fixture::start();
    let path = file(&fixture);
    let text = path.to_str().unwrap();
    let child = begin_slow_import(&fixture, text);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = end(child);
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    assert!(stderr(&output).contains("--resume goes on there"), "{}", stderr(&output));
    let summary = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(summary.starts_with("imported "), "{summary}");
    assert!(state_path(&path).exists());

    let output = fixture.doc(&["import", text, "--resume", "--json"]);
    let summary: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    let before = summary["lines_before"].as_u64().unwrap() as usize;
    assert!((99..ROWS).contains(&before), "{before} lines before");
    assert_eq!(summary["documents"], ROWS - before);
    assert!(!state_path(&path).exists());
    assert_imported(&fixture);
}

#[test]
fn an_import_whose_server_died_goes_on_without_loss() {
    let mut fixture = Fixture::start();
    let path = file(&fixture);
    let text = path.to_str().unwrap();
    let child = begin_slow_import(&fixture, text);
    fixture.server.kill().unwrap();
    let output = end(child);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("rows.jsonl: line "), "{}", stderr(&output));
    fixture.server.restart().unwrap();
    stdout(&fixture.doc(&["import", text, "--resume"]));
    assert!(!state_path(&path).exists());
    assert_imported(&fixture);
}

/// Lines that are typed are imported one by one, and Ctrl-C ends the wait for the next.
#[test]
fn standard_input_is_imported_as_it_comes() {
    let fixture = Fixture::start();
    let mut child = fixture.spawn_doc(&["import", "-", "--json"]);
    let mut stdin = child.stdin.take().unwrap();
    for number in 0..3 {
        writeln!(stdin, "{}", row(number)).unwrap();
        let key = format!("row:{number}");
        let found =
            poll_until(PATIENCE, || fixture.doc(&["get", &key]).status.success().then_some(()));
        found.expect("the line is imported while the input is open");
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = end(child);
    drop(stdin);
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(summary["interrupted"], true);
    assert!(!stderr(&output).contains("--resume"), "{}", stderr(&output));
}

/// Stops at a bad line 3, so that a state is left.
fn stop_at_a_bad_line(fixture: &Fixture) -> PathBuf {
    let path = fixture.directory.path().join("bad.jsonl");
    std::fs::write(&path, format!("{}\n{}\nnot json\n{}\n", row(0), row(1), row(3)))
        .expect("the directory is writable");
    let output = fixture.doc(&["import", path.to_str().expect("temporary paths are text")]);
    assert!(stderr(&output).contains("everything up to line 2 is done"), "{}", stderr(&output));
    assert!(stderr(&output).contains("bad.jsonl: line 3: not a JSON"), "{}", stderr(&output));
    path
}

#[test]
fn a_file_fixed_past_the_position_is_the_same() {
    let fixture = Fixture::start();
    let path = stop_at_a_bad_line(&fixture);
    std::fs::write(&path, format!("{}\n{}\n{}\n{}\n", row(0), row(1), row(2), row(3))).unwrap();
    let output = fixture.doc(&["import", path.to_str().unwrap(), "--resume"]);
    assert!(stdout(&output).starts_with("imported 2 documents"), "{}", stdout(&output));
    assert!(stdout(&output).contains("after the 2 lines of before"), "{}", stdout(&output));
    // Nothing is left to resume, so it begins again.
    let output = fixture.doc(&["import", path.to_str().unwrap(), "--resume"]);
    assert!(stderr(&output).contains("begins at the first line"), "{}", stderr(&output));
    assert!(stdout(&output).starts_with("imported 4 documents"), "{}", stdout(&output));
}

#[test]
fn a_state_of_something_else_is_refused() {
    let fixture = Fixture::start();
    fixture.create_collection();
    let path = stop_at_a_bad_line(&fixture);
    let text = path.to_str().unwrap();
    let state = std::fs::read(state_path(&path)).unwrap();
    let refused = |arguments: &[&str], reason: &str| {
        let output = fixture.doc(&[&["import", text, "--resume"], arguments].concat());
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr(&output).contains(reason), "{}", stderr(&output));
        assert_eq!(std::fs::read(state_path(&path)).unwrap(), state, "it is left alone");
    };
    refused(
        &["--collection", "debian.packages"],
        "was into _default._default, not debian.packages",
    );
    std::fs::write(&path, format!("{}\n{}\n", row(7), row(8))).unwrap();
    refused(&[], "is another file up to line 2");
    std::fs::write(state_path(&path), "{}").unwrap();
    let output = fixture.doc(&["import", text, "--resume"]);
    assert!(stderr(&output).contains("is not the state of an import"), "{}", stderr(&output));

    // Another server has another bucket.
    std::fs::write(state_path(&path), &state).unwrap();
    let other = Fixture::start();
    let output = other.doc(&["import", text, "--resume"]);
    assert!(stderr(&output).contains("was into another bucket (uuid "), "{}", stderr(&output));
    let output = fixture.doc(&["import", "-", "--resume"]);
    assert!(stderr(&output).contains("only the import of a regular file"), "{}", stderr(&output));
}
