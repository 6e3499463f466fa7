//! Starting, stopping, and directories that must not be touched.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use oribi_protocol::status::Status;
use oribi_testkit::{Request, ServerOptions};

use crate::fixture::{Fixture, ORIBI, call_when_warm, expect};

/// Every file below a directory with its contents.
fn contents(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut pending = vec![directory.to_owned()];
    while let Some(path) = pending.pop() {
        for entry in fs::read_dir(&path).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                pending.push(path);
            } else {
                found.insert(path.clone(), fs::read(&path).unwrap());
            }
        }
    }
    found
}

/// Asserts that a server cannot start on `data_dir`, says `text`, and leaves every file as it was.
#[track_caller]
fn assert_refused_untouched(data_dir: &Path, text: &str) {
    let before = contents(data_dir);
    let (status, output) = ServerOptions::new(ORIBI, data_dir).run_to_exit().unwrap();
    assert!(!status.success(), "exit status of a refused start:\n{output}");
    assert!(output.contains(text), "no word of {text:?}:\n{output}");
    assert!(!output.contains("panicked"), "{output}");
    assert_eq!(contents(data_dir).keys().collect::<Vec<_>>(), before.keys().collect::<Vec<_>>());
    assert!(contents(data_dir) == before, "a refused start changed a file");
}

#[test]
fn sigterm_ends_the_server_in_order() {
    Fixture::start().finish(&[]);
}

#[test]
fn ctrl_c_ends_the_server_in_order() {
    let mut fixture = Fixture::start();
    let status = fixture.server.interrupt().unwrap();
    assert!(status.success(), "{status}");
}

/// `timeout` signals its child and then the process group, so a server gets SIGTERM twice.
#[test]
fn a_second_sigterm_loses_nothing() {
    const DOCUMENTS: usize = 4000;
    let interval = |options: ServerOptions| options.setting("flush-interval-ms", 600_000);
    let mut fixture = Fixture::start_with(interval);
    let mut connection = fixture.login();
    let value = vec![b'v'; 2000];
    for number in 0..DOCUMENTS {
        let request = Request::set(format!("key-{number}"), &value);
        expect(connection.call(&request).unwrap(), Status::Success);
    }
    fixture.server.ask_to_end().unwrap();
    fixture.expect_logged("stopping");
    fixture.server.ask_to_end().unwrap();
    let status = fixture.server.wait_for_end().unwrap();
    assert!(status.success(), "{status}:\n{}", fixture.server.output());
    assert!(fixture.server.log().contains("stopping already"), "{}", fixture.server.output());

    fixture.server.restart().unwrap();
    let mut connection = fixture.login();
    for number in 0..DOCUMENTS {
        let request = Request::get(format!("key-{number}"));
        let found = expect(call_when_warm(&mut connection, &request), Status::Success);
        assert_eq!(found.value.len(), value.len());
    }
    fixture.finish(&[]);
}

/// The flush continues for as long as there is something to flush, so more is given to it until the
/// third signal comes in between.
#[test]
fn a_third_signal_ends_the_server_without_flushing() {
    for mebibytes in [16, 64, 256] {
        let interval = |options: ServerOptions| options.setting("flush-interval-ms", 600_000);
        let mut fixture = Fixture::start_with(interval);
        let mut connection = fixture.login();
        let value = vec![b'v'; 1 << 20];
        for number in 0..mebibytes {
            let request = Request::set(format!("key-{number}"), &value);
            expect(connection.call(&request).unwrap(), Status::Success);
        }
        fixture.server.ask_to_end().unwrap();
        fixture.expect_logged("stopping");
        fixture.server.ask_to_end().unwrap();
        // Of another number, so that both are seen, however late.
        let status = fixture.server.interrupt().unwrap();
        if status.success() {
            continue;
        }
        assert_eq!(status.code(), Some(1), "{}", fixture.server.output());
        assert!(fixture.server.log().contains("another signal: ended without flushing"));
        // The next start treats it as a crash, and serves.
        fixture.server.restart().unwrap();
        let mut connection = fixture.login();
        expect(call_when_warm(&mut connection, &Request::set("after", "1")), Status::Success);
        return;
    }
    panic!("256 MiB were flushed before the third signal was seen");
}

#[test]
fn open_connections_do_not_delay_the_end() {
    let fixture = Fixture::start();
    let mut connection = fixture.login();
    expect(connection.call(&Request::set("a", "1")).unwrap(), Status::Success);
    fixture.finish(&[]);
    assert_eq!(connection.read_until_closed().unwrap(), []);
}

#[test]
fn a_start_that_fails_names_its_cause_once() {
    let scratch = tempfile::tempdir().unwrap();
    let missing = scratch.path().join("missing/audit.log");
    let options = ServerOptions::new(ORIBI, scratch.path().join("data"));
    let options = options.setting("audit-log", missing.display());
    let (status, output) = options.run_to_exit().unwrap();
    assert_eq!(status.code(), Some(1), "{output}");
    assert!(output.contains("cannot open the audit log"), "{output}");
    assert_eq!(output.matches("os error").count(), 1, "{output}");
}

#[test]
fn a_second_server_on_the_same_directory_is_refused() {
    let fixture = Fixture::start();
    let data_dir = fixture.server.data_dir().to_owned();
    let (status, output) = ServerOptions::new(ORIBI, &data_dir).run_to_exit().unwrap();
    assert!(!status.success());
    assert!(output.contains("in use"), "{output}");
    assert!(output.contains(&fixture.server.pid().to_string()), "names no process:\n{output}");
    // The first one is not disturbed.
    let mut connection = fixture.login();
    expect(connection.call(&Request::set("a", "1")).unwrap(), Status::Success);
    fixture.finish(&[]);
}

#[test]
fn a_foreign_directory_is_refused_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("photos")).unwrap();
    fs::write(directory.path().join("photos/one.jpg"), b"not ours").unwrap();
    assert_refused_untouched(directory.path(), "not a data directory");
}

#[test]
fn a_corrupt_marker_is_refused_and_left_alone() {
    let mut fixture = Fixture::start();
    fixture.stop();
    let data_dir = fixture.server.data_dir().to_owned();
    for damage in ["", "{\"format\":", "{\"format\":\"something-else\",\"version\":1}"] {
        fs::write(data_dir.join("oribi.json"), damage).unwrap();
        assert_refused_untouched(&data_dir, "oribi.json");
    }
}

#[test]
fn a_corrupt_bucket_document_is_rejected_and_kept() {
    let mut fixture = Fixture::start();
    fixture.stop();
    let data_dir = fixture.server.data_dir().to_owned();
    let document = data_dir.join("buckets/default/bucket.json");
    let sound = fs::read(&document).unwrap();
    for damage in [&b""[..], b"{", &sound[..sound.len() / 2], b"\xff\xfe\x00"] {
        fs::write(&document, damage).unwrap();
        let (status, output) = ServerOptions::new(ORIBI, &data_dir).run_to_exit().unwrap();
        assert!(!status.success(), "{output}");
        assert!(output.contains("bucket.json"), "{output}");
        assert!(!output.contains("panicked"), "{output}");
        assert_eq!(fs::read(&document).unwrap(), damage, "the document was overwritten");
    }
    // With the document back, so are the documents.
    fs::write(&document, sound).unwrap();
    fixture.server.restart().unwrap();
    fixture.finish(&[]);
}

#[test]
fn a_port_in_use_is_reported() {
    let fixture = Fixture::start();
    let directory = tempfile::tempdir().unwrap();
    for (port, admin_port) in [(fixture.server.port(), 0), (0, fixture.server.admin_port())] {
        let options =
            ServerOptions::new(ORIBI, directory.path().join("data")).ports(port, admin_port);
        let (status, output) = options.run_to_exit().unwrap();
        assert!(!status.success());
        assert!(output.contains(&port.max(admin_port).to_string()), "names no port:\n{output}");
        assert!(!output.contains("panicked"), "{output}");
    }
    fixture.finish(&[]);
}
