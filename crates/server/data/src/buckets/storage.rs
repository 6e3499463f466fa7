//! Which store each storage opens.
//!
//! Owns: the options of a bucket's store, from its quota and the machine. [`BucketStorage`] has the
//! names. Callers: the code that opens and deletes buckets.

use std::ops::RangeInclusive;
use std::sync::Arc;

use oribi_config::BucketStorage;
use oribi_storage::{KvStore, LOGS_MAX, LogLosses, LogOptions, LogStore, Packing, StoreError};
use oribi_types::Vbid;

#[cfg(feature = "kudu")]
use super::kudu;
#[cfg(not(feature = "kudu"))]
use super::no_kudu as kudu;
use super::store_place::StorePlace;

const _: () = assert!(oribi_config::limits::LOGS_MAX == LOGS_MAX);

/// Bytes at the end of the log that count as recent, for each byte of the bucket's memory. They
/// contain most documents in memory.
const RECENT_PER_MEMORY: u64 = 2;

/// Bytes of the log store's index for each key that is not packed, and what a bucket has for them
/// before it packs any: 16 MiB, or a 32nd of its memory.
const INDEX_BYTES_PER_KEY: u64 = 20;
const INDEX_BYTES_MIN: u64 = 16 << 20;
const _: () = assert!(INDEX_BYTES_MIN >= INDEX_BYTES_PER_KEY, "an index has a key");
const INDEX_PART: u64 = 32;

/// How the index of a bucket with so much memory, and perhaps many more keys, is packed.
fn packing_of(memory_bytes: u64) -> Packing {
    Packing {
        exact_keys: (memory_bytes / INDEX_PART).max(INDEX_BYTES_MIN) / INDEX_BYTES_PER_KEY,
        recent_bytes: memory_bytes.saturating_mul(RECENT_PER_MEMORY),
        ..Packing::default()
    }
}

/// Cores for each log of a new store. A worker takes about 1.0 us for a new document and a flusher
/// 0.75 us, so one flusher keeps up with the workers of a few cores that also read. Each further
/// log makes one more sync for every flush.
const CORES_PER_LOG: usize = 4;
/// Memory of the bucket for each log. A log's own memory, up to 9 MiB while it compacts tiny
/// records, is less than two percent of it.
const MEMORY_PER_LOG: u64 = 512 << 20;
/// Logs of a store whose operator does not say otherwise.
const LOGS_UNASKED_MAX: usize = 16;
const _: () = assert!(LOGS_UNASKED_MAX <= LOGS_MAX, "a store has so many logs at most");

/// Logs of a new store of a bucket with this memory quota.
fn logs_for(cores: usize, memory_quota_bytes: u64) -> usize {
    let by_memory =
        usize::try_from(memory_quota_bytes / MEMORY_PER_LOG).unwrap_or(LOGS_UNASKED_MAX);
    (cores / CORES_PER_LOG).min(by_memory).clamp(1, LOGS_UNASKED_MAX)
}

/// Opens or creates the store. A bucket in memory keeps its collections in a store, too.
///
/// # Errors
/// An error of the store: its directory holds something else, or is damaged and damage is not
/// accepted.
pub(super) fn open_store(
    storage: &BucketStorage,
    place: &StorePlace<'_>,
) -> Result<Arc<dyn KvStore>, StoreError> {
    match storage {
        BucketStorage::Log | BucketStorage::Memory => {
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            let logs = match storage {
                BucketStorage::Log => {
                    place.logs.unwrap_or_else(|| logs_for(cores, place.memory_quota_bytes))
                }
                _ => 1,
            };
            let options = LogOptions {
                logs,
                accepts_damage: place.accepts_damage,
                packing: place.many_keys_memory_bytes.map(packing_of),
                ..LogOptions::default()
            };
            let store = LogStore::open(place.path, options)?;
            if let Some(losses) = store.losses() {
                log_losses(place.bucket, &losses);
            }
            Ok(Arc::new(store))
        }
        BucketStorage::Kudu(url) => kudu::open(url, place),
    }
}

/// Removes the data of a deleted bucket outside its directory, by the id that its store
/// assigned ([`oribi_storage::SharedStore::id`]).
///
/// # Errors
/// An error of the store.
pub(crate) fn remove_shared(storage: &BucketStorage, id: &str) -> Result<(), StoreError> {
    storage.remote().map_or(Ok(()), |url| kudu::remove(url, id))
}

/// Vbuckets in a line of the log.
const VBUCKETS_IN_LINE: usize = 16;

/// Logs the losses of a bucket whose damage was accepted.
fn log_losses(bucket: &str, losses: &LogLosses) {
    let LogLosses { places, bytes, frames, seqnos } = losses;
    let vbuckets: Vec<String> =
        seqnos.iter().map(|(vbid, ranges)| lost_of(*vbid, ranges)).collect();
    for some in vbuckets.chunks(VBUCKETS_IN_LINE) {
        let seqnos = some.join("; ");
        tracing::error!(bucket, seqnos, "writes with these seqnos may be lost");
    }
    tracing::error!(
        bucket,
        places,
        bytes,
        frames,
        vbuckets = vbuckets.len(),
        "the damaged log was opened without what cannot be read; the rest was written anew. Start \
         without accept_damaged_log from now on, and compare with a backup"
    );
}

/// The lost seqnos of a vbucket, as people read them.
fn lost_of(vbid: Vbid, ranges: &[RangeInclusive<u64>]) -> String {
    let range = |range: &RangeInclusive<u64>| match (*range.start(), *range.end()) {
        (start, u64::MAX) => format!("from {start} on"),
        (start, end) if start == end => start.to_string(),
        (start, end) => format!("{start} to {end}"),
    };
    let ranges: Vec<String> = ranges.iter().map(range).collect();
    format!("{vbid} {}", ranges.join(", "))
}

#[cfg(test)]
mod tests {
    use super::{Vbid, logs_for, lost_of};

    #[test]
    fn lost_seqnos_are_ranges() {
        let text = lost_of(Vbid(7), &[3..=3, 5..=9, 20..=u64::MAX]);
        assert_eq!(text, "vb:7 3, 5 to 9, from 20 on");
    }

    #[test]
    fn a_new_store_has_logs_for_its_cores_and_memory() {
        const GIB: u64 = 1 << 30;
        for (cores, quota_bytes, expected) in [
            (0, 0, 1),
            (1, 100 * GIB, 1),
            (4, 100 * GIB, 1),
            (7, 100 * GIB, 1),
            (8, 100 * GIB, 2),
            (8, GIB, 2),
            (8, GIB - 1, 1),
            (32, 100 * GIB, 8),
            (32, 2 * GIB, 4),
            (64, 100 << 20, 1),
            (64, 8 * GIB, 16),
            (1024, u64::MAX, 16),
        ] {
            assert_eq!(
                logs_for(cores, quota_bytes),
                expected,
                "{cores} cores, {quota_bytes} bytes"
            );
        }
    }
}
