//! Jobs that would block a worker, and their results.
//!
//! Owns: the kinds of jobs and the code of each. Workers create jobs, the threads of
//! `blocking_thread` run them.

use std::sync::mpsc::sync_channel;

use oribi_engine::FlushAllError;
use oribi_protocol::status::Status;

use crate::auth::SaslStep;
use crate::buckets::range_scans::{Reply, ScanAnswer};
use crate::dispatch::stat_cursor::{PreparedStat, StatPreparation};

/// A job that runs on a blocking thread.
pub enum Job {
    /// The slow part of a SASL exchange.
    Sasl(Box<dyn FnOnce() -> SaslStep + Send>),
    /// Remove every document of a bucket.
    FlushAll(Box<dyn FnOnce() -> Result<(), FlushAllError> + Send>),
    /// Collect the data of a STAT group.
    Stat(StatPreparation),
    /// Send a command to a range scan; its own thread answers.
    RangeScan(Box<dyn FnOnce(Reply) + Send>),
    /// Build an answer that has to read the disk.
    Answer(AnswerWork),
    /// Build an answer that reads much of the disk.
    Listing(AnswerWork),
}

/// Produces status and value of an answer.
pub type AnswerWork = Box<dyn FnOnce() -> (Status, Vec<u8>) + Send>;

/// The thread that runs a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    /// Key derivation.
    Logins,
    /// Lists of keys.
    Listings,
    /// Everything else.
    Others,
}

/// The result of a job.
#[derive(Debug)]
pub enum JobResult {
    /// The next step of the exchange.
    Sasl(SaslStep),
    /// Result of flush_all.
    FlushAll(Result<(), FlushAllError>),
    /// The group's data, or why it is unavailable.
    Stat(PreparedStat),
    /// Answer of a range scan.
    RangeScan(ScanAnswer),
    /// Status and value of the answer.
    Answer(Status, Vec<u8>),
    /// The queue was full.
    Refused,
    /// The job panicked.
    Panicked,
}

impl JobResult {
    /// True when the result contains no document data, so it holds even after a change of owner.
    pub fn has_no_documents(&self) -> bool {
        matches!(self, JobResult::Sasl(_) | JobResult::Refused | JobResult::Panicked)
    }
}

impl Job {
    /// The thread that runs the job.
    pub fn lane(&self) -> Lane {
        match self {
            Job::Sasl(_) => Lane::Logins,
            Job::Listing(_) => Lane::Listings,
            Job::FlushAll(_) | Job::Stat(_) | Job::Answer(_) | Job::RangeScan(_) => Lane::Others,
        }
    }

    /// [`Job::run`] with a panic as a result. The exception is a job that empties a bucket: a
    /// half-emptied bucket is unreliable, so such a panic ends the thread.
    pub fn run_or_fail(self) -> JobResult {
        let what = match self.lane() {
            _ if matches!(self, Job::FlushAll(_)) => return self.run(),
            Lane::Logins => "login",
            Lane::Listings => "listing",
            Lane::Others => "blocking",
        };
        oribi_supervisor::job(what, || self.run()).unwrap_or(JobResult::Panicked)
    }

    /// Runs the job on the calling thread.
    pub fn run(self) -> JobResult {
        match self {
            Job::Sasl(work) => JobResult::Sasl(work().run()),
            Job::FlushAll(work) => JobResult::FlushAll(work()),
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
