//! How a client connects: where, as whom, to which bucket, and how long it waits.

use std::fmt;
use std::time::Duration;

use crate::config::KvNode;
use crate::sasl::{Mechanism, SaltedPasswords};
use crate::tls::ClientTls;

/// Where to connect, as whom, and to which bucket.
///
/// ```
/// use std::time::Duration;
/// use oribi_client::ConnectOptions;
///
/// let options = ConnectOptions::new("alice", "secret", "shop")
///     .host("db1.example.com")
///     .seed("db2.example.com", 11210)
///     .operation_timeout(Duration::from_secs(2));
/// assert_eq!(options.port, 11210);
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct ConnectOptions {
    /// Host name or address.
    pub host: String,
    /// Port of the key-value protocol.
    pub port: u16,
    /// TLS; without it, bytes travel in the clear.
    pub tls: Option<ClientTls>,
    /// User name.
    pub user: String,
    /// Password.
    pub password: String,
    /// How to authenticate.
    pub mechanism: Mechanism,
    /// More nodes to ask for the cluster map when the first does not answer.
    pub seeds: Vec<KvNode>,
    /// Connections that [`crate::Client`] keeps to each node, at least 1. Operations on one key
    /// always take the same one.
    pub connections_per_node: usize,
    /// Bucket to select. Without one, only operations on the server itself are possible.
    pub bucket: Option<String>,
    /// Limit for connecting and for each step of the handshake.
    pub connect_timeout: Duration,
    /// Limit for one operation, retries included.
    pub operation_timeout: Duration,
    /// Lets the server execute requests in another order than they were sent. Durable writes then
    /// do not hold up the requests after them.
    pub unordered_execution: bool,
    /// Asks for values compressed with Snappy. [`crate::Client`] and pipelines decompress them; the
    /// caller of a [`crate::Connection`] checks the datatype itself.
    pub snappy: bool,
    /// Compresses the values that [`crate::Client`] and pipelines write, where that pays and the
    /// server granted Snappy.
    pub compress_writes: bool,
    /// Asks the server to announce new cluster maps. [`crate::Client`] does so by itself; a
    /// [`crate::Connection`] skips the announcements.
    pub map_announcements: bool,
    /// Name of this client; servers show it next to the connection.
    pub agent: String,
    /// Shared by the connections that are opened with these options, or with clones of them.
    pub(crate) salted_passwords: SaltedPasswords,
}

impl ConnectOptions {
    /// Options for port 11210 on this machine, with 10 seconds for connecting and for each
    /// operation.
    pub fn new(user: &str, password: &str, bucket: &str) -> ConnectOptions {
        ConnectOptions {
            host: "127.0.0.1".to_owned(),
            port: 11210,
            tls: None,
            seeds: Vec::new(),
            connections_per_node: 1,
            user: user.to_owned(),
            password: password.to_owned(),
            mechanism: Mechanism::default(),
            bucket: Some(bucket.to_owned()),
            connect_timeout: Duration::from_secs(10),
            operation_timeout: Duration::from_secs(10),
            unordered_execution: true,
            snappy: false,
            compress_writes: true,
            map_announcements: false,
            agent: concat!("oribi-client/", env!("CARGO_PKG_VERSION")).to_owned(),
            salted_passwords: SaltedPasswords::default(),
        }
    }

    /// Sets the host name or address.
    pub fn host(mut self, host: impl Into<String>) -> ConnectOptions {
        self.host = host.into();
        self
    }

    /// Sets the port.
    pub fn port(mut self, port: u16) -> ConnectOptions {
        self.port = port;
        self
    }

    /// Sets host and port to those of a node.
    pub fn node(mut self, node: &KvNode) -> ConnectOptions {
        self.host.clone_from(&node.host);
        self.port = node.port;
        self
    }

    /// Speaks TLS. The port is then usually 11207.
    pub fn tls(mut self, tls: ClientTls) -> ConnectOptions {
        self.tls = Some(tls);
        self
    }

    /// Adds a node to ask for the cluster map when those before it do not answer.
    pub fn seed(mut self, host: impl Into<String>, port: u16) -> ConnectOptions {
        self.seeds.push(KvNode::new(host, port));
        self
    }

    /// Sets how to authenticate.
    pub fn mechanism(mut self, mechanism: Mechanism) -> ConnectOptions {
        self.mechanism = mechanism;
        self
    }

    /// Sets the number of connections to each node.
    pub fn connections_per_node(mut self, connections: usize) -> ConnectOptions {
        self.connections_per_node = connections;
        self
    }

    /// Selects another bucket, or none.
    pub fn bucket(mut self, bucket: Option<&str>) -> ConnectOptions {
        self.bucket = bucket.map(str::to_owned);
        self
    }

    /// Limits connecting and each step of the handshake.
    pub fn connect_timeout(mut self, timeout: Duration) -> ConnectOptions {
        self.connect_timeout = timeout;
        self
    }

    /// Limits each operation, retries included.
    pub fn operation_timeout(mut self, timeout: Duration) -> ConnectOptions {
        self.operation_timeout = timeout;
        self
    }

    /// Lets the server execute requests in another order than they were sent, or forbids it.
    pub fn unordered_execution(mut self, is_allowed: bool) -> ConnectOptions {
        self.unordered_execution = is_allowed;
        self
    }

    /// Asks for compressed values, or does not.
    pub fn snappy(mut self, is_wanted: bool) -> ConnectOptions {
        self.snappy = is_wanted;
        self
    }

    /// Compresses written values where that pays, or never.
    pub fn compress_writes(mut self, is_wanted: bool) -> ConnectOptions {
        self.compress_writes = is_wanted;
        self
    }

    /// Asks the server to announce new cluster maps, or does not.
    pub fn map_announcements(mut self, is_wanted: bool) -> ConnectOptions {
        self.map_announcements = is_wanted;
        self
    }

    /// Sets what this client calls itself.
    pub fn agent(mut self, agent: impl Into<String>) -> ConnectOptions {
        self.agent = agent.into();
        self
    }
}

/// Without the password: what is printed ends up in logs.
impl fmt::Debug for ConnectOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectOptions")
            .field("host", &self.host)
            .field("port", &self.port)
            .field("tls", &self.tls)
            .field("user", &self.user)
            .field("bucket", &self.bucket)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    //! What options show of themselves.

    use super::*;

    #[test]
    fn the_password_is_not_printed() {
        let options = ConnectOptions::new("reader", "correct horse", "default");
        let printed = format!("{options:?}");
        assert!(printed.contains("reader") && !printed.contains("horse"), "{printed}");
    }
}
