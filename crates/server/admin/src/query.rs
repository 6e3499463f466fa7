//! Statements of SQL: `POST /query/sql`.
//!
//! Owns: the request, the thread of a statement, and how many run at once. The parts: [`request`]
//! decodes the body, [`statement_places`](crate::statement_places) counts, [`answer`] makes pieces
//! of rows. [`crate::sql`] reads documents.
//!
//! An answer is lines of JSON. A statement begins with an object, `{"columns":[{"name":..,
//! "type":..}]}`; each row is an array; the last line of all is an object again:
//! `{"end":"complete", "rows":N,"elapsed_ms":N}`, or with `"end"` as `error`, `timeout`,
//! `shutdown`, `lost_privileges` or `unavailable`, with `"error"`. What fails before the
//! first row sets the status.
//!
//! Invariants:
//! - a statement runs on a separate thread, of low priority, never on a worker's or this
//!   runtime's;
//! - at most [`Statements`](crate::statement_places::Statements) allows run, each counts against
//!   its user's streams, and each ends with its time, its client or the server;
//! - large documents, and what waits for the client, are reserved in the connections' memory;
//!   SQLite's heap is reserved below the arena's upper bound for all statements together, and goes
//!   back to the system with each statement.
//!
//! Caller: `routes`.

pub(super) mod answer;
mod request;

use std::sync::Arc;
use std::time::Instant;

use hyper::Response;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use oribi_sql::database::{Database, Room};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

use super::body::ReplyBody;
use super::changes::piece::Outgoing;
use super::changes::wakeups::Wakeups;
use super::message::{HttpRejection, HttpReply, busy, error, field_error, panicked};
use super::request::AdminRequest;
use crate::limits::READING_NICENESS;
use crate::sql::catalog::BucketTables;
use crate::sql::control::{StatementControl, StatementEnd};
use crate::sql::memory::{ClientPace, StatementMemory};
use crate::statement_places::{HeapShare, StatementResources};
use answer::{StatementAnswer, StatementStart, StatementSummary};
use request::StatementRequest;

pub(crate) async fn run(request: &mut AdminRequest) -> HttpReply {
    begin(request).await.unwrap_or_else(|refusal| *refusal)
}

async fn begin(request: &mut AdminRequest) -> Result<HttpReply, HttpRejection> {
    let query = StatementRequest::read(request).await?;
    let (state, user) = (&request.state, request.user());
    let known = |name: &String| {
        user.identity.access.reaches(name) && state.server.buckets.get(name).is_some()
    };
    if query.bucket.as_ref().is_some_and(|name| !known(name)) {
        return Err(field_error("bucket", "There is no such bucket").into());
    }
    let Some(running) = state.statements.begin() else {
        return Err(busy("other statements are running; try again").into());
    };
    let Some(stream) = user.begin_stream() else {
        return Err(busy("this user has too many streams").into());
    };
    let Some(heap) = state.statements.share_heap() else {
        return Err(busy("documents leave no memory for statements; try again").into());
    };
    let occupied = StatementResources::new(running, stream);
    let (sender, pieces) = mpsc::channel(1);
    let memory = Arc::clone(&state.server.connections.memory);
    let outgoing = Outgoing::new(Arc::clone(&memory), Wakeups::new());
    let taken_bytes = outgoing.taken_bytes();
    let rows = Arc::clone(&outgoing);
    let control = StatementControl::new(
        Instant::now() + query.timeout,
        sender,
        state.stopping.clone(),
        Arc::clone(&state.server.access.users),
        Arc::clone(&user.identity),
        StatementMemory::new(memory, state.statements.turn(), move || pace_of_client(&rows)),
    );
    let (begun, beginning) = oneshot::channel();
    let occupied = (occupied, state.open_stream());
    let answer =
        StatementAnswer::new(Arc::clone(&control), Handle::current(), outgoing, begun, occupied);
    let buckets = Arc::clone(&state.server.buckets);
    let work = move || {
        // Without it the statement competes with workers as an equal.
        let _ = rustix::process::nice(READING_NICENESS);
        // A panic drops the answer, and with it the beginning or the last line.
        let _ = oribi_supervisor::job("sql", || execute(&query, buckets, control, answer, heap));
    };
    if let Err(failure) = oribi_supervisor::spawn("oribi-sql", work) {
        tracing::warn!(error = %failure, "no thread for a statement");
        return Err(busy("the server has no thread for this statement").into());
    }
    match beginning.await {
        Ok(StatementStart::Streams) => {
            let open = Some(state.open_stream());
            let mut reply = Response::new(ReplyBody::counted_pieces(pieces, taken_bytes, open));
            let headers = reply.headers_mut();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
            headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
            Ok(reply)
        }
        Ok(StatementStart::Failed(status, why)) => Err(error(status, &why).into()),
        Err(_) => Err(panicked().into()),
    }
}

pub(super) fn pace_of_client(rows: &Outgoing) -> ClientPace {
    match rows.held_bytes() > 0 {
        false => ClientPace::HasAll,
        true if rows.is_client_behind() => ClientPace::Lags,
        true => ClientPace::Reads,
    }
}

fn execute(
    query: &StatementRequest,
    buckets: Arc<oribi_server::buckets::Buckets>,
    control: Arc<StatementControl>,
    mut answer: StatementAnswer,
    heap: HeapShare,
) {
    let tables = BucketTables::new(buckets, query.bucket.clone(), Arc::clone(&control));
    let holder = Arc::clone(&control);
    let room: Room = Arc::new(move |bytes| Ok(Box::new(holder.hold_large(bytes)?)));
    let outcome = Database::restricted(Arc::new(tables), heap.bytes, &room).and_then(|mut one| {
        let looks = Arc::clone(&control);
        one.end_when(move || looks.has_to_end())?;
        one.run(&query.statement, &query.parameters, &mut answer)
    });
    drop(heap);
    let ending = control.ending();
    let summary = match (&outcome, ending) {
        (Ok(()), _) => StatementSummary::Complete,
        // The source's own words say more.
        (Err(failure), Some(StatementEnd::Unavailable)) => {
            StatementSummary::Failed(StatementEnd::Unavailable.name(), format!("{failure:#}"))
        }
        (Err(_), Some(ending)) => StatementSummary::Failed(ending.name(), ending.text().to_owned()),
        (Err(failure), None) => StatementSummary::Failed("error", format!("{failure:#}")),
    };
    answer.finish(summary);
}
