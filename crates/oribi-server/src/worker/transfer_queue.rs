//! The order in which connections move their large values.
//!
//! Invariant: the connection that moved bytes last goes on first, until it has moved
//! [`TRANSFER_STAY_BYTES`] without a break; then every other one that waits has its turn. A
//! client waits for its whole value, so turns slice by slice would only make all of them late.

use std::collections::VecDeque;

use crate::limits::TRANSFER_STAY_BYTES;

/// See the module text.
#[derive(Default)]
pub(super) struct TransferQueue {
    waiting: VecDeque<usize>,
    /// The connection that moved bytes last, and how many since another one did.
    current: Option<(usize, u64)>,
}

impl TransferQueue {
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Adds a connection that is not in the queue.
    pub fn push(&mut self, key: usize) {
        match self.current {
            Some((current, moved)) if current == key && moved < TRANSFER_STAY_BYTES as u64 => {
                self.waiting.push_front(key);
            }
            Some((current, _)) if current == key => {
                self.current = None;
                self.waiting.push_back(key);
            }
            _ => self.waiting.push_back(key),
        }
    }

    /// The connection whose turn it is.
    pub fn pop(&mut self) -> Option<usize> {
        let key = self.waiting.pop_front()?;
        if self.current.is_none_or(|(current, _)| current != key) {
            self.current = Some((key, 0));
        }
        Some(key)
    }

    /// Counts what a connection moved in its turn, if it is the one that moves.
    pub fn note(&mut self, key: usize, bytes: u64) {
        if let Some((current, moved)) = &mut self.current
            && *current == key
        {
            *moved += bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    //! Who goes on, and for how long.

    use super::TransferQueue;
    use crate::limits::TRANSFER_STAY_BYTES;

    /// The order of turns in which each moves this much and wants more.
    fn turns(bytes: usize, turns: usize) -> Vec<usize> {
        let mut queue = TransferQueue::default();
        (0..3).for_each(|key| queue.push(key));
        let mut turn = || {
            let key = queue.pop().unwrap();
            queue.note(key, bytes as u64);
            queue.push(key);
            key
        };
        (0..turns).map(|_| turn()).collect()
    }

    #[test]
    fn one_goes_on_until_it_has_moved_enough_and_all_have_their_turn() {
        assert_eq!(turns(TRANSFER_STAY_BYTES / 2, 8), [0, 0, 1, 1, 2, 2, 0, 0]);
        assert_eq!(turns(TRANSFER_STAY_BYTES, 4), [0, 1, 2, 0]);
    }

    #[test]
    fn what_another_moves_in_between_ends_the_stay() {
        let mut queue = TransferQueue::default();
        queue.push(0);
        queue.push(1);
        assert_eq!(queue.pop(), Some(0));
        queue.note(0, 1);
        assert_eq!(queue.pop(), Some(1), "the first waits for its client");
        queue.push(0);
        queue.push(1);
        assert_eq!(queue.pop(), Some(1));
        queue.note(7, TRANSFER_STAY_BYTES as u64);
        queue.push(1);
        assert_eq!(queue.pop(), Some(1), "another connection's bytes count for that one");
    }
}
