//! Thousands of connections, and pages of other sites.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::{ADMIN, Fixture, add_user};
use crate::limits::{
    ADMIN_ANONYMOUS_PER_NETWORK_MAX, ADMIN_CONNECTIONS_MAX, ADMIN_STREAMS_PER_USER_MAX,
};

const IDLE_SOCKETS: usize = 3000;
const OPERATOR: &str = "operator:secret1";
const READER: &str = "reader:secret1";

/// Both ends of each connection are in this process.
pub(super) fn allow_files() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
}

fn with_users() -> Fixture {
    allow_files();
    let prepare = |data_dir: &Path| {
        add_user(data_dir, "operator", &["admin"]);
        add_user(data_dir, "reader", &["read-only:*"]);
    };
    Fixture::start(prepare, false)
}

/// Polls until the server reports health, which it does when the buckets are loaded.
fn wait_for_health(fixture: &Fixture) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while fixture.ask("GET", "/healthz", "", "").status != 200 {
        assert!(Instant::now() < deadline, "never healthy");
    }
}

fn figure(fixture: &Fixture, name: &str) -> u64 {
    let text = fixture.ask("GET", "/metrics", OPERATOR, "").body;
    let line = text.lines().find(|line| line.starts_with(name)).unwrap();
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

/// Polls until the server has closed a connection.
fn is_closed(mut stream: &TcpStream) -> bool {
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    matches!(stream.read(&mut [0; 16]), Ok(0) | Err(_))
}

#[test]
fn idle_sockets_starve_nobody() {
    let fixture = with_users();
    wait_for_health(&fixture);
    let mut sockets = Vec::with_capacity(IDLE_SOCKETS);
    for number in 0..IDLE_SOCKETS {
        let mut socket = TcpStream::connect(fixture.admin).unwrap();
        if number % 2 == 0 {
            // An unfinished header does not count as a request; the server may have closed the
            // socket already.
            let _ = socket.write_all(b"GET /pools/default HTTP/1.1\r\nHost: x\r\nX-Slow: ");
        }
        sockets.push(socket);
    }
    assert_eq!(fixture.ask("GET", "/healthz", "", "").status, 200);
    assert_eq!(fixture.ask("GET", "/pools/default", OPERATOR, "").status, 200);
    assert_eq!(fixture.ask("POST", "/pools/default", OPERATOR, "clusterName=c").status, 200);
    // The server evicts the oldest connections and keeps the newest.
    assert!(is_closed(&sockets[0]) && is_closed(&sockets[IDLE_SOCKETS / 2]));
    let open = figure(&fixture, "oribi_admin_connections ");
    assert!(open <= 1 + ADMIN_ANONYMOUS_PER_NETWORK_MAX as u64, "{open}");
    let evicted = figure(&fixture, "oribi_admin_connections_evicted_total");
    assert!(evicted >= (IDLE_SOCKETS - ADMIN_ANONYMOUS_PER_NETWORK_MAX) as u64, "{evicted}");
}

#[test]
fn streams_of_one_user_starve_nobody() {
    let fixture = with_users();
    wait_for_health(&fixture);
    let path = "/pools/default/bs/default";
    let mut streams = Vec::new();
    let mut refused = 0;
    for _ in 0..ADMIN_CONNECTIONS_MAX {
        let mut stream = fixture.connect("GET", path, READER, "");
        let mut status = [0; 12];
        stream.read_exact(&mut status).unwrap();
        match &status[9..] {
            b"200" => streams.push(stream),
            status => {
                assert_eq!(status, b"503");
                refused += 1;
            }
        }
    }
    assert_eq!(streams.len(), ADMIN_STREAMS_PER_USER_MAX);
    assert_eq!(refused, ADMIN_CONNECTIONS_MAX - ADMIN_STREAMS_PER_USER_MAX);
    assert_eq!(fixture.ask("GET", "/healthz", "", "").status, 200);
    assert_eq!(fixture.ask("GET", "/pools/default", OPERATOR, "").status, 200);
    // Streams that end make space for others of the same user.
    drop(streams);
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let mut stream = fixture.connect("GET", path, READER, "");
        let mut status = [0; 12];
        stream.read_exact(&mut status).unwrap();
        if &status[9..] == b"200" {
            break;
        }
        assert!(Instant::now() < deadline, "streams are not given back");
    }
}

#[test]
fn guesses_of_passwords_starve_nobody() {
    let fixture = with_users();
    wait_for_health(&fixture);
    // The password is cached from here on, and costs no derivation.
    assert_eq!(fixture.ask("GET", "/whoami", OPERATOR, "").status, 200);
    let guesses: Vec<_> = (0..ADMIN_CONNECTIONS_MAX)
        .map(|number| fixture.connect("GET", "/whoami", &format!("operator:guess{number}"), ""))
        .collect();
    assert_eq!(fixture.ask("GET", "/healthz", "", "").status, 200);
    assert_eq!(fixture.ask("GET", "/whoami", OPERATOR, "").status, 200);
    let refused = figure(&fixture, "oribi_admin_requests_refused_total");
    assert!(refused > 0, "every guess was looked at");
    drop(guesses);
}

#[test]
fn a_connection_that_asks_nothing_is_closed() {
    let fixture = Fixture::development();
    let mut silent = TcpStream::connect(fixture.admin).unwrap();
    silent.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    assert_eq!(silent.read(&mut [0; 16]).unwrap(), 0);
}

#[test]
fn development_mode_accepts_loopback_names_only() {
    let status = |fixture: &Fixture, target: &str, host: &str| {
        let mut stream = TcpStream::connect(fixture.admin).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        write!(stream, "GET {target} HTTP/1.1\r\n{host}Connection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text.split(' ').nth(1).unwrap().parse::<u16>().unwrap()
    };
    let fixture = Fixture::development();
    for host in ["Host: localhost:8091\r\n", "Host: 127.0.0.1\r\n", "Host: [::1]:1\r\n", ""] {
        assert_eq!(status(&fixture, "/pools", host), 200, "{host:?}");
    }
    for host in ["Host: evil.example\r\n", "Host: localhost\r\nHost: evil.example:8091\r\n"] {
        assert_eq!(status(&fixture, "/pools", host), 421, "{host:?}");
    }
    assert_eq!(status(&fixture, "http://evil.example/pools", "Host: localhost\r\n"), 421);
    // With users there is a secret that a page does not have, so any host name is accepted.
    let fixture = with_users();
    assert_eq!(status(&fixture, "/pools", "Host: db.example\r\n"), 200);
    let refused = fixture.ask("GET", "/pools/default", ADMIN, "");
    assert_eq!(refused.status, 401);
}
