//! A version as the store has it: how an item is written as a record, and read back.
//!
//! Owns: which field of one is which of the other, in both directions. Called by the flusher, the
//! fetcher and warmup. Bytes are borrowed on the way down and copied once, into the item's block,
//! on the way up.

use oribi_storage::Record;

use crate::item::{ItemFields, ItemRef, NewItem};

/// The record of an item.
#[inline]
pub fn of(item: &ItemRef) -> Record<'_> {
    assert!(!item.is_dense(), "a record has the plain value");
    Record {
        key: item.key(),
        value: item.value(),
        cas: item.cas(),
        seqno: item.seqno(),
        rev_seqno: item.rev_seqno(),
        flags: item.flags(),
        expiry: item.expiry(),
        datatype: item.datatype(),
        deleted: item.is_deleted(),
        expired: item.is_expiration(),
    }
}

/// The item of a record, with its value.
pub(crate) fn to_item(record: &Record<'_>) -> ItemRef {
    publish(record, NewItem::new(record.key, fields(record), &[record.value]))
}

/// The item of a record without its value, which has so many bytes in the store.
pub(crate) fn to_evicted_item(record: &Record<'_>, value_bytes: usize) -> ItemRef {
    debug_assert!(!record.deleted, "a tombstone has no value to leave in the store");
    publish(record, NewItem::evicted(record.key, fields(record), value_bytes))
}

fn fields(record: &Record<'_>) -> ItemFields {
    ItemFields {
        flags: record.flags,
        expiry: record.expiry,
        datatype: record.datatype,
        deleted: record.deleted,
        expired: record.expired,
        ..ItemFields::default()
    }
}

fn publish(record: &Record<'_>, mut new: NewItem) -> ItemRef {
    new.set_version(record.cas, record.seqno, record.rev_seqno);
    debug_assert_eq!(new.as_item().seqno(), record.seqno, "an item is the record's version");
    new.publish()
}
