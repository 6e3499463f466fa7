//! A flush pass: the vbuckets that the flusher still visits before the flush interval counts again.
//!
//! Owns: their order. A queue may be more than one commit should hold, so a pass takes several
//! steps. It visits each vbucket once, with everything queued there by then. Later writes wait for
//! the next pass, so of many writes of a document only the last reaches the store. If a pass picked
//! them up, it would never end under load. A vbucket with more than one step's work is visited
//! again after the others, so a busy vbucket does not starve them.
//!
//! Invariant: while a pass is under way, a dirty vbucket is in it, or became dirty after its visit
//! and has set the flusher's signal.

use std::collections::VecDeque;

/// See the module text. Vbuckets are known by their position in the flusher's group.
#[derive(Default)]
pub(crate) struct FlushPass {
    left: VecDeque<usize>,
    /// Where the next pass begins: after the last visit, so that a pass that is cut short favours
    /// no vbucket.
    next: usize,
}

impl FlushPass {
    /// Begins a pass over all `vbuckets`, whatever was left of one before.
    pub fn begin(&mut self, vbuckets: usize) {
        self.left.clear();
        self.left.extend((self.next..vbuckets).chain(0..self.next.min(vbuckets)));
        assert_eq!(self.left.len(), vbuckets, "a pass visits every vbucket once");
    }

    /// The next vbucket to visit.
    pub fn visit(&mut self) -> Option<usize> {
        let position = self.left.pop_front()?;
        self.next = position + 1;
        Some(position)
    }

    /// A vbucket of this step has more than one step takes.
    pub fn visit_again(&mut self, position: usize) {
        debug_assert!(!self.left.contains(&position), "a pass visits a vbucket once at a time");
        self.left.push_back(position);
    }

    /// Abandons the pass: the next step begins a new one. True when vbuckets were left.
    pub fn give_up(&mut self) -> bool {
        let was_under_way = !self.is_over();
        self.left.clear();
        debug_assert!(self.is_over(), "a pass that is given up is over");
        was_under_way
    }

    /// True when every vbucket was visited.
    pub fn is_over(&self) -> bool {
        self.left.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn visits(pass: &mut FlushPass, count: usize) -> Vec<usize> {
        std::iter::from_fn(|| pass.visit()).take(count).collect()
    }

    // Invariant: A flush pass visits each vbucket once; new writes wait for the next pass.
    #[test]
    fn a_pass_visits_each_vbucket_once_the_fullest_last() {
        let mut pass = FlushPass::default();
        assert!(pass.is_over() && pass.visit().is_none());
        pass.begin(3);
        assert_eq!(pass.visit(), Some(0));
        pass.visit_again(0);
        assert_eq!(visits(&mut pass, 3), [1, 2, 0]);
        assert!(pass.is_over() && !pass.give_up());
    }

    #[test]
    fn a_pass_begins_where_the_last_one_stopped() {
        let mut pass = FlushPass::default();
        pass.begin(4);
        assert_eq!(visits(&mut pass, 2), [0, 1]);
        assert!(pass.give_up() && pass.is_over());
        pass.begin(4);
        assert_eq!(visits(&mut pass, 5), [2, 3, 0, 1]);
        pass.begin(4);
        assert_eq!(pass.visit(), Some(2));
    }
}
