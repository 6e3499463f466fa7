//! Dense values of a vbucket for readers and writers.
//!
//! Owns: where an operation that needs a value gets it when the version in the table has none in
//! plain: inflated, or by a fetch. A reader gets a separate copy; the dense version stays in the
//! table, unless it is hot again and memory allows to keep the copy there. A writer gets the copy
//! in the table, because it replaces exactly the version that it has seen. A damaged dense value is
//! reported and fetched from the store, which has it too; without a store the operation fails.

use super::VBucket;
use super::context::Context;
use super::paging::Successor;
use crate::hash_table::KeyHash;
use crate::item::ItemRef;
use crate::outcome::OperationRejection;

impl VBucket {
    /// The version with its value, for a reader that counted its use.
    #[cold]
    pub(super) fn inflated(
        &self,
        context: &Context<'_>,
        hash: KeyHash,
        item: ItemRef,
    ) -> Result<ItemRef, OperationRejection> {
        debug_assert!(hash == self.hash_of(item.key()), "another key's hash");
        let plain = self.with_value(item.clone())?;
        debug_assert!(!plain.is_evicted(), "an inflated copy has the value");
        if context.memory.may_inflate(item.frequency())
            && self.replace(context, item, Successor::Copy(plain.clone()))
        {
            self.report_memory(context);
        }
        Ok(plain)
    }

    /// The version with its value: itself, or an inflated copy.
    pub(super) fn with_value(&self, item: ItemRef) -> Result<ItemRef, OperationRejection> {
        if !item.is_evicted() {
            return Ok(item);
        }
        if !item.is_dense() {
            return Err(OperationRejection::NeedsFetch);
        }
        item.to_plain().map_err(|error| {
            tracing::error!("{error}; the document is read from the store if it is there");
            match self.is_in_memory_only() {
                true => OperationRejection::TemporaryFailure,
                false => OperationRejection::NeedsFetch,
            }
        })
    }

    /// Puts the inflated form of a dense version in its place, unless that was changed since.
    #[cold]
    pub(super) fn inflate_in_place(
        &self,
        context: &Context<'_>,
        hash: KeyHash,
        item: &ItemRef,
    ) -> Result<(), OperationRejection> {
        let plain = self.with_value(item.clone())?;
        let mut table = self.table.lock();
        let place = table.index.locate(hash, item.key());
        let current = place.and_then(|place| table.index.at(place));
        let is_same = current.is_some_and(|current| current.same_block(item));
        let left = match place.filter(|_| is_same) {
            Some(place) => table.substitute(hash, place, plain),
            None => None,
        };
        drop(table);
        drop(left);
        self.report_memory(context);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
