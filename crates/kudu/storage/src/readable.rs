//! Reads of a vbucket that is served before its earlier owner is fenced.
//!
//! Owns: the snapshot at which reads of such a vbucket see its documents, and the highest seqno of
//! its state there. Later writes of an earlier owner are not in the snapshot. And a tablet that is
//! about to change its schema answers at once for a time before that, but not as of now. Invariant:
//! a record with a higher seqno than its vbucket never leaves the store, even if a new leading
//! replica has a slower clock.

use std::sync::atomic::{AtomicU64, Ordering};

use oribi_storage::StoreError;
use oribi_types::{Seqno, Vbid};

/// See the module text.
#[derive(Debug)]
pub(crate) struct Readable(Vec<Limits>);

#[derive(Debug)]
struct Limits {
    /// Highest seqno; `u64::MAX` for none.
    seqno: AtomicU64,
    /// Hybrid time; 0 for none.
    snapshot: AtomicU64,
}

impl Readable {
    pub(crate) fn new(vbuckets: u16) -> Readable {
        let limits = |_| Limits { seqno: AtomicU64::new(u64::MAX), snapshot: AtomicU64::default() };
        Readable((0..vbuckets).map(limits).collect())
    }

    fn set(&self, vbid: Vbid, seqno: u64, snapshot: u64) {
        if let Some(limits) = self.0.get(usize::from(vbid.0)) {
            limits.seqno.store(seqno, Ordering::Release);
            limits.snapshot.store(snapshot, Ordering::Release);
        }
    }

    /// From here on reads show the vbucket as it was at this hybrid time, up to this seqno.
    pub(crate) fn up_to(&self, vbid: Vbid, seqno: Seqno, snapshot: u64) {
        self.set(vbid, seqno.0, snapshot);
    }

    /// From here on reads show everything as of now.
    pub(crate) fn all(&self, vbid: Vbid) {
        self.set(vbid, u64::MAX, 0);
    }

    /// The hybrid time to read a vbucket at; the current one when none is given.
    pub(crate) fn snapshot(&self, vbid: Vbid) -> Option<u64> {
        let snapshot = self.0.get(usize::from(vbid.0))?.snapshot.load(Ordering::Acquire);
        (snapshot != 0).then_some(snapshot)
    }

    /// # Errors
    /// `Io` when the seqno is of an earlier owner's late Write.
    pub(crate) fn check(&self, vbid: Vbid, seqno: Seqno) -> Result<(), StoreError> {
        let limits = self.0.get(usize::from(vbid.0));
        match limits.is_some_and(|limits| seqno.0 > limits.seqno.load(Ordering::Acquire)) {
            false => Ok(()),
            true => Err(StoreError::Io(format!("{vbid} was written by an earlier owner"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_seqno_is_refused_until_the_fence() {
        let readable = Readable::new(2);
        let refuses = |vbid, seqno| readable.check(Vbid(vbid), Seqno(seqno)).is_err();
        assert!(!refuses(0, u64::MAX) && readable.snapshot(Vbid(0)).is_none());
        readable.up_to(Vbid(0), Seqno(7), 100);
        assert!(!refuses(0, 7) && refuses(0, 8) && !refuses(1, 8));
        assert_eq!([readable.snapshot(Vbid(0)), readable.snapshot(Vbid(1))], [Some(100), None]);
        readable.all(Vbid(0));
        assert!(!refuses(0, 8) && readable.snapshot(Vbid(0)).is_none());
    }
}
