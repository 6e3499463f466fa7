//! Takeovers in progress, which run concurrently with the agent's other work.
//!
//! Owns: one task for each bucket with a takeover in progress. The task waits for the store, which
//! may be unreachable for long. Invariants:
//! - while a task runs, no other takeover of its bucket starts;
//! - a task that takes longer than a few leases is cancelled, so that its vbuckets can go to a node
//!   that reaches the store: from then on it serves nothing, and its keys in etcd are released. The
//!   same happens when the session ends or the node leaves;
//! - a cancelled task still runs until the store answers. That is how the node learns that it can
//!   take vbuckets of that bucket over again. After an error from the store it asks again.
//!
//! Called by the agent.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use oribi_storage::StoreError;
use oribi_types::Vbid;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::buckets::SharedBucket;

/// Pause after an error from a store before the next attempt.
const PROBE_PAUSE: Duration = Duration::from_secs(1);

struct Takeover {
    handle: Arc<dyn SharedBucket>,
    vbuckets: Vec<Vbid>,
    is_called_off: Arc<AtomicBool>,
    task: JoinHandle<Result<(), StoreError>>,
}

/// See the module text.
#[derive(Default)]
pub(crate) struct Takeovers {
    running: Vec<Takeover>,
    /// Start of unsuccessful attempts, by uuid of the bucket.
    tried_since: Vec<(String, Instant)>,
}

impl Takeover {
    fn uuid(&self) -> &str {
        self.handle.uuid()
    }

    fn call_off(&self) {
        // The order matters: see the engine.
        self.is_called_off.store(true, Ordering::Release);
        self.handle.bucket().call_off(&self.vbuckets);
    }
}

impl Takeovers {
    /// Starts a takeover of vbuckets in the background; notifies `wake` when it has ended.
    pub(crate) fn begin(
        &mut self,
        handle: &Arc<dyn SharedBucket>,
        vbuckets: Vec<Vbid>,
        wake: &Arc<Notify>,
    ) {
        assert!(!vbuckets.is_empty(), "a takeover is of vbuckets");
        assert!(!self.has(handle.uuid()), "a bucket has one takeover at a time");
        let uuid = handle.uuid().to_owned();
        if !self.tried_since.iter().any(|(tried, _)| *tried == uuid) {
            self.tried_since.push((uuid, Instant::now()));
        }
        let is_called_off = Arc::new(AtomicBool::new(false));
        let (shared, called_off) = (Arc::clone(handle), Arc::clone(&is_called_off));
        let vbids = vbuckets.clone();
        let task = tokio::task::spawn_blocking(move || take_over(&*shared, &vbids, &called_off));
        let (handle, task) = (Arc::clone(handle), waking(task, wake));
        self.running.push(Takeover { handle, vbuckets, is_called_off, task });
    }

    /// Collects the tasks that have ended, and cancels those that take longer than `limit`.
    pub(crate) async fn review(&mut self, limit: Duration, wake: &Arc<Notify>) {
        let (ended, running) = std::mem::take(&mut self.running)
            .into_iter()
            .partition(|takeover: &Takeover| takeover.task.is_finished());
        self.running = running;
        for takeover in ended {
            self.end(takeover, limit, wake).await;
        }
        let not_called_off = |takeover: &&Takeover| !takeover.is_called_off.load(Ordering::Acquire);
        for takeover in self.running.iter().filter(not_called_off) {
            if self.is_tried_for(takeover.uuid(), limit) {
                tracing::warn!(
                    bucket = takeover.handle.name(),
                    vbuckets = takeover.vbuckets.len(),
                    "the store cannot be reached; other nodes may take over what this one cannot"
                );
                takeover.call_off();
            } else if takeover.handle.is_deleted() {
                takeover.call_off();
            }
        }
    }

    async fn end(&mut self, takeover: Takeover, limit: Duration, wake: &Arc<Notify>) {
        debug_assert!(takeover.task.is_finished(), "a takeover is reviewed when it has ended");
        let Takeover { handle, is_called_off, task, .. } = takeover;
        let (bucket, uuid) = (handle.name(), handle.uuid());
        let was_called_off = is_called_off.load(Ordering::Acquire);
        match task.await {
            Ok(Ok(())) => self.forget(&*handle),
            // The store has answered.
            Ok(Err(StoreError::Fenced(_))) if was_called_off => self.forget(&*handle),
            Ok(Err(error)) => {
                tracing::warn!(bucket, %error, "vbuckets could not be taken over yet");
                if handle.is_deleted() {
                    self.forget(&*handle);
                } else if was_called_off || self.is_tried_for(uuid, limit) {
                    is_called_off.store(true, Ordering::Release);
                    self.probe(&handle, is_called_off, wake);
                }
            }
            Err(_) => tracing::error!(bucket, "a thread that took vbuckets over panicked"),
        }
    }

    /// Asks the store periodically until it answers.
    fn probe(
        &mut self,
        handle: &Arc<dyn SharedBucket>,
        is_called_off: Arc<AtomicBool>,
        wake: &Arc<Notify>,
    ) {
        debug_assert!(is_called_off.load(Ordering::Acquire), "a takeover ends before a probe");
        let probed = Arc::clone(handle);
        let asking = tokio::spawn(async move {
            tokio::time::sleep(PROBE_PAUSE).await;
            let asking = tokio::task::spawn_blocking(move || probed.bucket().ask_store());
            asking.await.unwrap_or_else(|panic| Err(StoreError::Poisoned(panic.to_string())))
        });
        let (handle, task) = (Arc::clone(handle), waking(asking, wake));
        self.running.push(Takeover { handle, vbuckets: Vec::new(), is_called_off, task });
    }

    pub(crate) fn call_off_all(&self) {
        self.running.iter().for_each(Takeover::call_off);
    }

    /// True while a task of the bucket runs.
    pub(crate) fn has(&self, uuid: &str) -> bool {
        self.running.iter().any(|takeover| takeover.uuid() == uuid)
    }

    /// True during a takeover of this vbucket that is not cancelled.
    pub(crate) fn is_taking_over(&self, uuid: &str, vbid: Vbid) -> bool {
        self.running.iter().any(|takeover| {
            takeover.uuid() == uuid
                && takeover.vbuckets.contains(&vbid)
                && !takeover.is_called_off.load(Ordering::Acquire)
        })
    }

    /// True while a cancelled task of the bucket runs.
    pub(crate) fn is_stuck(&self, uuid: &str) -> bool {
        let called_off = |takeover: &&Takeover| takeover.is_called_off.load(Ordering::Acquire);
        self.running.iter().filter(called_off).any(|takeover| takeover.uuid() == uuid)
    }

    /// Uuids of buckets whose vbuckets cannot be taken over for now: attempts have failed for
    /// longer than `limit`.
    pub(crate) fn unable(&self, limit: Duration) -> BTreeSet<String> {
        let late = |uuid: &&str| self.is_tried_for(uuid, limit);
        self.running.iter().map(Takeover::uuid).filter(late).map(str::to_owned).collect()
    }

    fn is_tried_for(&self, uuid: &str, limit: Duration) -> bool {
        let mut tried = self.tried_since.iter();
        tried.any(|(tried, since)| *tried == uuid && since.elapsed() >= limit)
    }

    fn forget(&mut self, handle: &dyn SharedBucket) {
        self.tried_since.retain(|(uuid, _)| uuid != handle.uuid());
        debug_assert!(!self.is_tried_for(handle.uuid(), Duration::ZERO), "attempts begin anew");
    }
}

/// Wraps a task so that it wakes the agent when it has ended.
fn waking(
    task: JoinHandle<Result<(), StoreError>>,
    wake: &Arc<Notify>,
) -> JoinHandle<Result<(), StoreError>> {
    let wake = Arc::clone(wake);
    tokio::spawn(async move {
        let ended = task.await;
        wake.notify_one();
        ended.unwrap_or_else(|panic| Err(StoreError::Poisoned(panic.to_string())))
    })
}

fn take_over(
    handle: &dyn SharedBucket,
    vbuckets: &[Vbid],
    is_called_off: &AtomicBool,
) -> Result<(), StoreError> {
    let (begun, bucket) = (std::time::Instant::now(), handle.name());
    let called_off = || is_called_off.load(Ordering::Acquire);
    handle.bucket().take_over_unless(vbuckets, &called_off)?;
    let (vbuckets, took_ms) = (vbuckets.len(), begun.elapsed().as_millis() as u64);
    tracing::info!(bucket, vbuckets, took_ms, "took vbuckets over");
    // A node without vbuckets may have changed the collections without being able to store them.
    if let Err(error) = handle.bucket().store_manifest() {
        tracing::info!(bucket, %error, "the store has no copy of the collections");
    }
    Ok(())
}
