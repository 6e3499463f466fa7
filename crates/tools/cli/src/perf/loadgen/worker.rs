//! One thread of the load: with a separate client, session and event loop.
//!
//! Invariants: everything of a thread runs on that thread, so nothing is shared and no task moves;
//! with a shared client only the connections live elsewhere. The clock runs from the start of the
//! phase to the end of the last flush, as in the other tool: opening the table counts, connecting
//! does not.

use std::sync::Arc;

use anyhow::Result;
use oribi_kudu::{
    Client, FlushMode, RowFailure, Session, SessionError, SessionOptions, StatusCode, WriteReport,
};
use parking_lot::Mutex;
use tokio::runtime::{Handle, Runtime};

use super::generator::{RowGenerator, span_per_thread};
use super::options::LoadgenArgs;
use super::report::{LoadgenOutcome, WriteKind, status_text};
use super::row::RowFiller;
use crate::perf::control::Control;
use crate::perf::latencies::{Recorder, nanoseconds};
use crate::perf::workers::WorkerReport;

/// Rows between two looks at the stop flag, each of which also lets the event loop send and
/// receive. About a tenth of a millisecond.
const ROWS_PER_TURN: u64 = 1024;

/// Work of all threads.
#[derive(Clone)]
pub struct LoadJob {
    pub args: Arc<LoadgenArgs>,
    /// Name of the table.
    pub table: String,
    /// The stop signal of threads, and their published figures.
    pub control: Arc<Control>,
    /// The client of all threads and the event loop of its connections, if threads share one.
    pub shared: Option<(Client, Handle)>,
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

/// One thread: its part of the job, and its connection.
struct Worker {
    job: LoadJob,
    /// Position among the threads.
    thread: usize,
    client: Client,
    recorder: Arc<Mutex<Recorder>>,
}

/// Connects one thread; the returned closure writes or deletes its rows.
pub fn connect(
    job: LoadJob,
    thread: usize,
) -> Result<impl FnMut(WriteKind) -> WorkerReport<LoadgenOutcome>> {
    let (place, client) = match &job.shared {
        Some((client, handle)) => (Place::Shared(handle.clone()), client.clone()),
        None => {
            let (runtime, client) = job.args.kudu.connect_here()?;
            (Place::Own(runtime), client)
        }
    };
    let recorder = Arc::new(Mutex::new(Recorder::new()));
    let worker = Worker { job, thread, client, recorder };
    Ok(move |kind| {
        let outcome = place.block_on(worker.write(kind));
        let operations = worker.job.control.live[worker.thread].progress().operations;
        WorkerReport { outcome, operations, latencies: worker.recorder.lock().finish() }
    })
}

impl Worker {
    async fn write(&self, kind: WriteKind) -> LoadgenOutcome {
        let mut outcome = LoadgenOutcome::default();
        if self.job.args.num_rows_per_thread == 0 {
            return outcome;
        }
        if let Err(error) = self.write_rows(kind, &mut outcome).await {
            outcome.error = Some(format!("{error:#}"));
        }
        outcome.timestamp = self.client.last_observed_timestamp();
        outcome
    }

    async fn write_rows(&self, kind: WriteKind, outcome: &mut LoadgenOutcome) -> Result<()> {
        let Worker { job, client, .. } = self;
        let table = client.open_table(&job.table).await?;
        let (keys, others) = self.generators(table.schema().num_key_columns());
        let mut filler = RowFiller::new(table.schema(), keys, others, &job.args.string_fixed);
        let mut session = Session::new(&table, self.session_options());
        let result = tokio::select! {
            biased;
            () = job.control.cancelled() => Ok(()),
            result = apply_rows(job, kind, &mut session, &mut filler, &mut outcome.rows) => result,
        };
        let errors = session.take_errors();
        outcome.failed_rows = errors.len();
        let first = errors.iter().take(job.args.show_first_n_errors);
        outcome.shown = first.map(|row| failure_text(row.failure())).collect();
        result
    }

    /// Generators of the keys and the other columns.
    fn generators(&self, key_columns: usize) -> (RowGenerator, RowGenerator) {
        let args = &self.job.args;
        let thread = self.thread as u64;
        let span = span_per_thread(args.num_rows_per_thread, args.kudu.num_threads, key_columns);
        // Sequences wrap around, as the other tool's do.
        let first =
            span.wrapping_mul(thread.cast_signed()).wrapping_add(args.seq_start.cast_signed());
        let string_bytes = args.string_len as usize;
        let generator = |is_random: bool| match is_random {
            true => RowGenerator::random(first, string_bytes),
            false => RowGenerator::sequential(first, string_bytes),
        };
        let keys = match args.zipf_keys {
            Some(keys) => RowGenerator::zipfian(args.seq_start, keys, thread, string_bytes),
            None => generator(args.has_random_keys()),
        };
        (keys, generator(args.has_random_values()))
    }

    fn session_options(&self) -> SessionOptions {
        let args = &self.job.args;
        let at_most = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        SessionOptions::new()
            .flush_mode(match args.flush_per_n_rows {
                0 => FlushMode::Background,
                _ => FlushMode::Manual,
            })
            .buffer_bytes_max(at_most(args.buffer_size_bytes))
            .flush_watermark(args.buffer_flush_watermark_pct)
            .error_bytes_max(match args.error_buffer_size_bytes {
                0 => usize::MAX,
                bytes => at_most(bytes),
            })
            .observer(self.observer())
    }

    /// Notes each answered Write, which is thousands of rows.
    fn observer(&self) -> impl Fn(&WriteReport) + Send + Sync + 'static + use<> {
        let (control, thread) = (self.job.control.clone(), self.thread);
        let recorder = self.recorder.clone();
        move |report| {
            let live = &control.live[thread];
            live.add_operations(report.rows);
            let mut recorder = recorder.lock();
            recorder.recent.write.saturating_record(nanoseconds(report.elapsed));
            live.answer(|recent| recorder.hand_over(recent));
        }
    }
}

async fn apply_rows(
    job: &LoadJob,
    kind: WriteKind,
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
        let mut row = match kind {
            WriteKind::Insert => session.insert(),
            WriteKind::Upsert => session.upsert(),
            WriteKind::Delete => session.delete(),
        };
        match kind {
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
        _ => status_text(StatusCode::InvalidArgument, &failure.to_string()),
    }
}
