//! The copies of this node that follow others, and the interface by which they begin and end to.
//!
//! Owns: the list of them. Invariants: a vbucket of a bucket follows one node at a time; after
//! [`CopyLinks::stop`] no stream changes the copy, so its role may change.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use oribi_cluster::buckets::SharedBucket;
use oribi_types::Vbid;
use parking_lot::Mutex;

use super::followed_copy::{FollowedCopy, ReplicaStatus};
pub(crate) use super::message::LinkWorker;
use super::message::{LinkId, LinkMessage};
use super::resolver::Resolver;
use super::work::LinkWork;
use crate::buckets::{CopyLinks, ReplicaSource};

/// Uuid of the bucket, and the vbucket.
type CopyKey = (String, Vbid);

/// See the module text.
#[derive(Default)]
pub struct ReplicationLinks {
    copies: Mutex<BTreeMap<CopyKey, Arc<FollowedCopy>>>,
    /// Name of this node, and the cluster's secret.
    identity: OnceLock<(String, Arc<[u8]>)>,
    workers: OnceLock<Vec<Arc<dyn LinkWorker>>>,
    thread: Mutex<Option<LinkThread>>,
    resolver: Resolver,
}

/// A thread that does what blocks, and its queue.
struct LinkThread {
    work: Sender<LinkSubmission>,
    thread: JoinHandle<()>,
}

/// Work for the thread, and where its result goes.
pub(crate) struct LinkSubmission {
    pub(crate) work: LinkWork,
    pub(crate) link: LinkId,
    pub(crate) reply_to: Arc<dyn LinkWorker>,
}

impl CopyLinks for ReplicationLinks {
    fn follow(&self, bucket: Arc<dyn SharedBucket>, vbid: Vbid, source: ReplicaSource) {
        let key = (bucket.bucket().config().uuid.clone(), vbid);
        let before = self.copies.lock().get(&key).cloned();
        if let Some(before) = before {
            if before.source == source && !before.is_stopped() {
                return;
            }
            // Both would change the copy otherwise.
            before.stop();
        }
        let copy = Arc::new(FollowedCopy::new(bucket, vbid, source));
        if let Some(overtaken) = self.copies.lock().insert(key, Arc::clone(&copy)) {
            overtaken.stop();
        }
        self.hand_out(copy);
        self.announce_stopped();
    }

    fn stop(&self, bucket_uuid: &str, vbid: Vbid) {
        let stopped = self.copies.lock().remove(&(bucket_uuid.to_owned(), vbid));
        if let Some(copy) = stopped {
            copy.stop();
            self.announce_stopped();
        }
    }

    fn stop_bucket(&self, bucket_uuid: &str) {
        let mut stopped = Vec::new();
        self.copies.lock().retain(|(uuid, _), copy| {
            let stays = uuid != bucket_uuid;
            if !stays {
                stopped.push(Arc::clone(copy));
            }
            stays
        });
        stopped.iter().for_each(|copy| copy.stop());
        self.announce_stopped();
    }
}

impl ReplicationLinks {
    /// The copies of a bucket that follow, by vbucket.
    pub fn status(&self, bucket_uuid: &str) -> Vec<ReplicaStatus> {
        let copies: Vec<Arc<FollowedCopy>> = {
            let copies = self.copies.lock();
            let of_bucket = copies.iter().filter(|((uuid, _), _)| uuid == bucket_uuid);
            of_bucket.map(|(_, copy)| Arc::clone(copy)).collect()
        };
        copies.iter().map(|copy| copy.status()).collect()
    }
}

impl ReplicationLinks {
    /// Sets the name of this node, and the secret by which nodes authenticate. Copies that follow
    /// already begin to, once workers are there.
    pub fn set_identity(&self, node: &str, secret: &[u8]) {
        if self.identity.set((node.to_owned(), secret.into())).is_ok() {
            self.hand_out_all();
        }
    }

    /// Sets the workers that drive the links.
    pub(crate) fn attach(&self, workers: Vec<Arc<dyn LinkWorker>>) {
        if self.workers.set(workers).is_ok() {
            self.hand_out_all();
        }
    }

    /// Name of this node, and the cluster's secret, once they are known.
    pub(crate) fn identity(&self) -> Option<(String, Arc<[u8]>)> {
        self.identity.get().cloned()
    }

    fn hand_out_all(&self) {
        let copies: Vec<Arc<FollowedCopy>> = self.copies.lock().values().cloned().collect();
        copies.into_iter().for_each(|copy| self.hand_out(copy));
    }

    /// Gives a copy to the worker of its link. A worker that has it already ignores it.
    fn hand_out(&self, copy: Arc<FollowedCopy>) {
        let (Some(workers), Some(_)) = (self.workers.get(), self.identity.get()) else { return };
        let mut hasher = DefaultHasher::new();
        (&copy.source.node, &copy.bucket.bucket().config().uuid).hash(&mut hasher);
        let worker = (hasher.finish() % workers.len().max(1) as u64) as usize;
        debug_assert!(workers.is_empty() || worker < workers.len(), "a link has a worker");
        if let Some(worker) = workers.get(worker) {
            worker.post_link(LinkMessage::Follow(copy));
        }
    }

    fn announce_stopped(&self) {
        for worker in self.workers.get().into_iter().flatten() {
            worker.post_link(LinkMessage::Stopped);
        }
    }

    /// Runs work on the thread for it, which starts with the first. Names do not wait for it.
    pub(crate) fn submit(&self, submission: LinkSubmission) {
        if let LinkWork::Resolve { host, port } = submission.work {
            self.resolver.resolve((host, port), (submission.link, submission.reply_to));
            return;
        }
        let mut thread = self.thread.lock();
        if thread.is_none() {
            let (work, submissions) = channel();
            let started = oribi_supervisor::spawn("oribi-replication", move || serve(&submissions));
            match started {
                Ok(started) => *thread = Some(LinkThread { work, thread: started }),
                // The link misses its answer, and begins anew.
                Err(error) => {
                    tracing::error!(%error, "cannot start the thread of replication links");
                    return;
                }
            }
        }
        if let Some(thread) = &*thread {
            // The thread ends after the workers.
            let _ = thread.work.send(submission);
        }
    }

    /// Ends the thread. The workers have ended.
    pub(crate) fn shut_down(&self) {
        let Some(LinkThread { work, thread }) = self.thread.lock().take() else { return };
        drop(work);
        if thread.join().is_err() {
            tracing::error!("the thread of replication links panicked");
        }
    }
}

fn serve(submissions: &Receiver<LinkSubmission>) {
    while let Ok(LinkSubmission { work, link, reply_to }) = submissions.recv() {
        let result = work.run();
        reply_to.post_link(LinkMessage::WorkDone { link, result });
    }
}

#[cfg(test)]
mod tests;
