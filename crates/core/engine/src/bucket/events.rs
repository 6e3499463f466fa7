//! System events of a bucket: the manifest's changes in the history of each vbucket.
//!
//! Owns: when events are added. Invariant: while no change is under way, the history of each
//! vbucket that serves says what the manifest in force says. A change of the manifest adds its
//! events to every vbucket after it is durable and before it is in force. So no document of a new
//! collection comes before the collection's event. A crash between the two, a vbucket that comes
//! from another node, an emptied bucket and data of a build without events are reconciled: what the
//! history does not say is added.

use std::ops::ControlFlow;

use oribi_storage::{StoreError, unlimited};
use oribi_types::policy::Storage;

use super::Bucket;
use crate::collections::{AnnouncedEvents, BucketManifest};
use crate::system_event::{FIRST_KEY, ManifestEvent};
use crate::vbucket::VBucket;

impl Bucket {
    /// Adds the events of a change to the history of every vbucket that this node owns. Called
    /// before `after` is in force, while no other change is under way.
    pub(super) fn add_events_of(&self, before: &BucketManifest, after: &BucketManifest) {
        debug_assert!(after.uid() >= before.uid(), "events lead to a later manifest");
        let events = AnnouncedEvents::all_of(before).missing(after);
        let context = self.core.context(self.core.latest_time());
        self.vbuckets().iter().for_each(|vbucket| vbucket.add_events(&context, &events));
    }

    /// Adds to each of these vbuckets the events of the manifest in force that its history lacks.
    /// Called when a history begins or continues here. Reads the store.
    pub(super) fn reconcile<'v>(&self, vbuckets: impl Iterator<Item = &'v VBucket>) {
        self.core.collections().between_changes(|manifest| {
            if manifest.is_untouched() {
                return;
            }
            for vbucket in vbuckets {
                match self.announced(vbucket) {
                    Ok(announced) => self.add_missing(vbucket, &announced, manifest),
                    Err(error) => {
                        tracing::warn!(bucket = self.core.name(), vbid = %vbucket.id(), %error, "events of collections cannot be read; change streams may lack some until the next start");
                    }
                }
            }
        });
    }

    fn add_missing(
        &self,
        vbucket: &VBucket,
        announced: &AnnouncedEvents,
        manifest: &BucketManifest,
    ) {
        let context = self.core.context(self.core.latest_time());
        vbucket.add_events(&context, &announced.missing(manifest));
    }

    /// The durable part of a history, or all of one in memory only.
    fn announced(&self, vbucket: &VBucket) -> Result<AnnouncedEvents, StoreError> {
        let mut announced = AnnouncedEvents::default();
        let mut add = |seqno, body: &[u8]| {
            // A record that cannot be read is as good as none.
            ManifestEvent::decode(seqno, body).iter().for_each(|event| announced.add(event));
        };
        if self.core.config().storage == Storage::Memory {
            vbucket.events_in_memory().iter().for_each(|item| add(item.seqno(), item.value()));
            return Ok(announced);
        }
        self.core.store().scan_collection(
            vbucket.id(),
            FIRST_KEY,
            &mut unlimited,
            &mut |record| {
                add(record.seqno, record.value);
                ControlFlow::Continue(())
            },
        )?;
        Ok(announced)
    }
}
