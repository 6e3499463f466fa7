//! Moves bytes between a socket and its connection, with TLS or without.
//!
//! Owns: what an error of the socket or of TLS means for the connection. Invariants: one call reads
//! once; one call sends at most a slice, so that other connections get their turn; every failed
//! handshake is counted, and logged subject to a rate limit. Callers: the turn and the handshake.

use std::io::{self, ErrorKind, IoSlice, Read, Write};

use oribi_protocol::write_buffer::SLICES_MAX;

use super::slot::Slot;
use super::transport::{TlsBlocks, TlsFault, TlsTransport, Transport};
use crate::connection::close_reason::CloseReason;
use crate::dispatch::environment::Environment;
use crate::limits::READ_ROOM_BYTES_MIN;
use crate::runtime::driver::ConnectionDriver;

/// Reads once and returns the number of bytes received. A short read means that the socket is
/// empty. Readiness is edge-triggered, so the kernel announces later bytes, unless it has already
/// announced the end.
#[inline]
pub(super) fn receive(
    slot: &mut Slot,
    env: &Environment,
    blocks: &mut TlsBlocks,
) -> Result<usize, CloseReason> {
    let Slot { transport, connection, .. } = slot;
    let stream = match transport {
        Transport::Plain(stream) => stream,
        Transport::Tls(_) => return receive_tls(slot, env, blocks),
    };
    let (room_bytes, received) = match connection.incoming() {
        Some(item) => {
            let room_bytes = env.transfer_bytes(item.missing_bytes());
            let received = item.fill_by(room_bytes, |room| {
                let (received, _) = rustix::io::read(&*stream, room)?;
                Ok(received)
            });
            (room_bytes, received)
        }
        None => {
            let bytes_max = connection.receive_bytes_max();
            let room = connection.reader().spare(READ_ROOM_BYTES_MIN);
            let room_bytes = room.len().min(bytes_max).min(env.transfer_slice_bytes());
            let room = &mut room[..room_bytes];
            let received = stream.read(room);
            connection.reader().commit(*received.as_ref().unwrap_or(&0));
            (room_bytes, received)
        }
    };
    match received {
        Ok(0) => {
            slot.readable = false;
            slot.end_of_input = true;
        }
        Ok(received) => {
            debug_assert!(received <= room_bytes, "no more is received than there is room");
            env.counters.bytes_read.add(received as u64);
            slot.connection.record().bytes_received.add(received as u64);
            slot.connection.received(received, env.now_ms);
            slot.readable = received == room_bytes || slot.read_closed;
            return Ok(received);
        }
        Err(error) if error.kind() == ErrorKind::WouldBlock => slot.readable = false,
        Err(error) if error.kind() == ErrorKind::Interrupted => {}
        Err(error) => return Err(reason_of(&error)),
    }
    Ok(0)
}

/// Reads and decrypts once. Returns the number of plaintext bytes.
pub(super) fn receive_tls(
    slot: &mut Slot,
    env: &Environment,
    blocks: &mut TlsBlocks,
) -> Result<usize, CloseReason> {
    let Slot { transport: Transport::Tls(tls), connection, .. } = slot else { return Ok(0) };
    match tls.receive(connection, blocks) {
        Ok(opened) => {
            env.counters.bytes_read.add(opened.opened as u64);
            connection.record().bytes_received.add(opened.opened as u64);
            connection.received(opened.opened, env.now_ms);
            slot.end_of_input = opened.received == 0 || tls.session().is_peer_done();
            slot.readable =
                !slot.end_of_input && (opened.received == opened.room || slot.read_closed);
            return Ok(opened.opened);
        }
        Err(TlsFault::Io(error)) if error.kind() == ErrorKind::WouldBlock => slot.readable = false,
        Err(TlsFault::Io(error)) if error.kind() == ErrorKind::Interrupted => {}
        Err(fault) => return Err(reason_of_fault(&fault, connection, tls, env)),
    }
    Ok(0)
}

#[derive(PartialEq, Eq)]
pub(super) enum SendResult {
    /// Everything is sent, or the socket accepts no more for now.
    All,
    /// A slice is sent and more is pending; other connections get their turn first.
    Slice,
}

/// Sends up to a slice, as far as the socket accepts it.
#[inline]
pub(super) fn send(
    slot: &mut Slot,
    env: &Environment,
    blocks: &mut TlsBlocks,
) -> Result<SendResult, CloseReason> {
    if let Transport::Tls(_) = &slot.transport {
        return send_tls(slot, env, blocks);
    }
    let mut left = env.transfer_bytes(slot.connection.writer().pending_bytes());
    while slot.writable && !slot.connection.writer().is_empty() {
        if left == 0 {
            return Ok(SendResult::Slice);
        }
        let Slot { transport, connection, .. } = slot;
        make_ready(connection)?;
        let stream = transport.stream_mut();
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let filled = connection.writer().gather_up_to(&mut slices, left);
        let written = match filled {
            1 => stream.write(&slices[0]),
            _ => stream.write_vectored(&slices[..filled]),
        };
        match written {
            Ok(0) => return Err(CloseReason::PeerClosed),
            Ok(sent) => {
                let offered: usize = slices[..filled].iter().map(|slice| slice.len()).sum();
                debug_assert!(
                    sent <= offered && offered <= left,
                    "no more is sent than was offered"
                );
                // A short write means that the socket is full; the kernel announces when it is not.
                slot.writable = sent == offered;
                env.counters.bytes_written.add(sent as u64);
                connection.record().bytes_sent.add(sent as u64);
                connection.sent(sent, env.now_ms);
                left -= sent;
                if !slot.writable {
                    connection.stalled(env.now_ms);
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                slot.writable = false;
                connection.stalled(env.now_ms);
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(reason_of(&error)),
        }
    }
    Ok(SendResult::All)
}

/// Sends sealed bytes, then seals and sends more, up to a slice.
fn send_tls(
    slot: &mut Slot,
    env: &Environment,
    blocks: &mut TlsBlocks,
) -> Result<SendResult, CloseReason> {
    let Slot { transport: Transport::Tls(tls), connection, writable, .. } = slot else {
        return Ok(SendResult::All);
    };
    let mut left = env.transfer_slice_bytes();
    while *writable {
        *writable = tls.flush().map_err(|error| reason_of(&error))?;
        if !*writable {
            break;
        }
        let sent = tls.take_sent_output();
        if sent > 0 {
            env.counters.bytes_written.add(sent as u64);
            connection.record().bytes_sent.add(sent as u64);
            connection.sent(sent, env.now_ms);
            left = left.saturating_sub(sent);
        }
        if connection.writer().is_empty() {
            return Ok(SendResult::All);
        }
        if left == 0 {
            return Ok(SendResult::Slice);
        }
        make_ready(connection)?;
        match tls.send(connection, blocks, left) {
            Ok(took_all) => *writable = took_all,
            Err(fault) => return Err(reason_of_fault(&fault, connection, tls, env)),
        }
    }
    if !connection.writer().is_empty() {
        connection.stalled(env.now_ms);
    }
    Ok(SendResult::All)
}

/// Produces the next piece of an answer that is generated while it is sent.
fn make_ready(connection: &mut ConnectionDriver) -> Result<(), CloseReason> {
    connection.writer().make_ready().map_err(|_| {
        // Stored data was checked when it was stored, and again when it was read.
        let number = connection.record().number;
        tracing::error!(connection = number, "a document is damaged; its reader is disconnected");
        CloseReason::DamagedDocument
    })
}

/// Maps a fault to a close reason. Details of TLS are logged here, because only this place has
/// them.
fn reason_of_fault(
    fault: &TlsFault,
    connection: &ConnectionDriver,
    tls: &TlsTransport,
    env: &Environment,
) -> CloseReason {
    match fault {
        TlsFault::Io(error) => reason_of(error),
        TlsFault::Tls(error) => report(error, connection, tls, env),
    }
}

pub(super) fn reason_of(error: &io::Error) -> CloseReason {
    match error.kind() {
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => CloseReason::PeerClosed,
        kind => CloseReason::Io(kind),
    }
}

/// Logs and counts a TLS error.
fn report(
    error: &oribi_tls::Error,
    connection: &ConnectionDriver,
    tls: &TlsTransport,
    env: &Environment,
) -> CloseReason {
    let during_handshake = tls.is_handshaking();
    if during_handshake {
        env.counters.tls_handshake_failures.add(1);
    }
    if let Some(server_tls) = &env.server.access.tls
        && let Some(suppressed) = server_tls.may_log_failure()
    {
        let peer = connection.record().peer();
        tracing::info!(?peer, %error, during_handshake, suppressed, "TLS failed");
    }
    CloseReason::Tls
}
