//! A connection as its worker keeps it: the socket, the state machine, and the state of both.

use super::transport::Transport;
use crate::connection::close_reason::CloseReason;
use crate::runtime::driver::ConnectionDriver;

/// A socket and its state machine.
pub(super) struct Slot {
    pub transport: Transport,
    pub connection: ConnectionDriver,
    /// When the connection was accepted, on the worker's clock, while the header of its balancer is
    /// not complete.
    pub header_since_ms: Option<u64>,
    /// The socket may have more to read.
    pub readable: bool,
    /// The socket may accept more output.
    pub writable: bool,
    /// The client closed its side of the stream; bytes before that may still be unread.
    pub read_closed: bool,
    /// The end of the client's stream was read.
    pub end_of_input: bool,
    /// Every complete frame is served, so the worker may read more.
    pub needs_input: bool,
    /// Consecutive turns that deferred sending answers.
    pub deferred_sends: u8,
    /// The last answer is sent; input is discarded until the client closes.
    pub is_lingering: bool,
    /// A deadline scan has already seen the connection linger.
    pub was_scanned_lingering: bool,
    /// The connection is in the run queue.
    pub queued: bool,
}

impl Slot {
    /// A connection that was just accepted. The state of its socket is unknown, so the worker tries
    /// both directions.
    pub fn new(
        transport: Transport,
        connection: ConnectionDriver,
        header_since_ms: Option<u64>,
    ) -> Slot {
        Slot {
            transport,
            connection,
            header_since_ms,
            readable: true,
            writable: true,
            read_closed: false,
            end_of_input: false,
            needs_input: true,
            deferred_sends: 0,
            is_lingering: false,
            was_scanned_lingering: false,
            queued: false,
        }
    }

    /// When the connection was accepted, while it is not ready for a frame: the header of its
    /// balancer is not complete, or its TLS handshake.
    pub fn opening_since_ms(&self) -> Option<u64> {
        self.header_since_ms.or_else(|| self.transport.handshake_since_ms())
    }
}

/// Follow-up of a connection's turn.
pub(super) enum Turn {
    /// Nothing until an event or a completion.
    Idle,
    Again,
    /// It is over, but the client gets some time to read its last answer.
    Linger(CloseReason),
    /// The connection is to be removed.
    End(CloseReason),
}
