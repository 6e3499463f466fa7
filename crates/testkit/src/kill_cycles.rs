//! Kill cycles: a server is killed again and again under load, and the oracle checks it each time.
//!
//! Owns: the cycle. The server starts on the same directory and reports how far each vbucket came
//! back. Writers, each with its own documents, begin at once, while the server still warms up; some
//! of them first read back what they wrote before. After a random number of acknowledgements, or a
//! random time, the server is killed with SIGKILL. Now and then it is stopped in order instead, or
//! killed once more while it starts.
//!
//! DCP consumers run concurrently with the writers. One continues in the next life where it
//! was; others begin at the beginning. A second oracle checks what they hear.
//!
//! Writers mix sets, adds, replaces, deletions, appends, prepends and counters, plain and durable,
//! in two collections, and know the correct answer to each. Every few cycles they read all
//! documents.
//!
//! All choices follow from the seed; the interleaving of threads does not. Callers: the tests of
//! the server, and `cargo xtask soak kill`.

mod consumer;
mod options;
mod recovery;
mod workload;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use oribi_types::{CollectionId, Vbid};

use crate::ack_log::{AckLog, RunEnd, Tally, VbucketReport};
use crate::http::HttpClient;
use crate::poll::PATIENCE;
use crate::raw_connection::{DEVELOPMENT_PASSWORD, DEVELOPMENT_USER, RawConnection};
use crate::stream_log::{StreamLog, StreamTally};
use crate::{Random, ServerProcess};
use recovery::recovered;
use workload::{KillCycleWriter, WriterPlan};

pub use options::KillOptions;

/// Texts of warnings that a killed server may log.
const ALLOWED_WARNINGS: [&str; 6] = [
    "DEVELOPMENT MODE",
    // Message of the log store about an end that a kill left half written.
    "bytes of an unfinished commit were cut off",
    "a segment was still being made at the end",
    "a bad index file; the segment is read instead",
    // Message of a store behind a network.
    "waiting for Kudu",
    "Kudu answers again",
];

/// In one life of this many a second consumer begins at the beginning.
const LATE_CONSUMER_ONE_IN: u64 = 4;

/// Results of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KillReport {
    /// Cycles: a life, its end and the start after it.
    pub cycles: u64,
    /// Of these, ended by SIGKILL.
    pub kills: u64,
    /// Starts that were killed before or while the server got ready.
    pub killed_starts: u64,
    /// Lives in which the server was killed while vbuckets were still loading.
    pub killed_loading: u64,
    /// Observations of the oracle.
    pub tally: Tally,
    /// Observations of the stream oracle about the consumer that continues.
    pub streams: StreamTally,
}

/// A directory's chain of lives.
pub struct KillCycles {
    options: KillOptions,
    random: Random,
    server: ServerProcess,
    collection: CollectionId,
    log: Mutex<AckLog>,
    /// Changes received by the consumer that continues in each life.
    streams: StreamLog,
    /// The last consumer that began at the beginning.
    late: StreamLog,
    /// Set before the server is ended.
    is_ending: Arc<AtomicBool>,
    /// How the previous life ended.
    ending: RunEnd,
    report: KillReport,
}

impl KillCycles {
    /// Starts the server on its directory, which is empty.
    pub fn start(options: KillOptions) -> Result<KillCycles> {
        let server = ServerProcess::start(options.server.clone())?;
        let collection = create_collection(&server)?;
        let mut cycles = KillCycles {
            random: Random::new(options.seed),
            server,
            collection,
            log: Mutex::new(match options.store_is_shared {
                true => AckLog::of_shared_store(),
                false => AckLog::new(),
            }),
            streams: StreamLog::new(),
            late: StreamLog::new(),
            is_ending: Arc::default(),
            options,
            ending: RunEnd::CleanStop { killed_starts: 0 },
            report: KillReport::default(),
        };
        // The oracle knows nothing of the time before, so it compares nothing.
        cycles.begin_life()?;
        Ok(cycles)
    }

    pub fn server(&self) -> &ServerProcess {
        &self.server
    }

    pub fn report(&self) -> KillReport {
        KillReport {
            tally: self.log.lock().map(|log| log.tally()).unwrap_or_default(),
            streams: self.streams.tally(),
            ..self.report
        }
    }

    /// One life under load, its end and the next start. An error names every broken promise.
    pub fn cycle(&mut self) -> Result<()> {
        let reads_all = self.random.one_in(32);
        self.live(reads_all)?;
        self.restart()?;
        self.report.cycles += 1;
        self.check()
    }

    /// Reads every document back, stops the server in order, and checks its log.
    pub fn finish(self) -> Result<KillReport> {
        self.finish_with(|_| Ok(()))
    }

    /// The same; after the server has ended, `look` compares the stored data with the documents.
    pub fn finish_with(mut self, look: impl FnOnce(&AckLog) -> Result<()>) -> Result<KillReport> {
        self.read_back()?;
        self.compare_streams()?;
        self.is_ending.store(true, Ordering::SeqCst);
        let status = self.server.terminate()?;
        if !status.success() {
            bail!("SIGTERM ended the server with {status}:\n{}", self.server.output());
        }
        self.check_server_log()?;
        look(&self.log())?;
        Ok(self.report())
    }

    /// Reads every document back, on a connection for each writer.
    pub fn read_back(&mut self) -> Result<()> {
        let plan = WriterPlan { reads_first: Some(1), writes: false };
        self.run_writers(plan, |_| Ok(()))?;
        self.check()
    }

    fn log(&self) -> std::sync::MutexGuard<'_, AckLog> {
        self.log.lock().expect("no writer panics while it holds the log")
    }

    /// Runs the writers, and ends the server under them.
    fn live(&mut self, reads_all: bool) -> Result<()> {
        let is_clean = match self.options.clean_stop_one_in {
            0 => false,
            often => self.random.one_in(often),
        };
        // Some writers read their documents first, others find out as they go.
        let reads_first = match self.random.below(4) {
            _ if reads_all => Some(1),
            0 => None,
            _ => Some(8),
        };
        // Half of the lives are short, so that the server dies while it warms up.
        let max = self.options.acknowledgements_max;
        let enough = match self.random.below(4) {
            0 => self.random.below(20),
            1 => self.random.below(200),
            _ => self.random.below(max) + 1,
        };
        let plan = WriterPlan { reads_first, writes: true };
        let done = AtomicU64::new(0);
        let patience = Duration::from_millis(match enough {
            0..20 => self.random.below(30),
            _ => PATIENCE.as_millis() as u64,
        });
        self.run_counted(plan, &done, |cycles| {
            let deadline = Instant::now() + patience;
            while done.load(Ordering::Relaxed) < enough && Instant::now() < deadline {
                thread::sleep(Duration::from_micros(300));
            }
            if enough >= 20 && done.load(Ordering::Relaxed) < enough {
                bail!("the writers do not get on:\n{}", cycles.server.output());
            }
            cycles.end(is_clean)
        })
    }

    fn end(&mut self, is_clean: bool) -> Result<()> {
        self.is_ending.store(true, Ordering::SeqCst);
        if is_clean {
            let status = self.server.terminate()?;
            if !status.success() {
                bail!("SIGTERM ended the server with {status}:\n{}", self.server.output());
            }
            self.ending = RunEnd::CleanStop { killed_starts: 0 };
        } else {
            let is_loading = !self.server.log().contains("warmup is done");
            self.server.kill()?;
            self.report.kills += 1;
            self.report.killed_loading += u64::from(is_loading);
            self.ending = RunEnd::Crash { starts: 1 };
        }
        self.check_server_log()
    }

    /// Starts the server again, sometimes after one or two killed starts, and informs the oracle.
    fn restart(&mut self) -> Result<()> {
        let mut starts = 1;
        while self.random.one_in(6) {
            self.server.restart_and_kill(Duration::from_micros(self.random.below(60_000)))?;
            self.report.killed_starts += 1;
            starts += 1;
        }
        self.ending = match self.ending {
            RunEnd::Crash { .. } => RunEnd::Crash { starts },
            RunEnd::CleanStop { .. } => RunEnd::CleanStop { killed_starts: starts - 1 },
        };
        self.server.restart()?;
        self.begin_life()
    }

    /// Tells the oracles what came back.
    fn begin_life(&mut self) -> Result<()> {
        let recovered = self.ask_recovered()?;
        let ending = self.ending;
        self.log().restarted(ending, &recovered);
        self.streams.restarted(&recovered);
        self.is_ending.store(false, Ordering::SeqCst);
        Ok(())
    }

    /// Lets the consumer catch up, and another begin at the beginning; both have to know exactly
    /// the documents that there are. All of them have been read.
    fn compare_streams(&mut self) -> Result<()> {
        let recovered = self.ask_recovered()?;
        let late = self.streams.of_another();
        let mut logs = [std::mem::take(&mut self.streams), late];
        for log in &mut logs {
            consumer::catch_up(self.server.port(), log, &recovered)?;
            log.judge(&self.log());
            log.compare(&self.log());
        }
        [self.streams, self.late] = logs;
        self.check()
    }

    fn ask_recovered(&self) -> Result<BTreeMap<Vbid, VbucketReport>> {
        recovered(&mut RawConnection::login(self.server.port())?)
    }

    fn run_writers(
        &mut self,
        plan: WriterPlan,
        end: impl FnOnce(&mut KillCycles) -> Result<()>,
    ) -> Result<()> {
        self.run_counted(plan, &AtomicU64::new(0), end)
    }

    fn run_counted(
        &mut self,
        plan: WriterPlan,
        done: &AtomicU64,
        end: impl FnOnce(&mut KillCycles) -> Result<()>,
    ) -> Result<()> {
        let (port, collection) = (self.server.port(), self.collection);
        let log = std::mem::take(&mut self.log);
        self.late = self.streams.of_another();
        let mut streams = [std::mem::take(&mut self.streams), std::mem::take(&mut self.late)];
        let consumers = match plan.writes {
            false => 0,
            true => 1 + usize::from(self.random.one_in(LATE_CONSUMER_ONE_IN)),
        };
        let is_ending = self.is_ending.clone();
        let outcome = thread::scope(|scope| {
            for (number, stream) in streams.iter_mut().enumerate().take(consumers) {
                let (name, is_ending) = (format!("consumer-{number}"), &is_ending);
                scope.spawn(move || consumer::follow(port, &name, stream, is_ending));
            }
            for number in 0..self.options.writers {
                let random = self.random.fork();
                let writer =
                    KillCycleWriter::new(number, &self.options, collection, random, &log, done);
                scope.spawn(move || writer.run(port, plan));
            }
            end(self)
        });
        self.log = log;
        streams.iter_mut().for_each(|stream| stream.judge(&self.log()));
        [self.streams, self.late] = streams;
        outcome
    }

    /// Returns an error that lists every violation so far.
    fn check(&mut self) -> Result<()> {
        let mut violations = self.log().take_violations();
        violations.extend(self.streams.take_violations());
        violations.extend(self.late.take_violations());
        if violations.is_empty() {
            return Ok(());
        }
        let lines: Vec<String> = violations.iter().map(ToString::to_string).collect();
        bail!(
            "seed {}, cycle {}, after {:?}: {} violations\n{}\n--- log of the server\n{}",
            self.options.seed,
            self.report.cycles,
            self.ending,
            lines.len(),
            lines[..lines.len().min(40)].join("\n"),
            self.server.log()
        );
    }

    fn check_server_log(&self) -> Result<()> {
        let unlisted = self.server.unlisted_warnings(&ALLOWED_WARNINGS);
        if unlisted.is_empty() {
            return Ok(());
        }
        bail!("unlisted warnings in the server's log:\n{}", unlisted.join("\n"))
    }
}

/// Creates a collection next to the default one.
fn create_collection(server: &ServerProcess) -> Result<CollectionId> {
    const SCOPES: &str = "/pools/default/buckets/default/scopes";
    let admin = HttpClient::new(server.admin_port())
        .with_credentials(DEVELOPMENT_USER, DEVELOPMENT_PASSWORD);
    let posts = [(SCOPES.to_owned(), "crash"), (format!("{SCOPES}/crash/collections"), "written")];
    for (path, name) in posts {
        let answer = admin.post_form(&path, &[("name", name)])?;
        if answer.status != 200 {
            bail!("{path}: {}", answer.text());
        }
    }
    recovery::collection_id(&mut RawConnection::login(server.port())?, "crash.written")
        .context("the new collection cannot be found")
}
