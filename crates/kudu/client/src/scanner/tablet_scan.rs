//! A scan over the tablets: one scanner after the other, one request after the other.
//!
//! Algorithm: take the next unpruned tablet. Open a scanner there, which already returns rows.
//! Continue with it on the same server until it has no more. Faults: the scan retries a request on
//! the same server with the same sequence number, because a server does not execute a request that
//! it turns away. If a scanner is lost (its server gone, restarted or silent), the scan opens a new
//! one on any replica, if that cannot repeat or skip rows. That is so if the tablet has returned no
//! rows yet, or if the scan is ordered and has the last key and the snapshot. Otherwise the scan
//! fails, because rows without order cannot be resumed. Invariants: call sequence numbers grow by
//! one for each answered request. Every scanner gets the rest of the limit. One batch takes no
//! longer than the timeout. The scan has no state outside itself, so it can move into a task.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use tokio::time::Instant;

use crate::backoff::{Backoff, pause};
use crate::error::{Error, Operation, StatusCode, TabletServerErrorCode};
use crate::meta_cache::Tablet;
use crate::proto::tserver::{
    SERVICE_NAME, ScanRequestPb, ScanResponsePb, ScannerKeepAliveRequestPb,
    ScannerKeepAliveResponsePb, TabletServerErrorPb,
};
use crate::retry::remedy::{Remedy, remedy_for_answer, remedy_for_rpc};
use crate::retry::{Attempt, TabletCall, call_tablet};
use crate::rpc::{CallOptions, Method, RpcError, RpcReply};
use crate::types::HostPort;

use super::batch::{BatchBlock, ScanBatch};
use super::columnar::ColumnarBlock;
use super::metrics::ScanMetrics;
use super::rowwise::RowwiseBlock;
use super::spec::{Position, ScanSpec};
use crate::scan_error::BlockFault;

pub(crate) static SCAN: Method = Method { service: SERVICE_NAME, name: "Scan" };
static KEEP_ALIVE: Method = Method { service: SERVICE_NAME, name: "ScannerKeepAlive" };

/// How long a server may be silent before a fault-tolerant scan moves to another replica. Servers
/// answer with the rows they have after half a second.
const SILENCE_MAX: Duration = Duration::from_secs(8);
/// Closing a scanner only frees memory that the server would free after a minute.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

/// A scan in progress.
#[derive(Debug)]
pub(crate) struct TabletScan {
    spec: Arc<ScanSpec>,
    /// The tablets still to visit, the current one first; `None` until the first request.
    tablets: Option<VecDeque<Arc<Tablet>>>,
    scanner: Option<OpenScanner>,
    position: Position,
    /// Rows of the current tablet that the scan has returned.
    rows_of_tablet: u64,
    metrics: ScanMetrics,
}

/// A scanner on a tablet server.
#[derive(Debug)]
struct OpenScanner {
    id: Bytes,
    server: HostPort,
    next_call_seq_id: u32,
}

/// Why an open scanner failed, and how to recover.
enum Failure {
    /// Repeat the same request after a while.
    Busy(Error),
    /// The scanner is gone; another one may be opened.
    Lost(Error),
    Fatal(Error),
}

impl TabletScan {
    pub(crate) fn new(spec: Arc<ScanSpec>) -> TabletScan {
        let position = Position {
            last_primary_key: None,
            snap_timestamp: spec.chosen_snapshot(),
            rows_left: spec.limit,
        };
        let metrics = ScanMetrics::default();
        TabletScan { spec, tablets: None, scanner: None, position, rows_of_tablet: 0, metrics }
    }

    pub(crate) fn metrics(&self) -> ScanMetrics {
        self.metrics
    }

    /// The snapshot of the scan, once it is known.
    pub(crate) fn snapshot(&self) -> Option<u64> {
        self.position.snap_timestamp
    }

    /// The next rows, at least one; `None` at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<ScanBatch>, Error> {
        let deadline = Instant::now() + self.spec.timeout;
        self.find_tablets(deadline).await?;
        let mut attempt = 0;
        while self.position.rows_left != Some(0) {
            let Some(tablet) = self.tablets.as_ref().and_then(VecDeque::front).cloned() else {
                return Ok(None);
            };
            let reply = match &self.scanner {
                None => self.open(&tablet, deadline).await?,
                Some(_) => match self.read_on(deadline).await {
                    Ok(reply) => reply,
                    Err(failure) => {
                        attempt += 1;
                        self.recover(failure, &tablet, attempt, deadline).await?;
                        continue;
                    }
                },
            };
            let batch = self.take(reply)?;
            if batch.num_rows() > 0 {
                return Ok(Some(batch));
            }
        }
        self.close().await;
        Ok(None)
    }

    async fn find_tablets(&mut self, deadline: Instant) -> Result<(), Error> {
        if self.tablets.is_none() {
            let snapshot = self.spec.table.snapshot(deadline).await?;
            self.tablets = Some(self.spec.tablets_of(&snapshot).into());
        }
        Ok(())
    }

    /// Opens a scanner on the tablet, after the last row that came from it.
    async fn open(
        &mut self,
        tablet: &Arc<Tablet>,
        deadline: Instant,
    ) -> Result<RpcReply<ScanResponsePb>, Error> {
        let (spec, position) = (&self.spec, &self.position);
        let call = TabletCall {
            table: &spec.table,
            tablet,
            operation: Operation::Scan,
            method: &SCAN,
            selection: spec.selection,
            deadline,
            exactly_once: false,
            features: spec.features(),
            body_bytes: 0,
        };
        let build = |attempt: &Attempt<'_>| {
            vec![Bytes::from(spec.open_request(position, attempt).encode_to_vec())]
        };
        let reply = call_tablet::<ScanResponsePb>(call, build).await?;
        self.metrics.tablets += 1;
        // A server without any rows may answer without a scanner. The id is copied, because a part
        // of the answer would keep all of its rows in memory for as long as the scanner is open.
        let id = reply.message.scanner_id.as_deref().map(Bytes::copy_from_slice);
        let id = id.unwrap_or_default();
        self.scanner = Some(OpenScanner { id, server: reply.server, next_call_seq_id: 1 });
        Ok(RpcReply { message: reply.message, sidecars: reply.sidecars })
    }

    /// Fetches the next batch from the open scanner.
    async fn read_on(&mut self, deadline: Instant) -> Result<RpcReply<ScanResponsePb>, Failure> {
        let Some(scanner) = &mut self.scanner else { unreachable!("the caller looked") };
        let request = ScanRequestPb {
            scanner_id: Some(scanner.id.clone()),
            new_scan_request: None,
            call_seq_id: Some(scanner.next_call_seq_id),
            batch_size_bytes: self.spec.batch_bytes,
            close_scanner: None,
        };
        let silence = if self.spec.is_fault_tolerant { SILENCE_MAX } else { self.spec.timeout };
        let options = CallOptions::new(deadline.min(Instant::now() + silence));
        let messenger = self.spec.table.shared().messenger();
        let outcome =
            messenger.call::<_, ScanResponsePb>(&scanner.server, &SCAN, &request, &options).await;
        let reply = outcome.map_err(Failure::of_rpc)?;
        if let Some(answer) = &reply.message.error {
            return Err(self.failure_of_answer(answer));
        }
        if let Some(timestamp) = reply.message.propagated_timestamp {
            self.spec.table.shared().observe(timestamp);
        }
        scanner.next_call_seq_id += 1;
        Ok(reply)
    }

    fn failure_of_answer(&self, answer: &TabletServerErrorPb) -> Failure {
        let code = TabletServerErrorCode::from_wire(answer.code);
        let status = StatusCode::from_wire(answer.status.code);
        let (tablet, server) =
            (self.tablets.as_ref().and_then(VecDeque::front), self.scanner.as_ref());
        let error = Error::TabletServer {
            operation: Operation::Scan,
            server: server.map_or_else(|| HostPort::new("", 0), |scanner| scanner.server.clone()),
            table: self.spec.table.name().to_owned(),
            tablet_id: tablet.map(|tablet| tablet.id().to_owned()).unwrap_or_default(),
            code,
            status,
            message: answer.status.message.clone().unwrap_or_default().into(),
        };
        match code {
            TabletServerErrorCode::ScannerExpired | TabletServerErrorCode::InvalidScanCallSeqId => {
                Failure::Lost(error)
            }
            _ => Failure::of_remedy(remedy_for_answer(code, status), error),
        }
    }

    /// Prepares the next attempt after a failure, or returns the error of the scan.
    async fn recover(
        &mut self,
        failure: Failure,
        tablet: &Arc<Tablet>,
        attempt: u32,
        deadline: Instant,
    ) -> Result<(), Error> {
        let error = match failure {
            Failure::Fatal(error) => return Err(error),
            Failure::Busy(error) => error,
            Failure::Lost(error) => {
                // An ordered scan knows where to resume. Any scan may start over while it has
                // returned no rows.
                if !self.spec.is_fault_tolerant && self.rows_of_tablet > 0 {
                    return Err(error);
                }
                self.give_up_scanner(tablet, &error);
                error
            }
        };
        tracing::debug!(tablet = tablet.id(), attempt, %error, "a scan is taken up again");
        match pause(Backoff::Exponential.delay(attempt), deadline).await {
            true => Ok(()),
            false => Err(Error::timeout(Operation::Scan, &self.subject(tablet), Some(error))),
        }
    }

    /// Forgets the scanner, and avoids its server if that was unreachable.
    fn give_up_scanner(&mut self, tablet: &Arc<Tablet>, error: &Error) {
        let Some(scanner) = self.scanner.take() else { return };
        if !matches!(error, Error::TabletServer { .. } | Error::Rpc { .. }) {
            let replicas = tablet.replicas();
            let index = replicas.all().iter().position(|replica| replica.address == scanner.server);
            index.into_iter().for_each(|index| replicas.mark_failed(index));
        }
    }

    fn subject(&self, tablet: &Tablet) -> String {
        format!("tablet {} of table {:?}", tablet.id(), self.spec.table.name())
    }

    /// Takes over the state in an answer, and makes a batch of its rows.
    fn take(&mut self, reply: RpcReply<ScanResponsePb>) -> Result<ScanBatch, Error> {
        let RpcReply { message, sidecars } = reply;
        let block = self.decode(&message, &sidecars).map_err(|fault| self.malformed(fault))?;
        let batch = ScanBatch::new(self.spec.projection.clone(), block);
        let num_rows = batch.num_rows() as u64;
        self.metrics.requests += 1;
        self.metrics.rows += num_rows;
        self.metrics.bytes += batch.bytes() as u64;
        if let Some(reported) = &message.resource_metrics {
            self.metrics.add_reported(reported);
        }
        self.rows_of_tablet += num_rows;
        // Every scanner gets the rest of the limit, so a correct server never exceeds it.
        self.position.rows_left =
            self.position.rows_left.map(|rows_left| rows_left.saturating_sub(num_rows));
        // All tablets are read at the snapshot of the first one.
        self.position.snap_timestamp = self.position.snap_timestamp.or(message.snap_timestamp);
        if let Some(key) = message.last_primary_key.filter(|key| !key.is_empty()) {
            // Copied for the same reason as the scanner's id.
            let copy = || Bytes::copy_from_slice(&key);
            self.position.last_primary_key = self.spec.is_fault_tolerant.then(copy);
        }
        if !message.has_more_results.unwrap_or(false) {
            self.scanner = None;
            self.position.last_primary_key = None;
            self.rows_of_tablet = 0;
            self.tablets.as_mut().and_then(VecDeque::pop_front);
        }
        Ok(batch)
    }

    fn decode(
        &self,
        message: &ScanResponsePb,
        sidecars: &[Bytes],
    ) -> Result<BatchBlock, BlockFault> {
        let projection = &self.spec.projection;
        match (&message.data, &message.columnar_data) {
            (_, Some(columnar)) => {
                ColumnarBlock::decode(columnar, sidecars, projection).map(BatchBlock::Columnar)
            }
            (Some(rowwise), None) => {
                RowwiseBlock::decode(rowwise, sidecars, projection).map(BatchBlock::Rowwise)
            }
            (None, None) => RowwiseBlock::decode(&Default::default(), sidecars, projection)
                .map(BatchBlock::Rowwise),
        }
    }

    fn malformed(&self, fault: BlockFault) -> Error {
        Error::Malformed {
            server: self.server(),
            reason: format!("rows of {:?}: {fault}", self.spec.table.name()),
        }
    }

    fn server(&self) -> HostPort {
        self.scanner.as_ref().map_or_else(|| HostPort::new("", 0), |scanner| scanner.server.clone())
    }

    /// Keeps the open scanner from expiring while it is idle.
    pub(crate) async fn keep_alive(&self) -> Result<(), Error> {
        let Some(scanner) = &self.scanner else { return Ok(()) };
        let request = ScannerKeepAliveRequestPb { scanner_id: scanner.id.clone() };
        let options = CallOptions::new(Instant::now() + self.spec.timeout);
        let messenger = self.spec.table.shared().messenger();
        let reply: RpcReply<ScannerKeepAliveResponsePb> =
            messenger.call(&scanner.server, &KEEP_ALIVE, &request, &options).await?;
        match reply.message.error.as_ref().map(|answer| self.failure_of_answer(answer)) {
            None => Ok(()),
            Some(Failure::Busy(error) | Failure::Lost(error) | Failure::Fatal(error)) => Err(error),
        }
    }

    /// Frees the scanner on the server if one is open. A failure only costs a minute of the
    /// server's memory.
    pub(crate) async fn close(&mut self) {
        self.tablets = Some(VecDeque::new());
        let Some(scanner) = self.scanner.take() else { return };
        let request = ScanRequestPb {
            scanner_id: Some(scanner.id),
            new_scan_request: None,
            call_seq_id: Some(scanner.next_call_seq_id),
            batch_size_bytes: Some(0),
            close_scanner: Some(true),
        };
        let options = CallOptions::new(Instant::now() + CLOSE_TIMEOUT);
        let messenger = self.spec.table.shared().messenger();
        let outcome =
            messenger.call::<_, ScanResponsePb>(&scanner.server, &SCAN, &request, &options).await;
        if let Err(error) = outcome {
            tracing::debug!(server = %scanner.server, %error, "a scanner was not closed and will expire");
        }
    }

    /// Whether a server holds state of this scan.
    pub(crate) fn has_open_scanner(&self) -> bool {
        self.scanner.is_some()
    }
}

impl Failure {
    fn of_rpc(error: RpcError) -> Failure {
        Failure::of_remedy(remedy_for_rpc(&error), error.into())
    }

    fn of_remedy(remedy: Remedy, error: Error) -> Failure {
        match remedy {
            Remedy::SameReplica => Failure::Busy(error),
            Remedy::GiveUp => Failure::Fatal(error),
            // The executor opens a new scanner; it finds the tablet and renews tokens.
            Remedy::OtherReplica
            | Remedy::NotTheLeader
            | Remedy::FindTablet
            | Remedy::RenewAuthnToken
            | Remedy::RenewAuthzToken => Failure::Lost(error),
        }
    }
}
