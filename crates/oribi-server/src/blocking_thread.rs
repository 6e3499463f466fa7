//! The threads for work that would hold up a worker: key derivation, lists of keys, and what else has to be read
//! from the disk or summed over a whole bucket (flush_all, STAT, OBSERVE).
//!
//! Owns: a thread and a bounded queue for each kind of work ([`Lane`]). Invariants: a job's result always reaches
//! the mailbox it was submitted for, unless the server stops first; a full queue refuses at once; what anybody can
//! ask for without having logged in, and what reads much of a vbucket, is done by threads of their own, so that
//! neither a flood of logins nor a list of keys holds up anything but logins and lists. A flood of wrong passwords
//! does refuse others that are not known yet; those that were right before, and SCRAM, need no derivation.
//! Called by workers (submit) and the server (stop). It does not know what a connection does with a result.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use oribi_engine::FlushAllError;
use oribi_protocol::status::Status;

use crate::auth::SaslStep;
use crate::buckets::BucketHandle;
use crate::dispatch::{PreparedStat, StatPreparation};
use crate::limits::{BLOCKING_QUEUE_MAX, LISTING_QUEUE_MAX, LOGIN_QUEUE_MAX};
use crate::mailbox::{ConnectionId, Mailbox, Message};
use crate::range_scans::{Reply, ScanAnswer};

/// Work to be done away from the workers.
pub enum Job {
    /// The slow part of a SASL exchange.
    Sasl(Box<dyn FnOnce() -> SaslStep + Send>),
    /// Remove every document of a bucket.
    FlushAll(Arc<BucketHandle>),
    /// Collect what a STAT group needs.
    Stat(StatPreparation),
    /// Tell a range scan what to do; its own thread answers.
    RangeScan(Box<dyn FnOnce(Reply) + Send>),
    /// Make an answer that has to read the disk.
    Answer(AnswerWork),
    /// Make one that reads much of it.
    Listing(AnswerWork),
}

/// Makes status and value of an answer.
pub type AnswerWork = Box<dyn FnOnce() -> (Status, Vec<u8>) + Send>;

/// Which thread does a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lane {
    /// Key derivation.
    Logins,
    /// Lists of keys.
    Listings,
    /// Everything else.
    Others,
}

/// What became of a job.
#[derive(Debug)]
pub enum JobResult {
    /// The exchange goes on with this.
    Sasl(SaslStep),
    /// Result of flush_all.
    FlushAll(Result<(), FlushAllError>),
    /// The group can be answered, or why it cannot.
    Stat(PreparedStat),
    /// What a range scan has answered.
    RangeScan(ScanAnswer),
    /// Status and value of the answer.
    Answer(Status, Vec<u8>),
    /// The queue was full.
    Refused,
}

impl Job {
    fn lane(&self) -> Lane {
        match self {
            Job::Sasl(_) => Lane::Logins,
            Job::Listing(_) => Lane::Listings,
            Job::FlushAll(_) | Job::Stat(_) | Job::Answer(_) | Job::RangeScan(_) => Lane::Others,
        }
    }

    /// Does the work on the calling thread.
    pub fn run(self) -> JobResult {
        match self {
            Job::Sasl(work) => JobResult::Sasl(work().run()),
            Job::FlushAll(bucket) => JobResult::FlushAll(bucket.bucket().flush_all()),
            Job::Answer(work) | Job::Listing(work) => {
                let (status, value) = work();
                JobResult::Answer(status, value)
            }
            Job::Stat(preparation) => JobResult::Stat(preparation()),
            Job::RangeScan(tell) => {
                let (sender, receiver) = sync_channel(1);
                tell(Box::new(move |answer| drop(sender.send(answer))));
                receiver.recv().map_or(JobResult::Refused, JobResult::RangeScan)
            }
        }
    }
}

struct Submission {
    job: Job,
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
    /// Queues `job`, which is given away in `session` of the node; the result goes to `reply_to`, a refusal too.
    pub fn submit(
        &self,
        job: Job,
        (connection, session): (ConnectionId, u64),
        reply_to: &Arc<Mailbox>,
    ) {
        if let Job::RangeScan(tell) = job {
            let mailbox = Arc::clone(reply_to);
            let post = move |answer| {
                let result = JobResult::RangeScan(answer);
                mailbox.post(Message::JobDone { connection, session, result });
            };
            return tell(Box::new(post));
        }
        let lane = match job.lane() {
            Lane::Logins => &self.logins,
            Lane::Listings => &self.listings,
            Lane::Others => &self.others,
        };
        let submission = Submission { job, connection, session, reply_to: Arc::clone(reply_to) };
        if lane.try_send(submission).is_err() {
            reply_to.post(Message::JobDone { connection, session, result: JobResult::Refused });
        }
    }
}

/// The threads; they end when every [`BlockingQueue`] is gone.
pub struct BlockingThreads(Vec<JoinHandle<()>>);

impl BlockingThreads {
    /// Starts the threads.
    pub fn start() -> std::io::Result<(BlockingThreads, BlockingQueue)> {
        let mut threads = Vec::new();
        let mut start = |name: &str, queue_max| {
            let (sender, receiver) = sync_channel(queue_max);
            let thread = std::thread::Builder::new().name(name.to_owned());
            threads.push(thread.spawn(move || serve(&receiver))?);
            std::io::Result::Ok(sender)
        };
        let logins = start("oribi-login", LOGIN_QUEUE_MAX)?;
        let listings = start("oribi-listing", LISTING_QUEUE_MAX)?;
        let others = start("oribi-blocking", BLOCKING_QUEUE_MAX)?;
        Ok((BlockingThreads(threads), BlockingQueue { logins, listings, others }))
    }

    /// Waits until the threads have done what was queued. Every queue must have been dropped.
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
        let result = job.run();
        reply_to.post(Message::JobDone { connection, session, result });
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    const CONNECTION: (ConnectionId, u64) = (ConnectionId { slot: 1, generation: 1 }, 0);

    /// What is answered until one job is done, that one included.
    fn answered(mailbox: &Mailbox) -> Vec<JobResult> {
        let (mut results, mut messages) = (Vec::new(), Vec::new());
        let deadline = Instant::now() + Duration::from_secs(20);
        while !results.iter().any(|result| !matches!(result, JobResult::Refused)) {
            assert!(Instant::now() < deadline, "{results:?}");
            mailbox.take(&mut messages);
            for message in messages.drain(..) {
                if let Message::JobDone { result, .. } = message {
                    results.push(result);
                }
            }
            std::thread::yield_now();
        }
        results
    }

    #[test]
    fn neither_logins_nor_lists_hold_up_other_work() {
        let (threads, queue) = BlockingThreads::start().unwrap();
        let mailbox = Mailbox::new(None);
        // Jobs that take until the test lets go of this lock.
        let gate = Arc::new(parking_lot::Mutex::new(()));
        let closed = gate.lock();
        let (login, listing) = (Arc::clone(&gate), Arc::clone(&gate));
        let login = Job::Sasl(Box::new(move || {
            let _opened = login.lock();
            SaslStep::Failed
        }));
        let listing = Job::Listing(Box::new(move || {
            let _opened = listing.lock();
            (Status::KeyEnoent, Vec::new())
        }));
        queue.submit(login, CONNECTION, &mailbox);
        queue.submit(listing, CONNECTION, &mailbox);
        // More logins than fit, none of which is looked at: one is under way.
        for _ in 0..=LOGIN_QUEUE_MAX + 1 {
            queue.submit(Job::Sasl(Box::new(|| SaslStep::Failed)), CONNECTION, &mailbox);
        }
        let answer = || Job::Answer(Box::new(|| (Status::Success, Vec::new())));
        queue.submit(answer(), CONNECTION, &mailbox);
        let results = answered(&mailbox);
        assert!(matches!(results.last(), Some(JobResult::Answer(Status::Success, _))));
        assert!(results.len() > 1, "the queue of logins has an end");
        drop(closed);
        drop(queue);
        threads.join();
    }
}
