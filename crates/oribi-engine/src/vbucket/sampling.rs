//! Documents picked at random.
//!
//! Owns: the draw. A vbucket is drawn by how many documents of the collection it has, then a slot of its table; a slot without
//! a fitting document is drawn again, so that every document has the same chance. Where fitting documents are so rare that
//! this comes to nothing, the first group behind a random one that has any decides. Only documents whose values are in memory
//! are picked: nobody waits for a disk. A vbucket that serves nothing is looked at by nobody, which is decided under the lock of
//! its table, like all that ownership decides. Called for GET_RANDOM_KEY.

use oribi_types::{Cas, CollectionId, Timestamp};

use super::VBucket;
use crate::bucket::Bucket;
use crate::item::ItemRef;
use crate::outcome::{LOCKED_CAS, Refused};

/// Slots drawn before groups are gone through one by one.
const DRAWS: usize = 64;
/// Groups that are gone through under one hold of the lock.
const GROUPS_PER_SLICE: usize = 256;
/// Slots of a group: more than any has would only make draws fail more often.
const GROUP_SLOTS: u64 = 7;

/// What is looked for.
#[derive(Clone, Copy)]
struct Wanted {
    collection: CollectionId,
    now: Timestamp,
}

impl Wanted {
    fn fits(self, item: &ItemRef) -> bool {
        item.key().collection == self.collection
            && item.is_live(self.now.unix_s())
            && !item.is_evicted()
    }
}

impl VBucket {
    fn collection_items(&self, collection: CollectionId) -> u64 {
        let table = self.table.lock();
        match self.is_serving() {
            true => table.collections().get(collection).map_or(0, |figures| figures.items),
            false => 0,
        }
    }

    fn random_item(
        &self,
        wanted: Wanted,
        random: &mut dyn FnMut() -> u64,
    ) -> Option<(ItemRef, Cas)> {
        {
            let table = self.table.lock();
            if !self.is_serving() {
                return None;
            }
            let groups = table.index.group_count() as u64;
            for _ in 0..if groups > 0 { DRAWS } else { 0 } {
                let (group, mut slot) = (random() % groups, random() % GROUP_SLOTS);
                let mut drawn = None;
                table.index.visit_group(group as usize, |item| {
                    if slot == 0 && wanted.fits(item) {
                        drawn = Some(item.clone());
                    }
                    slot = slot.wrapping_sub(1);
                });
                if let Some(item) = drawn {
                    let is_locked = table.locks.is_locked(&item, wanted.now);
                    let cas = if is_locked { LOCKED_CAS } else { item.cas() };
                    return Some((item, cas));
                }
            }
        }
        self.next_item(wanted, random())
    }

    /// The first fitting document behind a random group, going round.
    fn next_item(&self, wanted: Wanted, begin: u64) -> Option<(ItemRef, Cas)> {
        let groups = self.table.lock().index.group_count();
        let mut seen = 0;
        while seen < groups {
            let table = self.table.lock();
            // It may have been emptied since, or have grown: then not all of it is gone through.
            let count = table.index.group_count();
            if !self.is_serving() || count == 0 {
                return None;
            }
            for _ in 0..GROUPS_PER_SLICE.min(groups - seen) {
                let group = (begin as usize).wrapping_add(seen) % count;
                let mut found = None;
                table.index.visit_group(group, |item| {
                    if wanted.fits(item) {
                        found = Some(item.clone());
                    }
                });
                if let Some(item) = found {
                    let is_locked = table.locks.is_locked(&item, wanted.now);
                    let cas = if is_locked { LOCKED_CAS } else { item.cas() };
                    return Some((item, cas));
                }
                seen += 1;
            }
        }
        None
    }
}

impl Bucket {
    /// A random document of a collection and the CAS that may be shown; nothing when no document's value is in memory.
    ///
    /// # Errors
    /// When there is no such collection.
    pub fn random_document(
        &self,
        collection: CollectionId,
        now: Timestamp,
    ) -> Result<Option<(ItemRef, Cas)>, Refused> {
        if !self.manifest().contains(collection) {
            return Err(Refused::UnknownCollection);
        }
        let wanted = Wanted { collection, now };
        let items: Vec<u64> =
            self.vbuckets().iter().map(|vbucket| vbucket.collection_items(collection)).collect();
        let total: u64 = items.iter().sum();
        let mut random = || self.random_number();
        let Some(mut left) = random().checked_rem(total) else { return Ok(None) };
        let drawn = items.iter().position(|items| {
            let is_here = left < *items;
            left = left.wrapping_sub(*items);
            is_here
        });
        let vbuckets = self.vbuckets();
        let from = drawn.unwrap_or(0);
        let in_turn = (0..vbuckets.len()).map(|at| (from + at) % vbuckets.len());
        let mut with_items = in_turn.filter(|at| items[*at] > 0);
        Ok(with_items.find_map(|at| vbuckets[at].random_item(wanted, &mut random)))
    }
}
