//! Context of an operation on a vbucket: its bucket's state.
//!
//! Owns: references to what all vbuckets share, the time of the request, and what follows from
//! both: whether a collection exists, and how long its documents may live. The bucket makes one for
//! each request; nothing is copied.

use std::sync::atomic::{AtomicU32, Ordering};

use arc_swap::ArcSwap;
use oribi_types::{CollectionId, DurabilityLevel, Timestamp};

use crate::collections::BucketManifest;
use crate::compression::CompressionSwitch;
use crate::expiry;
use crate::flusher_signal::FlusherSignals;
use crate::memory::Memory;

/// When a write becomes visible.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteVisibility {
    AtOnce,
    /// When the store has it.
    WhenStored,
    /// When the copies of the vbucket have it as this level demands.
    WhenCommitted(DurabilityLevel),
}

/// A request's view of its bucket, made by [`crate::Bucket::context`].
#[derive(Clone, Copy)]
pub struct Context<'a> {
    pub(crate) manifest: &'a ArcSwap<BucketManifest>,
    pub(crate) signals: &'a FlusherSignals,
    pub(crate) now: Timestamp,
    pub(crate) value_bytes_max: usize,
    pub(crate) memory: &'a Memory,
    pub(crate) compression: &'a CompressionSwitch,
    pub(crate) max_ttl_s: &'a AtomicU32,
    /// When clients' writes become visible.
    pub(crate) visibility: WriteVisibility,
}

impl Context<'_> {
    /// Writes of this request become visible then.
    #[inline]
    #[must_use]
    pub fn visible(self, visibility: WriteVisibility) -> Self {
        Context { visibility, ..self }
    }

    /// True when a write without effect may be answered by the current version. Only a prepare
    /// shows that the copies of a vbucket have a version, so a write that waits for them makes one.
    pub(super) fn may_keep_current(&self) -> bool {
        !matches!(self.visibility, WriteVisibility::WhenCommitted(_))
    }

    /// Asked under the table lock: a collection is purged from the table after it has left the
    /// manifest, so a document that is written while the collection is still here is purged as
    /// well.
    pub(super) fn knows(&self, collection: CollectionId) -> bool {
        collection == CollectionId::DEFAULT || self.manifest.load().contains(collection)
    }

    /// Absolute expiry of a document of `collection`, from what the client asked for.
    pub(super) fn expiry(&self, collection: CollectionId, wire: u32) -> u32 {
        self.limited_expiry(collection, expiry::absolute(wire, self.now))
    }

    /// An absolute expiry as far as documents of `collection` may have it. The collection's rule
    /// precedes the bucket's.
    pub(super) fn limited_expiry(&self, collection: CollectionId, expiry: u32) -> u32 {
        let of_bucket = self.max_ttl_s.load(Ordering::Relaxed);
        if collection == CollectionId::DEFAULT {
            return expiry::limited(expiry, of_bucket, self.now);
        }
        let manifest = self.manifest.load();
        let of_collection = manifest.collection(collection).and_then(|found| found.max_ttl_s);
        expiry::limited(expiry, of_collection.unwrap_or(of_bucket), self.now)
    }
}
