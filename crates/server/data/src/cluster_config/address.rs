//! The address of this node: within its network, and for clients outside of it.
//!
//! Owns: the values, their rules, and the file `address.json` in the data directory that keeps
//! them. Invariant: the file is replaced atomically, and one that cannot be parsed is an error and
//! stays as it is. With mapped ports (a container) outside clients use a host and ports that this
//! process cannot see, so an administrator names them. Callers: the cluster configuration (shows
//! them), the admin HTTP (changes them), the server's start (reads them).

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::path::Path;

use serde::{Deserialize, Serialize};

use oribi_system::data_file::DataFileError;
use oribi_system::data_file::write_atomically;

const FILE_NAME: &str = "address.json";
const FILE_MODE: u32 = 0o600;
/// Longest host name in bytes, as in DNS.
const HOST_BYTES_MAX: usize = 253;
/// Somewhere that is not this machine (RFC 5737), and the port for discarding. Nothing is sent
/// there.
const ELSEWHERE: (Ipv4Addr, u16) = (Ipv4Addr::new(192, 0, 2, 1), 9);

/// Where clients find this node.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeAddress {
    /// Name within the node's network, if it was given one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The address for clients outside, if there is one: network `external`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external: Option<ExternalAddress>,
}

/// The address of this node for clients outside of its network.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExternalAddress {
    /// Host name or address.
    pub hostname: String,
    /// Ports; those of the node itself when there are none.
    #[serde(default, skip_serializing_if = "ExternalPorts::is_empty")]
    pub ports: ExternalPorts,
}

/// Ports outside. A service whose port is missing cannot be reached from there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExternalPorts {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mgmt: Option<u16>,
    /// Memcached binary protocol with TLS.
    #[serde(default, rename = "kvSSL", skip_serializing_if = "Option::is_none")]
    pub kv_ssl: Option<u16>,
    /// Admin HTTP with TLS.
    #[serde(default, rename = "mgmtSSL", skip_serializing_if = "Option::is_none")]
    pub mgmt_ssl: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n1ql: Option<u16>,
    #[serde(default, rename = "n1qlSSL", skip_serializing_if = "Option::is_none")]
    pub n1ql_ssl: Option<u16>,
}

impl ExternalPorts {
    fn is_empty(&self) -> bool {
        *self == ExternalPorts::default()
    }
}

impl NodeAddress {
    /// Reads the address that a data directory keeps; the default when it keeps none.
    ///
    /// # Errors
    /// An I/O error, or a file that cannot be parsed.
    pub(crate) fn open(data_dir: &Path) -> Result<NodeAddress, DataFileError> {
        let path = data_dir.join(FILE_NAME);
        match std::fs::read(&path) {
            Ok(json) => serde_json::from_slice(&json)
                .map_err(|error| DataFileError::corrupt(&path, error.to_string())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Ok(NodeAddress::default())
            }
            Err(error) => Err(DataFileError::io("read", &path, error)),
        }
    }

    /// Keeps the address. Durable when it returns.
    ///
    /// # Errors
    /// An I/O error; the old address remains.
    pub(crate) fn write(&self, data_dir: &Path) -> Result<(), DataFileError> {
        let path = data_dir.join(FILE_NAME);
        let json = serde_json::to_vec_pretty(self).expect("plain struct");
        write_atomically(&path, &json, FILE_MODE)
            .map_err(|error| DataFileError::io("write", &path, error))
    }
}

/// True for the text of a host name or an IP address.
pub fn is_host(text: &str) -> bool {
    let is_name = |text: &str| {
        text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
    };
    (1..=HOST_BYTES_MAX).contains(&text.len()) && (is_name(text) || text.parse::<IpAddr>().is_ok())
}

/// A host in the form that precedes a port: an IPv6 address in brackets.
pub(crate) fn before_port(host: &str) -> String {
    match host.contains(':') && !host.starts_with('[') {
        true => format!("[{host}]"),
        false => host.to_owned(),
    }
}

/// The address of this machine in its network: the one it listens on, or the one from which it
/// would send to another machine.
pub(crate) fn own_ip(listen: IpAddr) -> IpAddr {
    if !listen.is_unspecified() {
        return listen;
    }
    // Connecting a datagram socket chooses a route and sends nothing.
    let routed = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).and_then(|socket| {
        socket.connect(ELSEWHERE)?;
        socket.local_addr()
    });
    routed.map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |address| address.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_kept_a_damaged_file_not_replaced() {
        let scratch = tempfile::tempdir().unwrap();
        assert_eq!(NodeAddress::open(scratch.path()).unwrap(), NodeAddress::default());
        let ports = ExternalPorts { kv: Some(1), mgmt: Some(2), ..ExternalPorts::default() };
        let external = ExternalAddress { hostname: "ci.example".to_owned(), ports };
        let address = NodeAddress { host: Some("172.17.0.2".to_owned()), external: Some(external) };
        address.write(scratch.path()).unwrap();
        assert_eq!(NodeAddress::open(scratch.path()).unwrap(), address);
        for damaged in ["", "{}x", "{\"hosst\":\"a\"}"] {
            std::fs::write(scratch.path().join(FILE_NAME), damaged).unwrap();
            assert!(NodeAddress::open(scratch.path()).is_err(), "{damaged}");
        }
    }

    #[test]
    fn hosts_are_names_and_addresses() {
        for host in ["localhost", "ci-1.example.org", "10.0.0.1", "fd00::1", "my_container"] {
            assert!(is_host(host), "{host}");
        }
        for text in ["", "a b", "a:1", "http://a", "a/b", "[::1]", "$HOST", &"a".repeat(254)] {
            assert!(!is_host(text), "{text}");
        }
        assert_eq!(before_port("fd00::1"), "[fd00::1]");
        assert_eq!(before_port("a.b"), "a.b");
        let here = "10.1.2.3".parse().unwrap();
        assert_eq!(own_ip(here), here);
        assert!(!own_ip(IpAddr::V4(Ipv4Addr::UNSPECIFIED)).is_unspecified());
    }
}
