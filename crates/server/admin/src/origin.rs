//! Checks whether a browser sent a request for another site's page.
//!
//! Owns: two checks.
//! - A browser adds its remembered credentials to every request of a page. So a change needs an
//!   `Origin` that is this server's own.
//! - Development mode has no secret. A page whose name resolves to 127.0.0.1 (DNS rebinding) would
//!   count as this server's origin and could read everything. So development mode accepts only host
//!   names that no third party can own.
//!
//! Caller: `router`.

use std::net::{Ipv4Addr, Ipv6Addr};

use hyper::header::{HOST, ORIGIN};
use hyper::http::request::Parts;
use hyper::{HeaderMap, StatusCode};

use super::message::{HttpReply, error};
use super::state::AdminState;

/// True for a request that a browser sends for a page of another site. Such a request carries the
/// remembered credentials, or in development mode the public password.
pub(crate) fn is_from_elsewhere(headers: &HeaderMap) -> bool {
    let Some(origin) = headers.get(ORIGIN) else { return false };
    let Some(host) = headers.get(HOST) else { return true };
    let site = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
    site.is_none_or(|(_, site)| site.as_bytes() != host.as_bytes())
}

/// False in development mode for a request whose host name is not a loopback one.
pub(crate) fn is_welcome(state: &AdminState, head: &Parts) -> bool {
    !state.server.access.users.is_development() || names_loopback(head)
}

/// The answer to a misdirected request.
pub(crate) fn misdirected() -> HttpReply {
    error(
        StatusCode::MISDIRECTED_REQUEST,
        "In development mode requests have to come to localhost, 127.0.0.1 or [::1]. To use \
         another name, such as one of a container, start the server with an administrator: \
         --admin-user NAME (or ORIBI_ADMIN_USER) and the password in ORIBI_ADMIN_PASSWORD; or add \
         a user with `oribi user create`",
    )
}

/// True when every host name in the request is a loopback one. A browser always sends one.
fn names_loopback(head: &Parts) -> bool {
    let in_target = head.uri.authority().map(|authority| authority.as_str());
    let in_headers = head.headers.get_all(HOST).iter();
    in_target.is_none_or(is_loopback_name)
        && in_headers.map(|host| host.to_str()).all(|host| host.is_ok_and(is_loopback_name))
}

/// True when a host, with or without a port, means this machine on every resolver.
fn is_loopback_name(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => return is_loopback_v6(rest),
        None => match host.split_once(':') {
            Some((name, port)) if is_port(port) => name,
            Some(_) => return false,
            None => host,
        },
    };
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<Ipv4Addr>().is_ok_and(|address| address.is_loopback())
}

/// Checks the part of a host after its opening bracket.
fn is_loopback_v6(rest: &str) -> bool {
    let Some((address, port)) = rest.split_once(']') else { return false };
    let is_port = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
    is_port && address.parse::<Ipv6Addr>().is_ok_and(|address| address.is_loopback())
}

fn is_port(text: &str) -> bool {
    text.len() <= 5 && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::is_loopback_name;

    #[test]
    fn only_names_of_this_machine_are_loopback() {
        for name in
            ["localhost", "LocalHost:8091", "127.0.0.1", "127.1.2.3:1", "[::1]", "[::1]:8091"]
        {
            assert!(is_loopback_name(name), "{name}");
        }
        for name in [
            "",
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "10.0.0.1:8091",
            "localhost:80@evil.example",
            "127.0.0.1:x",
            "[::2]",
            "[::1",
            "[::1]x",
            "::1",
            "0.0.0.0",
            "2130706433",
            "localhost:123456",
        ] {
            assert!(!is_loopback_name(name), "{name}");
        }
    }
}
