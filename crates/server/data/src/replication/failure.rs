//! Why a link to another node ends.

use oribi_protocol::status::Status;

/// See the module text. The text completes "the link ended: ".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LinkFailure {
    #[error("{0}")]
    Io(String),
    #[error("the host name is not known: {0}")]
    Resolve(String),
    #[error("the node closed the connection")]
    Closed,
    #[error("the node did not answer within {0} s")]
    Silent(u64),
    #[error("the node did not read {0} bytes")]
    Unread(usize),
    #[error("the node refused the cluster's secret; all nodes need the same cluster_secret_file")]
    Secret,
    #[error("the node does not know the cluster's secret, or is no node of this cluster")]
    Impostor,
    #[error("the node answered {request} with {status}")]
    Refused { request: &'static str, status: StatusName },
    #[error("the node speaks without {0}; update it")]
    Feature(&'static str),
    #[error("the node broke the protocol: {0}")]
    Protocol(&'static str),
    #[error("the collections here contradict those of the node: {0}")]
    Collections(String),
    #[error("the store failed: {0}")]
    Store(String),
}

/// A status of another node, which may be a later version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StatusName(pub(crate) u16);

impl std::fmt::Display for StatusName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match Status::from_u16(self.0) {
            Some(status) => write!(f, "{status:?}"),
            None => write!(f, "status 0x{:x}", self.0),
        }
    }
}
