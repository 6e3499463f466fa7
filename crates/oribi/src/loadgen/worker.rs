//! One thread of the load: a client and a session of its own, on an event loop of its own.
//!
//! Invariants: everything of a thread happens on that thread, so that nothing is shared and no task
//! moves; with a shared client only the connections live elsewhere. A thread says that it is ready, waits until
//! all are, and says how it ended, exactly once each unless it panics. The clock runs from the start
//! signal to the end of the last flush, as in the other tool: opening the table counts, connecting does not.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::thread::JoinHandle;

use anyhow::{Context, Result};
use oribi_kudu::{
    Client, FlushMode, RowFailure, Session, SessionError, SessionOptions, StatusCode, WriteReport,
};
use tokio::runtime::{Builder, Handle, Runtime};

use super::generator::{Generator, span_per_thread};
use super::live::Live;
use super::options::LoadgenArgs;
use super::report::{WriteKind, status_text};
use super::row::RowFiller;
use crate::perf::control::Control;

/// Rows between two looks at the stop flag, each of which also lets the event loop send and receive.
/// About a tenth of a millisecond.
const ROWS_PER_TURN: u64 = 1024;

/// What a thread is to do.
pub struct Job {
    pub args: Arc<LoadgenArgs>,
    pub table: String,
    pub kind: WriteKind,
    /// Position among the threads.
    pub thread: u64,
    pub control: Arc<Control>,
    pub live: Arc<Live>,
    /// The client of all threads and the event loop of its connections, if threads share one.
    pub shared: Option<(Client, Handle)>,
}

/// What a thread tells.
pub enum Event {
    /// It is connected, or cannot be.
    Ready(Result<()>),
    /// It has ended.
    Finished(Outcome),
}

/// How a thread ended.
#[derive(Default)]
pub struct Outcome {
    /// Position among the threads.
    pub thread: u64,
    /// Rows handed to the session.
    pub rows: u64,
    /// Rows that failed.
    pub failed_rows: u64,
    /// The first failed rows in words.
    pub shown: Vec<String>,
    /// What ended it early.
    pub error: Option<String>,
    /// Newest hybrid time that its client saw.
    pub timestamp: u64,
}

/// Connects to the cluster.
pub async fn connect(args: &LoadgenArgs) -> Result<Client> {
    let client = oribi_kudu::ClientBuilder::from_addresses(&args.masters.join(","))?
        .rpc_timeout(args.timeout())
        .admin_timeout(args.timeout())
        .negotiation_timeout(args.negotiation_timeout())
        .build()
        .await?;
    Ok(client)
}

/// Starts a thread, which begins when told to and ends without a word when `begin` is dropped.
pub fn spawn(job: Job, begin: Receiver<()>, events: Sender<Event>) -> io::Result<JoinHandle<()>> {
    let name = format!("loadgen-{}", job.thread);
    std::thread::Builder::new().name(name).spawn(move || {
        let (client, place) = match prepare(&job) {
            Ok(prepared) => prepared,
            // Whoever listens is gone only when the run is over.
            Err(error) => return drop(events.send(Event::Ready(Err(error)))),
        };
        if events.send(Event::Ready(Ok(()))).is_err() || begin.recv().is_err() {
            return;
        }
        let outcome = place.block_on(write(&job, &client));
        let _ = events.send(Event::Finished(outcome));
    })
}

/// Where a thread runs its session.
enum Place {
    Own(Runtime),
    Shared(Handle),
}

impl Place {
    fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        match self {
            Place::Own(runtime) => runtime.block_on(future),
            Place::Shared(handle) => handle.block_on(future),
        }
    }
}

fn prepare(job: &Job) -> Result<(Client, Place)> {
    if let Some((client, handle)) = &job.shared {
        return Ok((client.clone(), Place::Shared(handle.clone())));
    }
    let runtime =
        Builder::new_current_thread().enable_all().build().context("starting the event loop")?;
    let client = runtime.block_on(connect(&job.args))?;
    Ok((client, Place::Own(runtime)))
}

async fn write(job: &Job, client: &Client) -> Outcome {
    let mut outcome = Outcome { thread: job.thread, ..Outcome::default() };
    if job.args.num_rows_per_thread == 0 {
        return outcome;
    }
    if let Err(error) = write_rows(job, client, &mut outcome).await {
        outcome.error = Some(format!("{error:#}"));
    }
    outcome.timestamp = client.last_observed_timestamp();
    outcome
}

async fn write_rows(job: &Job, client: &Client, outcome: &mut Outcome) -> Result<()> {
    let table = client.open_table(&job.table).await?;
    let args = &job.args;
    let span = span_per_thread(
        args.num_rows_per_thread,
        args.num_threads,
        table.schema().num_key_columns(),
    );
    // Sequences wrap around, as the other tool's do.
    let first =
        span.wrapping_mul(job.thread.cast_signed()).wrapping_add(args.seq_start.cast_signed());
    let generator = |is_random: bool| {
        let string_bytes = args.string_len as usize;
        match is_random {
            true => Generator::random(first, string_bytes),
            false => Generator::sequential(first, string_bytes),
        }
    };
    let keys = match args.zipf_keys {
        Some(keys) => {
            Generator::zipfian(args.seq_start, keys, job.thread, args.string_len as usize)
        }
        None => generator(args.has_random_keys()),
    };
    let others = generator(args.has_random_values());
    let mut filler = RowFiller::new(table.schema(), keys, others, &args.string_fixed);
    let mut session = Session::new(&table, session_options(job));
    let result = tokio::select! {
        biased;
        () = job.control.cancelled() => Ok(()),
        result = apply_rows(job, &mut session, &mut filler, &mut outcome.rows) => result,
    };
    let errors = session.take_errors();
    outcome.failed_rows = errors.len();
    let first = errors.iter().take(args.show_first_n_errors);
    outcome.shown = first.map(|row| failure_text(row.failure())).collect();
    result
}

async fn apply_rows(
    job: &Job,
    session: &mut Session,
    filler: &mut RowFiller,
    applied: &mut u64,
) -> Result<()> {
    let flush_rows = job.args.flush_per_n_rows;
    // Without end is more rows than there will ever be time for.
    let rows = u64::try_from(job.args.num_rows_per_thread).unwrap_or(u64::MAX);
    for index in 0..rows {
        if index.is_multiple_of(ROWS_PER_TURN) {
            if job.control.is_stopped() {
                break;
            }
            tokio::task::yield_now().await;
        }
        let mut row = match job.kind {
            WriteKind::Insert => session.insert(),
            WriteKind::Upsert => session.upsert(),
            WriteKind::Delete => session.delete(),
        };
        match job.kind {
            WriteKind::Insert | WriteKind::Upsert => filler.fill(&mut row)?,
            WriteKind::Delete => filler.fill_key(&mut row)?,
        }
        row.apply().await?;
        *applied = index + 1;
        if flush_rows != 0 && index != 0 && index.is_multiple_of(flush_rows) {
            session.start_flush();
        }
    }
    match session.flush().await {
        // They are counted, and shown, from the session's own list.
        Err(SessionError::RowsFailed { .. }) => Ok(()),
        Err(error) => Err(error.into()),
        Ok(_) => Ok(()),
    }
}

/// Why a row failed, as the other tool says it.
fn failure_text(failure: &RowFailure) -> String {
    match failure {
        RowFailure::Refused { code, message } => status_text(*code, message),
        RowFailure::Batch(error) => status_text(error.status(), &error.to_string()),
        RowFailure::ColumnDropped { .. } => {
            status_text(StatusCode::InvalidArgument, &failure.to_string())
        }
    }
}

fn session_options(job: &Job) -> SessionOptions {
    let args = &job.args;
    let live = job.live.clone();
    let at_most = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    SessionOptions {
        flush_mode: match args.flush_per_n_rows {
            0 => FlushMode::Background,
            _ => FlushMode::Manual,
        },
        buffer_bytes_max: at_most(args.buffer_size_bytes),
        flush_watermark: args.buffer_flush_watermark_pct,
        error_bytes_max: match args.error_buffer_size_bytes {
            0 => usize::MAX,
            bytes => at_most(bytes),
        },
        observer: Some(Arc::new(move |report: &WriteReport| {
            live.note(report.rows, report.elapsed);
        })),
        ..SessionOptions::default()
    }
}
