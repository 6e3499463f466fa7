//! One turn of one connection: read a block, serve frames, send.
//!
//! Owns: the pools of free blocks. Invariant: after a turn a connection holds an input block only
//! if it has received part of a frame, and an output block only if the socket did not accept
//! everything.

use std::io::{ErrorKind, Read};
use std::net::Shutdown;

use super::handshake;
use super::slot::{Slot, Turn};
use super::transfer::{SendResult, receive, send};
use super::transport::{TlsBlocks, Transport};
use crate::connection::close_reason::CloseReason;
use crate::dispatch::environment::Environment;
use crate::limits::{DEFERRED_BYTES_MAX, DEFERRED_SENDS_MAX, POOLED_BLOCKS_MAX};
use crate::runtime::driver::{ConnectionDriver, TurnProgress};
use oribi_protocol::limits::READ_BLOCK_BYTES;

/// Bytes discarded per read from a lingering client.
const LINGER_READ_BYTES: usize = 16 * 1024;

/// Free blocks, shared by the connections of a worker.
#[derive(Default)]
pub(super) struct Pools {
    input: Vec<Vec<u8>>,
    output: Vec<Vec<u8>>,
    tls: TlsBlocks,
}

impl Pools {
    pub fn turn(&mut self, slot: &mut Slot, env: &mut Environment) -> Turn {
        self.lend(&mut slot.connection);
        let turn = match run(slot, env, &mut self.tls) {
            Ok(turn) => turn,
            Err(reason) => Turn::End(reason),
        };
        self.reclaim(&mut slot.connection);
        slot.connection.settle(env, slot.transport.held_bytes());
        turn
    }

    /// Runs one turn of a connection whose TLS handshake is not complete. Such a turn needs no
    /// blocks.
    pub fn handshake_turn(&mut self, slot: &mut Slot, env: &Environment) -> Turn {
        handshake::turn(slot, env, &mut self.tls).unwrap_or_else(Turn::End)
    }

    fn lend(&mut self, connection: &mut ConnectionDriver) {
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

    /// Takes back the blocks that a connection no longer needs.
    pub fn reclaim(&mut self, connection: &mut ConnectionDriver) {
        if let Some(block) = connection.reader().take_block()
            && block.capacity() == READ_BLOCK_BYTES
            && self.input.len() < POOLED_BLOCKS_MAX
        {
            self.input.push(block);
            debug_assert!(self.input.len() <= POOLED_BLOCKS_MAX, "pools are bounded");
        }
        if let Some(block) = connection.writer().take_block()
            && self.output.len() < POOLED_BLOCKS_MAX
        {
            self.output.push(block);
            debug_assert!(self.output.len() <= POOLED_BLOCKS_MAX, "pools are bounded");
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
    let session = env.session();
    let was_transfer = slot.connection.is_transfer();
    let mut progress = serve(slot, env, blocks)?;
    if defers_sending(slot) && !slot.connection.is_moving_large_value() {
        // A client that waits for the answer has sent nothing more. It should not wait for the
        // slices of other connections as well.
        progress = serve(slot, env, blocks)?;
    }
    if defers_sending(slot) {
        slot.deferred_sends += 1;
        debug_assert!(slot.deferred_sends <= DEFERRED_SENDS_MAX, "sends are deferred a few times");
        return Ok(Turn::Again);
    }
    slot.deferred_sends = 0;
    let pending = slot.connection.writer().pending_bytes();
    if !was_transfer && slot.connection.is_transfer() && env.transfer_bytes(pending) < pending {
        // Its slices are queued after the turns of others.
        return Ok(Turn::Again);
    }
    loop {
        if send(slot, env, blocks)? == SendResult::Slice {
            return Ok(Turn::Again);
        }
        if !slot.writable || !slot.connection.continues_changes() {
            break;
        }
        progress = slot.connection.send_changes(env, progress);
        if !env.still_holds(session) {
            return Err(CloseReason::LeaseLost);
        }
    }
    let turn = match progress {
        TurnProgress::Closing => match slot.connection.closing() {
            Some(reason) if slot.connection.writer().is_empty() => {
                begin_close(slot, reason, blocks)
            }
            _ => Turn::Idle,
        },
        TurnProgress::TurnOver => Turn::Again,
        TurnProgress::OutputFull if !slot.connection.is_halted() => Turn::Again,
        // A client that has closed its sending side may still read.
        TurnProgress::NeedInput if slot.end_of_input && !slot.connection.has_parked() => {
            slot.connection.close(CloseReason::PeerClosed);
            Turn::Again
        }
        TurnProgress::NeedInput if slot.readable && !slot.end_of_input => Turn::Again,
        TurnProgress::NeedInput | TurnProgress::OutputFull | TurnProgress::Waiting => Turn::Idle,
    };
    Ok(match turn {
        Turn::Idle
            if slot.connection.has_changes_to_send() || slot.connection.has_room_for_map() =>
        {
            Turn::Again
        }
        turn => turn,
    })
}

/// Receives once if there is input, and serves it.
#[inline]
fn serve(
    slot: &mut Slot,
    env: &mut Environment,
    blocks: &mut TlsBlocks,
) -> Result<TurnProgress, CloseReason> {
    let was_moving_large_value = slot.connection.is_moving_large_value();
    let has_received = slot.needs_input && slot.readable && receive(slot, env, blocks)? > 0;
    let session = env.session();
    let progress = slot.connection.process(env);
    // Its next request should not wait for large slices of other connections.
    if has_received && !was_moving_large_value && !slot.connection.is_moving_large_value() {
        env.note_small_requests();
    }
    // Checked after serving: the lease was held while the requests read, so their data was current
    // then, however late the answers arrive.
    if !env.still_holds(session) {
        return Err(CloseReason::LeaseLost);
    }
    slot.needs_input = progress == TurnProgress::NeedInput;
    Ok(progress)
}

/// True while a few short answers may wait for those of the requests after them. Between large
/// values each request arrives in its own read, and a system call for every 24-byte answer would
/// cost more than the rest of serving it. With small requests, one read delivers many of them, and
/// their answers go out at once.
fn defers_sending(slot: &mut Slot) -> bool {
    slot.needs_input
        && slot.readable
        && !slot.end_of_input
        && slot.deferred_sends < DEFERRED_SENDS_MAX
        && slot.connection.receive_bytes_max() != usize::MAX
        && slot.connection.writer().pending_bytes() < DEFERRED_BYTES_MAX
}

/// Ends a connection whose output is all sent. Closing a socket while the client still sends causes
/// a reset, which may overtake the last answer. So the client gets some time to read that answer.
fn begin_close(slot: &mut Slot, reason: CloseReason, blocks: &mut TlsBlocks) -> Turn {
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

/// Reads and discards input of a client whose connection is over; the deadline scan ends it.
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
