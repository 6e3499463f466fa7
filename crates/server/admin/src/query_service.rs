//! Statements of SQL++: `/query/service`, as SDKs and `curl` send them.
//!
//! Owns: the request's body, the thread of a statement, and the JSON of an answer. Parts of an
//! answer come in the order `requestID`, `clientContextID`, `prepared`, `signature`, `results`,
//! `errors`, `warnings`, `status`, `metrics`, because some SDKs depend on it. What fails before the
//! first row sets the status; later errors follow the rows of a 200.
//!
//! A statement beyond the number at once waits in a queue, within its time. A refusal before a
//! statement begins has `retry`, because nothing was changed: 1201 (429) when the queue is full,
//! 5500 without memory.
//!
//! The parts: [`statement_places`](crate::statement_places) counts statements,
//! [`statement_answer`](crate::statement_answer) makes pieces of rows,
//! [`statement_control`](crate::statement_control) ends a statement early,
//! [`statement_memory`](crate::statement_memory) counts documents and rows, and
//! [`query_store`](crate::query_store) has the documents.
//!
//! Invariants:
//! - a statement has a thread for itself, of low priority
//!   ([`statement_threads`](crate::statement_threads)), never a worker's or this runtime's;
//! - at most [`Statements`] allows run, each counts against its user's streams, and each ends with
//!   its time, its client or the server;
//! - large documents and unsent rows are reserved in the connections' memory; what a statement
//!   keeps (groups, sorted rows) is reserved below the arena's upper bound for all statements
//!   together, and returns to the system with a statement that kept much.
//!
//! Caller: `routes`.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use http_body_util::{BodyExt, Limited};
use hyper::body::{Body as _, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{HeaderMap, Method, Response, StatusCode};
use oribi_query::{
    MemoryBudget, QueryError, ResponseHead, RowSink, RunControl, RunOutcome, RunStatus, Service,
    SinkError,
};
use oribi_server::admin_api::memory::Reservation;
use serde_json::json;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

use super::body::ReplyBody;
use super::changes::piece::Outgoing;
use super::changes::wakeups::Wakeups;
use super::message::{FormFields, HttpReply, error, panicked, whole};
use super::request::AdminRequest;
use super::statement_answer::{StatementAnswer, StatementStart, pace_of_client};
use super::statement_places::{HeapShare, QueueRejection, StatementResources, Statements};
use crate::limits::{STATEMENT_TIMEOUT, STATEMENT_TIMEOUT_MAX};
use crate::mutation_tokens;
use crate::query_store::BucketStore;
use crate::request_ids::request_id;
use crate::statement_control::{StatementControl, StatementEnd};
use crate::statement_memory::StatementMemory;

/// Time for a body to arrive.
const BODY_DEADLINE: Duration = Duration::from_secs(10);

/// Interval between two looks whether a statement has to end.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Time that a client reads nothing of an answer after which its statement leaves its place to
/// those that wait.
const STALL_MAX: Duration = Duration::from_secs(2);
const _: () =
    assert!(LOOK_INTERVAL.as_millis() < STALL_MAX.as_millis(), "a stall has several looks");

/// Bytes of a text that no reservation counts.
const TEXT_BYTES_FREE: usize = 4 << 10;

/// A text, its fields and its tree.
const TEXT_COPIES: usize = 3;

/// Most that a statement may have kept for its memory to stay with the allocator.
const UNTRIMMED_BYTES: u64 = 1 << 20;

pub(super) async fn run(request: &mut AdminRequest) -> HttpReply {
    let parsed = match read(request).await {
        Ok(Ok(parsed)) => parsed,
        Ok(Err(wrong)) => return refusal(&wrong),
        Err(reply) => return *reply,
    };
    let (mut parsed, text_memory) = parsed;
    let arrived = Instant::now();
    let (state, user) = (&request.state, request.user());
    parsed.user.clone_from(&user.identity.name);
    let timeout = parsed.timeout.unwrap_or(STATEMENT_TIMEOUT).min(STATEMENT_TIMEOUT_MAX);
    let running = match state.queries.running.wait(arrived + timeout).await {
        Ok(running) => running,
        Err(QueueRejection::Full) => {
            return retry_later(1201, "Too many statements wait for others; try again later");
        }
        Err(QueueRejection::Timeout) => {
            let msg = "Timeout exceeded while the statement waited for others";
            return failure(&QueryError::datastore(1080, msg), "timeout");
        }
    };
    if let Err(wrong) = mutation_tokens::check(&parsed.consistency, &state.server.buckets) {
        return refusal(&wrong);
    }
    let Some(stream) = user.begin_stream() else {
        return retry_later(1201, "This user has too many streams; end one, or try again");
    };
    let Some(heap) = state.queries.running.share_heap() else {
        return retry_later(5500, "Documents leave no memory for statements; try again later");
    };
    let (sender, pieces) = mpsc::channel(1);
    let memory = Arc::clone(&state.server.connections.memory);
    let outgoing = Outgoing::new(Arc::clone(&memory), Wakeups::new());
    let (taken_bytes, rows) = (outgoing.taken_bytes(), Arc::clone(&outgoing));
    let control = StatementControl::new(
        // The language ends the statement first, with its own code.
        arrived + timeout + LOOK_INTERVAL,
        sender,
        state.stopping.clone(),
        Arc::clone(&state.server.access.users),
        Arc::clone(&user.identity),
        StatementMemory::new(memory, state.queries.running.turn(), move || pace_of_client(&rows)),
    );
    let (begun, beginning) = oneshot::channel();
    let occupied = (StatementResources::new(running, stream), state.open_stream());
    let answer =
        StatementAnswer::new(Arc::clone(&control), Handle::current(), outgoing, begun, occupied);
    let statement = StatementRun {
        request: parsed,
        arrived,
        deadline: arrived + timeout,
        service: Arc::clone(&state.queries.service),
        store: BucketStore::new(
            Arc::clone(&state.server),
            Arc::clone(&control),
            Arc::clone(&state.queries.indexes),
        ),
        budget: SharedBudget {
            kept_bytes: Arc::clone(&state.queries.kept_bytes),
            own_bytes: AtomicU64::new(0),
            own_bytes_most: AtomicU64::new(0),
            heap,
        },
        cancelled: Arc::default(),
        _text_memory: text_memory,
    };
    let cancelled = Arc::clone(&statement.cancelled);
    let work = move || {
        // A panic drops the answer, and with it the beginning or the last line.
        let _ = oribi_supervisor::job("query", || statement.execute(answer));
    };
    if let Err(failure) = state.queries.threads.run(work) {
        tracing::warn!(error = %failure, "no thread for a statement");
        return retry_later(1201, "The server has no thread for this statement; try again");
    }
    match wait_for_start(beginning, &control, &cancelled).await {
        Ok(StatementStart::Streams) => {
            let reader = Arc::clone(&taken_bytes);
            watch(&control, &cancelled, (reader, Arc::clone(&state.queries.running)));
            let open = Some(state.open_stream());
            let mut reply = Response::new(ReplyBody::counted_pieces(pieces, taken_bytes, open));
            reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            reply
        }
        Ok(StatementStart::Whole(bytes)) => {
            let mut reply = Response::new(ReplyBody::Whole(Some(bytes)));
            reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            reply
        }
        Ok(StatementStart::Failed(status, body)) => whole(status, "application/json", body),
        Err(_) => panicked(),
    }
}

/// Waits for the first piece of an answer, or for a short one. Sets `cancelled` once the statement
/// has to end, also when its client leaves, which drops this future.
async fn wait_for_start(
    mut beginning: oneshot::Receiver<StatementStart>,
    control: &StatementControl,
    cancelled: &Arc<AtomicBool>,
) -> Result<StatementStart, oneshot::error::RecvError> {
    let mut guard = CancelOnDrop(Some(Arc::clone(cancelled)));
    loop {
        tokio::select! {
            start = &mut beginning => {
                guard.0 = None;
                return start;
            }
            () = tokio::time::sleep(LOOK_INTERVAL) => {
                if control.has_to_end() {
                    cancelled.store(true, Ordering::Relaxed);
                }
            }
        }
    }
}

/// Cancels a statement when it is dropped.
struct CancelOnDrop(Option<Arc<AtomicBool>>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if let Some(cancelled) = &self.0 {
            cancelled.store(true, Ordering::Relaxed);
        }
    }
}

/// Sets `cancelled` once the statement has to end, for work that reads no documents. Ends a
/// statement that is in the way: others wait for its place, and its client reads nothing.
fn watch(
    control: &Arc<StatementControl>,
    cancelled: &Arc<AtomicBool>,
    (taken_bytes, statements): (Arc<AtomicUsize>, Arc<Statements>),
) {
    let (control, cancelled) = (Arc::downgrade(control), Arc::downgrade(cancelled));
    tokio::spawn(async move {
        let (mut taken, mut progress) = (0, Instant::now());
        loop {
            tokio::time::sleep(LOOK_INTERVAL).await;
            let (Some(control), Some(cancelled)) = (control.upgrade(), cancelled.upgrade()) else {
                return;
            };
            let now_taken = taken_bytes.load(Ordering::Acquire);
            debug_assert!(now_taken >= taken, "a client takes more and more");
            if now_taken != taken || control.pieces().capacity() > 0 {
                (taken, progress) = (now_taken, Instant::now());
            }
            if statements.has_waiters() && progress.elapsed() >= STALL_MAX {
                control.end(StatementEnd::InTheWay);
            }
            if control.has_to_end() {
                return cancelled.store(true, Ordering::Relaxed);
            }
        }
    });
}

/// A request, or what the language finds wrong with it.
type ParsedRequest = Result<oribi_query::QueryRequest, Box<QueryError>>;

/// A request and the memory of its text.
type ReadRequest = Result<(oribi_query::QueryRequest, Option<Reservation>), Box<QueryError>>;

/// Reads a request: JSON or a form, or the query of a GET, which only reads.
async fn read(request: &mut AdminRequest) -> Result<ReadRequest, Box<HttpReply>> {
    if *request.method() == Method::GET {
        let parsed = of_form(request.query())?;
        return Ok(parsed.map(|mut parsed| {
            parsed.readonly = true;
            (parsed, None)
        }));
    }
    let (body, bytes_max) = request.take_body();
    let memory = match text_bytes(&body, bytes_max) {
        0..TEXT_BYTES_FREE => None,
        bytes => {
            let held = request.state.server.connections.memory.hold(TEXT_COPIES * bytes);
            let refused =
                || retry_later(5500, "Other requests hold the memory for texts; try again later");
            Some(held.ok_or_else(|| Box::new(refused()))?)
        }
    };
    let limited = Limited::new(body, bytes_max).collect();
    let bytes = match tokio::time::timeout(BODY_DEADLINE, limited).await {
        Ok(Ok(collected)) => collected.to_bytes(),
        Ok(Err(_)) => return Err(Box::new(error(StatusCode::PAYLOAD_TOO_LARGE, "body too large"))),
        Err(_) => return Err(Box::new(error(StatusCode::REQUEST_TIMEOUT, "body too slow"))),
    };
    if is_json(request.headers()) {
        return Ok(oribi_query::QueryRequest::from_json(&bytes).map(|parsed| (parsed, memory)));
    }
    match std::str::from_utf8(&bytes) {
        Ok(text) => Ok(of_form(text)?.map(|parsed| (parsed, memory))),
        Err(_) => Err(Box::new(error(StatusCode::BAD_REQUEST, "the form is not UTF-8"))),
    }
}

/// Bytes of a request's text, as its client announces them.
fn text_bytes(body: &Incoming, bytes_max: usize) -> usize {
    let announced = body.size_hint().upper().and_then(|bytes| usize::try_from(bytes).ok());
    announced.map_or(bytes_max, |bytes| bytes.min(bytes_max))
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    kind.trim_start().to_ascii_lowercase().starts_with("application/json")
}

fn of_form(text: &str) -> Result<ParsedRequest, Box<HttpReply>> {
    let Some(pairs) = FormFields::pairs(text) else {
        return Err(Box::new(error(StatusCode::BAD_REQUEST, "the form is not URL-encoded")));
    };
    let pairs = pairs.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    Ok(oribi_query::QueryRequest::from_form(pairs))
}

/// The answer to a request that cannot be read.
fn refusal(wrong: &QueryError) -> HttpReply {
    failure(wrong, "fatal")
}

/// The answer to a request that changed nothing and may succeed later.
fn retry_later(code: u32, why: &str) -> HttpReply {
    let mut error = QueryError::datastore(code, why);
    error.retry = true;
    failure(&error, "fatal")
}

/// The answer to a request that has not begun.
fn failure(wrong: &QueryError, word: &str) -> HttpReply {
    let body = json!({
        "requestID": request_id(),
        "errors": [error_json(wrong)],
        "status": word,
    });
    let status = StatusCode::from_u16(wrong.http_status()).unwrap_or(StatusCode::BAD_REQUEST);
    debug_assert!(status.is_client_error() || status.is_server_error(), "a failure has its status");
    whole(status, "application/json", body.to_string())
}

fn error_json(error: &QueryError) -> serde_json::Value {
    let mut json = json!({ "code": error.code, "msg": error.msg });
    if error.retry {
        json["retry"] = true.into();
    }
    if let Some((line, column)) = error.position {
        (json["line"], json["column"]) = (line.into(), column.into());
    }
    if let Some(code) = error.reason_code {
        json["reason"] = json!({ "code": code });
    }
    json
}

/// A time as Go prints it.
fn go_duration(time: Duration) -> String {
    let nanoseconds = time.as_nanos();
    match nanoseconds {
        0..1_000 => format!("{nanoseconds}ns"),
        1_000..1_000_000 => format!("{}µs", nanoseconds as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{}ms", nanoseconds as f64 / 1e6),
        _ => format!("{}s", time.as_secs_f64()),
    }
}

/// The memory that statements keep, of the heap that they share.
struct SharedBudget {
    kept_bytes: Arc<AtomicU64>,
    own_bytes: AtomicU64,
    own_bytes_most: AtomicU64,
    heap: HeapShare,
}

impl MemoryBudget for SharedBudget {
    fn reserve(&self, bytes: usize) -> bool {
        let (bytes, most) = (bytes as u64, self.heap.bytes);
        let grown = |kept: u64| kept.checked_add(bytes).filter(|kept| *kept <= most);
        let is_granted =
            self.kept_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown).is_ok();
        if is_granted {
            let before = self.own_bytes.fetch_add(bytes, Ordering::Relaxed);
            debug_assert!(before + bytes <= most, "a statement keeps no more than all may");
            self.own_bytes_most.fetch_max(before + bytes, Ordering::Relaxed);
        }
        is_granted
    }

    fn release(&self, bytes: usize) {
        let bytes = bytes as u64;
        let before = self.own_bytes.fetch_sub(bytes, Ordering::Relaxed);
        assert!(before >= bytes, "a statement released more than it reserved");
        let kept = self.kept_bytes.fetch_sub(bytes, Ordering::Relaxed);
        assert!(kept >= bytes, "the bytes of all are those of each");
    }
}

impl Drop for SharedBudget {
    fn drop(&mut self) {
        // Memory that a failed statement has not released.
        let own = *self.own_bytes.get_mut();
        let kept = self.kept_bytes.fetch_sub(own, Ordering::Relaxed);
        debug_assert!(kept >= own, "the bytes of all are those of each");
    }
}

/// A statement and its resources.
struct StatementRun {
    request: oribi_query::QueryRequest,
    /// It may have waited since then.
    arrived: Instant,
    deadline: Instant,
    service: Arc<Service>,
    store: BucketStore,
    budget: SharedBudget,
    cancelled: Arc<AtomicBool>,
    _text_memory: Option<Reservation>,
}

impl StatementRun {
    fn execute(self, answer: StatementAnswer) {
        let StatementRun { request, arrived, deadline, service, store, budget, cancelled, .. } =
            self;
        // The thread may have begun late.
        let timeout = deadline.saturating_duration_since(Instant::now());
        let mut sink = JsonAnswer { answer, request: &request, arrived, rows: 0 };
        let control =
            RunControl { memory: &budget, cancelled: Some(&cancelled), timeout: Some(timeout) };
        let mut outcome = service.run(&store, &request, &control, &mut sink);
        if let Some(end) = store.ending() {
            explain_stop(&mut outcome, end);
        }
        let kept_much = budget.own_bytes_most.load(Ordering::Relaxed) > UNTRIMMED_BYTES;
        drop(store);
        if kept_much {
            oribi_system::heap::trim();
        }
        drop(budget);
        sink.finish(&outcome);
    }
}

/// Gives a stopped statement the code of why it was stopped. A statement that computes only learns
/// that it has to stop (1181); one that reads documents has the code from their source.
fn explain_stop(outcome: &mut RunOutcome, end: StatementEnd) {
    let code = match end.query_code() {
        Some(code) if outcome.status == RunStatus::Stopped => code,
        _ => return,
    };
    if code != 1181
        && let Some(first) = outcome.errors.first_mut()
    {
        *first = *QueryError::datastore(code, end.text());
        outcome.status = if code == 1080 { RunStatus::Timeout } else { RunStatus::Fatal };
    }
}

/// Writes the JSON of an answer.
struct JsonAnswer<'r> {
    answer: StatementAnswer,
    request: &'r oribi_query::QueryRequest,
    arrived: Instant,
    rows: u64,
}

impl JsonAnswer<'_> {
    /// The part before the results, from the opening brace on.
    fn head(&self, head: &ResponseHead) -> String {
        let mut text = format!("{{\"requestID\":\"{}\"", request_id());
        let mut member = |name: &str, json: String| {
            let _ = write!(text, ",\n\"{name}\":{json}");
        };
        if let Some(id) = &self.request.client_context_id {
            member("clientContextID", json!(id).to_string());
        }
        if let Some(name) = &head.prepared {
            member("prepared", json!(name).to_string());
        }
        if self.request.signature != Some(false) && !head.signature.is_empty() {
            member("signature", head.signature.clone());
        }
        text
    }

    /// The part after the results.
    fn tail(&self, outcome: &RunOutcome) -> String {
        let mut text = String::new();
        let mut member = |name: &str, json: String| {
            let _ = write!(text, ",\n\"{name}\":{json}");
        };
        let list = |errors: &[QueryError]| {
            json!(errors.iter().map(error_json).collect::<Vec<_>>()).to_string()
        };
        if !outcome.errors.is_empty() {
            member("errors", list(&outcome.errors));
        }
        if !outcome.warnings.is_empty() {
            member("warnings", list(&outcome.warnings));
        }
        member("status", json!(outcome.status.name()).to_string());
        if self.request.metrics != Some(false) {
            let metrics = &outcome.metrics;
            let mut json = json!({
                "elapsedTime": go_duration(self.arrived.elapsed()),
                "executionTime": go_duration(metrics.elapsed),
                "resultCount": metrics.result_count,
                "resultSize": metrics.result_bytes,
            });
            for (name, count) in [
                ("mutationCount", metrics.mutation_count),
                ("sortCount", metrics.sort_count),
                ("errorCount", outcome.errors.len() as u64),
                ("warningCount", outcome.warnings.len() as u64),
            ] {
                if count > 0 {
                    json[name] = count.into();
                }
            }
            member("metrics", json.to_string());
        }
        text.push_str("\n}\n");
        text
    }

    fn finish(self, outcome: &RunOutcome) {
        let tail = self.tail(outcome);
        match outcome.http_status {
            200 => self.answer.end(format!("\n]{tail}")),
            code => {
                let status = StatusCode::from_u16(code);
                let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
                let head = self.head(&ResponseHead::default());
                self.answer.refuse(status, format!("{head}{tail}"));
            }
        }
    }
}

impl RowSink for JsonAnswer<'_> {
    fn start(&mut self, head: &ResponseHead) -> Result<(), SinkError> {
        let head = self.head(head);
        self.answer.write(&[head.as_bytes(), b",\n\"results\":["]).map_err(SinkError::Failed)
    }

    fn row(&mut self, json: &[u8]) -> Result<(), SinkError> {
        let separator: &[u8] = if self.rows == 0 { b"\n" } else { b",\n" };
        self.rows += 1;
        self.answer.write(&[separator, json]).map_err(SinkError::Failed)
    }
}

#[cfg(test)]
mod tests {
    //! The code of a statement that was stopped.

    use super::*;

    #[test]
    fn stopped_statement_has_the_code_of_its_end() {
        for (end, code, status) in [
            (StatementEnd::InTheWay, 5500, RunStatus::Fatal),
            (StatementEnd::LostPrivileges, 13014, RunStatus::Fatal),
            (StatementEnd::Timeout, 1080, RunStatus::Timeout),
            (StatementEnd::ClientGone, 1181, RunStatus::Stopped),
        ] {
            let mut outcome = RunOutcome {
                status: RunStatus::Stopped,
                http_status: 200,
                errors: vec![*QueryError::datastore(1181, "The request was stopped")],
                warnings: Vec::new(),
                metrics: oribi_query::Metrics::default(),
            };
            explain_stop(&mut outcome, end);
            assert_eq!((outcome.errors[0].code, outcome.status), (code, status), "{end:?}");
        }
    }
}
