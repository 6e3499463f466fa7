//! The connections of one worker: slab, run queue, block pools, accept and close.
//!
//! Invariants: a slot is reused only with a new generation; a live connection is in the run queue
//! at most once. The entry of a closed connection is skipped: its slot may have another, whose
//! balancer has not named its client yet. Connections that move a large value have a separate
//! queue, after all others.

use std::collections::VecDeque;

use mio::event::Event;
use mio::{Interest, Registry, Token};
use slab::Slab;

use super::pauses::Pauses;
use super::proxied::HEADER_LATE;
use super::slot::{Slot, Turn};
use super::transport::{TlsTransport, Transport};
use super::turn::Pools;
use crate::connection::close_reason::CloseReason;
use crate::connection::memory::budget::Grant;
use crate::connection::waker::ConnectionId;
use crate::dcp::pace::Moment;
use crate::dispatch::environment::Environment;
use crate::limits::WORKER_CONNECTIONS_MAX;
use crate::runtime::driver::ConnectionDriver;
use crate::runtime::mailbox::AcceptedSocket;

/// See the module text.
#[derive(Default)]
pub(super) struct WorkerConnections {
    slots: Slab<Slot>,
    run_queue: VecDeque<ConnectionId>,
    /// Connections that move a large value, or send a backfill.
    transfers: VecDeque<ConnectionId>,
    /// Connections in their TLS handshake, which is too expensive for the main queue, and those
    /// before it whose balancer has not named their client yet.
    handshake_queue: VecDeque<ConnectionId>,
    pools: Pools,
    next_generation: u32,
    pauses: Pauses,
    /// When the first connection with a timer has to act, or earlier; `None` for never.
    timer_due_ms: Option<u64>,
    /// The generation of the users that the connections' rights were computed from.
    users_generation: u64,
}

impl WorkerConnections {
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// How many connections wait for their turn.
    pub fn runnable(&self) -> usize {
        self.run_queue.len()
    }

    /// How many wait to move more of a large value or a backfill.
    pub fn transfers(&self) -> usize {
        self.transfers.len()
    }

    pub fn has_runnable(&self) -> bool {
        !self.run_queue.is_empty() || !self.transfers.is_empty() || !self.handshake_queue.is_empty()
    }

    /// Adds a socket that the acceptor has accepted and counted.
    pub fn add(&mut self, accepted: AcceptedSocket, registry: &Registry, env: &Environment) {
        let mut transport = match transport_of(accepted, env) {
            Ok(transport) => transport,
            Err(error) => {
                tracing::error!(%error, "cannot begin a TLS connection");
                env.server.connections.release();
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
            env.server.connections.release();
            return;
        }
        self.next_generation = self.next_generation.wrapping_add(1);
        let id = ConnectionId { slot: key as u32, generation: self.next_generation };
        assert!(key < WORKER_CONNECTIONS_MAX, "a token has 20 bits for a slot");
        let peer = transport.stream().peer_addr().ok();
        let record = env.server.connections.registry.add(env.worker, peer, env.now);
        let connection =
            ConnectionDriver::new(id, record, env.now_ms, &env.server.connections.limits);
        let awaits_header = !env.server.connections.proxies.is_empty();
        entry.insert(Slot::new(transport, connection, awaits_header.then_some(env.now_ms)));
        env.counters.total_connections.add(1);
        self.enqueue(key);
    }

    /// Handles a readiness event of a socket.
    pub fn on_event(&mut self, event: &Event) {
        let key = event.token().0;
        let Some(slot) = self.slots.get_mut(key) else { return };
        slot.read_closed |= event.is_read_closed() || event.is_error();
        slot.readable |= event.is_readable() || event.is_read_closed() || event.is_error();
        slot.writable |= event.is_writable() || event.is_write_closed() || event.is_error();
        self.enqueue(key);
    }

    /// Calls `tell` for the connection in a slot and gives it a turn. The caller makes sure by
    /// other means that it is the right connection.
    pub fn with_slot(&mut self, slot: u32, tell: impl FnOnce(&mut ConnectionDriver)) {
        let key = slot as usize;
        if let Some(slot) = self.slots.get_mut(key) {
            tell(&mut slot.connection);
            self.enqueue(key);
        }
    }

    /// Calls `tell` for exactly this connection, if it still exists.
    pub fn with_id(&mut self, id: ConnectionId, tell: impl FnOnce(&mut ConnectionDriver)) {
        let key = id.slot as usize;
        if self.slots.get(key).is_some_and(|slot| slot.connection.id() == id) {
            self.with_slot(id.slot, tell);
        }
    }

    /// Gives a connection whose streams have changes a turn, now or when its pause is over.
    pub fn announce_changes(&mut self, id: ConnectionId, now: Moment) {
        let slot = self.slots.get_mut(id.slot as usize);
        let Some(slot) = slot.filter(|slot| slot.connection.id() == id) else { return };
        match slot.connection.announce_changes(now) {
            Some(due) => self.pauses.add(id, due),
            None => self.enqueue_first(id.slot as usize),
        }
    }

    /// When the first pause is over.
    pub fn pause_due_ns(&self) -> Option<u64> {
        self.pauses.due_ns()
    }

    /// Gives connections a turn whose pause is over.
    pub fn end_pauses(&mut self, now: Moment) {
        while let Some(id) = self.pauses.take_due(now) {
            let key = id.slot as usize;
            let slot = self.slots.get_mut(key).filter(|slot| slot.connection.id() == id);
            if let Some(slot) = slot {
                slot.connection.release_changes(now);
                self.enqueue_first(key);
            }
        }
    }

    /// Grants a memory reservation to a connection. If the connection is gone, the memory is
    /// returned.
    pub fn grant_memory(&mut self, id: ConnectionId, grant: Grant, env: &mut Environment) {
        let key = id.slot as usize;
        match self.slots.get_mut(key).filter(|slot| slot.connection.id() == id) {
            Some(slot) => {
                slot.connection.memory_granted(env, grant);
                self.enqueue(key);
            }
            None => env.memory.memory().release_grant(grant),
        }
    }

    /// Gives the next connection its turn.
    pub fn run_next(&mut self, env: &mut Environment) {
        let next = self.run_queue.pop_front();
        self.run(next, env);
    }

    /// Gives the next connection with long turns its turn, whoever else waits; true if it may have
    /// sent changes, each of which costs more than its bytes.
    pub fn run_transfer(&mut self, env: &mut Environment) -> bool {
        let next = self.transfers.pop_front();
        let slot = next.and_then(|id| self.slots.get(id.slot as usize));
        let sends_changes = slot.is_some_and(|slot| slot.connection.is_producer());
        self.run(next, env);
        sends_changes
    }

    fn run(&mut self, next: Option<ConnectionId>, env: &mut Environment) {
        let Some((key, slot)) = WorkerConnections::begin_turn(&mut self.slots, next) else {
            return;
        };
        let turn = self.pools.turn(slot, env);
        self.note_timer(key);
        self.settle(key, turn, env);
        if env.memory.is_over() {
            self.close_laggards(env);
        }
    }

    /// The connection of a queue's entry, which is in no queue any longer; `None` when it is gone.
    fn begin_turn(
        slots: &mut Slab<Slot>,
        next: Option<ConnectionId>,
    ) -> Option<(usize, &mut Slot)> {
        let id = next?;
        let key = id.slot as usize;
        let slot = slots.get_mut(key).filter(|slot| slot.connection.id() == id)?;
        debug_assert!(slot.queued, "a connection has a turn because it was queued");
        slot.queued = false;
        Some((key, slot))
    }

    /// Handles the case that all connections together hold too much memory. Shrinks the buffers of
    /// this worker's connections, then closes those whose clients lag most until the total is below
    /// the limit. The limit takes a while to reach again, so this is rare.
    #[cold]
    fn close_laggards(&mut self, env: &mut Environment) {
        for (_, slot) in &mut self.slots {
            slot.connection.shrink(env);
        }
        if !env.memory.is_still_over() {
            return;
        }
        let since = |(key, slot): (usize, &Slot)| Some((slot.connection.lags_since_ms()?, key));
        let mut lagging: Vec<(u64, usize)> = self.slots.iter().filter_map(since).collect();
        lagging.sort_unstable();
        for (_, key) in lagging {
            self.remove(key, env, CloseReason::MemoryShort);
            if !env.memory.is_still_over() {
                return;
            }
        }
        env.memory.rest();
    }

    /// Gives the next connection in its handshake a turn.
    pub fn run_handshake(&mut self, env: &mut Environment) {
        let next = self.handshake_queue.pop_front();
        let Some((key, slot)) = WorkerConnections::begin_turn(&mut self.slots, next) else {
            return;
        };
        let turn = self.pools.handshake_turn(slot, env);
        self.settle(key, turn, env);
    }

    /// When [`WorkerConnections::run_timers`] has something to do at the earliest.
    pub fn timer_due_ms(&self) -> Option<u64> {
        self.timer_due_ms
    }

    /// Lets connections act whose timer is over. Only connections with change streams have one.
    pub fn run_timers(&mut self, now_ms: u64) {
        if self.timer_due_ms.is_none_or(|due_ms| now_ms < due_ms) {
            return;
        }
        let mut acted = Vec::new();
        self.timer_due_ms = None;
        for (key, slot) in &mut self.slots {
            if slot.is_lingering {
                continue;
            }
            if slot.connection.on_timer(now_ms) {
                acted.push(key);
            }
            if let Some(due_ms) = slot.connection.timer_due_ms() {
                self.timer_due_ms = Some(due_ms.min(self.timer_due_ms.unwrap_or(u64::MAX)));
            }
        }
        acted.into_iter().for_each(|key| self.enqueue(key));
    }

    /// Takes the timer of a connection into account.
    fn note_timer(&mut self, key: usize) {
        let slot = self.slots.get(key).filter(|slot| !slot.is_lingering);
        if let Some(due_ms) = slot.and_then(|slot| slot.connection.timer_due_ms()) {
            self.timer_due_ms = Some(due_ms.min(self.timer_due_ms.unwrap_or(u64::MAX)));
        }
    }

    fn settle(&mut self, key: usize, turn: Turn, env: &mut Environment) {
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

    /// Closes connections that are overdue or whose user was removed, answers parked requests that
    /// timed out, and refreshes users' rights.
    pub fn scan(&mut self, env: &mut Environment) {
        env.server.access.users.reload_if_changed();
        let users_generation = env.server.access.users.generation();
        debug_assert!(users_generation >= self.users_generation, "generations of users ascend");
        let users_changed = users_generation != self.users_generation;
        self.users_generation = users_generation;
        env.server.access.audit.note_users(users_generation);
        env.audit_gate.settle(env.now_ms, &env.server.access.audit);
        let open_to_all = env.server.access.users.is_development();
        env.server.connections.memory.set_quotas(env.server.buckets.quota_bytes());
        env.memory.is_still_over();
        let mut overdue = Vec::new();
        let mut answered = Vec::new();
        for (key, slot) in &mut self.slots {
            if slot.is_lingering {
                // It had the time since the last scan, about a second, to read its last answer.
                if slot.was_scanned_lingering {
                    overdue
                        .push((key, slot.connection.closing().unwrap_or(CloseReason::PeerClosed)));
                }
                slot.was_scanned_lingering = true;
                continue;
            }
            if users_changed && !slot.connection.refresh_user(&env.server.access.users) {
                overdue.push((key, CloseReason::UserRemoved));
                continue;
            }
            slot.connection.refresh_collection(&env.server.memcached);
            slot.connection.publish_streams();
            let has_answered = slot.connection.expire_parked(env);
            let has_expired = slot.connection.expire_memory_wait(env);
            if slot.connection.expire_fetches(env.now_ms) || has_answered || has_expired {
                answered.push(key);
            }
            if slot.connection.holds_up_others(env) {
                overdue.push((key, CloseReason::HoldsMemory));
                continue;
            }
            let deadline_ms = env.server.connections.limits.auth_deadline_ms;
            let is_over = |since_ms: u64| since_ms + deadline_ms < env.now_ms;
            if slot.opening_since_ms().is_some_and(is_over) {
                let is_headed = slot.header_since_ms.is_none();
                let reason = if is_headed { CloseReason::TlsDeadline } else { HEADER_LATE };
                overdue.push((key, reason));
                continue;
            }
            if let Some(reason) =
                slot.connection.overdue(env.now_ms, &env.server.connections.limits, open_to_all)
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

    /// Notifies subscribed connections of a new cluster map.
    pub fn announce_cluster_map(&mut self, env: &Environment) {
        let told = |slot: &mut Slot| slot.connection.announce_cluster_map(&env.server);
        let keys: Vec<usize> =
            self.slots.iter_mut().filter_map(|(key, slot)| told(slot).then_some(key)).collect();
        keys.into_iter().for_each(|key| self.enqueue(key));
    }

    /// Makes every connection send its pending output and end.
    pub fn stop_all(&mut self) {
        let keys: Vec<usize> = self.slots.iter().map(|(key, _)| key).collect();
        for key in keys {
            self.with_slot(key as u32, |connection| connection.close(CloseReason::ServerStopping));
        }
    }

    /// Ends every connection now.
    pub fn close_all(&mut self, env: &mut Environment, reason: CloseReason) {
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
            let id = slot.connection.id();
            match slot.opening_since_ms() {
                None if slot.connection.is_transfer() => self.transfers.push_back(id),
                None => self.run_queue.push_back(id),
                Some(_) => self.handshake_queue.push_back(id),
            }
        }
    }

    /// Gives a connection with changes the next turn: what writers do in theirs takes the changes
    /// out of the processor's cache.
    fn enqueue_first(&mut self, key: usize) {
        let was_queued = self.slots.get(key).is_some_and(|slot| slot.queued);
        self.enqueue(key);
        if !was_queued && self.run_queue.back().is_some_and(|id| id.slot as usize == key) {
            self.run_queue.rotate_right(1);
        }
    }

    fn remove(&mut self, key: usize, env: &mut Environment, reason: CloseReason) {
        let Some(mut slot) = self.slots.try_remove(key) else { return };
        debug_assert_eq!(slot.connection.id().slot as usize, key, "a connection knows its slot");
        self.pools.reclaim(&mut slot.connection);
        slot.connection.give_back(env);
        env.server.connections.registry.remove(slot.connection.record().number);
        debug_assert!(!self.slots.contains(key), "a connection leaves its slot once");
        env.server.connections.release();
        // The end of a lingering connection was reported when it began to linger.
        if !slot.is_lingering {
            report(&slot, env, reason);
        }
    }
}

/// Starts TLS on sockets of a TLS port.
fn transport_of(
    accepted: AcceptedSocket,
    env: &Environment,
) -> Result<Transport, oribi_tls::Error> {
    match (accepted, &env.server.access.tls) {
        (AcceptedSocket::Tls(stream), Some(tls)) => {
            let transport = TlsTransport::new(stream, tls.session()?, env.now_ms);
            Ok(Transport::Tls(Box::new(transport)))
        }
        (AcceptedSocket::Plain(stream) | AcceptedSocket::Tls(stream), _) => {
            Ok(Transport::Plain(stream))
        }
    }
}

/// Logs and counts the end of a connection, once.
fn report(slot: &Slot, env: &Environment, reason: CloseReason) {
    let peer = slot.connection.record().peer();
    if reason.is_for_cause() {
        env.counters.closed_for_cause.add(1);
    }
    match reason {
        CloseReason::Idle => env.counters.closed_idle.add(1),
        CloseReason::SendDeadline => env.counters.closed_slow_reader.add(1),
        CloseReason::HoldsMemory | CloseReason::MemoryShort => {
            env.memory.memory().note_closed();
        }
        _ => {}
    }
    // The TLS error was logged in more detail where it occurred.
    if reason.is_for_cause() && reason != CloseReason::Tls {
        tracing::info!(?peer, %reason, "connection closed");
    } else {
        tracing::debug!(?peer, %reason, "connection closed");
    }
}
