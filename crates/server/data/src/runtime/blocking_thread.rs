//! Threads for jobs that would block a worker: key derivation, lists of keys, reads from the disk,
//! sums over a bucket.
//!
//! Owns: a thread and a bounded queue for each kind of job ([`Lane`]). Invariants:
//! - a job's result reaches the mailbox given at its submission, unless the server stops first;
//! - a full queue refuses at once;
//! - pre-authentication jobs and listings have separate threads, so a flood of either blocks no
//!   other jobs;
//! - a job that panics is answered with an internal error, and its thread continues.
//!
//! A flood of wrong passwords does refuse other passwords that are not cached yet. Passwords that
//! were verified before, and SCRAM, need no derivation. Callers: workers (submit) and the server
//! (stop).

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use crate::connection::waker::ConnectionId;
use crate::dispatch::environment::Environment;
use crate::dispatch::job::{BlockingJob, JobResult, Lane, Work};
use crate::limits::{BLOCKING_QUEUE_MAX, LISTING_QUEUE_MAX, LOGIN_QUEUE_MAX};
use crate::runtime::mailbox::{Mailbox, WorkerMessage};

struct Submission {
    job: BlockingJob<Environment>,
    connection: ConnectionId,
    session: u64,
    reply_to: Arc<Mailbox>,
}

/// Submits jobs; every worker has its own.
#[derive(Clone)]
pub struct BlockingQueue {
    logins: SyncSender<Submission>,
    listings: SyncSender<Submission>,
    others: SyncSender<Submission>,
}

impl BlockingQueue {
    /// Queues `job` in the node's `session`; its result, or a refusal, goes to `reply_to`.
    pub fn submit(
        &self,
        job: BlockingJob<Environment>,
        (connection, session): (ConnectionId, u64),
        reply_to: &Arc<Mailbox>,
    ) {
        if let Work::Elsewhere(start) = job.work {
            let mailbox = Arc::clone(reply_to);
            return start(Box::new(move |end| {
                let result = JobResult::done(job.lane, end);
                mailbox.post(WorkerMessage::JobDone { connection, session, result });
            }));
        }
        let lane = match job.lane {
            Lane::Logins => &self.logins,
            Lane::Listings => &self.listings,
            Lane::Others => &self.others,
        };
        let submission = Submission { job, connection, session, reply_to: Arc::clone(reply_to) };
        if lane.try_send(submission).is_err() {
            reply_to.post(WorkerMessage::JobDone {
                connection,
                session,
                result: JobResult::Rejected,
            });
        }
    }
}

/// The threads; they end when every [`BlockingQueue`] is gone.
pub struct BlockingThreads(Vec<JoinHandle<()>>);

impl BlockingThreads {
    pub fn start() -> std::io::Result<(BlockingThreads, BlockingQueue)> {
        let mut threads = Vec::new();
        let mut start = |name: &str, queue_max| {
            let (sender, receiver) = sync_channel(queue_max);
            threads.push(oribi_supervisor::spawn(name, move || serve(&receiver))?);
            std::io::Result::Ok(sender)
        };
        let logins = start("oribi-login", LOGIN_QUEUE_MAX)?;
        let listings = start("oribi-listing", LISTING_QUEUE_MAX)?;
        let others = start("oribi-blocking", BLOCKING_QUEUE_MAX)?;
        Ok((BlockingThreads(threads), BlockingQueue { logins, listings, others }))
    }

    /// Waits until the threads have finished the queued jobs. Every queue must have been dropped.
    pub fn join(self) {
        for thread in self.0 {
            if thread.join().is_err() {
                tracing::error!("a thread for blocking work panicked");
            }
        }
    }
}

fn serve(receiver: &Receiver<Submission>) {
    while let Ok(Submission { job, connection, session, reply_to }) = receiver.recv() {
        let result = job.run_or_fail();
        reply_to.post(WorkerMessage::JobDone { connection, session, result });
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use oribi_protocol::status::Status;

    use super::*;

    const CONNECTION: (ConnectionId, u64) = (ConnectionId { slot: 1, generation: 1 }, 0);

    /// Returns the answers up to the first finished job, that one included.
    fn answered(mailbox: &Mailbox) -> Vec<JobResult<Environment>> {
        let (mut results, mut messages) = (Vec::new(), Vec::new());
        let deadline = Instant::now() + Duration::from_secs(20);
        while !results.iter().any(|result| !matches!(result, JobResult::Rejected)) {
            assert!(Instant::now() < deadline, "{results:?}");
            mailbox.take(&mut messages);
            for message in messages.drain(..) {
                if let WorkerMessage::JobDone { result, .. } = message {
                    results.push(result);
                }
            }
            std::thread::yield_now();
        }
        results
    }

    // Invariant: Pre-authentication work has a separate thread, queue and bound, also in the audit
    // log.
    #[test]
    fn neither_logins_nor_lists_hold_up_other_work() {
        let (threads, queue) = BlockingThreads::start().unwrap();
        let mailbox = Mailbox::new(None);
        // Jobs that run until the test releases this lock.
        let gate = Arc::new(parking_lot::Mutex::new(()));
        let closed = gate.lock();
        let (login, listing) = (Arc::clone(&gate), Arc::clone(&gate));
        let login = BlockingJob::answer(Lane::Logins, move || {
            let _opened = login.lock();
            (Status::AuthError, Vec::new())
        });
        let listing = BlockingJob::answer(Lane::Listings, move || {
            let _opened = listing.lock();
            (Status::KeyEnoent, Vec::new())
        });
        queue.submit(login, CONNECTION, &mailbox);
        queue.submit(listing, CONNECTION, &mailbox);
        // More logins than fit, with one in progress; none is started.
        for _ in 0..=LOGIN_QUEUE_MAX + 1 {
            let login = BlockingJob::answer(Lane::Logins, || (Status::AuthError, Vec::new()));
            queue.submit(login, CONNECTION, &mailbox);
        }
        let other = BlockingJob::answer(Lane::Others, || (Status::Success, Vec::new()));
        queue.submit(other, CONNECTION, &mailbox);
        let results = answered(&mailbox);
        assert!(matches!(results.last(), Some(JobResult::Done { .. })));
        assert!(results.len() > 1, "the queue of logins has an end");
        drop(closed);
        drop(queue);
        threads.join();
    }
}
