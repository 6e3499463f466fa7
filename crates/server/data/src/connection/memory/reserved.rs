//! Memory that a worker's connection has reserved.
//!
//! Owns: its grants, and whether one of them has yet to be used. The connection returns them.

use super::budget::{BlockKey, Demand, Grant};
use crate::limits::HOLDER_BYTES_PER_SECOND;

/// Memory that a connection has reserved.
#[derive(Debug, Default)]
pub struct ConnectionReservation {
    bytes: usize,
    blocks: Vec<BlockKey>,
    /// Granted after a wait, and not used yet.
    is_fresh: bool,
    /// When the last grant was made, on the worker's monotonic clock. Bytes that the client sends
    /// or takes move it on.
    since_ms: u64,
}

impl ConnectionReservation {
    /// True when the connection has a reservation.
    pub fn is_any(&self) -> bool {
        self.bytes > 0 || !self.blocks.is_empty()
    }

    /// Bytes for the connection alone.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// True when the connection shares this block.
    pub fn has_block(&self, key: BlockKey) -> bool {
        self.blocks.contains(&key)
    }

    /// True when the demand is reserved. Bytes count only while nothing else uses them.
    pub fn covers(&mut self, demand: Demand, has_output: bool) -> bool {
        let covers = demand.block.is_some_and(|key| self.has_block(key))
            || (!has_output && self.bytes >= demand.bytes);
        self.is_fresh &= !covers;
        covers
    }

    /// Adds a grant that the connection waited for. It keeps its turn until it uses the grant.
    pub fn add_fresh(&mut self, grant: Grant, now_ms: u64) {
        self.add(grant, now_ms);
        self.is_fresh = true;
    }

    /// True once after [`ConnectionReservation::add_fresh`], unless the grant was returned.
    pub fn take_is_fresh(&mut self) -> bool {
        std::mem::take(&mut self.is_fresh)
    }

    /// Adds a grant, which the client uses from now on.
    pub fn add(&mut self, grant: Grant, now_ms: u64) {
        self.since_ms = now_ms;
        match grant {
            Grant::Bytes(bytes) => self.bytes += bytes,
            Grant::Block(key) => self.blocks.push(key),
        }
    }

    /// Start of the client's use of the reservation, less the time that its bytes earned.
    pub fn since_ms(&self) -> u64 {
        self.since_ms
    }

    /// Gives the client more time for the bytes that it sent or took.
    pub fn earn_time(&mut self, bytes: usize, now_ms: u64) {
        debug_assert!(self.is_any(), "only a holder of memory earns time");
        let earned_ms = bytes as u64 * 1000 / HOLDER_BYTES_PER_SECOND as u64;
        self.since_ms = (self.since_ms + earned_ms).min(now_ms);
    }

    /// Takes out the blocks that are not in use, unless a grant has yet to be used.
    pub fn take_unused(&mut self, is_used: impl Fn(BlockKey) -> bool) -> Vec<Grant> {
        if self.is_fresh || self.blocks.is_empty() {
            return Vec::new();
        }
        let unused = self.blocks.extract_if(.., |key| !is_used(*key));
        unused.map(Grant::Block).collect()
    }

    /// Takes all grants out.
    pub fn take_all(&mut self) -> impl Iterator<Item = Grant> + use<> {
        self.is_fresh = false;
        let bytes = std::mem::take(&mut self.bytes);
        let bytes = (bytes > 0).then_some(Grant::Bytes(bytes));
        bytes.into_iter().chain(std::mem::take(&mut self.blocks).into_iter().map(Grant::Block))
    }
}
