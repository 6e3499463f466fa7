//! The threads of a run, and the phases that they run together.
//!
//! Each thread connects by itself and then runs one phase after the other; all start a phase at the
//! same moment. The main thread measures time, CPU, throughput over time and latencies. Invariants:
//! a thread reports once that it is connected, or why not, and once per phase that it has finished.
//! A thread that panics ends the run. After a signal, operations in flight continue for at most
//! [`GRACE`].

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};

use super::control::Control;
use super::cpu::Usage;
use super::latencies::Latencies;
use super::progress::{LiveLine, RunExtent};
use super::timeline::{Timeline, TimelineSample};

/// Time between two samples of throughput, and between two checks of the clock and of signals.
const TICK: Duration = Duration::from_millis(100);

/// How long batches in flight may continue after a signal.
const GRACE: Duration = Duration::from_secs(1);

/// Most threads; more only measures the scheduler.
pub const THREADS_MAX: u64 = 1024;

/// The description of a phase before it begins.
pub struct WorkerPlan {
    /// Its name on the live line.
    pub name: &'static str,
    /// The unit that is counted: `op`, `rows`.
    pub unit: &'static str,
    pub extent: RunExtent,
    /// A server process on this machine whose CPU time is measured too.
    pub server_pid: Option<u32>,
}

/// The result of one thread in a phase.
pub struct WorkerReport<O> {
    /// The workload's own result.
    pub outcome: O,
    /// Operations that were answered.
    pub operations: u64,
    /// How long they took.
    pub latencies: Latencies,
}

/// The measurements of a phase, over all threads.
#[derive(Debug)]
pub struct PhaseMeasurements {
    /// How long operations took.
    pub latencies: Latencies,
    /// From its start to the end of the last thread.
    pub took: Duration,
    pub usage: Usage,
    pub timeline: Vec<TimelineSample>,
}

impl PhaseMeasurements {
    /// A count per second of the phase.
    pub fn per_second(&self, number: u64) -> f64 {
        let seconds = self.took.as_secs_f64();
        if seconds > 0.0 { number as f64 / seconds } else { 0.0 }
    }

    /// CPU time of this process in microseconds per counted item.
    pub fn client_cpu_us_per(&self, number: u64) -> f64 {
        let cpu = self.usage.client;
        if number == 0 { 0.0 } else { (cpu.user + cpu.system).as_secs_f64() * 1e6 / number as f64 }
    }
}

/// A message to the main thread.
enum Event<O> {
    /// A thread has connected, or could not.
    Ready(Result<()>),
    /// The thread of this number has finished a phase.
    Finished(usize, Box<WorkerReport<O>>),
}

/// Threads whose phases are described by `P` and whose outcomes are `O`.
pub struct Workers<P, O> {
    control: Arc<Control>,
    phases: Vec<Sender<(P, Instant)>>,
    threads: Vec<JoinHandle<()>>,
    events: Receiver<Event<O>>,
}

impl<P: Copy + Send + 'static, O: Send + 'static> Workers<P, O> {
    /// Starts threads and waits until all are connected. Each calls `connect` with its number, and
    /// for each phase calls the returned function with the start of the phase.
    pub fn start<C, W>(
        name: &str,
        threads: u64,
        control: Arc<Control>,
        connect: C,
    ) -> Result<Workers<P, O>>
    where
        C: Fn(usize) -> Result<W> + Clone + Send + 'static,
        W: FnMut(P, Instant) -> WorkerReport<O>,
    {
        let (sender, events) = channel();
        let mut workers = Workers { control, phases: Vec::new(), threads: Vec::new(), events };
        for number in 0..threads as usize {
            let (phases, inbox) = channel();
            let (connect, sender) = (connect.clone(), sender.clone());
            let spawned = std::thread::Builder::new()
                .name(format!("{name}-{number}"))
                .spawn(move || work(number, connect, &inbox, &sender));
            workers.threads.push(spawned.context("starting a thread")?);
            workers.phases.push(phases);
        }
        drop(sender);
        let mut ready = 0;
        while ready < workers.threads.len() {
            match workers.next_event()? {
                Some(Event::Ready(connected)) => connected.map(|()| ready += 1)?,
                Some(Event::Finished(..)) => bail!("a thread finished what was not begun"),
                None => ensure!(!workers.control.is_interrupted(), "interrupted while connecting"),
            }
        }
        Ok(workers)
    }

    /// Runs a phase in all threads; returns each thread's result, in their order, and the
    /// measurements.
    pub fn phase(&mut self, plan: &WorkerPlan, work: P) -> Result<(Vec<O>, PhaseMeasurements)> {
        self.control.live.iter().for_each(|live| live.publish(Default::default()));
        let before = Usage::now(plan.server_pid)?;
        let mut line = LiveLine::new(plan.name, plan.unit, plan.extent);
        let mut timeline = Timeline::default();
        let mut cancel_at = None;
        // Keep this last: work between this and the first operation counts as lateness in open
        // loop.
        let started = Instant::now();
        for phases in &self.phases {
            phases.send((work, started)).map_err(|_| anyhow!("a thread ended before its time"))?;
        }
        let mut finished = Vec::new();
        while finished.len() < self.threads.len() {
            match self.next_event()? {
                Some(Event::Finished(number, done)) => finished.push((number, done)),
                Some(Event::Ready(_)) => bail!("a thread connected twice"),
                None => {
                    let (elapsed, progress) = (started.elapsed(), self.control.progress());
                    timeline.add(elapsed.as_secs_f64(), progress.operations);
                    line.update(elapsed, progress, &self.control.live);
                }
            }
            self.end_in_time(plan.extent, started, &mut cancel_at);
        }
        let took = started.elapsed();
        let usage = Usage::now(plan.server_pid)?.since(&before);
        line.finish();
        finished.sort_by_key(|(number, _)| *number);
        let mut latencies = Latencies::new();
        let mut operations = 0;
        let mut outcomes = Vec::new();
        for (_, done) in finished {
            latencies.add(&done.latencies);
            operations += done.operations;
            outcomes.push(done.outcome);
        }
        let timeline = timeline.finish(took.as_secs_f64(), operations);
        Ok((outcomes, PhaseMeasurements { latencies, took, usage, timeline }))
    }

    /// Ends all threads, which must be between phases.
    pub fn end(self) -> Result<()> {
        drop(self.phases);
        for thread in self.threads {
            thread.join().map_err(|_| anyhow!("a thread has panicked"))?;
        }
        Ok(())
    }

    /// The next event, or `None` after a tick without one.
    fn next_event(&self) -> Result<Option<Event<O>>> {
        match self.events.recv_timeout(TICK) {
            Ok(event) => Ok(Some(event)),
            Err(RecvTimeoutError::Timeout) => {
                if !self.threads.iter().any(JoinHandle::is_finished) {
                    return Ok(None);
                }
                // Its last message may have arrived just after the timeout.
                self.events.try_recv().map(Some).map_err(|_| anyhow!("a thread has panicked"))
            }
            Err(RecvTimeoutError::Disconnected) => bail!("the threads are gone"),
        }
    }

    fn end_in_time(&self, extent: RunExtent, started: Instant, cancel_at: &mut Option<Instant>) {
        if self.control.is_interrupted() {
            let at = *cancel_at.get_or_insert_with(|| Instant::now() + GRACE);
            if Instant::now() >= at {
                self.control.cancel();
            }
        }
        if matches!(extent, RunExtent::Time(length) if started.elapsed() >= length) {
            self.control.stop();
        }
    }
}

/// The body of one thread. It ends when the main thread no longer listens.
fn work<P, O, W: FnMut(P, Instant) -> WorkerReport<O>>(
    number: usize,
    connect: impl Fn(usize) -> Result<W>,
    phases: &Receiver<(P, Instant)>,
    events: &Sender<Event<O>>,
) {
    let mut worker = match connect(number) {
        Ok(worker) => worker,
        Err(error) => return drop(events.send(Event::Ready(Err(error)))),
    };
    let mut heard = events.send(Event::Ready(Ok(())));
    while heard.is_ok()
        && let Ok((phase, started)) = phases.recv()
    {
        heard = events.send(Event::Finished(number, Box::new(worker(phase, started))));
    }
}

#[cfg(test)]
mod tests {
    //! Phases are whole; threads that cannot connect or panic end the run.

    use super::*;

    fn plan(extent: RunExtent) -> WorkerPlan {
        WorkerPlan { name: "test", unit: "op", extent, server_pid: None }
    }

    #[test]
    fn outcomes_are_ordered_by_thread() {
        let connect = |number: usize| {
            Ok(move |work: u64, _| {
                let mut latencies = Latencies::new();
                latencies.read.record_n(1_000, work).unwrap();
                // The first threads end last.
                std::thread::sleep(Duration::from_millis(5 * (3 - number as u64)));
                WorkerReport { outcome: number, operations: work, latencies }
            })
        };
        let mut workers = Workers::start("test", 3, Arc::new(Control::new(3)), connect).unwrap();
        for work in [2, 5] {
            let (outcomes, measured) = workers.phase(&plan(RunExtent::Endless), work).unwrap();
            assert_eq!(outcomes, [0, 1, 2]);
            assert_eq!(measured.latencies.read.len(), 3 * work);
            assert!(measured.took >= Duration::from_millis(15));
        }
        workers.end().unwrap();
    }

    #[test]
    fn a_phase_ends_with_its_time() {
        let control = Arc::new(Control::new(1));
        let stopped = control.clone();
        let connect = move |_| {
            let control = stopped.clone();
            Ok(move |(), _| {
                while !control.is_stopped() {
                    std::thread::yield_now();
                }
                WorkerReport { outcome: (), operations: 0, latencies: Latencies::new() }
            })
        };
        let mut workers = Workers::start("test", 1, control, connect).unwrap();
        let extent = RunExtent::Time(Duration::from_millis(1));
        workers.phase(&plan(extent), ()).unwrap();
        workers.end().unwrap();
    }

    #[test]
    fn threads_that_fail_end_the_run() {
        let refuse = |number: usize| -> Result<fn((), Instant) -> WorkerReport<()>> {
            bail!("thread {number} cannot connect")
        };
        let Err(error) = Workers::start("test", 1, Arc::new(Control::new(1)), refuse) else {
            panic!("a thread that cannot connect is an error")
        };
        assert_eq!(error.to_string(), "thread 0 cannot connect");
        let connect = |number: usize| {
            Ok(move |(), _| {
                assert_ne!(number, 1, "on purpose");
                WorkerReport { outcome: (), operations: 0, latencies: Latencies::new() }
            })
        };
        let mut workers = Workers::start("test", 2, Arc::new(Control::new(2)), connect).unwrap();
        let error = workers.phase(&plan(RunExtent::Endless), ()).unwrap_err();
        assert_eq!(error.to_string(), "a thread has panicked");
    }
}
