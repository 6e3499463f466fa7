//! Scans: every item is visited, although the table grows between two holds of its lock.
//!
//! Owns: the cursor, which all sweeps of a table use: eviction, compaction, expiry, the purge of
//! collections, the end of loading, random documents. A scan goes over the old groups first and the
//! current ones after.
//!
//! Invariants, held by `tests/scans.rs` and `models/growth.rs`:
//! 1. An item that stays in the table from the first slice of a scan to its last is visited at
//!    least once. It may be visited twice.
//! 2. Items move in one direction only, from old groups to current ones. So an item that leaves the
//!    old groups ahead of the cursor is met among the current ones, all of which are still ahead.
//! 3. A growth makes the current groups the old ones, under the same numbers, and leaves none
//!    older. So a cursor among the current groups continues at its number among the old ones.
//!
//! A growth that a scan meets costs it one more pass over the current groups. As each one doubles
//! the table, a scan visits at most twice the groups that the table has at its end.

use std::ops::Range;

use super::{GroupArray, HashTable};
use crate::item::ItemRef;
use crate::prefetch::load_line;

/// Groups ahead of the one that is visited whose items are loaded: some ten items, as many as a
/// core loads side by side.
const GROUPS_AHEAD: usize = 2;

/// How far a scan is. The default is its beginning.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ScanCursor {
    /// Growths of the table when the cursor moved last.
    growths: u64,
    part: Part,
    /// The next group of that part.
    group: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Part {
    #[default]
    Old,
    Current,
}

impl HashTable {
    /// Visits the items of up to `groups` groups, in no particular order, and moves the cursor past
    /// them. True at the end of the scan; the cursor is then at the beginning of the next scan.
    pub fn scan(
        &self,
        cursor: &mut ScanCursor,
        groups: usize,
        mut visit: impl FnMut(&ItemRef),
    ) -> bool {
        assert!(groups > 0, "a scan makes progress");
        let mut at = self.caught_up(*cursor);
        let mut left = groups;
        if let (Part::Old, Some(old)) = (at.part, &self.old) {
            let end = at.group.saturating_add(left).min(old.groups.len());
            visit_all(&old.groups, at.group..end, &mut visit);
            left -= end - at.group;
            debug_assert!(end >= at.group, "a cursor is inside the table");
            at.group = end;
            if end == old.groups.len() {
                (at.part, at.group) = (Part::Current, 0);
            }
        }
        if at.part == Part::Current {
            let end = at.group.saturating_add(left).min(self.current.len());
            visit_all(&self.current, at.group..end, &mut visit);
            at.group = end;
            if end == self.current.len() {
                *cursor = ScanCursor::default();
                return true;
            }
        }
        *cursor = at;
        false
    }

    /// A place at random, each group that may have items being as likely as any other. `None` when
    /// the table has no groups.
    pub fn cursor_at(&self, random: u64) -> Option<ScanCursor> {
        let (moved, old) = self.old.as_ref().map_or((0, 0), |old| (old.next, old.groups.len()));
        debug_assert!(moved <= old, "groups move once");
        let groups = old - moved + self.current.len();
        let group = random.checked_rem(groups as u64)? as usize + moved;
        let (part, group) =
            if group < old { (Part::Old, group) } else { (Part::Current, group - old) };
        Some(ScanCursor { growths: self.resizes, part, group })
    }

    /// The cursor in terms of the groups that the table has now.
    fn caught_up(&self, cursor: ScanCursor) -> ScanCursor {
        let growths = self.resizes.wrapping_sub(cursor.growths);
        let (part, group) = match (growths, cursor.part) {
            (0, part) => (part, cursor.group),
            // The current groups are old now (3), and those after the cursor were visited.
            (1, Part::Current) => (Part::Old, cursor.group),
            _ => (Part::Old, 0),
        };
        let (part, group) = match (part, &self.old) {
            // Items that have moved are not visited here.
            (Part::Old, Some(old)) => (Part::Old, group.max(old.next)),
            // All of it has moved to the current groups (2).
            (Part::Old, None) => (Part::Current, 0),
            (Part::Current, _) => (Part::Current, group),
        };
        // A table that was empty may have been given other groups, and one that was cleared has
        // none.
        ScanCursor { growths: self.resizes, part, group: group.min(self.groups_of(part)) }
    }

    fn groups_of(&self, part: Part) -> usize {
        match part {
            Part::Old => self.old.as_ref().map_or(0, |old| old.groups.len()),
            Part::Current => self.current.len(),
        }
    }
}

/// Visits the items of these groups, while those of the next groups are being loaded: each is a
/// miss.
fn visit_all(groups: &GroupArray, range: Range<usize>, visit: &mut impl FnMut(&ItemRef)) {
    let load = |group| groups.items(group).for_each(|item| load_line(item.address()));
    range.clone().take(GROUPS_AHEAD).for_each(load);
    for group in range.clone() {
        if group + GROUPS_AHEAD < range.end {
            load(group + GROUPS_AHEAD);
        }
        groups.items(group).for_each(&mut *visit);
    }
}
