//! The address of a server: a host name or an IP address, and a port.
//!
//! It owns the textual form `host[:port]`, with brackets around an IPv6 address. It keeps a name as
//! given. The client resolves a name again for each connection, because a cluster's names may move
//! between addresses. All code that takes an address from a user or from a server's reply calls it.

use std::fmt;
use std::str::FromStr;

/// The default port of a Kudu master.
const MASTER_PORT: u16 = 7051;

/// The address of a master or of a tablet server.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostPort {
    /// A host name or an IP address, without brackets.
    pub host: String,
    /// The TCP port.
    pub port: u16,
}

/// Why a text is not a valid address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HostPortError {
    /// The host is empty.
    #[error("'{0}' has no host")]
    NoHost(String),
    /// The text after the last colon is not a number from 1 to 65535.
    #[error("'{0}' has no valid port after the colon")]
    BadPort(String),
    /// A bracket has no counterpart, or more than a port follows the brackets.
    #[error("'{0}' has brackets that do not enclose an address")]
    BadBrackets(String),
}

impl HostPort {
    /// An address from its parts.
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        Self { host: host.into(), port }
    }

    /// Parses `host[:port]`; without a port the address gets `default_port`. An IPv6 address needs
    /// brackets with a port, and may have them without.
    pub fn parse(text: &str, default_port: u16) -> Result<Self, HostPortError> {
        let (host, port) = split(text)?;
        if host.is_empty() || host.contains(char::is_whitespace) {
            return Err(HostPortError::NoHost(text.to_owned()));
        }
        let port = match port {
            None => default_port,
            Some(digits) => match digits.parse::<u16>() {
                Ok(port) if port != 0 => port,
                _ => return Err(HostPortError::BadPort(text.to_owned())),
            },
        };
        Ok(Self::new(host, port))
    }
}

/// Parses `host[:port]` with the port of a master as the default.
impl FromStr for HostPort {
    type Err = HostPortError;

    fn from_str(text: &str) -> Result<Self, HostPortError> {
        Self::parse(text, MASTER_PORT)
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(formatter, "[{}]:{}", self.host, self.port)
        } else {
            write!(formatter, "{}:{}", self.host, self.port)
        }
    }
}

/// The host and the digits of the port, not yet checked.
fn split(text: &str) -> Result<(&str, Option<&str>), HostPortError> {
    if let Some(rest) = text.strip_prefix('[') {
        let Some((host, tail)) = rest.split_once(']') else {
            return Err(HostPortError::BadBrackets(text.to_owned()));
        };
        return match tail.strip_prefix(':') {
            Some(port) => Ok((host, Some(port))),
            None if tail.is_empty() => Ok((host, None)),
            None => Err(HostPortError::BadBrackets(text.to_owned())),
        };
    }
    match text.split_once(':') {
        // Two colons outside brackets can only be an IPv6 address without a port.
        Some((_, rest)) if rest.contains(':') => Ok((text, None)),
        Some((host, port)) => Ok((host, Some(port))),
        None => Ok((text, None)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_names_and_addresses_with_and_without_ports() {
        let cases = [
            ("localhost", "localhost", 7051),
            ("master-1.example.com:17051", "master-1.example.com", 17051),
            ("127.0.0.1:7", "127.0.0.1", 7),
            ("::1", "::1", 7051),
            ("[::1]", "::1", 7051),
            ("[fe80::1]:65535", "fe80::1", 65535),
        ];
        for (text, host, port) in cases {
            assert_eq!(text.parse(), Ok(HostPort::new(host, port)), "{text}");
        }
        assert_eq!(HostPort::parse("host", 7050), Ok(HostPort::new("host", 7050)));
    }

    #[test]
    fn refuses_what_is_no_address() {
        for text in
            ["", ":7051", "host:", "host:0", "host:65536", "host:seven", "[::1", "[::1]x", "a b"]
        {
            assert!(text.parse::<HostPort>().is_err(), "{text}");
        }
    }

    #[test]
    fn shows_what_it_reads() {
        for text in ["host:1", "127.0.0.1:7051", "[::1]:7051"] {
            assert_eq!(text.parse::<HostPort>().expect("valid").to_string(), text);
        }
    }
}
