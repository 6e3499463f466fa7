//! The header by which a balancer names its client, at the very beginning of a connection.
//!
//! Owns: when a connection has such a header, and what happens without one. Invariants: nothing is
//! served, and no TLS spoken, before the header is complete; no byte after the header is taken
//! from the socket, so that a TLS handshake finds its first byte; a header that is not complete
//! stays in the kernel, so it costs the server no memory.
//!
//! The acceptor has checked that the other end is a balancer. The codec is
//! [`oribi_protocol::proxy_header`].

use std::io::{ErrorKind, Read};
use std::net::SocketAddr;

use oribi_protocol::proxy_header::{DecodedProxyHeader, HEADER_BYTES_MAX, decode};

use super::slot::{Slot, Turn};
use super::transfer::reason_of;
use crate::connection::close_reason::CloseReason;
use crate::dispatch::environment::Environment;

/// The end of a connection whose header was not complete in time.
pub(super) const HEADER_LATE: CloseReason =
    CloseReason::ProxyHeader("its header was not completed in time");
const MISSING: CloseReason = CloseReason::ProxyHeader("there is no header, or a damaged one");
const TOO_LONG: CloseReason = CloseReason::ProxyHeader("its header is too long");
const NOT_LOCAL: CloseReason =
    CloseReason::ProxyHeader("in development mode it may pass on clients of this machine only");

/// Looks for the header. The connection is ready for its TLS handshake, or for frames, when it is
/// complete.
pub(super) fn turn(slot: &mut Slot, env: &Environment) -> Result<Turn, CloseReason> {
    if !slot.readable {
        return Ok(Turn::Idle);
    }
    let mut head = [0; HEADER_BYTES_MAX];
    let stream = slot.transport.stream_mut();
    let received = match stream.peek(&mut head) {
        Ok(0) => return Err(CloseReason::PeerClosed),
        Ok(received) => received,
        Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(Turn::Again),
        Err(error) if error.kind() == ErrorKind::WouldBlock => {
            slot.readable = false;
            return Ok(Turn::Idle);
        }
        Err(error) => return Err(reason_of(&error)),
    };
    match decode(&head[..received]) {
        DecodedProxyHeader::Complete { client, consumed } => {
            // They are there, as the look has shown.
            stream.read_exact(&mut head[..consumed]).map_err(|error| reason_of(&error))?;
            adopt(slot, env, client)?;
            slot.header_since_ms = None;
            Ok(Turn::Again)
        }
        DecodedProxyHeader::Incomplete if slot.read_closed => Err(CloseReason::PeerClosed),
        DecodedProxyHeader::Incomplete => {
            // The kernel announces later bytes.
            slot.readable = false;
            Ok(Turn::Idle)
        }
        DecodedProxyHeader::Invalid => Err(MISSING),
        DecodedProxyHeader::TooLong => Err(TOO_LONG),
    }
}

/// Takes over the client's address. Without one, the balancer itself is the client.
fn adopt(slot: &Slot, env: &Environment, client: Option<SocketAddr>) -> Result<(), CloseReason> {
    let Some(client) = client else { return Ok(()) };
    // The development password is for this machine only, whoever passes it on.
    if env.server.access.users.is_development() && !client.ip().to_canonical().is_loopback() {
        return Err(NOT_LOCAL);
    }
    slot.connection.record().set_client(client);
    Ok(())
}
