//! `key`, `key-byid`, `vkey` and `vkey-byid`: the state of one document.
//!
//! The `v` forms also read the store, on the blocking thread, and say whether it agrees with
//! memory.

use std::sync::Arc;

use oribi_engine::{DiskState, KeyOnDisk, KeyStats, OperationRejection};
use oribi_protocol::status::Status;
use oribi_types::{CollectionId, Datatype, DocKey, Timestamp, Vbid};

use super::vbuckets::phase_name;
use crate::buckets::BucketHandle;
use crate::connection::stat_cursor::StatWriter;
use crate::connection::stat_cursor::{PreparedStat, SingleSlice};

/// A key that outlives its request.
pub(super) struct OwnedKey {
    pub vbid: Vbid,
    pub collection: CollectionId,
    pub key: Vec<u8>,
}

impl OwnedKey {
    fn borrow(&self) -> DocKey<'_> {
        DocKey { collection: self.collection, key: &self.key }
    }
}

/// The document's state in memory; `Ok(None)` when memory has no live one.
pub(super) fn in_memory(
    handle: &BucketHandle,
    key: &OwnedKey,
) -> Result<Option<KeyStats>, OperationRejection> {
    let bucket = handle.bucket();
    let vbucket = bucket.vbucket_or_rejection(key.vbid)?;
    // At time 0 nothing has expired, so the look-up changes nothing.
    let found = vbucket.key_stats(&bucket.context(Timestamp::default()), key.borrow())?;
    Ok(found.filter(|stats| !stats.is_deleted))
}

/// Reads the store and compares it with memory. Blocks for the disk.
pub(super) fn verify(handle: &Arc<BucketHandle>, key: &OwnedKey, stats: KeyStats) -> PreparedStat {
    let valid = if stats.is_dirty {
        "dirty"
    } else {
        match handle.bucket().key_on_disk(key.vbid, key.borrow()) {
            Ok(on_disk) => verdict(on_disk.as_ref()),
            Err(error) => {
                tracing::error!(bucket = handle.name(), %error, "a stored document cannot be read");
                return Err(Status::Etmpfail);
            }
        }
    };
    let phase = phase_of(handle, key.vbid);
    Ok(Box::new(SingleSlice(move |writer: &mut StatWriter<'_>| {
        write(writer, &stats, phase);
        writer.text("key_valid", valid);
    })))
}

/// Describes a document of which memory has nothing. Blocks for the disk.
pub(super) fn from_store(handle: &BucketHandle, key: &OwnedKey, verifies: bool) -> PreparedStat {
    let found = match handle.bucket().key_on_disk(key.vbid, key.borrow()) {
        Ok(found) => found.filter(|found| !found.is_deleted),
        Err(error) => {
            tracing::error!(bucket = handle.name(), %error, "a stored document cannot be read");
            return Err(Status::Etmpfail);
        }
    };
    let Some(found) = found else { return Err(Status::KeyEnoent) };
    let stats = KeyStats {
        is_dirty: false,
        is_deleted: false,
        expiry: found.expiry,
        datatype: found.datatype,
        flags: found.flags,
        cas: found.cas,
        seqno: found.seqno,
        rev_seqno: found.rev_seqno,
        is_resident: false,
    };
    let phase = phase_of(handle, key.vbid);
    Ok(Box::new(SingleSlice(move |writer: &mut StatWriter<'_>| {
        write(writer, &stats, phase);
        if verifies {
            // Memory has no version that could differ.
            writer.text("key_valid", "valid");
        }
    })))
}

/// State of the key's vbucket.
pub(super) fn phase_of(handle: &BucketHandle, vbid: Vbid) -> &'static str {
    handle.bucket().vbucket(vbid).map_or("dead", |vbucket| phase_name(vbucket.phase()))
}

/// The verdict, in the reference server's words where it has one.
fn verdict(on_disk: Option<&KeyOnDisk>) -> &'static str {
    match on_disk {
        None => "ram_but_not_disk",
        Some(found) => match found.state {
            DiskState::Same => "valid",
            // The document was written again since memory was read.
            DiskState::Stale => "dirty",
            DiskState::NotInMemory => "item_deleted",
            DiskState::Differs => "data_mismatch",
        },
    }
}

/// The bits of a datatype by name, `raw` for none.
pub(super) fn datatype_names(datatype: Datatype) -> String {
    let all = [(Datatype::SNAPPY, "snappy"), (Datatype::JSON, "json"), (Datatype::XATTR, "xattr")];
    let names = all.iter().filter(|(bit, _)| datatype.contains(*bit)).map(|(_, name)| *name);
    let names: Vec<&str> = names.collect();
    if names.is_empty() { "raw".to_owned() } else { names.join(",") }
}

/// The entries of `key`.
pub(super) fn write(writer: &mut StatWriter<'_>, stats: &KeyStats, phase: &str) {
    writer.flag("key_is_dirty", stats.is_dirty);
    writer.number("key_exptime", stats.expiry);
    writer.text("key_datatype", &datatype_names(stats.datatype));
    writer.number("key_flags", stats.flags);
    writer.number("key_cas", stats.cas.0);
    writer.text("key_vb_state", phase);
    writer.flag("key_is_resident", stats.is_resident);
    writer.number("key_seqno", stats.seqno.0);
    writer.number("key_rev_seqno", stats.rev_seqno.0);
}
