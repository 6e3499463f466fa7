//! `oribi health`: whether the server of this configuration is healthy, as an exit status.
//!
//! It owns one HTTP request to the server's own admin port, without credentials, for container
//! health checks and scripts where there is no curl. Invariants: it ends within the timeout, it
//! reads at most [`ANSWER_BYTES_MAX`], and every reason why it cannot ask counts as unhealthy.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use clap::{Arg, ArgMatches, Command, value_parser};
use oribi_config::{Settings, arguments_named};

use crate::config::resolve_here;
use crate::print;

const TIMEOUT: &str = "timeout_ms";
const TIMEOUT_MS_DEFAULT: &str = "3000";
const PATH: &str = "/healthz";
/// The head and the one line of JSON of an answer take a few hundred bytes.
const ANSWER_BYTES_MAX: u64 = 16 * 1024;

pub fn command() -> Command {
    Command::new("health")
        .about("Ask the server of this configuration whether it is healthy")
        .after_help(
            "Exit status 0: the server serves all its documents and its store works. 1: it does \
             not, or it cannot be asked; standard error says why. It reads the same file and the \
             same variables as `oribi serve`.\n\n\
             Examples:\n  oribi health\n  oribi health --config /etc/oribi/oribi.toml",
        )
        .args(arguments_named(&["listen", "admin_listen", "admin_port", "ready_file"]))
        .arg(
            Arg::new(TIMEOUT)
                .long("timeout-ms")
                .value_name("MS")
                .help("Time for the whole request")
                .default_value(TIMEOUT_MS_DEFAULT)
                .value_parser(value_parser!(u64).range(1..=3_600_000)),
        )
}

/// Asks; an error means unhealthy.
pub fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    let settings = resolve_here(matches)?.settings;
    let timeout_ms = *matches.get_one::<u64>(TIMEOUT).expect("it has a default");
    let address = admin_address(&settings)?;
    let deadline = Instant::now() + Duration::from_millis(timeout_ms);
    let answer = ask(address, deadline)
        .with_context(|| format!("unhealthy: cannot ask http://{address}{PATH}"))?;
    let (code, body) = parse(&answer)
        .with_context(|| format!("unhealthy: http://{address}{PATH} does not answer in HTTP"))?;
    if code != 200 {
        bail!("unhealthy: http://{address}{PATH} answers {code}: {}", body.trim());
    }
    print::text(format!("{}\n", body.trim()))
}

/// Where the server of these settings answers HTTP to its own machine.
fn admin_address(settings: &Settings) -> anyhow::Result<SocketAddr> {
    let address = match settings.admin_address() {
        IpAddr::V4(address) if address.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(address) if address.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        address => address,
    };
    let port = match (settings.admin_port, &settings.ready_file) {
        (0, Some(path)) => port_in(path)?,
        (0, None) => bail!("unhealthy: admin_port is 0, and no ready_file names the port in use"),
        (port, _) => port,
    };
    Ok(SocketAddr::new(address, port))
}

fn port_in(path: &Path) -> anyhow::Result<u16> {
    let text = std::fs::read(path)
        .with_context(|| format!("unhealthy: cannot read the ready file {}", path.display()))?;
    serde_json::from_slice::<serde_json::Value>(&text)
        .ok()
        .and_then(|content| u16::try_from(content.get("admin_port")?.as_u64()?).ok())
        .ok_or_else(|| anyhow!("unhealthy: {} names no admin_port", path.display()))
}

fn ask(address: SocketAddr, deadline: Instant) -> anyhow::Result<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&address, left(deadline)?)?;
    stream.set_write_timeout(Some(left(deadline)?))?;
    let request = format!("GET {PATH} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    let mut block = [0; 1024];
    loop {
        stream.set_read_timeout(Some(left(deadline)?))?;
        match stream.read(&mut block)? {
            0 => return Ok(answer),
            read => answer.extend_from_slice(&block[..read]),
        }
        if answer.len() as u64 > ANSWER_BYTES_MAX {
            bail!("the answer is longer than {ANSWER_BYTES_MAX} bytes");
        }
    }
}

/// Time until the deadline, never zero, which a socket would take for no timeout.
fn left(deadline: Instant) -> anyhow::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        bail!("no answer within the timeout");
    }
    Ok(left)
}

/// Status code and body of an answer.
fn parse(answer: &[u8]) -> anyhow::Result<(u16, &str)> {
    let text = std::str::from_utf8(answer).context("it is not UTF-8")?;
    let (head, body) = text.split_once("\r\n\r\n").context("it has no end of its head")?;
    let mut words = head.split_ascii_whitespace();
    let version = words.next().unwrap_or_default();
    if !version.starts_with("HTTP/1.") {
        bail!("it begins with {version:?}");
    }
    let code = words.next().and_then(|word| word.parse().ok()).context("it has no status code")?;
    Ok((code, body))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn an_answer_is_taken_apart() {
        assert_eq!(parse(b"HTTP/1.1 503 Busy\r\na: b\r\n\r\n{}").unwrap(), (503, "{}"));
        for bad in [&b"HTTP/1.1 200 OK\r\n"[..], b"SSH-2.0\r\n\r\n", b"HTTP/1.1\r\n\r\n", b"\xff"] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn silent_server_fails_at_the_deadline() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let deadline = Instant::now() + Duration::from_millis(50);
        let error = ask(listener.local_addr().unwrap(), deadline).unwrap_err();
        assert!(Instant::now() >= deadline, "given up before: {error:#}");
    }

    #[test]
    fn any_address_is_asked_on_loopback() {
        let settings = |listen: &str, admin_port| Settings {
            listen: listen.parse().unwrap(),
            admin_listen: None,
            admin_port,
            ..Settings::default()
        };
        let asked = |listen, port| admin_address(&settings(listen, port)).map(|a| a.to_string());
        assert_eq!(asked("0.0.0.0", 1).unwrap(), "127.0.0.1:1");
        assert_eq!(asked("::", 2).unwrap(), "[::1]:2");
        assert_eq!(asked("10.1.2.3", 3).unwrap(), "10.1.2.3:3");
        let error = asked("0.0.0.0", 0).unwrap_err().to_string();
        assert!(error.contains("ready_file"), "{error}");
    }
}
