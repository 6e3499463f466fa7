//! Whether the server makes progress: every worker takes messages from its mailbox.
//!
//! Owns: the progress probe, which a watchdog sends from a separate thread. A worker answers
//! between two rounds of its loop, so a turn that never ends is noticed. Invariant: asking costs a
//! worker one message and no lock that an operation takes.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant};

use crate::runtime::mailbox::{Mailbox, WorkerMessage};

/// Probes the workers of one server. Copies probe the same workers.
#[derive(Clone)]
pub struct Progress {
    workers: Vec<Arc<Mailbox>>,
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Progress").field("workers", &self.workers.len()).finish()
    }
}

impl Progress {
    /// Probes the owners of these mailboxes.
    pub(crate) fn of(workers: Vec<Arc<Mailbox>>) -> Progress {
        Progress { workers }
    }

    /// Whether every worker answers within `patience`; waits no longer than that.
    pub fn workers_answer(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        let (sender, answers): (SyncSender<()>, _) = sync_channel(self.workers.len());
        for worker in &self.workers {
            worker.post(WorkerMessage::Answer(sender.clone()));
        }
        drop(sender);
        self.workers.iter().all(|_| {
            let left = deadline.saturating_duration_since(Instant::now());
            answers.recv_timeout(left).is_ok()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    /// A worker that answers its first question.
    fn answer_one(mailbox: Arc<Mailbox>) -> std::thread::JoinHandle<()> {
        std::thread::spawn(move || {
            let mut taken = Vec::new();
            while taken.is_empty() {
                mailbox.take(&mut taken);
                std::thread::yield_now();
            }
            for message in taken {
                let WorkerMessage::Answer(sender) = message else { panic!("{message:?}") };
                sender.send(()).unwrap();
            }
        })
    }

    #[test]
    fn one_worker_that_does_not_answer_is_no_progress() {
        let (lively, stuck) = (Mailbox::new(None), Mailbox::new(None));
        let worker = answer_one(Arc::clone(&lively));
        let both = Progress::of(vec![Arc::clone(&lively), stuck]);
        assert!(!both.workers_answer(Duration::from_millis(50)));
        worker.join().unwrap();

        let worker = answer_one(Arc::clone(&lively));
        assert!(Progress::of(vec![lively]).workers_answer(PATIENCE));
        worker.join().unwrap();
    }
}
