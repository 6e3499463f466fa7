//! One lane of a restore: the versions of some vbuckets of the archive, in their order.
//!
//! All versions of a key are in one vbucket, so lanes need no order among each other. Every lane
//! sees every block, because passing over a record, by the two fields that this takes, costs less
//! than sorting it out for another thread.

use std::sync::Arc;

use oribi_backup::chain::Chain;
use oribi_backup::{ArchiveRecord, RecordKind};
use oribi_client::{DocumentVersion, VersionKind};
use tokio::sync::mpsc;

use super::super::filter::BackupFilter;
use super::reading::{LaneInput, RestoreBlock};
use super::writes::{RestoreTotals, RestoreWrites, RestoredDocument};

/// Which records are restored.
pub struct LaneSelection {
    pub chain: Arc<Chain>,
    pub filter: BackupFilter,
    /// Ids of the collections, sorted.
    collections: Vec<u32>,
}

impl LaneSelection {
    /// The records of a chain that a filter lets through.
    pub fn new(chain: Arc<Chain>, filter: BackupFilter) -> LaneSelection {
        let places = chain.wanted().begin.places.iter();
        let wanted = places.filter(|place| filter.has_collection(&place.path()));
        let mut collections: Vec<u32> = wanted.map(|place| place.id).collect();
        collections.sort_unstable();
        LaneSelection { chain, filter, collections }
    }

    fn has(&self, segment: usize, record: &ArchiveRecord<'_>) -> bool {
        self.chain.counts(segment, record)
            && self.collections.binary_search(&record.collection.0).is_ok()
            && self.filter.has_key(record.key)
    }
}

/// See the module text.
pub struct RestoreLane {
    pub selection: Arc<LaneSelection>,
    pub blocks: mpsc::Receiver<LaneInput>,
    /// It has every `lanes`-th vbucket from `number` on.
    pub number: u16,
    pub lanes: u16,
}

impl RestoreLane {
    /// Writes all versions; returns the counts.
    pub async fn write(mut self, mut writes: RestoreWrites) -> anyhow::Result<RestoreTotals> {
        while let Some(block) = self.blocks.recv().await {
            let block = block?;
            for record in block.records(self.number, self.lanes) {
                let record = record?;
                if self.selection.has(block.segment, &record) {
                    writes.take(stored(&block, &record)).await?;
                }
            }
            // What may end this task is looked at only when it waits.
            tokio::task::consume_budget().await;
        }
        writes.settle().await?;
        Ok(writes.totals)
    }

    pub async fn count(mut self) -> anyhow::Result<RestoreTotals> {
        let mut totals = RestoreTotals::default();
        while let Some(block) = self.blocks.recv().await {
            let block = block?;
            for record in block.records(self.number, self.lanes) {
                let record = record?;
                if self.selection.has(block.segment, &record) {
                    totals.count(record.kind == RecordKind::Mutation, record.key, record.value);
                }
            }
            tokio::task::consume_budget().await;
        }
        Ok(totals)
    }
}

fn stored(block: &RestoreBlock, record: &ArchiveRecord<'_>) -> RestoredDocument {
    let kind = match record.kind {
        RecordKind::Mutation => VersionKind::Mutation,
        RecordKind::Deletion => VersionKind::Deletion,
        RecordKind::Expiration => VersionKind::Expiration,
    };
    let version = DocumentVersion::new(kind, record.cas, record.rev)
        .flags(record.flags)
        .expiry(record.expiry)
        .datatype(record.datatype);
    RestoredDocument {
        collection: record.collection,
        version,
        key: block.share(record.key),
        value: block.share(record.value),
    }
}
