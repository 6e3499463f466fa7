//! The first part of a TLS connection's life, until it is like any other.
//!
//! A handshake costs a tenth of a millisecond to a whole one, a thousand times what a request costs. So
//! connections in it have a queue of their own, of which the worker serves one per round: a flood of new
//! clients delays those that are connected by one step of one handshake at a time.
//!
//! Invariants: a connection whose handshake is not complete holds no block and serves no frame; who the
//! client is by its certificate is settled before its first frame is looked at; every handshake that fails
//! is counted, and logged unless others just were.

use super::connections::Slot;
use super::transport::{TlsBlocks, TlsTransport, Transport};
use super::turn::{Turn, reason_of, receive_tls};
use crate::connection::close_reason::CloseReason;
use crate::environment::Environment;
use crate::tls::Certified;

/// One step of a handshake: reads once, and sends what is to be said.
pub(super) fn turn(
    slot: &mut Slot,
    env: &Environment,
    blocks: &mut TlsBlocks,
) -> Result<Turn, CloseReason> {
    if let Some(reason) = slot.connection.closing() {
        return Err(reason);
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

/// Settles who the client is.
fn complete(slot: &mut Slot, env: &Environment) -> Result<(), CloseReason> {
    let Slot { transport: Transport::Tls(tls), connection, .. } = slot else { return Ok(()) };
    let Some(server_tls) = &env.server.tls else { return Ok(()) };
    env.counters.tls_handshakes.add(1);
    let session = tls.session();
    let version = session.version().unwrap_or("unknown");
    let cipher = session.cipher_suite().unwrap_or("unknown");
    connection.record().agree(|agreement| agreement.tls = Some((version, cipher)));
    match server_tls.certified(session.peer_certificate(), &env.server.users) {
        Certified::Nobody => Ok(()),
        Certified::User(identity) => {
            connection.authenticate(identity);
            connection.audit_certified(env);
            Ok(())
        }
        Certified::Refused => Err(CloseReason::ClientCertificate),
    }
}

/// Logs and counts what TLS found wrong.
pub(super) fn report(
    error: &oribi_tls::Error,
    tls: &TlsTransport,
    env: &Environment,
) -> CloseReason {
    let during_handshake = tls.is_handshaking();
    if during_handshake {
        env.counters.tls_handshake_failures.add(1);
    }
    if let Some(server_tls) = &env.server.tls
        && let Some(suppressed) = server_tls.may_log_failure()
    {
        let peer = tls.peer();
        tracing::info!(?peer, %error, during_handshake, suppressed, "TLS failed");
    }
    CloseReason::Tls
}
