//! The arithmetic of the budget: the reservations, their owners and their order.
//!
//! Owns: the sum of the reservations, the blocks that several readers share, and the queue. A
//! reader that sends a large value from its place reserves the block of that version. All readers
//! of one version share one reservation, because they keep one block. When no table refers to the
//! version any more, the reservation is what pays for it.
//!
//! Invariants:
//! - the sum is that of all reserved bytes and of each shared block once;
//! - grants are made in the order of the queue, except that a granted block is granted to all that
//!   wait for it. A reader joins a block at once only while the queue is empty, so readers of one
//!   block never starve a reader of another;
//! - the sum exceeds the limit only when the limit falls.
//!
//! The budget has no connections, no lock and no clock. [`super::ConnectionMemory`] drives it.

use std::collections::{HashMap, VecDeque};

use oribi_engine::ItemRef;

/// A version of a document in memory. Its CAS distinguishes it from a later one at its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BlockKey {
    address: usize,
    cas: u64,
}

impl BlockKey {
    /// The key of a version.
    pub fn of(item: &ItemRef) -> BlockKey {
        BlockKey { address: item.value().as_ptr().addr(), cas: item.cas().0 }
    }
}

/// Memory that is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Demand {
    pub bytes: usize,
    /// The block, if it is one that other readers may share.
    pub block: Option<BlockKey>,
}

impl Demand {
    /// Memory for one user alone.
    pub fn of_bytes(bytes: usize) -> Demand {
        Demand { bytes, block: None }
    }

    /// The block of a version that is sent from its place.
    pub fn of_block(item: &ItemRef) -> Demand {
        Demand { bytes: item.block_bytes(), block: Some(BlockKey::of(item)) }
    }
}

/// Memory that is granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grant {
    Bytes(usize),
    /// A share of a block.
    Block(BlockKey),
}

#[derive(Debug)]
struct Block {
    bytes: usize,
    holders: usize,
}

/// See the module text. `W` identifies a waiter.
#[derive(Debug)]
pub struct Budget<W> {
    reserved_bytes: usize,
    blocks: HashMap<BlockKey, Block>,
    queue: VecDeque<(W, Demand)>,
}

impl<W> Default for Budget<W> {
    fn default() -> Budget<W> {
        Budget { reserved_bytes: 0, blocks: HashMap::new(), queue: VecDeque::new() }
    }
}

impl<W> Budget<W> {
    /// The sum of all reservations.
    pub fn reserved_bytes(&self) -> usize {
        self.reserved_bytes
    }

    /// Length of the queue.
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// True while someone waits for whom this holds.
    pub fn has(&self, is_wanted: impl Fn(&W) -> bool) -> bool {
        self.queue.iter().any(|(waiter, _)| is_wanted(waiter))
    }

    /// Reserves memory if the queue is empty and the demand fits.
    pub fn reserve(&mut self, demand: Demand, limit: usize) -> Option<Grant> {
        (self.queue.is_empty() && self.fits(demand, limit)).then(|| self.take(demand))
    }

    /// As [`Budget::reserve`], ahead of the queue: for one whose turn it is.
    pub fn reserve_first(&mut self, demand: Demand, limit: usize) -> Option<Grant> {
        self.fits(demand, limit).then(|| self.take(demand))
    }

    /// Appends to the queue.
    pub fn wait(&mut self, waiter: W, demand: Demand) {
        debug_assert!(demand.bytes > 0, "a wait is for memory");
        self.queue.push_back((waiter, demand));
    }

    /// Puts one at the head of the queue whose turn it is.
    pub fn wait_first(&mut self, waiter: W, demand: Demand) {
        debug_assert!(demand.bytes > 0, "a wait is for memory");
        self.queue.push_front((waiter, demand));
    }

    /// Removes waiters from the queue.
    pub fn leave(&mut self, is_gone: impl Fn(&W) -> bool) {
        self.queue.retain(|(waiter, _)| !is_gone(waiter));
    }

    pub fn release(&mut self, grant: Grant) {
        let bytes = match grant {
            Grant::Bytes(bytes) => bytes,
            Grant::Block(key) => {
                let block = self.blocks.get_mut(&key).expect("a holder keeps its block listed");
                assert!(block.holders > 0, "a listed block has a holder");
                block.holders -= 1;
                if block.holders > 0 {
                    return;
                }
                let bytes = block.bytes;
                self.blocks.remove(&key);
                bytes
            }
        };
        assert!(bytes <= self.reserved_bytes, "returned more than was reserved");
        self.reserved_bytes -= bytes;
        debug_assert!(
            self.reserved_bytes > 0 || self.blocks.is_empty(),
            "a block is a part of the sum"
        );
    }

    /// Grants what fits, from the head of the queue on. A demand larger than `most` gets `most`.
    pub fn grant(&mut self, limit: usize, most: usize, mut granted: impl FnMut(W, Grant)) {
        while let Some((_, demand)) = self.queue.front() {
            let demand = Demand { bytes: demand.bytes.min(most), ..*demand };
            if !self.fits(demand, limit) {
                return;
            }
            let Some((waiter, _)) = self.queue.pop_front() else { return };
            granted(waiter, self.take(demand));
            debug_assert!(
                demand.block.is_some() || self.reserved_bytes <= limit,
                "a grant keeps the limit"
            );
            if demand.block.is_some() {
                self.grant_shares(demand, &mut granted);
            }
        }
    }

    /// Grants a block that was just granted to all that wait for it.
    fn grant_shares(&mut self, demand: Demand, granted: &mut impl FnMut(W, Grant)) {
        debug_assert!(demand.block.is_some(), "bytes are not shared");
        for (waiter, other) in std::mem::take(&mut self.queue) {
            match other.block == demand.block {
                true => granted(waiter, self.take(demand)),
                false => self.queue.push_back((waiter, other)),
            }
        }
        debug_assert!(
            self.queue.iter().all(|(_, other)| other.block != demand.block),
            "nobody waits for a block that is held"
        );
    }

    fn fits(&self, demand: Demand, limit: usize) -> bool {
        demand.block.is_some_and(|key| self.blocks.contains_key(&key))
            || self.reserved_bytes.saturating_add(demand.bytes) <= limit
    }

    fn take(&mut self, demand: Demand) -> Grant {
        let bytes = demand.bytes;
        let Some(key) = demand.block else {
            self.reserved_bytes += bytes;
            return Grant::Bytes(bytes);
        };
        let block = self.blocks.entry(key).or_insert(Block { bytes, holders: 0 });
        if block.holders == 0 {
            self.reserved_bytes += bytes;
        }
        block.holders += 1;
        debug_assert!(block.bytes <= self.reserved_bytes, "a block is a part of the sum");
        Grant::Block(key)
    }
}

#[cfg(test)]
mod tests;
