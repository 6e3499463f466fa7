//! Where etcd is, and this node's credentials there.

use std::path::PathBuf;

use oribi_tls::client::ClientOptions;

/// The endpoints of etcd, and this node's credentials there.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EtcdSettings {
    /// `http://HOST:PORT` or `https://HOST:PORT` of its members.
    pub urls: Vec<String>,
    /// For `https`: the authorities that sign the members' certificates, and this node's own
    /// certificate.
    pub tls: ClientOptions,
    /// A user, and the password file.
    pub login: Option<(String, PathBuf)>,
}
