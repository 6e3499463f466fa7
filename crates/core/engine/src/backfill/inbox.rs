//! The queue of records from a scan to a stream.
//!
//! Owns: the chunks that the stream has not taken, and how far the scan is. The scan fills it, the
//! stream empties it, each under its lock for a few pointer moves. Invariant: a stream that found
//! it empty is woken once when that changes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::Thread;

use oribi_types::{CollectionId, Seqno};
use parking_lot::Mutex;

use super::chunk::BackfillChunk;
use crate::checkpoint::{StreamOwner, StreamWaker};

/// A scan's snapshot: the vbucket as it was at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BackfillSnapshot {
    pub(crate) end: Seqno,
    /// The last seqno of the default collection in it.
    pub(crate) default_end: Seqno,
    /// Tombstones up to here may be missing.
    pub(crate) purge_seqno: Seqno,
    /// Prepares up to here are completed inside of it.
    pub(crate) high_completed: Seqno,
}

/// Collections of which a stream wants to see anything at all.
#[derive(Clone, Debug)]
pub(crate) enum CollectionSet {
    All,
    Only(Vec<CollectionId>),
}

impl CollectionSet {
    pub(super) fn has(&self, collection: CollectionId) -> bool {
        match self {
            CollectionSet::All => true,
            CollectionSet::Only(ids) => ids.binary_search(&collection).is_ok(),
        }
    }
}

/// Contents of a stream's inbox.
pub(crate) enum InboxItem {
    /// The next part of the snapshot.
    Chunk(Arc<BackfillChunk>),
    /// Nothing yet; the stream will be woken.
    Nothing,
    /// The snapshot is whole.
    Complete,
    /// The scan has dropped the stream, which requests another scan.
    LeftBehind,
    /// The store has failed.
    Failed,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Standing {
    Open,
    Complete,
    LeftBehind,
    Failed,
    /// The stream is gone.
    Closed,
}

struct State {
    chunks: VecDeque<Arc<BackfillChunk>>,
    bytes: u64,
    /// Chunks that the stream has taken.
    taken: u64,
    snapshot: Option<BackfillSnapshot>,
    standing: Standing,
    /// The stream found nothing.
    is_asleep: bool,
    /// The scan waits until the inbox has no more bytes than these.
    scanner: Option<(Thread, u64)>,
}

/// See the module text.
pub(crate) struct BackfillInbox {
    state: Mutex<State>,
    wanted: CollectionSet,
    waker: StreamWaker,
    /// Bytes in all inboxes of the bucket.
    in_inboxes: Arc<AtomicU64>,
}

impl BackfillInbox {
    pub(super) fn new(
        wanted: CollectionSet,
        waker: StreamWaker,
        in_inboxes: Arc<AtomicU64>,
    ) -> BackfillInbox {
        debug_assert!(
            match &wanted {
                CollectionSet::All => true,
                CollectionSet::Only(ids) => ids.is_sorted(),
            },
            "collections are found by bisection"
        );
        let state = State {
            chunks: VecDeque::new(),
            bytes: 0,
            taken: 0,
            snapshot: None,
            standing: Standing::Open,
            is_asleep: false,
            scanner: None,
        };
        BackfillInbox { state: Mutex::new(state), wanted, waker, in_inboxes }
    }

    /// The snapshot, once the scan has begun.
    pub(crate) fn snapshot(&self) -> Option<BackfillSnapshot> {
        self.state.lock().snapshot
    }

    /// The next chunk, or why there is none.
    pub(crate) fn take(&self) -> InboxItem {
        let mut state = self.state.lock();
        if let Some(chunk) = state.chunks.pop_front() {
            assert!(state.bytes >= chunk.bytes(), "an inbox counts its chunks");
            state.bytes -= chunk.bytes();
            state.taken += 1;
            let total = self.in_inboxes.fetch_sub(chunk.bytes(), Ordering::Relaxed);
            assert!(total >= chunk.bytes(), "bytes that leave an inbox were counted");
            let is_whole = chunk.count_whole();
            let left = state.bytes;
            if let Some((scanner, _)) = state.scanner.take_if(|(_, bytes)| left <= *bytes) {
                scanner.unpark();
            }
            return if is_whole { InboxItem::Chunk(chunk) } else { InboxItem::Failed };
        }
        assert_eq!(state.bytes, 0, "an inbox without chunks has no bytes");
        match state.standing {
            Standing::Open => {
                state.is_asleep = true;
                InboxItem::Nothing
            }
            Standing::Complete => InboxItem::Complete,
            Standing::LeftBehind | Standing::Closed => InboxItem::LeftBehind,
            Standing::Failed => InboxItem::Failed,
        }
    }

    /// Bytes and records that the stream has not taken.
    pub(crate) fn held(&self) -> (u64, u64) {
        let state = self.state.lock();
        (state.bytes, state.chunks.iter().map(|chunk| chunk.len() as u64).sum())
    }

    /// The stream is gone, or needs it no longer.
    pub(crate) fn close(&self) {
        self.empty(&mut self.state.lock(), Standing::Closed);
    }

    /// The reader loses its unread records, whether or not the scan has ended.
    pub(crate) fn give_up(&self) {
        self.empty(&mut self.state.lock(), Standing::LeftBehind);
    }

    /// True when it has a large record that the process's budget has granted.
    pub(crate) fn holds_granted(&self) -> bool {
        self.state.lock().chunks.iter().any(|chunk| chunk.is_granted())
    }

    pub(super) fn is_closed(&self) -> bool {
        matches!(self.state.lock().standing, Standing::Closed | Standing::LeftBehind)
    }

    pub(super) fn wants(&self, collection: CollectionId) -> bool {
        self.wanted.has(collection)
    }

    /// True for a stream that sees only the default collection, and no events.
    pub(super) fn is_legacy(&self) -> bool {
        matches!(&self.wanted, CollectionSet::Only(ids) if ids[..] == [CollectionId::DEFAULT])
    }

    pub(super) fn holds_any(&self) -> bool {
        !self.state.lock().chunks.is_empty()
    }

    /// True when it has so many bytes, or more.
    pub(super) fn has(&self, bytes: u64) -> bool {
        self.state.lock().bytes >= bytes
    }

    /// Chunks taken so far. The scan is woken when there are no more than so many bytes left.
    pub(super) fn taken(&self, scanner: Thread, wake_at_bytes: u64) -> u64 {
        let mut state = self.state.lock();
        state.scanner = Some((scanner, wake_at_bytes));
        state.taken
    }

    /// The owner of the stream.
    pub(super) fn owner(&self) -> StreamOwner {
        self.waker.owner()
    }

    pub(super) fn begin(&self, snapshot: BackfillSnapshot) {
        debug_assert!(
            snapshot.default_end <= snapshot.end,
            "a collection is a part of the snapshot"
        );
        self.change(|state| {
            debug_assert!(state.snapshot.is_none(), "a scan begins once");
            state.snapshot = Some(snapshot);
            debug_assert!(state.chunks.is_empty(), "a snapshot is known before its records");
        });
    }

    pub(super) fn push(&self, chunk: &Arc<BackfillChunk>) {
        self.change(|state| {
            if state.standing == Standing::Open {
                debug_assert!(state.snapshot.is_some(), "a snapshot is known before its records");
                state.bytes += chunk.bytes();
                self.in_inboxes.fetch_add(chunk.bytes(), Ordering::Relaxed);
                state.chunks.push_back(Arc::clone(chunk));
            }
        });
    }

    /// The scan has shown everything.
    pub(super) fn complete(&self) {
        self.change(|state| {
            debug_assert_ne!(state.standing, Standing::Complete, "a scan ends once");
            if state.standing == Standing::Open {
                state.standing = Standing::Complete;
            }
        });
    }

    /// The stream loses its unread records and has to request another scan. False when there is
    /// nothing to lose.
    pub(super) fn leave_behind(&self) -> bool {
        self.change(|state| {
            let is_over = match state.standing {
                Standing::Open => false,
                Standing::Complete => state.chunks.is_empty(),
                Standing::LeftBehind | Standing::Failed | Standing::Closed => true,
            };
            if !is_over {
                self.empty(state, Standing::LeftBehind);
            }
            !is_over
        })
    }

    /// The store has failed in the scan. What the stream has not read yet is right, and is kept.
    pub(super) fn fail(&self) {
        self.change(|state| {
            if state.standing == Standing::Open {
                state.standing = Standing::Failed;
            }
        });
    }

    fn empty(&self, state: &mut State, standing: Standing) {
        state.standing = standing;
        debug_assert!(standing != Standing::Open, "an inbox that was emptied gets nothing more");
        state.chunks.clear();
        let bytes = std::mem::take(&mut state.bytes);
        let before = self.in_inboxes.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(before >= bytes, "bytes that leave an inbox were counted");
        if let Some((scanner, _)) = state.scanner.take() {
            scanner.unpark();
        }
    }

    /// Changes the state, then wakes the stream if it sleeps.
    fn change<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.state.lock();
        let result = change(&mut state);
        let wakes = std::mem::take(&mut state.is_asleep);
        drop(state);
        if wakes {
            self.waker.wake();
        }
        result
    }
}

impl Drop for BackfillInbox {
    fn drop(&mut self) {
        self.close();
    }
}
