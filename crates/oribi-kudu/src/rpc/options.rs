//! How a messenger behaves, set once when it is made.
//!
//! Called by the client's builder and by every part of the RPC layer.

use std::net::IpAddr;
use std::time::Duration;

use super::limits;

/// When the connections to a cluster are encrypted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EncryptionPolicy {
    /// On the network whenever the server can; on the loopback interface only when the server insists.
    #[default]
    Optional,
    /// As `Optional`, but a server elsewhere than on the loopback interface that cannot encrypt is refused.
    RequiredRemote,
    /// Every connection; a server that cannot encrypt is refused.
    Required,
}

impl EncryptionPolicy {
    /// True when a connection between these addresses may not stay in plain text.
    pub(crate) fn requires(self, local: IpAddr, peer: IpAddr) -> bool {
        match self {
            Self::Optional => false,
            Self::RequiredRemote => !is_loopback(local, peer),
            Self::Required => true,
        }
    }
}

/// True when both ends of a connection are on this machine.
pub(crate) fn is_loopback(local: IpAddr, peer: IpAddr) -> bool {
    peer.to_canonical().is_loopback() || local == peer
}

/// What a messenger is made from.
#[derive(Clone, Debug)]
pub(crate) struct MessengerOptions {
    /// The name that the client gives itself; servers require one that is not blank.
    pub user: String,
    pub encryption: EncryptionPolicy,
    /// Largest frame in either direction, in bytes.
    pub message_bytes_max: usize,
    /// How long opening a connection may take, from the first packet to the end of the negotiation.
    pub negotiation_timeout: Duration,
    /// How long a connection without calls stays open.
    pub keep_alive: Duration,
    /// Bytes that may wait for one connection's socket.
    pub queued_bytes_max: usize,
    /// Calls that may wait for an answer on one connection.
    pub calls_in_flight_max: usize,
}

impl MessengerOptions {
    /// The defaults, for a user.
    pub(crate) fn new(user: impl Into<String>) -> Self {
        Self {
            user: user.into(),
            encryption: EncryptionPolicy::default(),
            message_bytes_max: limits::MESSAGE_BYTES_MAX,
            negotiation_timeout: limits::NEGOTIATION_TIMEOUT,
            keep_alive: limits::KEEP_ALIVE,
            queued_bytes_max: limits::QUEUED_BYTES_MAX,
            calls_in_flight_max: limits::CALLS_IN_FLIGHT_MAX,
        }
    }
}
