//! DCP noop keep-alive: closes the connection when the consumer does not answer.
//!
//! Owns: when the next noop is due, and when a silent consumer counts as dead. The producer sends a
//! noop each interval, even while it sends changes or its window is full, because consumers close a
//! connection that is silent for two intervals. Invariants: at most one noop is unanswered; none is
//! sent before the consumer enables them. The connection calls this after its turns and at the
//! deadline.

use oribi_protocol::dcp::write_noop;

use crate::connection::close_reason::CloseReason;
use crate::connection::send_buffer::SendBuffer;
use crate::limits::{DCP_IDLE_TIMEOUT_MS, DCP_NOOP_INTERVAL_DEFAULT_MS};

/// The opaque before that of the first noop.
const COUNTER_BEGIN: u32 = 10_000_000;

/// See the module text.
#[derive(Debug)]
pub(crate) struct Noop {
    is_on: bool,
    interval_ms: u64,
    asked_ms: u64,
    received_ms: u64,
    counter: u32,
    /// Opaque of the unanswered noop.
    open: Option<u32>,
}

impl Noop {
    /// Off, with the usual interval.
    pub fn new(now_ms: u64) -> Noop {
        Noop {
            is_on: false,
            interval_ms: DCP_NOOP_INTERVAL_DEFAULT_MS,
            asked_ms: now_ms,
            received_ms: now_ms,
            counter: COUNTER_BEGIN,
            open: None,
        }
    }

    /// Enables or disables noops.
    pub fn enable(&mut self, is_on: bool, now_ms: u64) {
        (self.is_on, self.asked_ms, self.received_ms) = (is_on, now_ms, now_ms);
    }

    /// True when noops are enabled.
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// Milliseconds between two noops.
    pub fn interval_ms(&self) -> u64 {
        self.interval_ms
    }

    /// True while a noop is unanswered.
    pub fn is_waiting(&self) -> bool {
        self.open.is_some()
    }

    pub fn set_interval(&mut self, interval_ms: u64) {
        assert!(interval_ms > 0, "noops are sent at intervals");
        self.interval_ms = interval_ms;
    }

    /// Records that the consumer sent something.
    pub fn received(&mut self, now_ms: u64) {
        self.received_ms = now_ms;
    }

    /// Takes an answer; false when its opaque is not that of the unanswered noop.
    pub fn answered(&mut self, opaque: u32) -> bool {
        self.open.take_if(|open| *open == opaque).is_some()
    }

    /// When [`Noop::act`] has to be called again, if ever.
    pub fn due_ms(&self) -> Option<u64> {
        let ask_ms = self.open.is_none().then_some(self.asked_ms + self.interval_ms);
        let end_ms = self.received_ms + DCP_IDLE_TIMEOUT_MS;
        self.is_on.then(|| ask_ms.map_or(end_ms, |ask_ms| ask_ms.min(end_ms)))
    }

    /// Sends a noop if one is due, and checks whether the consumer counts as dead.
    ///
    /// # Errors
    /// Nothing came from the consumer for too long.
    pub fn act(&mut self, now_ms: u64, out: &mut SendBuffer) -> Result<(), CloseReason> {
        if !self.is_on {
            return Ok(());
        }
        if now_ms >= self.received_ms + DCP_IDLE_TIMEOUT_MS {
            return Err(CloseReason::ConsumerSilent);
        }
        if self.open.is_none() && now_ms >= self.asked_ms + self.interval_ms {
            self.counter = self.counter.wrapping_add(1);
            // Consumers see the number in the byte order of the usual processors.
            let opaque = self.counter.swap_bytes();
            write_noop(out.tail(), opaque);
            debug_assert!(now_ms >= self.asked_ms, "noops follow each other");
            (self.open, self.asked_ms) = (Some(opaque), now_ms);
        }
        Ok(())
    }
}
