//! The connections of one worker: slab, run queue, block pools, beginning and end.
//!
//! Invariants: a slot is reused only with another generation; a live connection puts itself into the run
//! queue at most once. An entry that outlives its connection costs whoever has the slot by then one turn
//! without work.

use std::collections::VecDeque;

use mio::event::Event;
use mio::{Interest, Registry, Token};
use slab::Slab;

use super::transport::{TlsTransport, Transport};
use super::turn::{Pools, Turn};
use crate::connection::Connection;
use crate::connection::close_reason::CloseReason;
use crate::environment::Environment;
use crate::limits::WORKER_CONNECTIONS_MAX;
use crate::mailbox::{Accepted, ConnectionId};

/// A socket and its state machine.
pub(super) struct Slot {
    pub transport: Transport,
    pub connection: Connection,
    /// The socket may have more to read.
    pub readable: bool,
    /// The socket may take more.
    pub writable: bool,
    /// The client announced the end of its stream, behind what is still to be read.
    pub read_closed: bool,
    /// The end of the client's stream was read.
    pub end_of_input: bool,
    /// Every complete frame is served, so that more may be read.
    pub is_hungry: bool,
    /// Turns in a row after which answers were held back.
    pub deferred_sends: u8,
    /// The last answer is sent; what the client still sends is forgotten until it closes.
    pub is_lingering: bool,
    /// A deadline scan has seen it linger.
    was_scanned_lingering: bool,
    /// It stands in the run queue.
    queued: bool,
}

/// See the module text.
#[derive(Default)]
pub(super) struct Connections {
    slots: Slab<Slot>,
    run_queue: VecDeque<usize>,
    /// Connections in their TLS handshake, which is too costly for the other queue.
    handshake_queue: VecDeque<usize>,
    pools: Pools,
    next_generation: u32,
    /// The users that the connections' rights were computed from.
    users_generation: u64,
}

impl Connections {
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// How many connections wait for their turn.
    pub fn runnable(&self) -> usize {
        self.run_queue.len()
    }

    pub fn has_runnable(&self) -> bool {
        !self.run_queue.is_empty() || !self.handshake_queue.is_empty()
    }

    /// Takes a socket over from the acceptor, which has counted it.
    pub fn add(&mut self, accepted: Accepted, registry: &Registry, env: &Environment) {
        let mut transport = match transport_of(accepted, env) {
            Ok(transport) => transport,
            Err(error) => {
                tracing::error!(%error, "cannot begin a TLS connection");
                env.server.release_connection();
                return;
            }
        };
        let entry = self.slots.vacant_entry();
        let key = entry.key();
        let interest = Interest::READABLE | Interest::WRITABLE;
        let registered = match key < WORKER_CONNECTIONS_MAX {
            true => registry.register(transport.stream_mut(), Token(key), interest),
            false => Err(std::io::ErrorKind::QuotaExceeded.into()),
        };
        if let Err(error) = registered {
            tracing::warn!(%error, "cannot take a connection over");
            env.server.release_connection();
            return;
        }
        self.next_generation = self.next_generation.wrapping_add(1);
        let id = ConnectionId { slot: key as u32, generation: self.next_generation };
        let peer = transport.stream().peer_addr().ok();
        let record = env.server.registry.add(env.worker, peer, env.now);
        let connection = Connection::new(id, record, env.now_ms, &env.server.limits);
        entry.insert(Slot {
            transport,
            connection,
            readable: true,
            writable: true,
            read_closed: false,
            end_of_input: false,
            is_hungry: true,
            deferred_sends: 0,
            is_lingering: false,
            was_scanned_lingering: false,
            queued: false,
        });
        env.counters.total_connections.add(1);
        self.enqueue(key);
    }

    /// The kernel says that a socket changed.
    pub fn on_event(&mut self, event: &Event) {
        let key = event.token().0;
        let Some(slot) = self.slots.get_mut(key) else { return };
        slot.read_closed |= event.is_read_closed() || event.is_error();
        slot.readable |= event.is_readable() || event.is_read_closed() || event.is_error();
        slot.writable |= event.is_writable() || event.is_write_closed() || event.is_error();
        self.enqueue(key);
    }

    /// Tells the connection in a slot something and gives it a turn. The caller checks by other means
    /// that it is the right one.
    pub fn with_slot(&mut self, slot: u32, tell: impl FnOnce(&mut Connection)) {
        let key = slot as usize;
        if let Some(slot) = self.slots.get_mut(key) {
            tell(&mut slot.connection);
            self.enqueue(key);
        }
    }

    /// Tells exactly this connection something, if it still is.
    pub fn with_id(&mut self, id: ConnectionId, tell: impl FnOnce(&mut Connection)) {
        let key = id.slot as usize;
        if self.slots.get(key).is_some_and(|slot| slot.connection.id() == id) {
            self.with_slot(id.slot, tell);
        }
    }

    /// Gives the next connection in the queue its turn.
    pub fn run_next(&mut self, env: &mut Environment) {
        let Some(key) = self.run_queue.pop_front() else { return };
        let Some(slot) = self.slots.get_mut(key) else { return };
        slot.queued = false;
        let turn = self.pools.turn(slot, env);
        self.settle(key, turn, env);
    }

    /// Gives the next connection in its handshake a turn.
    pub fn run_handshake(&mut self, env: &Environment) {
        let Some(key) = self.handshake_queue.pop_front() else { return };
        let Some(slot) = self.slots.get_mut(key) else { return };
        slot.queued = false;
        let turn = self.pools.handshake_turn(slot, env);
        self.settle(key, turn, env);
    }

    fn settle(&mut self, key: usize, turn: Turn, env: &Environment) {
        match turn {
            Turn::Idle => {}
            Turn::Again => self.enqueue(key),
            Turn::Linger(reason) => {
                if let Some(slot) = self.slots.get_mut(key) {
                    report(slot, env, reason);
                    slot.is_lingering = true;
                }
                self.enqueue(key);
            }
            Turn::End(reason) => self.remove(key, env, reason),
        }
    }

    /// Ends connections that are overdue or whose user was removed, answers what is parked and whose time is
    /// up, and brings users' rights up to date.
    pub fn scan(&mut self, env: &mut Environment) {
        env.server.users.reload_if_changed();
        let users_generation = env.server.users.generation();
        let users_changed = users_generation != self.users_generation;
        self.users_generation = users_generation;
        env.server.audit.note_users(users_generation);
        env.audit_gate.settle(env.now_ms, &env.server.audit);
        let open_to_all = env.server.users.is_development();
        let mut overdue = Vec::new();
        let mut answered = Vec::new();
        for (key, slot) in &mut self.slots {
            if slot.is_lingering {
                // It had since the last scan, about a second, to read its last answer.
                if slot.was_scanned_lingering {
                    overdue
                        .push((key, slot.connection.closing().unwrap_or(CloseReason::PeerClosed)));
                }
                slot.was_scanned_lingering = true;
                continue;
            }
            if users_changed && !slot.connection.refresh_user(&env.server.users) {
                overdue.push((key, CloseReason::UserRemoved));
                continue;
            }
            let has_answered = slot.connection.expire_parked(env);
            if slot.connection.expire_fetches(env.now_ms) || has_answered {
                answered.push(key);
            }
            let deadline_ms = env.server.limits.auth_deadline_ms;
            let handshake_since_ms = slot.transport.handshake_since_ms();
            if handshake_since_ms.is_some_and(|since| since + deadline_ms < env.now_ms) {
                overdue.push((key, CloseReason::TlsDeadline));
                continue;
            }
            if let Some(reason) =
                slot.connection.overdue(env.now_ms, &env.server.limits, open_to_all)
            {
                overdue.push((key, reason));
            }
        }
        for key in answered {
            self.enqueue(key);
        }
        for (key, reason) in overdue {
            self.remove(key, env, reason);
        }
    }

    /// Tells the connections that want to know that there is a new cluster map.
    pub fn announce_cluster_map(&mut self, env: &Environment) {
        let told = |slot: &mut Slot| slot.connection.announce_cluster_map(&env.server);
        let keys: Vec<usize> =
            self.slots.iter_mut().filter_map(|(key, slot)| told(slot).then_some(key)).collect();
        keys.into_iter().for_each(|key| self.enqueue(key));
    }

    /// Makes every connection send what is pending and end.
    pub fn stop_all(&mut self) {
        let keys: Vec<usize> = self.slots.iter().map(|(key, _)| key).collect();
        for key in keys {
            self.with_slot(key as u32, |connection| connection.close(CloseReason::ServerStopping));
        }
    }

    /// Ends every connection now.
    pub fn close_all(&mut self, env: &Environment, reason: CloseReason) {
        let keys: Vec<usize> = self.slots.iter().map(|(key, _)| key).collect();
        for key in keys {
            self.remove(key, env, reason);
        }
    }

    fn enqueue(&mut self, key: usize) {
        if let Some(slot) = self.slots.get_mut(key)
            && !slot.queued
        {
            slot.queued = true;
            match slot.transport.handshake_since_ms() {
                None => self.run_queue.push_back(key),
                Some(_) => self.handshake_queue.push_back(key),
            }
        }
    }

    fn remove(&mut self, key: usize, env: &Environment, reason: CloseReason) {
        let Some(mut slot) = self.slots.try_remove(key) else { return };
        self.pools.reclaim(&mut slot.connection);
        env.server.registry.remove(slot.connection.record().number);
        env.server.release_connection();
        // The end of a lingering connection was reported when it began to linger.
        if !slot.is_lingering {
            report(&slot, env, reason);
        }
    }
}

/// Begins TLS where it is to be spoken.
fn transport_of(accepted: Accepted, env: &Environment) -> Result<Transport, oribi_tls::Error> {
    match (accepted, &env.server.tls) {
        (Accepted::Tls(stream), Some(tls)) => {
            let transport = TlsTransport::new(stream, tls.session()?, env.now_ms);
            Ok(Transport::Tls(Box::new(transport)))
        }
        (Accepted::Plain(stream) | Accepted::Tls(stream), _) => Ok(Transport::Plain(stream)),
    }
}

/// Logs and counts the end of a connection, once.
fn report(slot: &Slot, env: &Environment, reason: CloseReason) {
    let peer = slot.connection.record().peer;
    if reason.is_for_cause() {
        env.counters.closed_for_cause.add(1);
    }
    match reason {
        CloseReason::Idle => env.counters.closed_idle.add(1),
        CloseReason::SendDeadline => env.counters.closed_slow_reader.add(1),
        _ => {}
    }
    // What TLS found was logged in more detail where it was found.
    if reason.is_for_cause() && reason != CloseReason::Tls {
        tracing::info!(?peer, %reason, "connection closed");
    } else {
        tracing::debug!(?peer, %reason, "connection closed");
    }
}
