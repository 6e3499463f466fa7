//! Work that would block a worker, and how its result answers the request.
//!
//! Owns: the form of a job. A handler builds it from two functions: the work, which a blocking
//! thread runs, and its end, which the worker runs on the connection with the work's result.
//! Invariant: only the end touches the connection. `E` is the environment of the worker.

use std::fmt;
use std::sync::mpsc::sync_channel;

use oribi_protocol::status::Status;

use super::late_outcome::{LateOutcome, LateReply};
use crate::connection::request_id::RequestId;
use crate::dispatch::connection_state::ConnectionState;

/// The thread that runs a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    Logins,
    Listings,
    Others,
}

/// Takes the end of a job that a thread of its subject runs.
pub(crate) type JobReply<E> = Box<dyn FnOnce(JobEnd<E>) + Send>;

type Finish<E> =
    Box<dyn FnOnce(&mut ConnectionState, &mut E, RequestId) -> Option<LateOutcome> + Send>;

/// The effect of a finished job on its connection.
pub(crate) struct JobEnd<E>(Finish<E>);

impl<E: 'static> JobEnd<E> {
    /// The end that passes `result` to `finish`.
    fn new<T: Send + 'static>(result: T, finish: FinishWith<E, T>) -> JobEnd<E> {
        JobEnd(Box::new(move |state, env, request| finish(state, env, request, result)))
    }

    /// Changes the connection; returns the outcome to answer with, if any.
    pub fn finish(
        self,
        state: &mut ConnectionState,
        env: &mut E,
        request: RequestId,
    ) -> Option<LateOutcome> {
        (self.0)(state, env, request)
    }
}

/// Takes the typed result of a job on its connection.
pub(crate) type FinishWith<E, T> =
    fn(&mut ConnectionState, &mut E, RequestId, T) -> Option<LateOutcome>;

/// The work of a job, by the thread that runs it.
pub(crate) enum Work<E> {
    Blocking(Box<dyn FnOnce() -> JobEnd<E> + Send>),
    /// A thread of the subject. Starting the work does not block.
    Elsewhere(Box<dyn FnOnce(JobReply<E>) + Send>),
}

/// See the module text.
pub(crate) struct BlockingJob<E> {
    /// The thread that runs the job.
    pub lane: Lane,
    /// A panic of the job ends its thread, and so the process.
    ends_thread: bool,
    pub work: Work<E>,
}

/// The result of a job.
pub(crate) enum JobResult<E> {
    /// The job is done.
    Done {
        /// The end has document data, so it holds only while the node has the same session.
        has_documents: bool,
        end: JobEnd<E>,
    },
    /// The queue was full.
    Rejected,
    Panicked,
}

impl<E> fmt::Debug for JobResult<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            JobResult::Done { .. } => "Done",
            JobResult::Rejected => "Rejected",
            JobResult::Panicked => "Panicked",
        })
    }
}

impl<E> JobResult<E> {
    /// The result of a job of `lane` that is done.
    pub fn done(lane: Lane, end: JobEnd<E>) -> JobResult<E> {
        JobResult::Done { has_documents: lane != Lane::Logins, end }
    }

    /// True when the result may contain document data.
    pub fn has_documents(&self) -> bool {
        matches!(self, JobResult::Done { has_documents: true, .. })
    }
}

impl<E: 'static> BlockingJob<E> {
    /// A job that runs `work` on a thread of `lane`, and `finish` on the connection.
    pub fn new<T: Send + 'static>(
        lane: Lane,
        work: impl FnOnce() -> T + Send + 'static,
        finish: FinishWith<E, T>,
    ) -> BlockingJob<E> {
        let work = Box::new(move || JobEnd::new(work(), finish));
        BlockingJob { lane, ends_thread: false, work: Work::Blocking(work) }
    }

    /// A job that produces status and value of an answer.
    pub fn answer(
        lane: Lane,
        work: impl FnOnce() -> (Status, Vec<u8>) + Send + 'static,
    ) -> BlockingJob<E> {
        BlockingJob::new(lane, work, |_, _, _, (status, value)| {
            Some(match status {
                Status::Success => Ok(LateReply::value(value)),
                status => Err(status),
            })
        })
    }

    /// A job that another thread runs. `start` hands it over and does not block.
    pub fn elsewhere<T: Send + 'static>(
        start: impl FnOnce(Box<dyn FnOnce(T) + Send>) + Send + 'static,
        finish: FinishWith<E, T>,
    ) -> BlockingJob<E> {
        let start = move |reply: JobReply<E>| {
            start(Box::new(move |result| reply(JobEnd::new(result, finish))));
        };
        BlockingJob {
            lane: Lane::Others,
            ends_thread: false,
            work: Work::Elsewhere(Box::new(start)),
        }
    }

    /// Makes a panic of the job end its thread: a half-done job would leave unreliable data.
    pub fn ending_thread(self) -> BlockingJob<E> {
        BlockingJob { ends_thread: true, ..self }
    }

    /// [`BlockingJob::run`] with a panic as a result, unless a panic has to end the thread.
    pub fn run_or_fail(self) -> JobResult<E> {
        let name = match self.lane {
            _ if self.ends_thread => return self.run(),
            Lane::Logins => "login",
            Lane::Listings => "listing",
            Lane::Others => "blocking",
        };
        oribi_supervisor::job(name, || self.run()).unwrap_or(JobResult::Panicked)
    }

    /// Runs the job on the calling thread.
    pub fn run(self) -> JobResult<E> {
        let lane = self.lane;
        match self.work {
            Work::Blocking(work) => JobResult::done(lane, work()),
            Work::Elsewhere(start) => {
                let (sender, receiver) = sync_channel(1);
                start(Box::new(move |end| drop(sender.send(end))));
                receiver.recv().map_or(JobResult::Rejected, |end| JobResult::done(lane, end))
            }
        }
    }
}
