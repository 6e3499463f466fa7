//! Keys in order, from a given one on: for tools that walk through a vbucket.
//!
//! Owns: GET_KEYS. It lists what is persisted, as the reference does, so a thread of its own reads it from the
//! store; range scans are the way to read much. Invariant: a list is bounded in keys, in bytes and, as what is
//! deleted has to be passed over, in time; one that has keys when its time is over ends there, and the client goes
//! on from the last.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use oribi_engine::Refused;
use oribi_protocol::status::Status;
use oribi_types::{DocKey, Timestamp};

use super::exchange::Exchange;
use crate::auth::Privilege;
use crate::blocking_thread::Job;
use crate::buckets::BucketHandle;
use crate::connection::state::Wait;
use crate::limits::LISTING_TIME_MAX;

/// Keys that are listed when the request does not say how many.
const KEYS_DEFAULT: u32 = 1000;
/// An answer ends before it would be longer, whatever was asked for.
const ANSWER_BYTES_MAX: usize = 1 << 20;
const NS_PER_S: u64 = 1_000_000_000;

/// What is to be listed.
struct Listing {
    vbid: oribi_types::Vbid,
    collection: oribi_types::CollectionId,
    from: Box<[u8]>,
    /// What stands before each key: the collection, for clients that know collections.
    prefix: Box<[u8]>,
    keys_max: usize,
}

/// GetKeys: extras are the number of keys u32 or nothing, the key is the one to begin with, which need not be there. The
/// answer has length u16 and key of each.
pub(super) fn get_keys(x: &mut Exchange<'_>) {
    let keys_max = match *x.frame.extras {
        [a, b, c, d] => u32::from_be_bytes([a, b, c, d]),
        _ => KEYS_DEFAULT,
    };
    let Some(from) = x.doc_key() else { return };
    if !x.allows(from.collection, Privilege::Read.into()) {
        return;
    }
    let vbid = x.vbid(from);
    if !x.bucket().bucket().is_serving(vbid) {
        return x.refuse(Refused::NotMyVbucket);
    }
    if !x.bucket().bucket().manifest().contains(from.collection) {
        return x.refuse(Refused::UnknownCollection);
    }
    if x.bucket().is_in_memory() {
        return x.fail_with(Status::NotSupported, "the bucket is in memory only");
    }
    let prefix_bytes = x.frame.key.len() - from.key.len();
    let listing = Listing {
        vbid,
        collection: from.collection,
        from: from.key.into(),
        prefix: x.frame.key[..prefix_bytes].into(),
        keys_max: keys_max as usize,
    };
    let bucket = Arc::clone(x.state.bucket.as_ref().expect("the rule demands a bucket"));
    let now = x.env.now;
    x.state.wait = Wait::Job { opcode: x.frame.header.opcode, opaque: x.frame.header.opaque };
    let work = move || list(&bucket, &listing, now, None);
    x.env.jobs.push((x.id, Job::Listing(Box::new(work))));
}

/// Makes the list. `ends` is when its time is over; without it that is counted from the first record on.
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
        left -= 1;
        // A key has 250 bytes at most.
        value.extend_from_slice(&(bytes as u16).to_be_bytes());
        value.extend_from_slice(&listing.prefix);
        value.extend_from_slice(record.key.key);
        ControlFlow::Continue(())
    });
    match scanned {
        Ok(()) if value.is_empty() && is_late => (Status::Etmpfail, value),
        Ok(()) if value.is_empty() => (Status::KeyEnoent, value),
        Ok(()) => (Status::Success, value),
        Err(_) => (Status::Etmpfail, Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use oribi_types::{CollectionId, Vbid};

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
