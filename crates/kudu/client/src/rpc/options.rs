//! The options of a messenger, fixed at its creation.
//!
//! The client's builder and every part of the RPC layer use them.

use std::net::IpAddr;
use std::time::Duration;

use super::limits;

/// When the connections to a cluster are encrypted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum EncryptionPolicy {
    /// On the network whenever the server supports it; on the loopback interface only when the
    /// server requires it.
    #[default]
    Optional,
    /// Like `Optional`, but refuses a server outside the loopback interface that does not support
    /// encryption.
    RequiredRemote,
    /// Every connection; refuses a server that does not support encryption.
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

/// Configuration of a messenger.
#[derive(Clone, Debug)]
pub(crate) struct MessengerOptions {
    /// The client's user name; servers require one that is not blank.
    pub user: String,
    pub encryption: EncryptionPolicy,
    /// Largest frame in either direction, in bytes.
    pub message_bytes_max: usize,
    /// The timeout of opening a connection, from the first packet to the end of the negotiation.
    pub negotiation_timeout: Duration,
    /// How long an idle connection stays open.
    pub keep_alive: Duration,
    /// Most bytes that wait for one connection's socket.
    pub queued_bytes_max: usize,
    /// Most calls in flight on one connection.
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
