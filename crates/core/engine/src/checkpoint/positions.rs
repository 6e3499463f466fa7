//! Positions of cursors by place, and the lowest of them.
//!
//! Owns: a tree of minima in one array. Moving one cursor changes the nodes above its place, seven
//! for a hundred cursors, and the lowest position is read at the root. So a removal of checkpoints
//! takes the same time with any number of cursors. The tree has positions, not cursors.
//!
//! Invariant: node `i` is the lower one of nodes `2i` and `2i + 1`; the root is node 1, and places
//! are the last half of the array.

/// Position of a place without a cursor.
const NONE: u64 = u64::MAX;

/// See the module text.
#[derive(Default)]
pub(super) struct Positions {
    /// Twice a power of two, or empty.
    nodes: Vec<u64>,
}

impl Positions {
    /// Notes the position of the cursor at `place`.
    pub(super) fn set(&mut self, place: usize, position: u64) {
        debug_assert_ne!(position, NONE, "a cursor has a position");
        if place >= self.places() {
            self.grow(place);
        }
        self.write(place, position);
    }

    /// Notes that `place` has no cursor.
    pub(super) fn remove(&mut self, place: usize) {
        if place < self.places() {
            self.write(place, NONE);
        }
    }

    /// The lowest position; `None` without a cursor.
    #[inline]
    pub(super) fn lowest(&self) -> Option<u64> {
        self.nodes.get(1).copied().filter(|lowest| *lowest != NONE)
    }

    /// The position at a place, if a cursor is there.
    pub(super) fn get(&self, place: usize) -> Option<u64> {
        debug_assert!(self.nodes.is_empty() || self.places().is_power_of_two(), "a whole tree");
        let node = self.nodes.get(self.places() + place);
        node.copied().filter(|position| *position != NONE)
    }

    /// True when every cursor is below `limit`. Looks at all places, eight to a cache line.
    pub(super) fn are_below(&self, limit: u64) -> bool {
        let positions = &self.nodes[self.places()..];
        positions.iter().all(|position| *position == NONE || *position < limit)
    }

    /// Places, taken or not.
    fn places(&self) -> usize {
        self.nodes.len() / 2
    }

    fn write(&mut self, place: usize, position: u64) {
        let mut node = self.places() + place;
        debug_assert!(place < self.places(), "a cursor's place is in the tree");
        self.nodes[node] = position;
        while node > 1 {
            let lower = self.nodes[node].min(self.nodes[node ^ 1]);
            node /= 2;
            if std::mem::replace(&mut self.nodes[node], lower) == lower {
                return;
            }
        }
    }

    #[cold]
    fn grow(&mut self, place: usize) {
        let before = std::mem::take(&mut self.nodes);
        let places = (place + 1).next_power_of_two();
        assert!(2 * places > before.len(), "the tree only grows");
        self.nodes = vec![NONE; 2 * places];
        for (place, position) in before[before.len() / 2..].iter().enumerate() {
            self.write(place, *position);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Positions;

    proptest! {
        #[test]
        fn the_lowest_is_that_of_a_list(
            steps in proptest::collection::vec((0..40_usize, proptest::option::of(0..50_u64)), 0..200),
        ) {
            let (mut positions, mut list) = (Positions::default(), vec![None; 40]);
            for (place, position) in steps {
                match position {
                    Some(position) => positions.set(place, position),
                    None => positions.remove(place),
                }
                list[place] = position;
                prop_assert_eq!(positions.lowest(), list.iter().copied().flatten().min());
                let below = |limit| list.iter().flatten().all(|position| *position < limit);
                prop_assert!((0..51).all(|limit| positions.are_below(limit) == below(limit)));
                for (place, position) in list.iter().enumerate() {
                    prop_assert_eq!(positions.get(place), *position);
                }
            }
        }
    }
}
