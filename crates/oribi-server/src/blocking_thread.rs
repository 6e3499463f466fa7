//! The thread for work that would hold up a worker: key derivation, flush_all, and what has to be read from the
//! disk or summed over a whole bucket for STAT and OBSERVE.
//!
//! Owns: one thread and its bounded queue. Invariants: a job's result always reaches the mailbox it
//! was submitted for, unless the server stops first; a full queue refuses at once, so that a flood of
//! logins costs the attacker an error and nobody else anything. Called by workers (submit) and the
//! server (stop). It does not know what a connection does with a result.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use oribi_engine::FlushAllError;
use oribi_protocol::status::Status;

use crate::auth::SaslStep;
use crate::buckets::BucketHandle;
use crate::dispatch::{PreparedStat, StatPreparation};
use crate::limits::BLOCKING_QUEUE_MAX;
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
    Answer(Box<dyn FnOnce() -> (Status, Vec<u8>) + Send>),
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
    /// Does the work on the calling thread.
    pub fn run(self) -> JobResult {
        match self {
            Job::Sasl(work) => JobResult::Sasl(work().run()),
            Job::FlushAll(bucket) => JobResult::FlushAll(bucket.bucket().flush_all()),
            Job::Answer(work) => {
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
    reply_to: Arc<Mailbox>,
}

/// Submits jobs; every worker has its own.
#[derive(Clone)]
pub struct BlockingQueue(SyncSender<Submission>);

impl BlockingQueue {
    /// Queues `job`; the result goes to `reply_to`, a refusal too.
    pub fn submit(&self, job: Job, connection: ConnectionId, reply_to: &Arc<Mailbox>) {
        if let Job::RangeScan(tell) = job {
            let mailbox = Arc::clone(reply_to);
            let post = move |answer| {
                mailbox.post(Message::JobDone { connection, result: JobResult::RangeScan(answer) });
            };
            return tell(Box::new(post));
        }
        let submission = Submission { job, connection, reply_to: Arc::clone(reply_to) };
        if self.0.try_send(submission).is_err() {
            reply_to.post(Message::JobDone { connection, result: JobResult::Refused });
        }
    }
}

/// The thread; it ends when every [`BlockingQueue`] is gone.
pub struct BlockingThread(JoinHandle<()>);

impl BlockingThread {
    /// Starts the thread.
    pub fn start() -> std::io::Result<(BlockingThread, BlockingQueue)> {
        let (sender, receiver) = sync_channel(BLOCKING_QUEUE_MAX);
        let thread = std::thread::Builder::new()
            .name("oribi-blocking".to_owned())
            .spawn(move || serve(&receiver))?;
        Ok((BlockingThread(thread), BlockingQueue(sender)))
    }

    /// Waits until the thread has done what was queued. Every queue must have been dropped.
    pub fn join(self) {
        if self.0.join().is_err() {
            tracing::error!("the blocking thread panicked");
        }
    }
}

fn serve(receiver: &Receiver<Submission>) {
    while let Ok(Submission { job, connection, reply_to }) = receiver.recv() {
        let result = job.run();
        reply_to.post(Message::JobDone { connection, result });
    }
}
