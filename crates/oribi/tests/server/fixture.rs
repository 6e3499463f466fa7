//! A server on a fresh data directory, and the few steps that most tests begin with.

use std::path::Path;
use std::process::{Command, Stdio};

use oribi_protocol::status::Status;
pub use oribi_testkit::Random;
use oribi_testkit::http::HttpClient;
use oribi_testkit::raw_connection::{DEVELOPMENT_PASSWORD, DEVELOPMENT_USER};
use oribi_testkit::{
    PATIENCE, RawConnection, Request, Response, ServerOptions, ServerProcess, poll_until,
};
use tempfile::TempDir;

/// The binary under test.
pub const ORIBI: &str = env!("CARGO_BIN_EXE_oribi");

/// Log lines of each server without users at start, and optional ones.
pub const DEVELOPMENT_WARNING: &str = "DEVELOPMENT MODE";

/// A running server and the directory it owns. The server is declared first, so that it ends before
/// its directory goes away.
pub struct Fixture {
    pub server: ServerProcess,
    pub directory: TempDir,
}

impl Fixture {
    /// A server with default settings in development mode.
    pub fn start() -> Fixture {
        Fixture::start_with(|options| options)
    }

    /// A server in development mode with settings added by `configure`.
    pub fn start_with(configure: impl FnOnce(ServerOptions) -> ServerOptions) -> Fixture {
        let directory = tempfile::tempdir().unwrap();
        let options = configure(ServerOptions::new(ORIBI, directory.path().join("data")));
        let server = ServerProcess::start(options).unwrap();
        Fixture { server, directory }
    }

    /// A server whose directory has the administrator `root` and `reader`, who may read bucket
    /// `default`; so it is not in development mode.
    pub fn with_users(configure: impl FnOnce(ServerOptions) -> ServerOptions) -> Fixture {
        let directory = tempfile::tempdir().unwrap();
        let data_dir = directory.path().join("data");
        add_user(&data_dir, "root", "root secret", &["admin"]);
        add_user(&data_dir, "reader", "reader secret", &["read-only:default"]);
        let server = ServerProcess::start(configure(ServerOptions::new(ORIBI, data_dir))).unwrap();
        Fixture { server, directory }
    }

    /// A connection as the development user, bucket `default` selected.
    pub fn login(&self) -> RawConnection {
        RawConnection::login(self.server.port()).unwrap()
    }

    /// The admin interface as the development user.
    pub fn admin(&self) -> HttpClient {
        HttpClient::new(self.server.admin_port())
            .with_credentials(DEVELOPMENT_USER, DEVELOPMENT_PASSWORD)
    }

    /// Waits for a text in the server's log: a client may see its connection end before the reason
    /// is written.
    #[track_caller]
    pub fn expect_logged(&self, text: &str) {
        let logged = poll_until(PATIENCE, || self.server.log().contains(text).then_some(()));
        assert!(logged.is_some(), "no word of {text:?} in the log:\n{}", self.server.log());
    }

    /// Stops the server in order and starts it again.
    pub fn restart(&mut self) {
        self.stop();
        self.server.restart().unwrap();
    }

    /// Stops the server in order.
    #[track_caller]
    pub fn stop(&mut self) {
        let status = self.server.terminate().unwrap();
        assert!(
            status.success(),
            "SIGTERM ended the server with {status}:\n{}",
            self.server.output()
        );
    }

    /// Ends a test: the server still runs, stops in order and has warned about nothing unlisted.
    #[track_caller]
    pub fn finish(mut self, allowed_warnings: &[&str]) {
        assert!(self.server.is_running(), "the server died:\n{}", self.server.output());
        self.stop();
        let allowed: Vec<&str> =
            [DEVELOPMENT_WARNING].iter().chain(allowed_warnings).copied().collect();
        self.server.assert_no_unlisted_warnings(&allowed);
    }
}

/// Adds a user to a data directory as an administrator does.
#[track_caller]
pub fn add_user(data_dir: &Path, name: &str, password: &str, roles: &[&str]) {
    let data_dir = data_dir.to_str().unwrap();
    let mut arguments = vec!["user", "add", name, "--data-dir", data_dir];
    for role in roles {
        arguments.extend(["--role", role]);
    }
    let environment = [("ORIBI_PASSWORD", password)];
    let directory = tempfile::tempdir().unwrap();
    let (success, output) = run_oribi(&arguments, &environment, directory.path());
    assert!(success, "{output}");
}

/// Sends a request again while the server answers "temporary failure", as it may while it warms up.
pub fn call_when_warm(connection: &mut RawConnection, request: &Request) -> Response {
    poll_until(PATIENCE, || {
        let response = connection.call(request).unwrap();
        (response.status() != Status::Etmpfail).then_some(response)
    })
    .expect("warmup ends")
}

/// Asserts the status of a response and hands it on.
#[track_caller]
pub fn expect(response: Response, status: Status) -> Response {
    assert_eq!(response.status(), status, "{response:?}");
    response
}

/// Runs a subcommand to its end; returns whether it succeeded and everything it printed.
pub fn run_oribi(
    arguments: &[&str],
    environment: &[(&str, &str)],
    directory: &Path,
) -> (bool, String) {
    let mut command = Command::new(ORIBI);
    command.args(arguments).current_dir(directory).stdin(Stdio::null());
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("ORIBI_") {
            command.env_remove(&name);
        }
    }
    command.envs(environment.iter().copied());
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}
