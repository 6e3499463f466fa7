//! The threads of a run: each has its own event loop and drives its workers.
//!
//! The main thread tells them to begin a phase and hears from them when it is over. It counts on
//! nothing else: a thread that cannot connect says so, and one that ends does it by an event.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use anyhow::{Context, anyhow};
use futures_util::future::{join_all, try_join_all};
use tokio::runtime::Runtime;

use super::pace;
use super::tally::{Latencies, Recorder};
use super::worker::{Outcome, Phase, Shared, Worker};

/// What the main thread is told.
pub enum Event {
    /// A thread has connected its workers, or could not.
    Ready(anyhow::Result<()>),
    /// A thread has finished a phase: what its workers did, and their latencies together.
    Finished(Vec<Outcome>, Box<Latencies>),
    /// Somebody pressed Ctrl-C.
    Interrupted,
}

/// See the module text.
pub struct Crew {
    phases: Vec<Sender<Phase>>,
    threads: Vec<JoinHandle<()>>,
}

impl Crew {
    /// Starts the threads and lets them connect; events go to `events`.
    pub fn start(shared: &Arc<Shared>, events: &Sender<Event>) -> anyhow::Result<Crew> {
        let mut crew = Crew { phases: Vec::new(), threads: Vec::new() };
        let per_thread = shared.args.connections_per_thread as usize;
        for thread in 0..shared.args.num_threads as usize {
            let (phases, inbox) = channel();
            let (shared, events) = (shared.clone(), events.clone());
            let numbers = thread * per_thread..(thread + 1) * per_thread;
            let spawned = std::thread::Builder::new()
                .name(format!("perf-{thread}"))
                .spawn(move || run_thread(&shared, numbers, &inbox, &events));
            crew.threads.push(spawned.context("starting a thread")?);
            crew.phases.push(phases);
        }
        Ok(crew)
    }

    /// Number of threads.
    pub fn len(&self) -> usize {
        self.threads.len()
    }

    /// Lets all threads begin a phase.
    pub fn begin(&self, phase: Phase) -> anyhow::Result<()> {
        let gone = |_| anyhow!("a thread ended before its time");
        self.phases.iter().try_for_each(|phases| phases.send(phase).map_err(gone))
    }

    /// Ends all threads, which are between phases.
    pub fn end(self) -> anyhow::Result<()> {
        drop(self.phases);
        for thread in self.threads {
            thread.join().map_err(|_| anyhow!("a thread has panicked"))?;
        }
        Ok(())
    }
}

fn run_thread(
    shared: &Arc<Shared>,
    numbers: std::ops::Range<usize>,
    phases: &Receiver<Phase>,
    events: &Sender<Event>,
) {
    if shared.args.open_loop {
        pace::sleep_exactly();
    }
    let recorder = Rc::new(RefCell::new(Recorder::new()));
    let (runtime, mut workers) = match connect(shared, numbers, &recorder) {
        Ok(connected) => connected,
        Err(error) => {
            // Nobody listens when another thread has failed already; there is nothing to do then.
            let _ = events.send(Event::Ready(Err(error)));
            return;
        }
    };
    let mut heard = events.send(Event::Ready(Ok(())));
    while heard.is_ok()
        && let Ok(phase) = phases.recv()
    {
        let outcomes = match &mut workers[..] {
            [worker] => vec![runtime.block_on(worker.run(phase))],
            workers => {
                runtime.block_on(join_all(workers.iter_mut().map(|worker| worker.run(phase))))
            }
        };
        let latencies = Box::new(recorder.borrow_mut().finish());
        heard = events.send(Event::Finished(outcomes, latencies));
    }
}

fn connect(
    shared: &Arc<Shared>,
    numbers: std::ops::Range<usize>,
    recorder: &Rc<RefCell<Recorder>>,
) -> anyhow::Result<(Runtime, Vec<Worker>)> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("starting a runtime")?;
    let opening = numbers.map(|number| Worker::open(shared.clone(), number, recorder.clone()));
    let workers = runtime.block_on(try_join_all(opening))?;
    Ok((runtime, workers))
}
