//! Lists keys in order from a given one, for tools that walk through a vbucket.
//!
//! Owns: GET_KEYS. Like the reference, it lists persisted keys, so a separate thread reads them
//! from the store. Range scans are the way to read much.
//!
//! Invariant: a list is bounded in keys and bytes, and in time because deleted keys have to be
//! skipped. When the time is over, a list that has keys ends there, and the client continues
//! from the last.

use std::ops::ControlFlow;
use std::time::Instant;

use oribi_auth::Privilege;
use oribi_engine::OperationRejection;
use oribi_protocol::status::Status;
use oribi_types::{CollectionId, DocKey, Timestamp, Vbid};

use super::outcome::{HandlerReply, Outcome, Rejection};
use super::request::Request;
use crate::buckets::BucketHandle;
use crate::dispatch::job::{BlockingJob, Lane};
use crate::limits::LISTING_TIME_MAX;

/// Keys in a list when the request names no number.
const KEYS_DEFAULT: u32 = 1000;
/// Byte limit of an answer, whatever the client asked for.
const ANSWER_BYTES_MAX: usize = 1 << 20;
const _: () = assert!(ANSWER_BYTES_MAX <= crate::limits::AHEAD_OF_QUEUE_BYTES_MAX);
const NS_PER_S: u64 = 1_000_000_000;

/// The parameters of a list.
struct Listing {
    vbid: Vbid,
    collection: CollectionId,
    from: Box<[u8]>,
    /// The bytes before each key: the collection, for clients that know collections.
    prefix: Box<[u8]>,
    keys_max: usize,
}

/// GetKeys: extras are the number of keys u32 or nothing. The key is the first to list, which need
/// not exist. The answer has length u16 and key of each.
pub(super) fn get_keys<'a>(req: &mut Request<'a>) -> Outcome<'a> {
    let keys_max = match *req.frame.extras {
        [a, b, c, d] => u32::from_be_bytes([a, b, c, d]),
        _ => KEYS_DEFAULT,
    };
    let from = req.locate()?;
    let (vbid, collection) = (from.vbid(req), from.key.collection);
    req.demand(collection, Privilege::Read.into())?;
    req.bucket().scannable_vbucket(vbid)?;
    if !req.bucket().manifest().contains(collection) {
        return Err(OperationRejection::UnknownCollection.into());
    }
    if req.handle().is_in_memory() {
        return Err(Rejection::Because(Status::NotSupported, "the bucket is in memory only"));
    }
    debug_assert!(req.frame.key.ends_with(from.key.key), "a prefix stands before the key");
    let prefix_bytes = req.frame.key.len() - from.key.key.len();
    let listing = Listing {
        vbid,
        collection,
        from: from.key.key.into(),
        prefix: req.frame.key[..prefix_bytes].into(),
        keys_max: keys_max as usize,
    };
    let (bucket, now) = (req.handle().clone(), req.env.now);
    Ok(HandlerReply::Job(BlockingJob::answer(Lane::Listings, move || {
        list(&bucket, &listing, now, None)
    })))
}

/// Makes the list. `ends` is the deadline; without it the time counts from the first record on.
fn list(
    bucket: &BucketHandle,
    listing: &Listing,
    now: Timestamp,
    mut ends: Option<Instant>,
) -> (Status, Vec<u8>) {
    let now_s = now.unix_ns / NS_PER_S;
    let mut is_late = false;
    let from = DocKey { collection: listing.collection, key: &listing.from };
    let (mut value, mut left) = (Vec::new(), listing.keys_max);
    let scanned = bucket.bucket().scan_persisted(listing.vbid, from, &mut |record| {
        let at = Instant::now();
        if at >= *ends.get_or_insert(at + LISTING_TIME_MAX) {
            is_late = true;
            return ControlFlow::Break(());
        }
        let is_expired = record.expiry != 0 && u64::from(record.expiry) <= now_s;
        if record.deleted || is_expired {
            return ControlFlow::Continue(());
        }
        let bytes = listing.prefix.len() + record.key.key.len();
        if left == 0 || value.len() + 2 + bytes > ANSWER_BYTES_MAX {
            return ControlFlow::Break(());
        }
        debug_assert!(bytes <= usize::from(u16::MAX), "a length has 16 bits");
        left -= 1;
        // A key has at most 250 bytes.
        value.extend_from_slice(&(bytes as u16).to_be_bytes());
        value.extend_from_slice(&listing.prefix);
        value.extend_from_slice(record.key.key);
        ControlFlow::Continue(())
    });
    assert!(value.len() <= ANSWER_BYTES_MAX, "an answer is within its limit");
    match scanned {
        Ok(()) if value.is_empty() && is_late => (Status::Etmpfail, value),
        Ok(()) if value.is_empty() => (Status::KeyEnoent, value),
        Ok(()) => (Status::Success, value),
        Err(_) => (Status::Etmpfail, Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dispatch::tests::Client;

    #[test]
    fn a_list_ends_when_its_time_is_over() {
        let mut client = Client::modern();
        for number in 0..20 {
            client.set(format!("key-{number}").as_bytes(), b"v");
        }
        let bucket = client.harness.bucket();
        while bucket.bucket().flush_step().unwrap().more {}
        let all = |vbid| Listing {
            vbid,
            collection: CollectionId::DEFAULT,
            from: Box::default(),
            prefix: Box::default(),
            keys_max: 100,
        };
        let now = Timestamp::default();
        for vbid in (0..bucket.vbuckets()).map(Vbid) {
            let (status, value) = list(bucket, &all(vbid), now, None);
            assert!(status == Status::Success && !value.is_empty());
            let late = list(bucket, &all(vbid), now, Some(Instant::now()));
            assert_eq!(late, (Status::Etmpfail, Vec::new()));
        }
    }
}
