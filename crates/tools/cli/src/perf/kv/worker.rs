//! A worker: one connection to each node, one batch in flight, until the phase is over.
//!
//! It generates a batch of operations, encodes each into the connection of its vbucket, sends them
//! all, takes all answers, and starts again. Operations to retry come first in the next batch,
//! after a pause. It owns everything that it touches per operation.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use futures_util::future::{join_all, try_join_all};
use oribi_types::Vbid;

use super::cluster::{self, Discovery, Routes};
use super::key::KeyField;
use super::link::{AnswerChecker, KvLink};
use super::operation::{KvOperation, OperationGenerator, OperationSource};
use super::options::KvArgs;
use super::pace::RequestPace;
use super::request::{Address, RequestEncoder};
use super::tally::KvCounts;
use super::value::KvValues;
use crate::perf::control::{Control, LoadProgress};
use crate::perf::key_choice::{KeyChoice, generator, share};
use crate::perf::latencies::Recorder;
use crate::perf::workers::WorkerReport;

/// A batch ends early when its values, sent and expected, exceed this: a hundred values of 20 MiB
/// need not be in memory together.
const BATCH_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Pause before an operation is tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(10);

/// State that all workers share; only the control changes.
pub struct KvWorkerShared {
    pub args: KvArgs,
    pub discovery: Discovery,
    pub values: KvValues,
    pub keys: Vec<KeyField>,
    /// Path and seed, per collection.
    pub collections: Vec<(String, u32)>,
    /// The stop signal of workers, and their published figures.
    pub control: Arc<Control>,
}

/// A part of the run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Every document is written.
    Population,
    /// Documents are read and written.
    Load,
}

/// Counters of workers in a phase.
#[derive(Default)]
pub struct WorkerOutcome {
    pub counts: KvCounts,
    /// Reason of an early end of one of them.
    pub error: Option<anyhow::Error>,
}

impl WorkerOutcome {
    /// Sum of all of these, with the first error.
    pub fn of_all(outcomes: impl IntoIterator<Item = WorkerOutcome>) -> WorkerOutcome {
        outcomes.into_iter().fold(WorkerOutcome::default(), |mut all, one| {
            all.counts.add(&one.counts);
            WorkerOutcome { counts: all.counts, error: all.error.or(one.error) }
        })
    }
}

/// Connects the workers of one thread; the returned closure runs a phase with them.
pub fn connect(
    shared: &Arc<KvWorkerShared>,
    thread: usize,
) -> anyhow::Result<impl FnMut(Phase, Instant) -> WorkerReport<WorkerOutcome> + use<>> {
    let recorder = Rc::new(RefCell::new(Recorder::new()));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("starting a runtime")?;
    let per_thread = shared.args.connections_per_thread as usize;
    let opening = (thread * per_thread..(thread + 1) * per_thread)
        .map(|number| Worker::open(shared.clone(), number, recorder.clone()));
    let mut workers = runtime.block_on(try_join_all(opening))?;
    Ok(move |phase, started| {
        let outcomes = match &mut workers[..] {
            [worker] => vec![runtime.block_on(worker.run(phase, started))],
            workers => {
                let running = workers.iter_mut().map(|worker| worker.run(phase, started));
                runtime.block_on(join_all(running))
            }
        };
        let outcome = WorkerOutcome::of_all(outcomes);
        let operations = outcome.counts.operations();
        WorkerReport { outcome, operations, latencies: recorder.borrow_mut().finish() }
    })
}

/// See the module text.
struct Worker {
    shared: Arc<KvWorkerShared>,
    number: usize,
    routes: Routes,
    links: Vec<KvLink>,
    /// Of all workers of the thread.
    recorder: Rc<RefCell<Recorder>>,
    keys: Vec<KeyField>,
    encoder: RequestEncoder,
    operations: OperationGenerator,
    pace: RequestPace,
    /// Operations that are still to come in this phase.
    left: u64,
    /// Operations to be tried again.
    again: Vec<KvOperation>,
    /// Operations whose vbucket is active nowhere.
    unroutable: Vec<KvOperation>,
}

impl Worker {
    /// Connects worker `number` to all nodes.
    async fn open(
        shared: Arc<KvWorkerShared>,
        number: usize,
        recorder: Rc<RefCell<Recorder>>,
    ) -> anyhow::Result<Worker> {
        let KvWorkerShared { args, discovery, values, .. } = &*shared;
        let routes = match &discovery.config {
            None => Routes::single(cluster::named_node(&discovery.options)),
            Some(config) => Routes::by_map(config, &[])?,
        };
        let source = OperationSource::Population { left: 0..0, collection: 0 };
        let operations = OperationGenerator {
            source,
            // Limited to far less than this type holds.
            collections: shared.keys.len() as u16,
            sizes: values.sizes().clone(),
            random: generator(args.random_seed, number),
            versions: 0,
        };
        let durability = args.durability.into();
        let encoder = RequestEncoder::new(
            values.clone(),
            args.form(),
            args.expiry,
            durability,
            args.compress,
        );
        let mut worker = Worker {
            number,
            routes,
            links: Vec::new(),
            recorder,
            keys: shared.keys.clone(),
            encoder,
            operations,
            pace: RequestPace::unlimited(),
            left: 0,
            again: Vec::new(),
            unroutable: Vec::new(),
            shared,
        };
        worker.connect().await?;
        Ok(worker)
    }

    /// Runs one phase to its end. An error ends it for all workers.
    async fn run(&mut self, phase: Phase, started: Instant) -> WorkerOutcome {
        if let Err(error) = self.begin(phase, started) {
            self.shared.control.cancel();
            return self.finish(Some(error));
        }
        let shared = self.shared.clone();
        let ran = tokio::select! {
            biased;
            ran = self.batches(started) => ran,
            () = shared.control.cancelled() => Ok(()),
        };
        if ran.is_err() {
            shared.control.cancel();
        }
        self.finish(ran.err())
    }

    fn begin(&mut self, phase: Phase, started: Instant) -> anyhow::Result<()> {
        let args = &self.shared.args;
        let workers = args.workers();
        let mine = share(args.items, self.number, workers);
        self.left = u64::MAX;
        self.operations.source = match phase {
            Phase::Population => OperationSource::Population { left: mine, collection: 0 },
            Phase::Load => {
                self.left = args.operations_per_worker().unwrap_or(u64::MAX);
                // With fewer documents than workers, some go through all of them.
                let mine = if mine.is_empty() { 0..args.items } else { mine };
                let choice = KeyChoice::new(args.popularity(), args.items, mine);
                OperationSource::Mixed { choice, set_pct: args.set_pct }
            }
        };
        self.pace = RequestPace::new(args, self.number, started).context("making a timer")?;
        Ok(())
    }

    async fn batches(&mut self, started: Instant) -> anyhow::Result<()> {
        let shared = self.shared.clone();
        let judge = AnswerChecker {
            values: &shared.values,
            collections: &shared.collections,
            started,
            from_due: self.pace.is_open_loop(),
            retries_max: shared.args.retries,
            misses_allowed: shared.args.allow_misses,
        };
        loop {
            if self.again.is_empty() && self.left > 0 {
                self.pace.wait(&shared.control).await.context("waiting for the next operation")?;
            }
            if shared.control.is_stopped() {
                // What the server asked to try again is still tried.
                self.left = 0;
            }
            if self.fill() == 0 {
                return Ok(());
            }
            match &mut self.links[..] {
                [link] => link.exchange(&judge).await?,
                links => {
                    try_join_all(links.iter_mut().map(|link| link.exchange(&judge))).await?;
                }
            }
            self.publish();
            self.take_back().await?;
        }
    }

    /// Draws a batch and queues its requests; returns how many operations it has.
    fn fill(&mut self) -> usize {
        let batch_size = self.shared.args.batch_size as usize;
        let answer_bytes = *self.operations.sizes.end();
        let now_ns = self.pace.now_ns();
        let (mut queued, mut bytes) = (0, 0);
        while queued < batch_size && bytes < BATCH_BYTES_MAX {
            let Some(operation) = self.next_operation(now_ns) else { break };
            bytes += answer_bytes.max(operation.value_bytes as usize);
            queued += 1;
            self.queue(operation);
        }
        queued
    }

    /// The operation that comes next, if one is due.
    #[inline]
    fn next_operation(&mut self, now_ns: u64) -> Option<KvOperation> {
        if let Some(operation) = self.again.pop() {
            return Some(operation);
        }
        if self.left == 0 {
            return None;
        }
        let due_ns = self.pace.take(now_ns)?;
        let operation = self.operations.next(due_ns)?;
        self.left -= 1;
        Some(operation)
    }

    fn queue(&mut self, operation: KvOperation) {
        let key = &mut self.keys[usize::from(operation.collection)];
        key.set(operation.index);
        let vbid = match self.routes.vbuckets() {
            0 => Vbid(0),
            vbuckets => key.vbucket(vbuckets),
        };
        let Some(position) = self.routes.connection_of(vbid) else {
            self.unroutable.push(operation);
            return;
        };
        let address = Address { vbid, field: key.field(), seed: key.seed() };
        self.links[position].push(&mut self.encoder, operation, &address);
    }

    fn publish(&mut self) {
        let live = &self.shared.control.live[self.number];
        let mut progress = LoadProgress::default();
        for link in &mut self.links {
            let counts = link.counts();
            progress.operations += counts.operations();
            progress.problems += counts.problems(self.shared.args.allow_misses);
        }
        live.publish(progress);
        live.answer(|recent| self.recorder.borrow_mut().hand_over(recent));
    }

    /// Collects the operations to retry, waits a little, and looks up their nodes.
    async fn take_back(&mut self) -> anyhow::Result<()> {
        let mut map_is_stale = !self.unroutable.is_empty();
        for link in &mut self.links {
            map_is_stale |= link.take_back(&mut self.again);
        }
        for mut operation in self.unroutable.drain(..) {
            operation.attempts += 1;
            match operation.attempts > self.shared.args.retries {
                true => self.links[0].give_up(&operation),
                false => self.again.push(operation),
            }
        }
        if !self.again.is_empty() {
            tokio::time::sleep(RETRY_PAUSE).await;
        }
        if map_is_stale && self.routes.vbuckets() > 0 {
            let config = self.links[0].cluster_config().await;
            let config = config.context("fetching the cluster map again")?;
            self.routes = Routes::by_map(&config, self.routes.nodes())?;
            self.connect().await?;
        }
        Ok(())
    }

    /// Connects to the nodes that there is no connection to.
    async fn connect(&mut self) -> anyhow::Result<()> {
        let discovery = &self.shared.discovery;
        for node in &self.routes.nodes()[self.links.len()..] {
            let wire =
                cluster::open(discovery, node, &self.shared.args, &self.shared.keys[0]).await?;
            self.links.push(KvLink::new(wire, self.recorder.clone()));
        }
        Ok(())
    }

    fn finish(&mut self, error: Option<anyhow::Error>) -> WorkerOutcome {
        for operation in self.again.drain(..).chain(self.unroutable.drain(..)) {
            self.links[0].give_up(&operation);
        }
        let mut counts = KvCounts::default();
        for link in &mut self.links {
            link.abandon();
            counts.add(&std::mem::take(link.counts()));
        }
        WorkerOutcome { counts, error }
    }
}
