//! A server that is killed again and again under load, and judged by the oracle each time.
//!
//! Owns: the cycle. The server starts on the same directory; it is asked how far each vbucket came back;
//! writers, each with documents of its own, begin at once, while it still warms up, some by reading back
//! what they wrote before; after a random number of acknowledgements, or a random time, it is killed
//! with SIGKILL, or now and then stopped in order, or killed once more while it starts. Writers mix
//! sets, adds, replaces, deletions, appends, prepends and counters, plain and durable, in two
//! collections, and know of each answer which one is right. Every few cycles all documents are read.
//!
//! Everything that is chosen follows from the seed; how the threads interleave does not. Callers: the tests
//! of the server, and `cargo xtask soak kill`.

mod recovery;
mod workload;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use oribi_types::{CollectionId, Vbid};

use crate::ack_log::{AckLog, Ending, Recovered, Tally};
use crate::http::HttpClient;
use crate::poll::PATIENCE;
use crate::raw_connection::{DEVELOPMENT_PASSWORD, DEVELOPMENT_USER, RawConnection};
use crate::{Random, ServerOptions, ServerProcess};
use recovery::recovered;
use workload::{Writer, WriterPlan};

/// Texts of warnings that a killed server may log.
const ALLOWED_WARNINGS: [&str; 7] = [
    "DEVELOPMENT MODE",
    // What the log store says of the end that a kill left.
    "bytes of an unfinished commit were cut off",
    "a segment was still being made at the end",
    "a bad index file; the segment is read instead",
    // The other store, on a slow disk.
    "writes wait for tables to be written and merged",
    // A store behind a network.
    "waiting for Kudu",
    "Kudu answers again",
];

/// What to do to a server.
#[derive(Clone, Debug)]
pub struct KillOptions {
    /// How to start it, on a directory that belongs to the test.
    pub server: ServerOptions,
    /// Decides every choice.
    pub seed: u64,
    /// Threads that write, each on a connection of its own.
    pub writers: u64,
    /// Documents of each writer.
    pub documents_per_writer: u64,
    /// Longest value that is written in one piece, in bytes.
    pub value_bytes_max: u64,
    /// Acknowledgements after which the server is killed at the latest.
    pub acknowledgements_max: u64,
    /// One in this many cycles ends with an orderly stop instead; 0 for none.
    pub clean_stop_one_in: u64,
    /// Whether several servers can share the store, so that every start begins new histories.
    pub store_is_shared: bool,
}

impl KillOptions {
    /// Four writers with two hundred documents each, and an orderly stop in sixteen cycles.
    pub fn new(server: ServerOptions, seed: u64) -> KillOptions {
        KillOptions {
            server,
            seed,
            writers: 4,
            documents_per_writer: 200,
            value_bytes_max: 2000,
            acknowledgements_max: 1500,
            clean_stop_one_in: 16,
            store_is_shared: false,
        }
    }

    /// So many documents that a bucket of 8 MiB has to evict most of them.
    pub fn larger_than_memory(self) -> KillOptions {
        KillOptions { documents_per_writer: 4000, value_bytes_max: 4000, ..self }
    }
}

/// What some cycles did.
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
    /// What the oracle saw.
    pub tally: Tally,
}

/// A directory's chain of lives.
pub struct KillCycles {
    options: KillOptions,
    random: Random,
    server: ServerProcess,
    collection: CollectionId,
    log: Mutex<AckLog>,
    /// How the life before this one ended.
    ending: Ending,
    report: KillReport,
}

impl KillCycles {
    /// Starts the server on its directory, which is empty.
    pub fn start(options: KillOptions) -> Result<KillCycles> {
        let server = ServerProcess::start(options.server.clone())?;
        let collection = create_collection(&server)?;
        let cycles = KillCycles {
            random: Random::new(options.seed),
            server,
            collection,
            log: Mutex::new(match options.store_is_shared {
                true => AckLog::of_shared_store(),
                false => AckLog::new(),
            }),
            options,
            ending: Ending::CleanStop { killed_starts: 0 },
            report: KillReport::default(),
        };
        let recovered = cycles.ask_recovered()?;
        // Nothing is known of the time before, so nothing is compared.
        cycles.log().restarted(Ending::CleanStop { killed_starts: 0 }, &recovered);
        Ok(cycles)
    }

    /// The running server.
    pub fn server(&self) -> &ServerProcess {
        &self.server
    }

    /// What was done so far.
    pub fn report(&self) -> KillReport {
        KillReport {
            tally: self.log.lock().map(|log| log.tally()).unwrap_or_default(),
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

    /// Reads every document back, stops the server in order, and looks at its log.
    pub fn finish(self) -> Result<KillReport> {
        self.finish_with(|_| Ok(()))
    }

    /// The same, and has `look` compare what is stored with the documents that there are, when the server has
    /// ended.
    pub fn finish_with(mut self, look: impl FnOnce(&AckLog) -> Result<()>) -> Result<KillReport> {
        self.read_back()?;
        self.check()?;
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

    /// The writers run; the server is ended under them.
    fn live(&mut self, reads_all: bool) -> Result<()> {
        let is_clean = match self.options.clean_stop_one_in {
            0 => false,
            often => self.random.one_in(often),
        };
        // Some read what they wrote before they go on, some find out as they go.
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
        if is_clean {
            let status = self.server.terminate()?;
            if !status.success() {
                bail!("SIGTERM ended the server with {status}:\n{}", self.server.output());
            }
            self.ending = Ending::CleanStop { killed_starts: 0 };
        } else {
            let is_loading = !self.server.log().contains("warmup is done");
            self.server.kill()?;
            self.report.kills += 1;
            self.report.killed_loading += u64::from(is_loading);
            self.ending = Ending::Crash { starts: 1 };
        }
        self.check_server_log()
    }

    /// Starts the server again, sometimes after a start or two that are killed, and tells the oracle.
    fn restart(&mut self) -> Result<()> {
        let mut starts = 1;
        while self.random.one_in(6) {
            self.server.restart_and_kill(Duration::from_micros(self.random.below(60_000)))?;
            self.report.killed_starts += 1;
            starts += 1;
        }
        self.ending = match self.ending {
            Ending::Crash { .. } => Ending::Crash { starts },
            Ending::CleanStop { .. } => Ending::CleanStop { killed_starts: starts - 1 },
        };
        self.server.restart()?;
        let recovered = self.ask_recovered()?;
        let ending = self.ending;
        self.log().restarted(ending, &recovered);
        Ok(())
    }

    fn ask_recovered(&self) -> Result<BTreeMap<Vbid, Recovered>> {
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
        let outcome = thread::scope(|scope| {
            for number in 0..self.options.writers {
                let random = self.random.fork();
                let writer = Writer::new(number, &self.options, collection, random, &log, done);
                scope.spawn(move || writer.run(port, plan));
            }
            end(self)
        });
        self.log = log;
        outcome
    }

    /// An error that lists every violation so far.
    fn check(&self) -> Result<()> {
        let violations = self.log().take_violations();
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

/// Makes a collection beside the default one.
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
