//! System events in a vbucket's history.
//!
//! Owns: how an event is queued, and the events of a vbucket that lives in memory only. An event
//! takes a seqno and a CAS like a document, and is flushed like one, but no table has it. Called by
//! the bucket, which orders events and changes of the manifest.

use std::sync::atomic::Ordering;

use oribi_types::{CollectionId, DocKey, RevSeqno, Timestamp};

use super::context::Context;
use super::{HANDING_OVER, RETIRING, VBucket};
use crate::checkpoint::CheckpointManager;
use crate::item::{ItemFields, ItemRef, NewItem};
use crate::system_event::ManifestEvent;

impl VBucket {
    /// Adds events to the history, unless the vbucket is not this node's or about to go: then its
    /// next owner adds them. Their seqnos are assigned here.
    pub(crate) fn add_events(&self, context: &Context<'_>, events: &[ManifestEvent<'_>]) {
        if events.is_empty() {
            return;
        }
        let has_idle_stream = {
            let _phase_is_steady = self.table.lock();
            // A replica gets the events of its active.
            if !self.is_owned() || self.is_retiring() || self.is_replica() {
                return;
            }
            let mut queue = self.queue.lock();
            self.queue_events(context, &mut queue, events);
            queue.has_idle_stream()
        };
        self.mark_dirty(context.signals);
        if has_idle_stream {
            self.wake_streams();
        }
        self.report_memory(context);
    }

    /// Queues events that are older than whatever comes later under the queue's lock.
    pub(super) fn queue_events(
        &self,
        context: &Context<'_>,
        queue: &mut CheckpointManager,
        events: &[ManifestEvent<'_>],
    ) {
        for event in events {
            // The clock of the last write, if none was handed in.
            let clock = context.now.unix_ns.max(queue.max_cas().0);
            let new = item_of(event, Timestamp { unix_ns: clock });
            let item = queue.enqueue_alone(new, RevSeqno(1), context.now);
            debug_assert_eq!(
                item.seqno(),
                queue.high_seqno(),
                "an event is the newest of the history"
            );
            if self.persistence_cursor.is_none() {
                self.events.lock().put(item);
            }
        }
    }

    /// The events of a vbucket that lives in memory only: the newest of each collection and scope,
    /// in ascending seqno.
    pub(crate) fn events_in_memory(&self) -> Vec<ItemRef> {
        let mut events = self.events.lock().all();
        events.sort_unstable_by_key(|item| item.seqno());
        events
    }

    fn is_retiring(&self) -> bool {
        matches!(self.table.phase().load(Ordering::Acquire), RETIRING | HANDING_OVER)
    }
}

pub(super) fn item_of(event: &ManifestEvent<'_>, clock: Timestamp) -> NewItem {
    let key = event.key();
    let key = DocKey { collection: CollectionId::SYSTEM, key: &key };
    let deleted = event.kind.is_end();
    // The expiry of a tombstone is the time of its deletion.
    let expiry = if deleted { clock.unix_s() } else { 0 };
    let fields = ItemFields { deleted, expiry, ..ItemFields::default() };
    debug_assert_eq!(
        event.kind.is_of_scope(),
        event.collection.is_none(),
        "an event has its subject"
    );
    NewItem::new(key, fields, &[&event.encode()])
}
