//! A look-up without the lock that finds nothing, while the table grows and an item moves.
//!
//! What groups are shown is kept by `hash_table/group/published.rs`. A table's groups are a
//! stand-in: one slot each, for the one item, which is in the table all the time. So a look-up that
//! says that nothing is there is wrong, and so is an item that is found in no order of the threads.

use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool as Noted, Ordering as NotedOrdering};

use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;

mod atomic {
    pub(super) use loom::sync::atomic::{AtomicPtr, Ordering};
}

#[path = "../hash_table/group/published.rs"]
mod shown;

use shown::{PublishedGroups, TableLookup};

/// Groups with capacity for the item.
struct GroupArray {
    has_item: AtomicBool,
}

impl GroupArray {
    fn new(has_item: bool) -> GroupArray {
        GroupArray { has_item: AtomicBool::new(has_item) }
    }

    fn place(&self) -> *mut GroupArray {
        std::ptr::from_ref(self).cast_mut()
    }
}

/// Which rule of the module is broken.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bug {
    None,
    /// 1: the item leaves before it enters.
    LeavesFirst,
    /// 2: the current groups are searched first.
    SearchesCurrentFirst,
    /// 3: the new groups are shown before the old ones.
    ShowsCurrentFirst,
    /// 3: the growth is shown after the first move.
    ShowsLate,
    /// 4: the current groups are not looked at again.
    DoesNotLookAgain,
}

struct World {
    shown: PublishedGroups<GroupArray>,
    tables: [GroupArray; 3],
    bug: Bug,
}

impl World {
    fn new(bug: Bug) -> Arc<World> {
        let tables = [GroupArray::new(true), GroupArray::new(false), GroupArray::new(false)];
        let world = Arc::new(World { shown: PublishedGroups::new(null_mut()), tables, bug });
        world.shown.show(world.tables[0].place(), null_mut());
        world
    }

    /// Doubles the table and moves everything, as holders of the lock do one after the other.
    fn grow(&self, from: usize) {
        let [old, new] = [from, from + 1].map(|at| &self.tables[at]);
        match self.bug {
            Bug::ShowsLate => {}
            Bug::ShowsCurrentFirst => {
                self.shown.show(new.place(), null_mut());
                self.shown.show(new.place(), old.place());
            }
            _ => self.shown.show(new.place(), old.place()),
        }
        let order = if self.bug == Bug::LeavesFirst {
            [(old, false), (new, true)]
        } else {
            [(new, true), (old, false)]
        };
        for (groups, has_item) in order {
            groups.has_item.store(has_item, Ordering::Release);
        }
        self.shown.show(new.place(), null_mut());
    }

    fn search(&self, groups: *mut GroupArray) -> Option<()> {
        let at = self.tables.iter().position(|one| one.place() == groups);
        self.tables[at.expect("one of these")].has_item.load(Ordering::Acquire).then_some(())
    }

    fn find(&self) -> TableLookup<()> {
        match self.bug {
            Bug::DoesNotLookAgain => match self.shown.look_up(|groups| self.search(groups)) {
                TableLookup::Found(()) => TableLookup::Found(()),
                TableLookup::Nothing | TableLookup::Unsettled => TableLookup::Nothing,
            },
            Bug::SearchesCurrentFirst => {
                let mut searched = Vec::new();
                self.shown.look_up(|groups| {
                    searched.push(groups);
                    None::<()>
                });
                let current = self.shown.current();
                let found = searched.iter().rev().find_map(|groups| self.search(*groups));
                match found {
                    Some(()) => TableLookup::Found(()),
                    None if self.shown.current() == current => TableLookup::Nothing,
                    None => TableLookup::Unsettled,
                }
            }
            _ => self.shown.look_up(|groups| self.search(groups)),
        }
    }
}

/// One thread lets the table grow `growths` times, the other looks for the item.
fn find_while_growing(bug: Bug, growths: usize) -> impl Fn() + Send + Sync + 'static {
    move || {
        let world = World::new(bug);
        let reading = Arc::clone(&world);
        let reader = thread::spawn(move || {
            assert!(
                !matches!(reading.find(), TableLookup::Nothing),
                "an item that is there is missed"
            );
        });
        (0..growths).for_each(|from| world.grow(from));
        reader.join().expect("no assertion fails");
        assert!(matches!(world.find(), TableLookup::Found(())));
    }
}

// Invariant: A look-up without the lock reports a miss only if the document was absent at some
// moment of the look-up.
#[test]
fn present_keys_are_found_while_the_table_grows() {
    for growths in [1, 2] {
        loom::model(find_while_growing(Bug::None, growths));
    }
}

/// The checker gets to look-ups that the growth unsettles, so the last rule is tried.
#[test]
fn a_growth_during_a_look_up_is_noticed() {
    let seen = Arc::new([const { Noted::new(false) }; 2]);
    let noted = Arc::clone(&seen);
    loom::model(move || {
        let world = World::new(Bug::None);
        let (reading, noted) = (Arc::clone(&world), Arc::clone(&noted));
        let reader = thread::spawn(move || {
            let is_unsettled = matches!(reading.find(), TableLookup::Unsettled);
            noted[usize::from(is_unsettled)].store(true, NotedOrdering::Relaxed);
        });
        world.grow(0);
        reader.join().expect("no assertion fails");
    });
    assert!(seen.iter().all(|one| one.load(NotedOrdering::Relaxed)));
}

#[test]
#[should_panic(expected = "is missed")]
fn an_item_that_leaves_before_it_enters_is_found_out() {
    loom::model(find_while_growing(Bug::LeavesFirst, 1));
}

#[test]
#[should_panic(expected = "is missed")]
fn searching_the_current_groups_first_is_found_out() {
    loom::model(find_while_growing(Bug::SearchesCurrentFirst, 1));
}

#[test]
#[should_panic(expected = "is missed")]
fn new_groups_that_are_shown_alone_are_found_out() {
    loom::model(find_while_growing(Bug::ShowsCurrentFirst, 1));
}

#[test]
#[should_panic(expected = "is missed")]
fn a_growth_that_is_shown_late_is_found_out() {
    loom::model(find_while_growing(Bug::ShowsLate, 1));
}

#[test]
#[should_panic(expected = "is missed")]
fn a_miss_that_is_not_validated_is_found_out() {
    loom::model(find_while_growing(Bug::DoesNotLookAgain, 1));
}
