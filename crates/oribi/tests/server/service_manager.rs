//! What a service manager and a container's health check see of a server.

use std::io::ErrorKind;
use std::os::unix::net::UnixDatagram;
use std::time::Instant;

use oribi_testkit::{PATIENCE, ServerOptions, ServerProcess};

use crate::fixture::{Fixture, ORIBI, run_oribi};

/// A watchdog's patience that lets a test see several signs of life.
const WATCHDOG_USEC: &str = "200000";

/// The socket of a service manager.
struct Manager {
    socket: UnixDatagram,
}

impl Manager {
    /// The first message that has a line `wanted`, and all lines before it.
    #[track_caller]
    fn hear(&self, wanted: &str) -> Vec<String> {
        let deadline = Instant::now() + PATIENCE;
        let mut heard: Vec<String> = Vec::new();
        let mut message = [0; 1024];
        while Instant::now() < deadline {
            match self.socket.recv(&mut message) {
                Ok(length) => {
                    let text = String::from_utf8(message[..length].to_vec()).unwrap();
                    heard.extend(text.lines().map(str::to_owned));
                }
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}"),
            }
            if heard.iter().any(|line| line == wanted) {
                return heard;
            }
        }
        panic!("no {wanted} in {heard:?}");
    }
}

#[test]
fn the_manager_hears_of_ready_progress_and_stopping() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(PATIENCE / 10)).unwrap();
    let manager = Manager { socket };
    let options = ServerOptions::new(ORIBI, directory.path().join("data"))
        .environment("NOTIFY_SOCKET", path.to_str().unwrap())
        .environment("WATCHDOG_USEC", WATCHDOG_USEC);
    let server = ServerProcess::start(options).unwrap();
    let mut fixture = Fixture { server, directory };

    let first = manager.hear("READY=1");
    assert_eq!(first, ["READY=1"], "nothing comes before the server serves");
    manager.hear("WATCHDOG=1");
    manager.hear("WATCHDOG=1");
    fixture.server.ask_to_end().unwrap();
    let last = manager.hear("STOPPING=1");
    assert!(!last.contains(&"READY=1".to_owned()), "{last:?}");
    let status = fixture.server.wait_for_end().unwrap();
    assert!(status.success(), "{status}:\n{}", fixture.server.output());
}

#[test]
fn health_is_an_exit_status() {
    let mut fixture = Fixture::start();
    let directory = fixture.directory.path().to_owned();
    let port = fixture.server.admin_port().to_string();
    let asked = ["health", "--admin-port", &port];
    // The server may still load its documents.
    let healthy = oribi_testkit::poll_until(PATIENCE, || {
        let (success, output) = run_oribi(&asked, &[], &directory);
        success.then_some(output)
    });
    assert!(healthy.is_some_and(|output| output.contains("ok")));

    // A container asks by its variables; the port may be in the ready file.
    let ready_file = directory.join("ready");
    std::fs::write(&ready_file, format!("{{\"admin_port\": {port}}}")).unwrap();
    let variables = [("ORIBI_ADMIN_PORT", "0"), ("ORIBI_READY_FILE", ready_file.to_str().unwrap())];
    let (success, output) = run_oribi(&["health"], &variables, &directory);
    assert!(success, "{output}");

    fixture.stop();
    let (success, output) = run_oribi(&asked, &[], &directory);
    assert!(!success && output.contains("unhealthy"), "{output}");
}
