//! Reads that a copy answers itself, whatever its active has not sent yet.
//!
//! Owns: the look-up. It changes nothing: an expired document is a miss and stays, because its
//! expiration comes from the active. Called for requests that ask for a replica.

use oribi_types::DocKey;

use super::VBucket;
use super::context::Context;
use super::fetching::is_absence_marker;
use crate::item::ItemRef;
use crate::outcome::{GetOutcome, MetaOutcome, OperationRejection, ReadTarget, VersionOutcome};

impl VBucket {
    /// A document of a replica.
    pub fn get_replica(&self, context: &Context<'_>, key: DocKey<'_>) -> GetOutcome {
        match self.read_replica(context, key, ReadTarget::Document) {
            VersionOutcome::Found(item, _) => GetOutcome::Hit(item),
            VersionOutcome::Miss => GetOutcome::Miss,
            VersionOutcome::Refused(refused) => GetOutcome::Refused(refused),
        }
    }

    /// A document of a replica, or its tombstone.
    pub fn read_replica(
        &self,
        context: &Context<'_>,
        key: DocKey<'_>,
        sought: ReadTarget,
    ) -> VersionOutcome {
        let now_s = context.now.unix_s();
        let is_sought = |item: &ItemRef| match sought {
            ReadTarget::Document => item.is_live(now_s),
            ReadTarget::Tombstone => !item.is_expired(now_s),
        };
        match self.find_in_replica(context, key, sought) {
            Ok(Some(item)) if !is_sought(&item) => VersionOutcome::Miss,
            Ok(Some(item)) => match self.with_value(item) {
                Ok(item) => {
                    let cas = item.cas();
                    VersionOutcome::Found(item, cas)
                }
                Err(refused) => VersionOutcome::Refused(refused),
            },
            Ok(None) => VersionOutcome::Miss,
            Err(refused) => VersionOutcome::Refused(refused),
        }
    }

    /// Metadata of a document of a replica, expired or not, or of its tombstone.
    pub fn get_replica_meta(&self, context: &Context<'_>, key: DocKey<'_>) -> MetaOutcome {
        match self.find_in_replica(context, key, ReadTarget::Tombstone) {
            Ok(Some(item)) => {
                let cas = item.cas();
                MetaOutcome::Found(item, cas)
            }
            Ok(None) => MetaOutcome::Miss,
            Err(refused) => MetaOutcome::Refused(refused),
        }
    }

    fn find_in_replica(
        &self,
        context: &Context<'_>,
        key: DocKey<'_>,
        sought: ReadTarget,
    ) -> Result<Option<ItemRef>, OperationRejection> {
        let hash = self.table.seed().hash(key);
        let table = self.table.lock();
        if !self.is_replica() {
            return Err(OperationRejection::NotMyVbucket);
        }
        if !context.knows(key.collection) {
            return Err(OperationRejection::UnknownCollection);
        }
        if let Some(item) = table.index.get(hash, key) {
            return Ok(Some(item.clone_for_use()).filter(|item| !is_absence_marker(item)));
        }
        let is_uncertain = match sought {
            ReadTarget::Document => self.is_absence_uncertain(),
            ReadTarget::Tombstone => self.may_be_in_store_only(&table),
        };
        drop(table);
        if is_uncertain && context.memory.may_be_stored(self.id, key) {
            return Err(OperationRejection::NeedsFetch);
        }
        Ok(None)
    }
}
