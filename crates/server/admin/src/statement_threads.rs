//! The threads that statements run on.
//!
//! A thread that has run a statement waits [`IDLE_MAX`] for the next one, because to start one
//! costs more than a small statement. Invariants: no statement waits for a thread, since a new one
//! starts when none is idle; an idle thread holds no memory of statements but its stack, and a
//! server without statements has none of these threads.
//!
//! Caller: `query_service`, which bounds how many statements run at once.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SendError, Sender, channel};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use crate::limits::READING_NICENESS;

/// How long a thread waits for another statement.
const IDLE_MAX: Duration = Duration::from_secs(1);

/// Niceness of a statement's thread. Tests share their processors with others, and must not depend
/// on how little these leave to it.
const STATEMENT_NICENESS: i32 = if cfg!(test) { 0 } else { READING_NICENESS };

type Work = Box<dyn FnOnce() + Send>;

/// See the module text.
#[derive(Default)]
pub(crate) struct StatementThreads {
    idle: Arc<Mutex<IdleThreads>>,
}

/// Idle threads by number, the latest one last: its caches are the warmest.
#[derive(Default)]
struct IdleThreads {
    newest: u64,
    waiting: Vec<(u64, Sender<Work>)>,
}

impl StatementThreads {
    /// Runs `work` on an idle thread or a new one.
    ///
    /// # Errors
    /// The operating system refuses a thread.
    pub fn run(&self, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let mut work: Work = Box::new(work);
        loop {
            let Some((_, thread)) = self.idle.lock().waiting.pop() else { break };
            match thread.send(work) {
                Ok(()) => return Ok(()),
                Err(SendError(back)) => work = back,
            }
        }
        let idle = Arc::downgrade(&self.idle);
        oribi_supervisor::spawn("oribi-query", move || serve(work, &idle)).map(drop)
    }
}

/// Runs statements until none comes for a while.
fn serve(work: Work, idle: &Weak<Mutex<IdleThreads>>) {
    // Without it the statement competes with workers as an equal.
    let _ = rustix::process::nice(STATEMENT_NICENESS);
    let mut next = Some(work);
    while let Some(work) = next {
        work();
        next = wait(idle);
    }
}

/// The next statement of this thread. None when it has to end.
fn wait(idle: &Weak<Mutex<IdleThreads>>) -> Option<Work> {
    let (sender, statements): (Sender<Work>, Receiver<Work>) = channel();
    let number = {
        let idle = idle.upgrade()?;
        let mut idle = idle.lock();
        idle.newest += 1;
        let number = idle.newest;
        debug_assert!(
            idle.waiting.iter().all(|(known, _)| *known < number),
            "a number is of one thread"
        );
        idle.waiting.push((number, sender));
        number
    };
    match statements.recv_timeout(IDLE_MAX) {
        Ok(work) => Some(work),
        Err(RecvTimeoutError::Disconnected) => None,
        Err(RecvTimeoutError::Timeout) => {
            let idle = idle.upgrade()?;
            let mut idle = idle.lock();
            let place = idle.waiting.iter().position(|(known, _)| *known == number);
            match place {
                Some(place) => {
                    idle.waiting.remove(place);
                    None
                }
                // Taken at this moment: its statement is on its way.
                None => {
                    drop(idle);
                    statements.recv().ok()
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    //! Threads that serve again, and end.

    use super::*;
    use std::thread::ThreadId;

    /// Runs something, and says on which thread once the thread is idle or gone.
    fn run_on(threads: &StatementThreads) -> ThreadId {
        let (sender, thread) = channel();
        threads.run(move || sender.send(std::thread::current().id()).unwrap()).unwrap();
        thread.recv().unwrap()
    }

    fn wait_idle(threads: &StatementThreads, count: usize) {
        while threads.idle.lock().waiting.len() != count {
            std::thread::yield_now();
        }
    }

    #[test]
    fn an_idle_thread_runs_the_next_statement() {
        let threads = StatementThreads::default();
        let first = run_on(&threads);
        wait_idle(&threads, 1);
        assert_eq!(run_on(&threads), first);
        // It ends without statements.
        wait_idle(&threads, 0);
        assert_ne!(run_on(&threads), first);
    }

    #[test]
    fn a_busy_thread_makes_no_statement_wait() {
        let threads = StatementThreads::default();
        let (release, held) = channel::<()>();
        threads.run(move || assert!(held.recv().is_err())).unwrap();
        run_on(&threads);
        wait_idle(&threads, 1);
        drop(release);
        wait_idle(&threads, 2);
    }
}
