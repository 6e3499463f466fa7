//! What a panic in a thread of the server means: each is planted in the real binary.
//!
//! A thread that owns state ends the process with its own code, and what was acknowledged as
//! durable is there after a restart. A job that panics is answered so, and the next one is done by
//! the same thread.

use std::fs;
use std::path::PathBuf;

use oribi_protocol::opcode::Opcode;
use oribi_protocol::status::Status;
use oribi_testkit::http::HttpClient;
use oribi_testkit::raw_connection::{DEVELOPMENT_PASSWORD, DEVELOPMENT_USER};
use oribi_testkit::{RawConnection, Request, poll_until};
use oribi_types::DurabilityLevel;

use crate::fixture::{DEVELOPMENT_WARNING, Fixture, call_when_warm, expect};

/// Status of a process whose thread panicked, as docs/operations.md has it.
const PANIC_EXIT_CODE: i32 = 70;

/// A server that panics at a place while a file exists.
struct PanicServer {
    fixture: Fixture,
    file: PathBuf,
    _scratch: tempfile::TempDir,
}

impl PanicServer {
    fn start(place: &str) -> PanicServer {
        let scratch = tempfile::tempdir().unwrap();
        let file = scratch.path().join("panics");
        let planted = format!("{place}:{}", file.display());
        let fixture =
            Fixture::start_with(|options| options.environment("ORIBI_PLANTED_PANIC", &planted));
        PanicServer { fixture, file, _scratch: scratch }
    }

    fn begin(&self) {
        fs::write(&self.file, "").unwrap();
    }

    fn end(&self) {
        fs::remove_file(&self.file).unwrap();
    }

    /// A job has panicked and been answered; the server has said so, and lives.
    fn finish(self) {
        self.fixture.expect_logged("a job panicked");
        self.fixture.finish(&["a job panicked", "panicked at"]);
    }
}

fn durable(key: &str) -> Request {
    Request::set(key, "1").durable(DurabilityLevel::PersistToMajority)
}

/// Ends by what the place does, and by what a client does besides.
fn ends_the_process(place: &str, provoke: impl Fn(&PanicServer, &mut RawConnection)) {
    let mut planted = PanicServer::start(place);
    let mut connection = planted.fixture.login();
    expect(call_when_warm(&mut connection, &durable("before")), Status::Success);
    planted.begin();
    provoke(&planted, &mut connection);
    let status = planted.fixture.server.wait_for_end().unwrap();
    let output = planted.fixture.server.output();
    assert_eq!(status.code(), Some(PANIC_EXIT_CODE), "{place}: {status}:\n{output}");
    assert!(output.contains("the process ends"), "{place} says nothing:\n{output}");

    planted.end();
    planted.fixture.server.restart().unwrap();
    let mut connection = planted.fixture.login();
    expect(call_when_warm(&mut connection, &Request::get("before")), Status::Success);
    planted.fixture.finish(&[]);
}

// Invariant: A panic in a thread that owns state ends the process; a panic in a job ends the job.
#[test]
fn a_panicking_flusher_ends_the_process_and_waits() {
    ends_the_process("flusher", |_, connection| {
        connection.send(&durable("waits")).unwrap();
        // Closed, and not answered.
        assert!(connection.read_until_closed().is_ok_and(|answers| answers.is_empty()));
    });
}

#[test]
fn a_panicking_pager_ends_the_process() {
    ends_the_process("pager", |_, _| {});
}

#[test]
fn a_fetcher_that_panics_ends_the_process() {
    ends_the_process("fetcher", |_, connection| {
        let level = DurabilityLevel::PersistToMajority;
        expect(connection.call(&durable("gone")).unwrap(), Status::Success);
        expect(connection.call(&Request::delete("gone").durable(level)).unwrap(), Status::Success);
        // A tombstone that is durable is in the store only.
        connection.send(&Request::about(Opcode::GetMeta, "gone")).unwrap();
        assert!(connection.read_until_closed().is_ok_and(|answers| answers.is_empty()));
    });
}

#[test]
fn a_worker_that_panics_ends_the_process() {
    ends_the_process("worker", |_, connection| {
        let _ = connection.send(&Request::new(Opcode::Noop));
    });
}

#[test]
fn an_acceptor_that_panics_ends_the_process() {
    ends_the_process("acceptor", |planted, _| {
        let _ = RawConnection::connect(planted.fixture.server.port());
    });
}

// Invariant: A panic in a thread that owns state ends the process; a panic in a job ends the job.
#[test]
fn a_panicking_login_fails_alone() {
    let planted = PanicServer::start("login");
    planted.begin();
    let port = planted.fixture.server.port();
    assert!(RawConnection::login(port).is_err(), "the first login panics");
    planted.end();
    RawConnection::login(port).unwrap();
    planted.finish();
}

#[test]
fn a_panicking_blocking_job_fails_alone() {
    let planted = PanicServer::start("blocking");
    let mut connection = planted.fixture.login();
    planted.begin();
    let request = Request::new(Opcode::Stat).bare_key("diskinfo");
    expect(connection.call(&request).unwrap(), Status::Einternal);
    planted.end();
    assert!(!connection.stat("diskinfo").unwrap().is_empty(), "the lane lives");
    planted.finish();
}

#[test]
fn a_panicking_route_fails_alone() {
    let planted = PanicServer::start("http");
    let admin: HttpClient = HttpClient::new(planted.fixture.server.admin_port())
        .with_credentials(DEVELOPMENT_USER, DEVELOPMENT_PASSWORD);
    planted.begin();
    assert_eq!(admin.get("/pools").unwrap().status, 500);
    planted.end();
    let answered = poll_until(oribi_testkit::PATIENCE, || {
        admin.get("/pools").ok().filter(|response| response.status == 200)
    });
    assert!(answered.is_some(), "the thread lives: {DEVELOPMENT_WARNING}");
    planted.finish();
}
