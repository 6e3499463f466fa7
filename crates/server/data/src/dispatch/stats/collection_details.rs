//! `collections-details` and `scopes-details`: the figures of each collection in each vbucket.
//!
//! With a thousand collections and a thousand vbuckets these are nine million entries, so nothing
//! is allocated or searched per entry. The figures of a vbucket are taken once into a reused block.
//! Both they and the collections of the manifest are ordered by id, so one walk joins them. A
//! collection without figures was never written in that vbucket, which means zeros.

use std::ops::Range;
use std::sync::Arc;

use oribi_engine::CollectionStats;
use oribi_engine::collections::BucketManifest;
use oribi_types::{CollectionId, ScopeId, Vbid};

use super::collections::write_identities;
use crate::buckets::BucketHandle;
use crate::connection::stat_cursor::StatProducer;
use crate::connection::stat_cursor::{HexText, StatWriter};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Detail {
    Collections,
    Scopes,
}

/// The parts of a collection that the entries need.
struct ListedCollection {
    id: CollectionId,
    scope: ScopeId,
    /// Indexes of scope and collection in the manifest.
    place: (usize, usize),
}

/// The producer of either group.
pub(super) struct CollectionDetails {
    detail: Detail,
    bucket: Arc<BucketHandle>,
    manifest: Arc<BucketManifest>,
    listed: Vec<ListedCollection>,
    /// Vbuckets not yet begun.
    left: Range<u16>,
    /// The vbucket in progress.
    current: Option<Vbid>,
    stats: Vec<(CollectionId, CollectionStats)>,
    /// Position in `listed`; for `scopes-details`, the scopes of the manifest come first.
    next: usize,
    next_stats: usize,
    /// Position in the list of collections while the entries of `collections-details` about the
    /// bucket are written.
    identities_from: Option<usize>,
}

impl CollectionDetails {
    /// Creates the producer for the collections in `manifest` in these vbuckets. `is_all` adds the
    /// entries about the bucket, which come before all vbuckets.
    pub fn new(
        detail: Detail,
        bucket: &Arc<BucketHandle>,
        manifest: Arc<BucketManifest>,
        vbuckets: Range<u16>,
        is_all: bool,
    ) -> CollectionDetails {
        let mut listed = Vec::new();
        for (scope_at, scope) in manifest.scopes().iter().enumerate() {
            let collections = scope.collections.iter().enumerate();
            listed.extend(collections.map(|(collection_at, collection)| ListedCollection {
                id: collection.id,
                scope: scope.id,
                place: (scope_at, collection_at),
            }));
        }
        listed.sort_unstable_by_key(|listed| listed.id);
        CollectionDetails {
            detail,
            bucket: Arc::clone(bucket),
            manifest,
            listed,
            left: vbuckets,
            current: None,
            stats: Vec::new(),
            next: 0,
            next_stats: 0,
            identities_from: (is_all && detail == Detail::Collections).then_some(0),
        }
    }

    /// Takes the figures of the next vbucket and writes its own entries.
    fn begin_vbucket(&mut self, writer: &mut StatWriter<'_>) -> bool {
        let Some(vbid) = self.left.next().map(Vbid) else { return false };
        self.stats.clear();
        if let Some(vbucket) = self.bucket.bucket().vbucket(vbid) {
            vbucket.collection_stats(&mut self.stats);
        }
        debug_assert!(
            self.stats.is_sorted_by_key(|(id, _)| *id),
            "both lists have the order of ids"
        );
        self.current = Some(vbid);
        (self.next, self.next_stats) = (0, 0);
        writer.prefix().vbucket(vbid);
        match self.detail {
            Detail::Collections => {
                writer.number("collections", self.listed.len());
                writer.number("manifest:uid", self.manifest.uid().0);
                let is_seen = self.manifest.collection(CollectionId::DEFAULT).is_some();
                let default = self.stats.first();
                let default = default.filter(|(id, _)| is_seen && *id == CollectionId::DEFAULT);
                let seqno = default.map_or(0, |(_, stats)| stats.high_seqno.0);
                writer.number("default_mvs", seqno);
                writer.number("default_legacy_max_dcp_seqno", seqno);
            }
            Detail::Scopes => {
                writer.number("scopes", self.manifest.scopes().len());
                writer.number("manifest:uid", self.manifest.uid().0);
            }
        }
        true
    }

    /// Writes one scope or collection of the current vbucket; false when there is none left.
    fn write_next(&mut self, writer: &mut StatWriter<'_>, vbid: Vbid) -> bool {
        let mut index = self.next;
        self.next += 1;
        if self.detail == Detail::Scopes {
            let scopes = self.manifest.scopes();
            if let Some(scope) = scopes.get(index) {
                writer.prefix().vbucket(vbid).scope(scope.id);
                writer.text("name:", &scope.name);
                return true;
            }
            index -= scopes.len();
        }
        self.write_collection(writer, vbid, index)
    }

    fn write_collection(&mut self, writer: &mut StatWriter<'_>, vbid: Vbid, index: usize) -> bool {
        let Some(listed) = self.listed.get(index) else { return false };
        while self.stats.get(self.next_stats).is_some_and(|(id, _)| *id < listed.id) {
            self.next_stats += 1;
        }
        let stats = match self.stats.get(self.next_stats) {
            Some((id, stats)) if *id == listed.id => *stats,
            _ => CollectionStats::default(),
        };
        match self.detail {
            Detail::Collections => {
                writer.prefix().vbucket(vbid).collection(listed.id);
                let scope = &self.manifest.scopes()[listed.place.0];
                let collection = &scope.collections[listed.place.1];
                write_figures(writer, &collection.name, listed.scope, &stats);
                if let Some(max_ttl_s) = collection.max_ttl_s {
                    writer.number("maxTTL", max_ttl_s);
                }
            }
            Detail::Scopes => {
                writer.prefix().vbucket(vbid).scope(listed.scope).collection(listed.id);
                writer.number("items", stats.items);
            }
        }
        true
    }

    /// Writes the entries about the bucket; false when the slice is full before they are complete.
    fn write_identities(&mut self, writer: &mut StatWriter<'_>) -> bool {
        if let Some(from) = self.identities_from {
            let next = write_identities(writer, &self.manifest, from);
            self.identities_from = next;
        }
        self.identities_from.is_none()
    }
}

impl StatProducer for CollectionDetails {
    fn produce(&mut self, writer: &mut StatWriter<'_>) -> bool {
        if !self.write_identities(writer) {
            return false;
        }
        while !writer.is_full() {
            if let Some(vbid) = self.current {
                if self.write_next(writer, vbid) {
                    continue;
                }
                self.current = None;
            }
            if !self.begin_vbucket(writer) {
                return true;
            }
        }
        false
    }
}

fn write_figures(writer: &mut StatWriter<'_>, name: &str, scope: ScopeId, stats: &CollectionStats) {
    writer.text("name", name);
    writer.text("scope", HexText::new(scope.0).as_str());
    writer.number("start_seqno", stats.start_seqno.0);
    writer.number("high_seqno", stats.high_seqno.0);
    writer.number("persisted_high_seqno", stats.persisted_high_seqno.0);
    writer.number("items", stats.items);
    writer.number("disk_size", stats.disk_bytes);
    // Neither is supported, so both are constant.
    writer.text("history", "false");
    writer.text("flush_uid", "0");
}
