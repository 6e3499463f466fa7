//! The query service: runs requests over a datastore.
//!
//! A request runs on the caller's thread from its text to its last row. Rows go to a sink as JSON
//! texts, one call each; a sink that blocks holds the statement back, so a slow client costs no
//! memory. What the answer says besides rows is the `RunOutcome`.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use crate::ast::statement::{Execute, Prepare, Statement};
use crate::bindings::Bindings;
use crate::compile::Compiler;
use crate::compiled::{PlanKind, StatementPlan};
use crate::context::QueryContext;
use crate::datastore::Datastore;
use crate::error::{QueryError, Result};
use crate::exec;
use crate::exec::flow::Flow;
use crate::exec::row::ResultRow;
use crate::limits::{ERRORS_MAX, VALUE_BYTES_FREE};
use crate::memory_budget::MemoryBudget;
use crate::parser;
use crate::prepared::{PreparedStatement, PreparedStatements};
use crate::request::QueryRequest;
use crate::runtime::{QueryParameters, Runtime, SlotFrame};
use crate::value::{QueryValue, Text, write};
use crate::{explain, indexes, infer};

/// Takes the parts of an answer.
pub trait RowSink {
    /// The head, before the first row. Not called if the request fails before its execution.
    fn start(&mut self, head: &ResponseHead) -> std::result::Result<(), SinkError>;

    /// One row as JSON text. It may block: the statement waits.
    fn row(&mut self, json: &[u8]) -> std::result::Result<(), SinkError>;
}

/// Why a sink takes no more rows. The statement ends.
#[derive(Clone, Debug)]
pub enum SinkError {
    /// The reader of the answer is gone.
    Closed,
    Failed(Box<QueryError>),
}

/// The part of an answer before its rows.
#[derive(Clone, Debug, Default)]
pub struct ResponseHead {
    /// The signature as JSON text.
    pub signature: String,
    /// The name of the prepared statement, for `auto_execute`.
    pub prepared: Option<String>,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunStatus {
    Success,
    /// Some documents failed, work continued.
    Errors,
    Fatal,
    /// The request's time was over.
    Timeout,
    /// The request was stopped.
    Stopped,
    /// The reader is gone.
    Closed,
    /// An operator gave up.
    Aborted,
}

impl RunStatus {
    /// The word in the answer.
    pub fn name(self) -> &'static str {
        match self {
            RunStatus::Success => "success",
            RunStatus::Errors => "errors",
            RunStatus::Fatal => "fatal",
            RunStatus::Timeout => "timeout",
            RunStatus::Stopped => "stopped",
            RunStatus::Closed => "closed",
            RunStatus::Aborted => "aborted",
        }
    }
}

/// Counters of a request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Metrics {
    pub result_count: u64,
    /// Bytes of all rows.
    pub result_bytes: u64,
    pub mutation_count: u64,
    pub sort_count: u64,
    /// From the request to its end.
    pub elapsed: Duration,
}

/// The end of an answer.
#[derive(Clone, Debug)]
pub struct RunOutcome {
    pub status: RunStatus,
    /// The HTTP status, if the head was not sent.
    pub http_status: u16,
    /// Errors; the first one decides.
    pub errors: Vec<QueryError>,
    pub warnings: Vec<QueryError>,
    pub metrics: Metrics,
}

/// The memory, clock and end of a request that its server decides.
pub struct RunControl<'a> {
    /// The memory that the statement may keep.
    pub memory: &'a dyn MemoryBudget,
    /// Set when the client is gone or an operator stops the request.
    pub cancelled: Option<&'a AtomicBool>,
    /// The longest time of a request, also if the client's timeout is longer.
    pub timeout: Option<Duration>,
}

/// A query service. Its prepared statements are shared by all requests.
#[derive(Default)]
pub struct Service {
    prepared: PreparedStatements,
}

impl Service {
    /// A service without prepared statements.
    pub fn new() -> Service {
        Service::default()
    }

    pub fn run(
        &self,
        store: &dyn Datastore,
        request: &QueryRequest,
        control: &RunControl<'_>,
        sink: &mut dyn RowSink,
    ) -> RunOutcome {
        let started = Instant::now();
        let mut output = Output::new(sink);
        let mut rt = Runtime::new(store, &self.prepared, &request.params, control.memory);
        rt.user = &request.user;
        rt.preserve_expiry = request.preserve_expiry;
        rt.cancelled = control.cancelled;
        rt.consistency = (request.consistency.clone(), request.scan_wait);
        let timeout = [request.timeout, control.timeout].into_iter().flatten().min();
        rt.deadline = timeout.and_then(|timeout| started.checked_add(timeout));
        let result = self.run_request(request, &rt, &mut output);
        let mut errors: Vec<QueryError> = rt.errors.take();
        let status = match &result {
            Ok(()) if errors.is_empty() => RunStatus::Success,
            Ok(()) => RunStatus::Errors,
            Err(_) if output.closed => RunStatus::Closed,
            Err(error) => match error.code {
                1080 => RunStatus::Timeout,
                1181 => RunStatus::Stopped,
                5001 => RunStatus::Aborted,
                _ => RunStatus::Fatal,
            },
        };
        let began = output.head.is_some();
        let http_status = match &result {
            Err(error) if !began => error.http_status(),
            _ => 200,
        };
        if let Err(error) = result {
            errors.insert(0, *error);
            errors.truncate(ERRORS_MAX);
        }
        let is_success = status == RunStatus::Success;
        assert!(is_success == errors.is_empty(), "an answer without errors is a success");
        let mut metrics = output.metrics;
        metrics.mutation_count = rt.mutations.get();
        metrics.sort_count = rt.sorted.get();
        metrics.elapsed = started.elapsed();
        RunOutcome { status, http_status, errors, warnings: rt.warnings.take(), metrics }
    }

    fn run_request(
        &self,
        request: &QueryRequest,
        rt: &Runtime<'_>,
        output: &mut Output<'_>,
    ) -> Result<()> {
        if let Some(name) = &request.prepared {
            let prepared = self.prepared.get(rt.user, &Text::from(name.as_str()))?;
            return self.run_prepared(&prepared, request, rt, output);
        }
        let statement = parser::parse(&request.statement, &|bytes| rt.keep(bytes))?;
        self.run_statement(&statement, &request.context, request, rt, output)
    }

    fn run_statement(
        &self,
        statement: &Statement,
        context: &QueryContext,
        request: &QueryRequest,
        rt: &Runtime<'_>,
        output: &mut Output<'_>,
    ) -> Result<()> {
        check_read_only(statement, request)?;
        match statement {
            Statement::Expression => {
                Err(QueryError::new(3083, "A statement is no bare expression"))
            }
            Statement::Unsupported(name) => Err(QueryError::unsupported(name)),
            Statement::Prepare(prepare) => self.prepare(prepare, context, request, rt, output),
            Statement::Execute(execute) => self.execute(execute, request, rt, output),
            Statement::Explain(inner) => {
                keep_copies(&request.statement, rt)?;
                let (plan, _) = StatementPlan::compile(inner, context, rt.store, &|| rt.turn())?;
                let row = explain::row(&plan, inner, &request.statement);
                output.start("{\"plan\":\"json\",\"text\":\"string\"}".to_owned())?;
                output.value(&row).map(drop)
            }
            Statement::Infer(infer) => {
                let row = infer::run(infer, context, rt)?;
                output.start("\"json\"".to_owned())?;
                output.value(&row).map(drop)
            }
            Statement::CreateIndex(_) | Statement::DropIndex(_) | Statement::BuildIndex(_) => {
                output.start("null".to_owned())?;
                indexes::run(statement, context, rt)
            }
            _ => {
                let (plan, bound) =
                    StatementPlan::compile(statement, context, rt.store, &|| rt.turn())?;
                run_plan(&plan, bound, rt, output)
            }
        }
    }

    fn run_prepared(
        &self,
        prepared: &PreparedStatement,
        request: &QueryRequest,
        rt: &Runtime<'_>,
        output: &mut Output<'_>,
    ) -> Result<()> {
        let (statement, context) = (&prepared.statement, &prepared.context);
        if !has_plan(statement) {
            return self.run_statement(statement, context, request, rt, output);
        }
        check_read_only(statement, request)?;
        let (plan, bound) = prepared.plan(rt.store, &|| rt.turn())?;
        run_plan(&plan, bound, rt, output)
    }

    fn prepare(
        &self,
        prepare: &Prepare,
        context: &QueryContext,
        request: &QueryRequest,
        rt: &Runtime<'_>,
        output: &mut Output<'_>,
    ) -> Result<()> {
        keep_copies(&prepare.text, rt)?;
        let name = prepare.name.clone().unwrap_or_else(|| generated_name(&prepare.text, context));
        let statement = PreparedStatement::new(rt.user, name.clone(), prepare, context.clone())?;
        let (plan, bound) = statement.plan(rt.store, &|| rt.turn())?;
        let statement = self.prepared.put(statement, prepare.force || prepare.name.is_none())?;
        if request.auto_execute {
            output.prepared = Some(name.to_string());
            return run_plan(&plan, bound, rt, output);
        }
        let row = explain::prepared_row(&plan, &statement);
        output.start("{\"*\":\"*\"}".to_owned())?;
        output.value(&row).map(drop)
    }

    fn execute(
        &self,
        execute: &Execute,
        request: &QueryRequest,
        rt: &Runtime<'_>,
        output: &mut Output<'_>,
    ) -> Result<()> {
        let Some(name) = &execute.name else {
            return Err(QueryError::new(4050, "EXECUTE takes the name of a prepared statement"));
        };
        let prepared: Arc<PreparedStatement> = self.prepared.get(rt.user, name)?;
        let Some(using) = &execute.using else {
            return self.run_prepared(&prepared, request, rt, output);
        };
        let turn = || rt.turn();
        let mut compiler = Compiler::new(rt.store, &prepared.context, &turn);
        let using = compiler.expr(using)?;
        let mut frame: SlotFrame = vec![QueryValue::Missing; compiler.sizes().0];
        rt.bind(compiler.into_sources().1)?;
        let using = rt.eval(&using, &mut frame)?;
        let mut params = QueryParameters::default();
        if let Some(items) = using.elements() {
            params.positional.extend(items.iter().cloned());
        } else if let Some(object) = using.object() {
            params.named.extend(object.fields().iter().cloned());
        }
        let inner = rt.with_params(&params);
        let result = self.run_prepared(&prepared, request, &inner, output);
        rt.absorb(&inner);
        result
    }
}

/// Reserves the copies of a statement's text in rows about it.
fn keep_copies(text: &str, rt: &Runtime<'_>) -> Result<()> {
    const TEXT_COPIES: usize = 8;
    if text.len() < VALUE_BYTES_FREE { Ok(()) } else { rt.keep(TEXT_COPIES * text.len()) }
}

/// A name of the same length for every text.
fn generated_name(text: &str, context: &QueryContext) -> Text {
    use sha2::Digest;
    let digest = sha2::Sha256::digest(format!("{:?} {text}", context.0).as_bytes());
    let hex = digest.iter().take(16).map(|byte| format!("{byte:02x}"));
    let name: String = hex.collect();
    assert!(name.len() == 32, "names have one length");
    Text::from(name)
}

fn check_read_only(statement: &Statement, request: &QueryRequest) -> Result<()> {
    if request.readonly && !is_read_only(statement) {
        let msg = "The request is read-only and its statement is not";
        return Err(QueryError::new(1000, msg));
    }
    Ok(())
}

/// Whether a statement runs by a plan.
fn has_plan(statement: &Statement) -> bool {
    matches!(
        statement,
        Statement::Query(_)
            | Statement::Insert(_)
            | Statement::Update(_)
            | Statement::Delete(_)
            | Statement::Merge(_)
    )
}

fn is_read_only(statement: &Statement) -> bool {
    match statement {
        Statement::Insert(_)
        | Statement::Update(_)
        | Statement::Delete(_)
        | Statement::Merge(_)
        | Statement::CreateIndex(_)
        | Statement::DropIndex(_)
        | Statement::BuildIndex(_) => false,
        Statement::Prepare(prepare) => is_read_only(&prepare.statement),
        _ => true,
    }
}

/// Runs a compiled statement.
fn run_plan(
    plan: &StatementPlan,
    bound: Bindings,
    rt: &Runtime<'_>,
    output: &mut Output<'_>,
) -> Result<()> {
    rt.bind(bound)?;
    output.start(plan.signature.clone())?;
    let mut frame: SlotFrame = vec![QueryValue::Missing; plan.slot_count];
    let mut emit = |row: ResultRow, _: &mut SlotFrame| output.row(&row, rt);
    match &plan.kind {
        PlanKind::Query(plan) => rt.run_query(plan, &mut frame, &mut emit),
        PlanKind::Insert(plan) => exec::change::insert(plan, rt, &mut frame, &mut emit),
        PlanKind::Update(plan) => exec::change::update(plan, rt, &mut frame, &mut emit),
        PlanKind::Delete(plan) => exec::change::delete(plan, rt, &mut frame, &mut emit),
        PlanKind::Merge(plan) => exec::change::merge(plan, rt, &mut frame, &mut emit),
        PlanKind::Other => Err(QueryError::unsupported("this statement")),
    }
}

/// Writes rows to the sink.
struct Output<'s> {
    sink: &'s mut dyn RowSink,
    head: Option<ResponseHead>,
    out: Vec<u8>,
    /// Bytes of a row whose text has its memory.
    row_bytes_max: usize,
    metrics: Metrics,
    closed: bool,
    prepared: Option<String>,
}

impl<'s> Output<'s> {
    fn new(sink: &'s mut dyn RowSink) -> Output<'s> {
        let metrics = Metrics::default();
        Output {
            sink,
            head: None,
            out: Vec::new(),
            row_bytes_max: VALUE_BYTES_FREE,
            metrics,
            closed: false,
            prepared: None,
        }
    }

    fn start(&mut self, signature: String) -> Result<()> {
        if self.head.is_some() {
            return Ok(());
        }
        assert!(self.metrics.result_count == 0, "the head comes before the rows");
        let head = ResponseHead { signature, prepared: self.prepared.take() };
        let result = self.sink.start(&head);
        self.head = Some(head);
        self.check(result)
    }

    fn check(&mut self, result: std::result::Result<(), SinkError>) -> Result<()> {
        result.map_err(|error| match error {
            SinkError::Closed => {
                self.closed = true;
                QueryError::new(1181, "The reader of the answer is gone")
            }
            SinkError::Failed(error) => error,
        })
    }

    fn row(&mut self, row: &ResultRow, rt: &Runtime<'_>) -> Result<Flow> {
        self.out.clear();
        let bytes = row.byte_count();
        if bytes > self.row_bytes_max {
            // The text grows by doubling.
            rt.keep(3 * (bytes - self.row_bytes_max))?;
            self.row_bytes_max = bytes;
        }
        row.write(&mut self.out);
        self.send()
    }

    fn value(&mut self, value: &QueryValue) -> Result<Flow> {
        self.out.clear();
        write::write(value, &mut self.out);
        self.send()
    }

    fn send(&mut self) -> Result<Flow> {
        debug_assert!(self.head.is_some(), "rows come after the head");
        debug_assert!(!self.out.is_empty(), "a row has a text");
        self.metrics.result_count += 1;
        self.metrics.result_bytes += self.out.len() as u64;
        let result = self.sink.row(&self.out);
        self.check(result)?;
        Ok(Flow::More)
    }
}
