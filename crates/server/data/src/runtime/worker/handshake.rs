//! The TLS handshake; afterwards a connection is like any other.
//!
//! A handshake costs 0.1 to 1 ms, a thousand times as much as a request. So connections in a
//! handshake have their own queue, and the worker serves one of that queue per round. A flood of
//! new clients delays connected ones by one step of one handshake at a time. The header of a
//! balancer, where there is one, comes before ([`proxied`]).
//!
//! Invariants: during the handshake a connection holds no block and serves no frame; the
//! certificate's user is settled before the first frame is parsed.

use super::proxied;
use super::slot::{Slot, Turn};
use super::transfer::{reason_of, receive_tls};
use super::transport::{TlsBlocks, Transport};
use crate::connection::close_reason::CloseReason;
use crate::connection::tls::CertificateUser;
use crate::dispatch::environment::Environment;

/// Runs one step of a handshake: reads once, and sends pending handshake messages.
pub(super) fn turn(
    slot: &mut Slot,
    env: &Environment,
    blocks: &mut TlsBlocks,
) -> Result<Turn, CloseReason> {
    if let Some(reason) = slot.connection.closing() {
        return Err(reason);
    }
    if slot.header_since_ms.is_some() {
        return proxied::turn(slot, env);
    }
    if slot.readable {
        receive_tls(slot, env, blocks)?;
    }
    let Transport::Tls(tls) = &mut slot.transport else { return Ok(Turn::Again) };
    if slot.writable {
        slot.writable = tls.flush().map_err(|error| reason_of(&error))?;
    }
    if !tls.is_handshaking() {
        complete(slot, env)?;
        return Ok(Turn::Again);
    }
    if slot.end_of_input {
        return Err(CloseReason::PeerClosed);
    }
    Ok(if slot.readable { Turn::Again } else { Turn::Idle })
}

/// Determines the client's identity.
fn complete(slot: &mut Slot, env: &Environment) -> Result<(), CloseReason> {
    let Slot { transport: Transport::Tls(tls), connection, .. } = slot else { return Ok(()) };
    let Some(server_tls) = &env.server.access.tls else { return Ok(()) };
    env.counters.tls_handshakes.add(1);
    let session = tls.session();
    let version = session.version().unwrap_or("unknown");
    let cipher = session.cipher_suite().unwrap_or("unknown");
    connection.record().agree(|agreement| agreement.tls = Some((version, cipher)));
    match server_tls.certified(session.peer_certificate(), &env.server.access.users) {
        CertificateUser::Nobody => Ok(()),
        CertificateUser::User(identity) => {
            connection.authenticate(identity);
            connection.audit_certified(env);
            Ok(())
        }
        CertificateUser::Refused => Err(CloseReason::ClientCertificate),
    }
}
