//! `collections`, `collections-byid`, `scopes` and `scopes-byid`: sums over all vbuckets.
//!
//! The sums visit every collection of every vbucket: some ten milliseconds in a bucket with a
//! thousand of each. The blocking thread therefore makes them, and the entries are then written in
//! slices. All vbuckets are active, so the sums include all of them.

use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::sync::Arc;

use oribi_engine::collections::{BucketManifest, CollectionDefinition, ScopeDefinition};
use oribi_types::{CollectionId, ScopeId};

use crate::buckets::BucketHandle;
use crate::connection::stat_cursor::StatProducer;
use crate::connection::stat_cursor::StatWriter;
use crate::diagnostics::counters::collections::CollectionOperations;

/// Totals of a collection or a scope over all vbuckets.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct CollectionSum {
    items: u64,
    item_bytes: u64,
    /// Keys and values of live documents.
    pub disk_bytes: u64,
    operations: CollectionOperations,
}

impl AddAssign for CollectionSum {
    fn add_assign(&mut self, other: CollectionSum) {
        self.items += other.items;
        self.item_bytes += other.item_bytes;
        self.disk_bytes += other.disk_bytes;
        self.operations.gets += other.operations.gets;
        self.operations.stores += other.operations.stores;
        self.operations.deletes += other.operations.deletes;
    }
}

/// Sums of every collection in `manifest` that was ever used. This takes each vbucket's lock once.
pub(super) fn sum(
    bucket: &BucketHandle,
    manifest: &BucketManifest,
) -> BTreeMap<CollectionId, CollectionSum> {
    let mut sums: BTreeMap<CollectionId, CollectionSum> = BTreeMap::new();
    let mut figures = Vec::new();
    for vbucket in bucket.bucket().vbuckets() {
        vbucket.collection_stats(&mut figures);
        for (id, stats) in &figures {
            let sum = sums.entry(*id).or_default();
            sum.items += stats.items;
            sum.item_bytes += stats.item_bytes;
            sum.disk_bytes += stats.disk_bytes;
        }
    }
    for (id, operations) in bucket.operations().collections(manifest) {
        sums.entry(id).or_default().operations = operations;
    }
    sums.retain(|id, _| manifest.contains(*id));
    sums
}

/// The requested scopes or collections.
#[derive(Debug, Clone, Copy)]
pub(super) enum Selection {
    Collections,
    Collection(CollectionId),
    Scopes,
    Scope(ScopeId),
}

/// The producer of these groups.
pub(super) struct CollectionSums {
    manifest: Arc<BucketManifest>,
    sums: BTreeMap<CollectionId, CollectionSum>,
    /// The names are written; the sums follow.
    in_sums: bool,
    next: usize,
    selection: Selection,
}

impl CollectionSums {
    /// Sums up the part of `manifest` that `selection` needs. Slow.
    pub fn collect(
        bucket: &BucketHandle,
        manifest: Arc<BucketManifest>,
        selection: Selection,
    ) -> CollectionSums {
        let sums = sum(bucket, &manifest);
        let in_sums = matches!(selection, Selection::Collection(_) | Selection::Scope(_));
        CollectionSums { manifest, sums, in_sums, next: 0, selection }
    }

    fn sum_of(&self, id: CollectionId) -> CollectionSum {
        self.sums.get(&id).copied().unwrap_or_default()
    }

    fn write_names(&mut self, writer: &mut StatWriter<'_>) -> bool {
        let next = match self.selection {
            Selection::Collections => write_identities(writer, &self.manifest, self.next),
            _ => write_scope_names(writer, &self.manifest, self.next),
        };
        self.in_sums = next.is_none();
        self.next = next.unwrap_or(0);
        self.in_sums
    }

    fn write_sums(&mut self, writer: &mut StatWriter<'_>) -> bool {
        let manifest = Arc::clone(&self.manifest);
        let end = match self.selection {
            Selection::Collections | Selection::Collection(_) => {
                let wanted =
                    all_collections(&manifest).filter(|(_, collection)| match self.selection {
                        Selection::Collection(id) => collection.id == id,
                        _ => true,
                    });
                write_from(writer, wanted, self.next, |writer, (scope, collection)| {
                    write_collection(writer, scope, collection, &self.sum_of(collection.id));
                })
            }
            Selection::Scopes | Selection::Scope(_) => {
                let wanted = manifest.scopes().iter().filter(|scope| match self.selection {
                    Selection::Scope(id) => scope.id == id,
                    _ => true,
                });
                write_from(writer, wanted, self.next, |writer, scope| {
                    let mut sum = CollectionSum::default();
                    scope.collections.iter().for_each(|member| sum += self.sum_of(member.id));
                    write_scope(writer, scope, &sum);
                })
            }
        };
        self.next = end.unwrap_or(0);
        end.is_none()
    }
}

impl StatProducer for CollectionSums {
    fn produce(&mut self, writer: &mut StatWriter<'_>) -> bool {
        if !self.in_sums && !self.write_names(writer) {
            return false;
        }
        self.write_sums(writer)
    }
}

/// Writes the elements from `next` on, at least one. Returns the position of the next element when
/// the slice is full.
fn write_from<T>(
    writer: &mut StatWriter<'_>,
    all: impl Iterator<Item = T>,
    next: usize,
    mut write: impl FnMut(&mut StatWriter<'_>, T),
) -> Option<usize> {
    for (index, element) in all.enumerate().skip(next) {
        write(writer, element);
        if writer.is_full() {
            return Some(index + 1);
        }
    }
    None
}

fn all_collections(
    manifest: &BucketManifest,
) -> impl Iterator<Item = (&ScopeDefinition, &CollectionDefinition)> {
    let scopes = manifest.scopes().iter();
    scopes.flat_map(|scope| scope.collections.iter().map(move |collection| (scope, collection)))
}

/// Writes the identity of each collection from the `next`th on, and the version of the manifest
/// before the first. Returns the next position when the slice is full.
pub(super) fn write_identities(
    writer: &mut StatWriter<'_>,
    manifest: &BucketManifest,
    next: usize,
) -> Option<usize> {
    if next == 0 {
        write_manifest_uid(writer, manifest);
    }
    write_from(writer, all_collections(manifest), next, |writer, (scope, collection)| {
        writer.prefix().scope(scope.id).collection(collection.id);
        writer.text("name", &collection.name);
        writer.flag("history", false);
    })
}

fn write_scope_names(
    writer: &mut StatWriter<'_>,
    manifest: &BucketManifest,
    next: usize,
) -> Option<usize> {
    if next == 0 {
        write_manifest_uid(writer, manifest);
    }
    let scopes = manifest.scopes().iter();
    let elements = scopes.flat_map(|scope| {
        let collections = scope.collections.iter().map(move |member| (scope, Some(member)));
        std::iter::once((scope, None)).chain(collections)
    });
    write_from(writer, elements, next, |writer, (scope, member)| match member {
        None => write_scope_identity(writer, scope),
        Some(collection) => {
            writer.prefix().scope(scope.id).collection(collection.id);
            writer.text("name", &collection.name);
        }
    })
}

fn write_manifest_uid(writer: &mut StatWriter<'_>, manifest: &BucketManifest) {
    writer.prefix();
    writer.number("manifest_uid", manifest.uid().0);
}

fn write_scope_identity(writer: &mut StatWriter<'_>, scope: &ScopeDefinition) {
    writer.prefix().scope(scope.id);
    writer.text("name", &scope.name);
    writer.number("collections", scope.collections.len());
}

fn write_sum(writer: &mut StatWriter<'_>, sum: &CollectionSum) {
    writer.number("collections_mem_used", sum.item_bytes);
    writer.number("items", sum.items);
    writer.number("data_size", sum.disk_bytes);
    writer.number("ops_store", sum.operations.stores);
    writer.number("ops_delete", sum.operations.deletes);
    writer.number("ops_get", sum.operations.gets);
}

fn write_collection(
    writer: &mut StatWriter<'_>,
    scope: &ScopeDefinition,
    collection: &CollectionDefinition,
    sum: &CollectionSum,
) {
    writer.prefix().scope(scope.id).collection(collection.id);
    write_sum(writer, sum);
    writer.text("name", &collection.name);
    writer.text("scope_name", &scope.name);
    if let Some(max_ttl_s) = collection.max_ttl_s {
        writer.number("maxTTL", max_ttl_s);
    }
}

fn write_scope(writer: &mut StatWriter<'_>, scope: &ScopeDefinition, sum: &CollectionSum) {
    writer.prefix().scope(scope.id);
    write_sum(writer, sum);
    write_scope_identity(writer, scope);
}
