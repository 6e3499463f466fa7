//! The tablets of one table, ordered by partition key, with the gaps between them.
//!
//! The module is pure: the master's answers and the time are arguments. Invariants: entries never
//! overlap. An entry is either a tablet or a range that no tablet covers. Keys between entries are
//! unknown, and an expired entry counts as unknown. An unchanged tablet keeps its [`Tablet`] over
//! all answers, so every holder sees its replicas move.
//!
//! An answer implies more than its tablets. The master returns them in order, starting with the
//! tablet that holds the key in question. If there is none, it starts with the nearest tablet
//! before the key, or else after it. A gap between two returned tablets is therefore a range
//! without a tablet. So is the space after the last one when the answer has fewer tablets than
//! requested.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use tokio::time::Instant;

use crate::partition::Partition;

use super::tablet::{Replica, ReplicaSet, Tablet};

/// A tablet as the master's answer describes it.
#[derive(Debug)]
pub(crate) struct LocatedTablet {
    /// 32 hexadecimal digits.
    pub(crate) id: String,
    /// The part of the table that it holds.
    pub(crate) partition: Partition,
    /// Its replicas.
    pub(crate) replicas: Vec<Replica>,
}

/// Cache entry of a partition key.
#[derive(Clone, Debug)]
pub(crate) enum Location {
    /// This tablet holds it.
    Tablet(Arc<Tablet>),
    /// No tablet holds it.
    NonCovered,
    /// The client has to ask the master.
    Unknown,
}

/// Cached tablets of one table.
#[derive(Debug, Default)]
pub(crate) struct TableLocations {
    /// By first partition key.
    entries: BTreeMap<Bytes, Entry>,
    by_id: HashMap<String, Arc<Tablet>>,
    /// The last complete list, until an entry changes.
    snapshot: Option<Snapshot>,
}

#[derive(Debug)]
struct Entry {
    end: Bytes,
    /// Absent for a range that no tablet covers.
    tablet: Option<Arc<Tablet>>,
    expires: Instant,
}

#[derive(Clone, Debug)]
struct Snapshot {
    tablets: Arc<[Arc<Tablet>]>,
    expires: Instant,
}

impl TableLocations {
    /// The cache's entry for `partition_key` at `now`.
    pub(crate) fn find(&self, partition_key: &[u8], now: Instant) -> Location {
        let floor = self
            .entries
            .range::<[u8], _>((Bound::Unbounded, Bound::Included(partition_key)))
            .next_back();
        let Some((_, entry)) = floor else { return Location::Unknown };
        let reaches = entry.end.is_empty() || partition_key < entry.end.as_ref();
        if !reaches || entry.expires <= now {
            return Location::Unknown;
        }
        match &entry.tablet {
            Some(tablet) => Location::Tablet(tablet.clone()),
            None => Location::NonCovered,
        }
    }

    /// Takes over an answer to a question about `asked` that allowed `limit` tablets.
    pub(crate) fn absorb(
        &mut self,
        asked: &[u8],
        limit: usize,
        answer: Vec<LocatedTablet>,
        expires: Instant,
    ) {
        self.snapshot = None;
        let count = answer.len();
        let Some(first) = answer.first() else {
            // The question had no upper bound, so any tablet would have come: the table has none.
            self.put(Bytes::new(), Entry { end: Bytes::new(), tablet: None, expires });
            return;
        };
        // The first tablet is after the key only when there is none at or before it.
        let mut reached =
            if asked < first.partition.start.as_ref() { Some(Bytes::new()) } else { None };
        for located in answer {
            if let Some(gap) = reached.filter(|gap| *gap < located.partition.start) {
                self.put(
                    gap,
                    Entry { end: located.partition.start.clone(), tablet: None, expires },
                );
            }
            reached = Some(located.partition.end.clone()).filter(|end| !end.is_empty());
            self.put_tablet(located, expires);
        }
        if let Some(gap) = reached
            && count < limit
        {
            self.put(gap, Entry { end: Bytes::new(), tablet: None, expires });
        }
    }

    /// Forgets the ranges that no tablet covers, because another client may have added partitions.
    pub(crate) fn forget_gaps(&mut self) {
        self.snapshot = None;
        self.entries.retain(|_, entry| entry.tablet.is_some());
    }

    /// Forgets a tablet, because the table was altered or a server said that the tablet is gone.
    pub(crate) fn forget_tablet(&mut self, tablet_id: &str) {
        if let Some(tablet) = self.by_id.get(tablet_id).cloned() {
            self.remove(&tablet.partition().start);
        }
    }

    /// The known tablets.
    pub(crate) fn tablets(&self) -> impl Iterator<Item = &Tablet> {
        self.by_id.values().map(|tablet| &**tablet)
    }

    /// All tablets of the table in order, or the first unknown partition key.
    pub(crate) fn complete(&mut self, now: Instant) -> Result<Arc<[Arc<Tablet>]>, Bytes> {
        if let Some(snapshot) = self.snapshot.as_ref().filter(|snapshot| now < snapshot.expires) {
            return Ok(snapshot.tablets.clone());
        }
        let mut reached = Bytes::new();
        let mut expires: Option<Instant> = None;
        for (start, entry) in &self.entries {
            if *start > reached || entry.expires <= now {
                return Err(if *start > reached { reached } else { start.clone() });
            }
            expires = Some(expires.map_or(entry.expires, |earliest| earliest.min(entry.expires)));
            if entry.end.is_empty() {
                return Ok(self.keep_snapshot(expires.unwrap_or(entry.expires)));
            }
            reached = entry.end.clone();
        }
        Err(reached)
    }

    fn keep_snapshot(&mut self, expires: Instant) -> Arc<[Arc<Tablet>]> {
        let tablets: Arc<[Arc<Tablet>]> =
            self.entries.values().filter_map(|entry| entry.tablet.clone()).collect();
        self.snapshot = Some(Snapshot { tablets: tablets.clone(), expires });
        tablets
    }

    fn put_tablet(&mut self, located: LocatedTablet, expires: Instant) {
        let Partition { start, end, .. } = located.partition.clone();
        let known =
            self.by_id.get(&located.id).filter(|tablet| *tablet.partition() == located.partition);
        let tablet = match known {
            Some(tablet) => {
                tablet.refresh(Arc::new(ReplicaSet::new(located.replicas)));
                tablet.clone()
            }
            None => Arc::new(Tablet::new(located.id, located.partition, located.replicas)),
        };
        self.put(start, Entry { end, tablet: Some(tablet), expires });
    }

    /// Inserts an entry and removes those that it overlaps.
    fn put(&mut self, start: Bytes, entry: Entry) {
        let before = self.entries.range::<Bytes, _>(..&start).next_back();
        let mut overlapped: Vec<Bytes> = Vec::new();
        if let Some((key, earlier)) = before
            && (earlier.end.is_empty() || earlier.end > start)
        {
            overlapped.push(key.clone());
        }
        let behind = self.entries.range::<Bytes, _>(&start..);
        overlapped.extend(
            behind
                .map(|(key, _)| key)
                .take_while(|key| entry.end.is_empty() || **key < entry.end)
                .cloned(),
        );
        for key in overlapped {
            self.remove(&key);
        }
        if let Some(tablet) = &entry.tablet {
            self.by_id.insert(tablet.id().to_owned(), tablet.clone());
        }
        self.entries.insert(start, entry);
    }

    fn remove(&mut self, start: &Bytes) {
        self.snapshot = None;
        if let Some(Entry { tablet: Some(tablet), .. }) = self.entries.remove(start) {
            self.by_id.remove(tablet.id());
        }
    }
}

#[cfg(test)]
#[path = "locations/tests.rs"]
mod tests;
