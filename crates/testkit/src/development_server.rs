//! A server in development mode on its own directory, for tests of a command or of the client
//! library.
//!
//! Dropping it ends the server, then removes the directory. It also checks that a test that passed
//! gave the server no reason to warn, apart from running without users. A file of tests that needs
//! more declares its [`crate::fixture`] and adds methods to it.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::http::HttpClient;
use crate::raw_connection::{DEVELOPMENT_PASSWORD, DEVELOPMENT_USER};
use crate::{ServerOptions, ServerProcess};

/// See the module text.
pub struct DevelopmentServer {
    // Declared before its directory, so that it ends first.
    pub server: ServerProcess,
    /// Scratch space; the server's data is below it.
    pub directory: TempDir,
    program: PathBuf,
}

impl DevelopmentServer {
    /// Starts `program`, the binary under test.
    ///
    /// # Panics
    /// When the server does not start. All methods here panic on failure, because they are for
    /// tests.
    pub fn start(program: &str) -> DevelopmentServer {
        DevelopmentServer::start_with(program, |options| options)
    }

    /// Starts `program` with the options that `with` makes of the usual ones.
    ///
    /// # Panics
    /// As [`DevelopmentServer::start`].
    pub fn start_with(
        program: &str,
        with: impl FnOnce(ServerOptions) -> ServerOptions,
    ) -> DevelopmentServer {
        let directory = tempfile::tempdir().expect("temporary directories can be made");
        let options = with(ServerOptions::new(program, directory.path().join("data")));
        let server = ServerProcess::start(options).expect("the server starts");
        DevelopmentServer { server, directory, program: program.into() }
    }

    /// The program with `arguments` and this server's address, to run without input.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(arguments)
            .args(["--port", &self.server.port().to_string()])
            .args(["--user", DEVELOPMENT_USER])
            .env("ORIBI_PASSWORD", DEVELOPMENT_PASSWORD)
            .stdin(Stdio::null());
        command
    }

    /// Creates a scope with these collections.
    ///
    /// # Panics
    /// When the server refuses.
    pub fn create_collections(&self, scope: &str, names: &[&str]) {
        let admin = HttpClient::new(self.server.admin_port())
            .with_credentials(DEVELOPMENT_USER, DEVELOPMENT_PASSWORD);
        let scopes = "/pools/default/buckets/default/scopes";
        let collections = format!("{scopes}/{scope}/collections");
        let all = names.iter().map(|name| (collections.as_str(), *name));
        for (path, name) in std::iter::once((scopes, scope)).chain(all) {
            let answer = admin.post_form(path, &[("name", name)]).expect("the admin API answers");
            assert_eq!(answer.status, 200, "{path} {name}");
        }
    }
}

impl Drop for DevelopmentServer {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.server.assert_no_unlisted_warnings(&["DEVELOPMENT MODE"]);
        }
    }
}

/// Declares `Fixture`: a [`DevelopmentServer`] of the binary under test, to which a file of tests
/// can add methods. A macro, because only the test's own crate knows where its binary is.
#[macro_export]
macro_rules! fixture {
    () => {
        struct Fixture($crate::DevelopmentServer);

        impl Fixture {
            fn start() -> Fixture {
                Fixture($crate::DevelopmentServer::start(env!("CARGO_BIN_EXE_oribi")))
            }
        }

        impl std::ops::Deref for Fixture {
            type Target = $crate::DevelopmentServer;

            fn deref(&self) -> &$crate::DevelopmentServer {
                &self.0
            }
        }

        impl std::ops::DerefMut for Fixture {
            fn deref_mut(&mut self) -> &mut $crate::DevelopmentServer {
                &mut self.0
            }
        }
    };
}
