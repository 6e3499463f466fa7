//! Parts of a scan that can run in parallel, in tasks here or in processes elsewhere.
//!
//! A token is one tablet of the scan, or a range of primary keys in a tablet that is split further.
//! The tablet server says where to split, so that the parts have about the same size. A token has
//! everything that a receiver needs except the client, in the format of Kudu's own clients.
//! Invariant: the tokens of a scan cover each of its rows exactly once. A token from the network is
//! checked against the table like a new scan.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use tokio::time::Instant;

use crate::client::Client;
use crate::error::{Error, Operation};
use crate::meta_cache::Tablet;
use crate::proto::client::{ReplicaSelectionPb, ScanTokenPb};
use crate::proto::common::{ColumnSchemaPb, ReadModePb};
use crate::proto::tserver::{SERVICE_NAME, SplitKeyRangeRequestPb, SplitKeyRangeResponsePb};
use crate::retry::{ReplicaSelection, TabletCall, call_tablet};
use crate::rpc::Method;
use crate::schema::{ColumnSchema, Schema};
use crate::table::Table;
use crate::types::HostPort;

use super::Scanner;
use super::projection::Projection;
use super::spec::{Layout, ReadMode, ScanSpec, TIMEOUT, TabletFilter};
use crate::scan_error::ScanError;

static SPLIT_KEY_RANGE: Method = Method { service: SERVICE_NAME, name: "SplitKeyRange" };

/// How to divide a scan; by default into one part for each tablet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenOptions {
    pub(crate) split_bytes: Option<u64>,
}

impl TokenOptions {
    /// One part for each tablet.
    pub fn new() -> TokenOptions {
        TokenOptions::default()
    }

    /// Splits tablets further, into ranges of about this many bytes as servers store them.
    pub fn split_bytes(mut self, bytes: u64) -> TokenOptions {
        self.split_bytes = Some(bytes);
        self
    }
}

/// A part of a scan.
///
/// ```no_run
/// # async fn example(table: oribi_kudu::Table) -> Result<(), Box<dyn std::error::Error>> {
/// use oribi_kudu::{ScanToken, TokenOptions};
///
/// let client = table.client();
/// for token in table.scan().into_tokens(TokenOptions::default()).await? {
///     let bytes = token.serialize();
///     // ... the bytes go to another process, which has its own client ...
///     let scanner = ScanToken::deserialize(&bytes)?.into_scanner(&client).await?;
///     println!("{} rows", scanner.count().await?);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ScanToken {
    message: ScanTokenPb,
    layout: Layout,
    tablet_id: Option<String>,
    leader: Option<HostPort>,
}

impl ScanToken {
    /// Id of the tablet; only on the side that made the token.
    pub fn tablet_id(&self) -> Option<&str> {
        self.tablet_id.as_deref()
    }

    /// Address of the tablet's leader when the token was made; only on the side that made it.
    pub fn leader(&self) -> Option<&HostPort> {
        self.leader.as_ref()
    }

    /// The token as bytes for another process, without the layout of rows.
    pub fn serialize(&self) -> Vec<u8> {
        self.message.encode_to_vec()
    }

    /// Decodes a token from another process. Its rows come rowwise unless [`ScanToken::layout`]
    /// says otherwise.
    pub fn deserialize(bytes: &[u8]) -> Result<ScanToken, Error> {
        let undecodable = |_| ScanError::Token { reason: "the bytes are no token" };
        let message = ScanTokenPb::decode(bytes).map_err(undecodable)?;
        Ok(ScanToken { message, layout: Layout::default(), tablet_id: None, leader: None })
    }

    /// Sets how servers lay out the rows.
    pub fn layout(mut self, layout: Layout) -> ScanToken {
        self.layout = layout;
        self
    }

    /// Opens the table and prepares to scan this part of it.
    pub async fn into_scanner(self, client: &Client) -> Result<Scanner, Error> {
        let table = match (&self.message.table_id, &self.message.table_name) {
            (Some(id), _) => client.open_table_by_id(id).await?,
            (None, Some(name)) => client.open_table(name).await?,
            (None, None) => return Err(ScanError::Token { reason: "it names no table" }.into()),
        };
        self.into_scanner_of(&table)
    }

    /// Prepares to scan this part of an open table.
    pub fn into_scanner_of(self, table: &Table) -> Result<Scanner, Error> {
        let names_other_table = match (&self.message.table_id, &self.message.table_name) {
            (Some(id), _) => id != table.id(),
            (None, name) => name.as_deref() != Some(table.name()),
        };
        if names_other_table {
            return Err(ScanError::Token { reason: "it is for another table" }.into());
        }
        let timestamp = self.message.propagated_timestamp.unwrap_or(0);
        table.shared().observe(timestamp);
        Ok(Scanner::new(spec_of(self, table.clone())?, true))
    }
}

/// The tokens of a scan.
pub(super) async fn tokens_of(
    spec: ScanSpec,
    options: TokenOptions,
) -> Result<Vec<ScanToken>, Error> {
    let deadline = Instant::now() + spec.timeout;
    let snapshot = spec.table.snapshot(deadline).await?;
    let mut tokens = Vec::new();
    for tablet in spec.tablets_of(&snapshot) {
        match options.split_bytes {
            None => tokens.push(token_of(
                &spec,
                &tablet,
                spec.start_primary_key.clone(),
                spec.stop_primary_key.clone(),
            )),
            Some(bytes) => {
                for (start, stop) in split(&spec, &tablet, bytes, deadline).await? {
                    tokens.push(token_of(&spec, &tablet, start, stop));
                }
            }
        }
    }
    Ok(tokens)
}

/// Ranges of primary keys, start inclusive and stop exclusive, that divide a tablet's part of the
/// scan.
async fn split(
    spec: &ScanSpec,
    tablet: &Arc<Tablet>,
    chunk_bytes: u64,
    deadline: Instant,
) -> Result<Vec<(Bytes, Bytes)>, Error> {
    let call = TabletCall {
        table: &spec.table,
        tablet,
        operation: Operation::SplitKeyRange,
        method: &SPLIT_KEY_RANGE,
        selection: ReplicaSelection::Leader,
        deadline,
        exactly_once: false,
        features: &[],
        body_bytes: 0,
    };
    let some_key = |key: &Bytes| (!key.is_empty()).then(|| key.clone());
    let reply = call_tablet::<SplitKeyRangeResponsePb>(call, |attempt| {
        let request = SplitKeyRangeRequestPb {
            tablet_id: Bytes::copy_from_slice(attempt.tablet_id.as_bytes()),
            start_primary_key: some_key(&spec.start_primary_key),
            stop_primary_key: some_key(&spec.stop_primary_key),
            // The server refuses a size of zero.
            target_chunk_size_bytes: Some(chunk_bytes.max(1)),
            columns: spec.projection.to_pb(),
            authz_token: attempt.authz_token.cloned(),
        };
        vec![Bytes::from(request.encode_to_vec())]
    })
    .await?;
    let mut ranges: Vec<(Bytes, Bytes)> = reply
        .message
        .ranges
        .into_iter()
        .map(|range| {
            (
                range.start_primary_key.unwrap_or_default(),
                range.stop_primary_key.unwrap_or_default(),
            )
        })
        .collect();
    // The caller's bounds limit the first and the last range: there may be rows outside the ranges
    // that the server knew.
    match ranges.is_empty() {
        true => ranges.push((spec.start_primary_key.clone(), spec.stop_primary_key.clone())),
        false => {
            ranges[0].0 = spec.start_primary_key.clone();
            let last = ranges.len() - 1;
            ranges[last].1 = spec.stop_primary_key.clone();
        }
    }
    Ok(ranges)
}

fn token_of(spec: &ScanSpec, tablet: &Tablet, start: Bytes, stop: Bytes) -> ScanToken {
    let some_key = |key: Bytes| (!key.is_empty()).then_some(key);
    let partition = tablet.partition();
    let timestamp = spec.table.shared().last_observed_timestamp();
    let read_mode = match spec.read_mode {
        ReadMode::Latest => ReadModePb::ReadLatest,
        ReadMode::AtSnapshot(_) => ReadModePb::ReadAtSnapshot,
        ReadMode::YourWrites => ReadModePb::ReadYourWrites,
    };
    let message = ScanTokenPb {
        table_name: Some(spec.table.name().to_owned()),
        table_id: Some(spec.table.id().to_owned()),
        projected_columns: spec.projection.to_pb(),
        column_predicates: spec.predicates.clone(),
        lower_bound_primary_key: some_key(start),
        upper_bound_primary_key: some_key(stop),
        lower_bound_partition_key: some_key(partition.start.clone()),
        upper_bound_partition_key: some_key(partition.end.clone()),
        limit: spec.limit,
        read_mode: Some(read_mode.into()),
        snap_timestamp: spec.chosen_snapshot(),
        propagated_timestamp: (timestamp != 0).then_some(timestamp),
        cache_blocks: Some(spec.cache_blocks),
        fault_tolerant: Some(spec.is_fault_tolerant),
        batch_size_bytes: spec.batch_bytes,
        replica_selection: Some(selection_to_pb(spec.selection).into()),
        scan_request_timeout_ms: Some(i64::try_from(spec.timeout.as_millis()).unwrap_or(i64::MAX)),
        ..ScanTokenPb::default()
    };
    let replicas = tablet.replicas();
    let leader = replicas.leader().map(|index| replicas.all()[index].address.clone());
    ScanToken { message, layout: spec.layout, tablet_id: Some(tablet.id().to_owned()), leader }
}

/// Checks a token against the table.
fn spec_of(token: ScanToken, table: Table) -> Result<ScanSpec, ScanError> {
    let message = token.message;
    if !message.feature_flags.is_empty() || message.snap_start_timestamp.is_some() {
        return Err(ScanError::Token {
            reason: "it asks for something that this client does not know",
        });
    }
    let projection = projection_of(&message, table.schema())?;
    let read_mode = match message.read_mode.map(ReadModePb::try_from) {
        None | Some(Ok(ReadModePb::ReadLatest)) => ReadMode::Latest,
        Some(Ok(ReadModePb::ReadAtSnapshot)) => ReadMode::AtSnapshot(message.snap_timestamp),
        Some(Ok(ReadModePb::ReadYourWrites)) => ReadMode::YourWrites,
        Some(_) => return Err(ScanError::Token { reason: "its read mode is unknown" }),
    };
    let timeout = message.scan_request_timeout_ms.and_then(|millis| u64::try_from(millis).ok());
    Ok(ScanSpec {
        projection: Arc::new(projection),
        predicates: message.column_predicates,
        start_primary_key: message.lower_bound_primary_key.unwrap_or_default(),
        stop_primary_key: message.upper_bound_primary_key.unwrap_or_default(),
        limit: message.limit,
        batch_bytes: message.batch_size_bytes,
        read_mode,
        selection: selection_from_pb(message.replica_selection)?,
        is_fault_tolerant: message.fault_tolerant.unwrap_or(false),
        layout: token.layout,
        cache_blocks: message.cache_blocks.unwrap_or(true),
        timeout: timeout.map_or(TIMEOUT, Duration::from_millis),
        // The client that made the token has already pruned tablets; the partition keys describe
        // the rest.
        tablets: TabletFilter {
            partition_start: message.lower_bound_partition_key.unwrap_or_default(),
            partition_end: message.upper_bound_partition_key.unwrap_or_default(),
            ..TabletFilter::default()
        },
        table,
    })
}

/// The projected columns, which must still be columns of the table.
fn projection_of(message: &ScanTokenPb, schema: &Schema) -> Result<Projection, ScanError> {
    let metadata = message.table_metadata.as_ref().and_then(|metadata| metadata.schema.as_ref());
    let by_position = |position: &i32| {
        let position = usize::try_from(*position).ok();
        let column = position.and_then(|position| metadata?.columns.get(position));
        column.ok_or(ScanError::Token { reason: "it projects a column that it does not describe" })
    };
    let projected: Vec<&ColumnSchemaPb> = match message.projected_column_idx.is_empty() {
        true => message.projected_columns.iter().collect(),
        false => message.projected_column_idx.iter().map(by_position).collect::<Result<_, _>>()?,
    };
    let current = |column: &&ColumnSchemaPb| -> Result<ColumnSchema, ScanError> {
        let found = schema.column(&column.name);
        let found =
            found.ok_or_else(|| ScanError::UnknownColumn { column: column.name.clone() })?;
        match i32::from(found.data_type().to_pb()) == column.r#type {
            true => Ok(found.clone()),
            false => Err(ScanError::Token { reason: "a column has another type now" }),
        }
    };
    Ok(Projection::new(projected.iter().map(current).collect::<Result<Vec<_>, _>>()?))
}

fn selection_to_pb(selection: ReplicaSelection) -> ReplicaSelectionPb {
    match selection {
        ReplicaSelection::Leader => ReplicaSelectionPb::LeaderOnly,
        ReplicaSelection::Closest => ReplicaSelectionPb::ClosestReplica,
        ReplicaSelection::First => ReplicaSelectionPb::FirstReplica,
    }
}

fn selection_from_pb(selection: Option<i32>) -> Result<ReplicaSelection, ScanError> {
    match selection.map(ReplicaSelectionPb::try_from) {
        None | Some(Ok(ReplicaSelectionPb::LeaderOnly)) => Ok(ReplicaSelection::Leader),
        Some(Ok(ReplicaSelectionPb::ClosestReplica)) => Ok(ReplicaSelection::Closest),
        Some(Ok(ReplicaSelectionPb::FirstReplica)) => Ok(ReplicaSelection::First),
        Some(_) => Err(ScanError::Token { reason: "its choice of replicas is unknown" }),
    }
}
