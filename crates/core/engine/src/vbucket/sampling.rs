//! Documents picked at random.
//!
//! Owns: the draw within a vbucket. A slot of the table is drawn; a slot without a fitting document
//! is drawn again, so that every document has the same chance. If fitting documents are too rare
//! for that, the first one after a random group is taken. Only documents whose values are in memory
//! are picked, so the draw never waits for a disk. A vbucket that serves nothing has nothing to
//! draw; like ownership, this is decided under the lock of its table. Called by the bucket, which
//! draws the vbucket.

use oribi_types::{Cas, CollectionId, Timestamp};

use super::VBucket;
use crate::dense::Samples;
use crate::hash_table::ScanCursor;
use crate::item::ItemRef;
use crate::limits::{DENSE_PLAIN_BYTES_MAX, DENSE_PLAIN_BYTES_MIN};

/// Slots drawn before groups are searched one by one.
const DRAWS: usize = 64;
/// Groups searched under one hold of the lock.
const GROUPS_PER_SLICE: usize = 256;
/// Slots of a group. A higher number would only make draws fail more often.
const GROUP_SLOTS: u64 = 7;
const _: () = assert!(DENSE_PLAIN_BYTES_MIN <= DENSE_PLAIN_BYTES_MAX);

/// Target of the search.
#[derive(Clone, Copy)]
struct SampleWish {
    collection: CollectionId,
    now: Timestamp,
}

impl SampleWish {
    fn fits(self, item: &ItemRef) -> bool {
        item.key().collection == self.collection
            && item.is_live(self.now.unix_s())
            && !item.is_in_store_only()
    }
}

impl VBucket {
    /// Documents of a collection; none while the vbucket serves nothing.
    pub(crate) fn collection_items(&self, collection: CollectionId) -> u64 {
        let table = self.table.lock();
        match self.serves_clients() {
            true => table.collections().get(collection).map_or(0, |figures| figures.items),
            false => 0,
        }
    }

    /// A random document of a collection and the CAS that may be shown.
    pub(crate) fn random_item(
        &self,
        collection: CollectionId,
        now: Timestamp,
        random: &mut dyn FnMut() -> u64,
    ) -> Option<(ItemRef, Cas)> {
        let (item, cas) = self.drawn_item(collection, now, random)?;
        Some((item.to_plain().ok()?, cas))
    }

    fn drawn_item(
        &self,
        collection: CollectionId,
        now: Timestamp,
        random: &mut dyn FnMut() -> u64,
    ) -> Option<(ItemRef, Cas)> {
        let wanted = SampleWish { collection, now };
        {
            let table = self.table.lock();
            if !self.serves_clients() {
                return None;
            }
            for _ in 0..DRAWS {
                let mut cursor = table.index.cursor_at(random())?;
                let mut slot = random() % GROUP_SLOTS;
                let mut drawn = None;
                table.index.scan(&mut cursor, 1, |item| {
                    if slot == 0 && wanted.fits(item) {
                        drawn = Some(item.clone());
                    }
                    slot = slot.wrapping_sub(1);
                });
                if let Some(item) = drawn {
                    let cas = table.locks.shown_cas(&item, wanted.now);
                    return Some((item, cas));
                }
            }
        }
        self.next_item(wanted, random())
    }

    /// Adds values of a collection from the next groups after the cursor. True when the scan is
    /// complete.
    pub(crate) fn sample_values(
        &self,
        (collection, now): (CollectionId, Timestamp),
        cursor: &mut ScanCursor,
        groups: usize,
        samples: &mut Samples,
    ) -> bool {
        let wanted = SampleWish { collection, now };
        let is_eligible = |item: &ItemRef| {
            wanted.fits(item)
                && !item.is_compressed()
                && (DENSE_PLAIN_BYTES_MIN..=DENSE_PLAIN_BYTES_MAX).contains(&item.value_bytes())
        };
        let (items, is_complete) = self.table.lock().pick(cursor, groups, is_eligible);
        let mut plain = items.iter().filter_map(|item| item.to_plain().ok());
        let _has_place = plain.all(|item| samples.add(item.value()));
        is_complete
    }

    /// The first fitting document after a random group; if there is none, the first of all.
    fn next_item(&self, wanted: SampleWish, random: u64) -> Option<(ItemRef, Cas)> {
        let behind = self.table.lock().index.cursor_at(random)?;
        self.first_item(wanted, behind).or_else(|| self.first_item(wanted, ScanCursor::default()))
    }

    /// The first fitting document that a scan meets from `cursor` on.
    fn first_item(&self, wanted: SampleWish, mut cursor: ScanCursor) -> Option<(ItemRef, Cas)> {
        let mut is_complete = false;
        while !is_complete {
            let table = self.table.lock();
            if !self.serves_clients() {
                return None;
            }
            let mut found = None;
            is_complete = table.index.scan(&mut cursor, GROUPS_PER_SLICE, |item| {
                if found.is_none() && wanted.fits(item) {
                    found = Some(item.clone());
                }
            });
            if let Some(item) = found {
                let cas = table.locks.shown_cas(&item, wanted.now);
                return Some((item, cas));
            }
        }
        None
    }
}
