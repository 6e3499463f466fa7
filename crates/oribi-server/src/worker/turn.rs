//! One turn of one connection: read a block, serve frames, send.
//!
//! Owns: the pools of free blocks. Invariant: after a turn a connection holds an input block only if it
//! has received part of a frame, and an output block only if the socket did not take everything.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::Shutdown;

use super::connections::Slot;
use super::handshake;
use super::transport::{TlsBlocks, TlsFault, TlsTransport, Transport};
use crate::connection::close_reason::CloseReason;
use crate::connection::{Connection, Progress};
use crate::environment::Environment;
use crate::limits::{
    DEFERRED_BYTES_MAX, DEFERRED_SENDS_MAX, POOLED_BLOCKS_MAX, READ_ROOM_BYTES_MIN,
};
use oribi_protocol::limits::READ_BLOCK_BYTES;
use oribi_protocol::write_buffer::SLICES_MAX;

/// Bytes forgotten in one read from a client that was sent away.
const LINGER_READ_BYTES: usize = 16 * 1024;

/// What a connection needs after its turn.
pub(super) enum Turn {
    /// Nothing until an event or a completion.
    Idle,
    /// Another turn.
    Again,
    /// It is over, but the client gets some time to read its last answer.
    Linger(CloseReason),
    /// To be removed.
    End(CloseReason),
}

/// Free blocks, shared by the connections of a worker.
#[derive(Default)]
pub(super) struct Pools {
    input: Vec<Vec<u8>>,
    output: Vec<Vec<u8>>,
    tls: TlsBlocks,
}

impl Pools {
    /// Runs one turn.
    pub fn turn(&mut self, slot: &mut Slot, env: &mut Environment) -> Turn {
        self.lend(&mut slot.connection);
        let turn = match run(slot, env, &mut self.tls) {
            Ok(turn) => turn,
            Err(reason) => Turn::End(reason),
        };
        self.reclaim(&mut slot.connection);
        let buffer_bytes = slot.connection.buffer_bytes() + slot.transport.held_bytes();
        slot.connection.record().buffer_bytes.set(buffer_bytes as u64);
        turn
    }

    /// Runs one turn of a connection whose TLS handshake is not complete. It needs no blocks yet.
    pub fn handshake_turn(&mut self, slot: &mut Slot, env: &Environment) -> Turn {
        handshake::turn(slot, env, &mut self.tls).unwrap_or_else(Turn::End)
    }

    fn lend(&mut self, connection: &mut Connection) {
        if connection.reader().capacity() == 0
            && let Some(block) = self.input.pop()
        {
            connection.reader().put_block(block);
        }
        if !connection.writer().has_block()
            && let Some(block) = self.output.pop()
        {
            connection.writer().give_block(block);
        }
    }

    /// Takes back the blocks that a connection does not need any more.
    pub fn reclaim(&mut self, connection: &mut Connection) {
        if let Some(block) = connection.reader().take_block()
            && block.capacity() == READ_BLOCK_BYTES
            && self.input.len() < POOLED_BLOCKS_MAX
        {
            self.input.push(block);
        }
        if let Some(block) = connection.writer().take_block()
            && self.output.len() < POOLED_BLOCKS_MAX
        {
            self.output.push(block);
        }
    }
}

fn run(
    slot: &mut Slot,
    env: &mut Environment,
    blocks: &mut TlsBlocks,
) -> Result<Turn, CloseReason> {
    if slot.is_lingering {
        return linger(slot);
    }
    let was_moving_large_value = slot.connection.is_moving_large_value();
    let has_received = slot.is_hungry && slot.readable && receive(slot, env, blocks)? > 0;
    let session = env.session();
    let progress = slot.connection.process(env);
    // Its next request should not wait behind large slices of others.
    if has_received && !was_moving_large_value && !slot.connection.is_moving_large_value() {
        env.note_small_requests();
    }
    // Asked after serving: what was read while the lease held was current then, however late it arrives.
    if !env.still_holds(session) {
        return Err(CloseReason::LeaseLost);
    }
    slot.is_hungry = progress == Progress::NeedInput;
    if defers_sending(slot) {
        slot.deferred_sends += 1;
        return Ok(Turn::Again);
    }
    slot.deferred_sends = 0;
    if send(slot, env, blocks)? == Sent::Slice {
        return Ok(Turn::Again);
    }
    Ok(match progress {
        Progress::Closing => match slot.connection.closing() {
            Some(reason) if slot.connection.writer().is_empty() => farewell(slot, reason, blocks),
            _ => Turn::Idle,
        },
        Progress::TurnOver => Turn::Again,
        Progress::OutputFull if !slot.connection.is_halted() => Turn::Again,
        // A client that has said all that it had to say may still read.
        Progress::NeedInput if slot.end_of_input && !slot.connection.has_parked() => {
            slot.connection.close(CloseReason::PeerClosed);
            Turn::Again
        }
        Progress::NeedInput if slot.readable && !slot.end_of_input => Turn::Again,
        Progress::NeedInput | Progress::OutputFull | Progress::Waiting => Turn::Idle,
    })
}

/// True while a few short answers may wait for those of the requests behind them. Between large values each
/// request comes in a read of its own, and a system call for every answer of 24 bytes would cost more than the
/// rest of serving it. Where requests are small, one read delivers many of them, and their answers go out at once.
fn defers_sending(slot: &mut Slot) -> bool {
    slot.is_hungry
        && slot.readable
        && !slot.end_of_input
        && slot.deferred_sends < DEFERRED_SENDS_MAX
        && slot.connection.receive_bytes_max() != usize::MAX
        && slot.connection.writer().pending_bytes() < DEFERRED_BYTES_MAX
}

/// Everything is sent. A socket that is closed while the client still sends is reset, and the reset
/// may overtake the last answer, so a client that is sent away gets some time to read it.
fn farewell(slot: &mut Slot, reason: CloseReason, blocks: &mut TlsBlocks) -> Turn {
    if let Transport::Tls(tls) = &mut slot.transport {
        tls.close(blocks);
    }
    if !reason.is_for_cause() || slot.end_of_input {
        return Turn::End(reason);
    }
    if slot.transport.stream().shutdown(Shutdown::Write).is_err() {
        return Turn::End(reason);
    }
    Turn::Linger(reason)
}

/// Reads and forgets what a client that was sent away still sends; the deadline scan ends it.
fn linger(slot: &mut Slot) -> Result<Turn, CloseReason> {
    let reason = slot.connection.closing().unwrap_or(CloseReason::PeerClosed);
    let mut nowhere = [0; LINGER_READ_BYTES];
    match slot.transport.stream_mut().read(&mut nowhere) {
        Ok(0) => Ok(Turn::End(reason)),
        Ok(_) => Ok(Turn::Again),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(Turn::Idle),
        Err(error) if error.kind() == ErrorKind::Interrupted => Ok(Turn::Again),
        Err(_) => Err(reason),
    }
}

/// Reads once. Less than there was room for means that the socket is empty; readiness is
/// edge-triggered, so whatever comes later is announced, unless the end was announced already. Returns how many
/// bytes came.
fn receive(
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
            let room_bytes = item.missing_bytes().min(env.transfer_slice_bytes());
            let received = item.fill_by(room_bytes, |room| {
                let (received, _) = rustix::io::read(&*stream, room)?;
                Ok(received)
            });
            (room_bytes, received)
        }
        None => {
            let bytes_max = connection.receive_bytes_max();
            let room = connection.reader().spare(READ_ROOM_BYTES_MIN);
            let room_bytes = room.len().min(bytes_max);
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
            env.counters.bytes_read.add(received as u64);
            slot.connection.record().bytes_received.add(received as u64);
            slot.readable = received == room_bytes || slot.read_closed;
            return Ok(received);
        }
        Err(error) if error.kind() == ErrorKind::WouldBlock => slot.readable = false,
        Err(error) if error.kind() == ErrorKind::Interrupted => {}
        Err(error) => return Err(reason_of(&error)),
    }
    Ok(0)
}

/// Reads and opens once. Returns how many bytes came out.
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
            slot.end_of_input = opened.received == 0 || tls.session().is_peer_done();
            slot.readable =
                !slot.end_of_input && (opened.received == opened.room || slot.read_closed);
            return Ok(opened.opened);
        }
        Err(TlsFault::Io(error)) if error.kind() == ErrorKind::WouldBlock => slot.readable = false,
        Err(TlsFault::Io(error)) if error.kind() == ErrorKind::Interrupted => {}
        Err(fault) => return Err(reason_of_fault(&fault, tls, env)),
    }
    Ok(0)
}

/// How sending ended.
#[derive(PartialEq, Eq)]
enum Sent {
    /// Everything is sent, or the socket takes no more for now.
    All,
    /// A slice of more is sent, and others should get their turn.
    Slice,
}

/// Sends what the socket takes, up to a slice.
fn send(slot: &mut Slot, env: &Environment, blocks: &mut TlsBlocks) -> Result<Sent, CloseReason> {
    if let Transport::Tls(_) = &slot.transport {
        return send_tls(slot, env, blocks);
    }
    let mut left = env.transfer_slice_bytes();
    while slot.writable && !slot.connection.writer().is_empty() {
        if left == 0 {
            return Ok(Sent::Slice);
        }
        let Slot { transport, connection, .. } = slot;
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
                // Taking less than it was offered, the socket is full, and announces when it is not.
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
    Ok(Sent::All)
}

/// Sends what is sealed, and seals and sends more, up to a slice.
fn send_tls(
    slot: &mut Slot,
    env: &Environment,
    blocks: &mut TlsBlocks,
) -> Result<Sent, CloseReason> {
    let Slot { transport: Transport::Tls(tls), connection, writable, .. } = slot else {
        return Ok(Sent::All);
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
            return Ok(Sent::All);
        }
        if left == 0 {
            return Ok(Sent::Slice);
        }
        match tls.send(connection, blocks, left) {
            Ok(took_all) => *writable = took_all,
            Err(fault) => return Err(reason_of_fault(&fault, tls, env)),
        }
    }
    if !connection.writer().is_empty() {
        connection.stalled(env.now_ms);
    }
    Ok(Sent::All)
}

/// What a fault means for the connection; the details of TLS go to the log here, as nobody else knows them.
pub(super) fn reason_of_fault(
    fault: &TlsFault,
    tls: &TlsTransport,
    env: &Environment,
) -> CloseReason {
    match fault {
        TlsFault::Io(error) => reason_of(error),
        TlsFault::Tls(error) => handshake::report(error, tls, env),
    }
}

pub(super) fn reason_of(error: &io::Error) -> CloseReason {
    match error.kind() {
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => CloseReason::PeerClosed,
        kind => CloseReason::Io(kind),
    }
}
