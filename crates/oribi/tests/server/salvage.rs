//! A damaged log is refused, or opened without what is lost, which the server's log says.

use std::fs;
use std::path::PathBuf;

use oribi_protocol::status::Status;
use oribi_testkit::{Request, ServerOptions, ServerProcess};

use super::fixture::{DEVELOPMENT_WARNING, Fixture, ORIBI, call_when_warm, expect};

const HALF: usize = 100;

fn key(number: usize) -> String {
    format!("key-{number}")
}

#[test]
fn a_damaged_log_is_opened_with_a_summary() {
    let mut fixture = Fixture::start_with(|options| options.setting("logs", 1));
    // A commit is lost as a whole, so there are two at least.
    for numbers in [0..HALF, HALF..2 * HALF] {
        let mut connection = fixture.login();
        for number in numbers {
            let request = Request::set(key(number), "value");
            let response = call_when_warm(&mut connection, &request);
            expect(response, Status::Success);
        }
        fixture.restart();
    }
    fixture.stop();
    let data_dir = fixture.server.data_dir().to_owned();
    let segment = newest_segment(data_dir.join("buckets/default/store"));
    let mut content = fs::read(&segment).unwrap();
    // The magic of the first frame, which is the root.
    content[32] ^= 1;
    let at = content.windows(7).position(|window| window == b"key-150").unwrap();
    content[at] ^= 1;
    fs::write(&segment, &content).unwrap();
    let (status, output) = ServerOptions::new(ORIBI, &data_dir).run_to_exit().unwrap();
    assert!(!status.success() && output.contains("no root although frames follow"), "{output}");

    let options = ServerOptions::new(ORIBI, &data_dir);
    let accepting = options.clone().setting("accept-damaged-log", true);
    fixture.server = ServerProcess::start(accepting).unwrap();
    let log = fixture.server.log();
    let lines = ["opened without these bytes", "these seqnos may be lost", "opened without what"];
    for line in lines {
        assert!(log.contains(line), "no word of {line:?}:\n{log}");
    }
    let found = read_all(&fixture);
    assert!(found[..HALF].iter().all(|found| *found) && !found[150]);
    fixture.stop();
    fixture.server = ServerProcess::start(options).unwrap();
    assert_eq!(read_all(&fixture), found, "the rest was written anew");
    fixture.stop();
    fixture.server.assert_no_unlisted_warnings(&[DEVELOPMENT_WARNING]);
}

/// Whether each document is there.
fn read_all(fixture: &Fixture) -> Vec<bool> {
    let mut connection = fixture.login();
    let mut found = |number| {
        let response = call_when_warm(&mut connection, &Request::get(key(number)));
        response.status() == Status::Success
    };
    (0..2 * HALF).map(&mut found).collect()
}

fn newest_segment(store: PathBuf) -> PathBuf {
    let paths = fs::read_dir(store).unwrap().map(|entry| entry.unwrap().path());
    let segments = paths.filter(|path| path.extension().is_some_and(|name| name == "log"));
    segments.max().unwrap()
}
