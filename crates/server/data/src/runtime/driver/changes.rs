//! The turn of a connection's change streams, and its timers.
//!
//! Owns: when a producer gets a turn: after the requests, so that answers go first. The connection
//! and the worker call this; [`crate::dcp`] does the work.

use super::{ConnectionDriver, TurnProgress};
use crate::connection::close_reason::CloseReason;
use crate::dcp::lending::Lender;
use crate::dcp::pace::Moment;
use crate::dispatch::connection_state::ConnectionState;
use crate::dispatch::environment::Environment;

impl ConnectionDriver {
    /// Sends the first slice of changes of a turn. `has_served` when the consumer sent something.
    pub(super) fn begin_changes(
        &mut self,
        env: &Environment,
        progress: TurnProgress,
        has_served: bool,
    ) -> TurnProgress {
        if let Some(producer) = &mut self.state.producer {
            producer.share.begin(env.requests_served);
            if has_served {
                producer.noop.received(env.now_ms);
            }
        }
        self.send_changes(env, progress)
    }

    /// True when the turn has another slice of changes, once the output is sent.
    pub fn continues_changes(&self) -> bool {
        let producer = self.state.producer.as_ref();
        producer.is_some_and(|producer| producer.may_continue(&self.writer))
            && self.state.closing().is_none()
    }

    /// Sends a slice of changes, unless the connection ends.
    pub fn send_changes(&mut self, env: &Environment, progress: TurnProgress) -> TurnProgress {
        let request_waits = self.state.pending.waits_for_memory();
        let closing = self.state.closing();
        let number = self.state.record().number;
        let ConnectionState { producer, user, reserved, .. } = &mut self.state;
        let Some(producer) = producer else { return progress };
        let mut lender = Lender {
            ledger: &env.memory,
            connection: self.id,
            reserved,
            now_ms: env.now_ms,
            request_waits,
        };
        let turn = match closing {
            Some(_) => Ok(()),
            None => producer.take_turn(&mut self.writer, user.rights_mut(), &mut lender, env.now),
        };
        if let Err(reason) = turn {
            if reason == CloseReason::DamagedDocument {
                let (connection, bucket) = (number, producer.bucket.name());
                tracing::error!(connection, bucket, "a document of a change stream is damaged");
            }
            self.state.close(reason);
        }
        if self.state.closing().is_none() {
            return progress;
        }
        // Nothing more is sent, so nothing should be kept for it.
        if let Some(producer) = &mut self.state.producer {
            producer.clear();
        }
        TurnProgress::Closing
    }

    /// True when another turn would send changes at once.
    pub fn has_changes_to_send(&self) -> bool {
        let producer = self.state.producer.as_ref();
        producer.is_some_and(|producer| producer.has_more(&self.writer))
            && self.state.closing().is_none()
    }

    /// Notes that streams have changes. Returns when to call [`ConnectionDriver::release_changes`];
    /// `None` when the connection needs a turn now.
    pub fn announce_changes(&mut self, now: Moment) -> Option<Moment> {
        let producer = self.state.producer.as_mut()?;
        producer.pace.announce(now, producer.streams.len())
    }

    /// Ends the pause that [`ConnectionDriver::announce_changes`] began.
    pub fn release_changes(&mut self, now: Moment) {
        let producer = self.state.producer.as_mut().filter(|producer| producer.pace.is_held());
        if let Some(producer) = producer {
            producer.pace.release(now);
        }
    }

    /// When to call [`ConnectionDriver::on_timer`], if ever, on the worker's monotonic clock.
    pub fn timer_due_ms(&self) -> Option<u64> {
        self.state.producer.as_ref()?.noop.due_ms()
    }

    /// Sends the consumer a DCP noop, or ends the connection, if it is due; true when the
    /// connection needs a turn.
    pub fn on_timer(&mut self, now_ms: u64) -> bool {
        let Some(producer) = &mut self.state.producer else { return false };
        if producer.noop.due_ms().is_none_or(|due_ms| now_ms < due_ms) {
            return false;
        }
        if let Err(reason) = producer.noop.act(now_ms, &mut self.writer) {
            self.state.close(reason);
        }
        true
    }

    /// Publishes figures of the streams, once in a while.
    pub fn publish_streams(&self) {
        if let Some(producer) = &self.state.producer {
            producer.publish();
        }
    }
}
