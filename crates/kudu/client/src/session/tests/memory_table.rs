//! A table in memory behind the session's seam. It decodes requests and checks them like a tablet
//! server, and can be slow, out of order, altered or unavailable.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use prost::Message;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::error::{Error, Operation, StatusCode, TabletServerErrorCode};
use crate::key_encoding::KeyCells;
use crate::partition::{Partition, PartitionSchema, TabletMap};
use crate::proto::common::{
    AppStatusPb, ColumnIdentifierPb, HashBucketSchemaPb, PartitionSchemaPb, RangeSchemaPb,
    SchemaPb, column_identifier_pb::Identifier,
};
use crate::proto::tserver::{PerRowErrorPb, ResourceMetricsPb, WriteRequestPb, WriteResponsePb};
use crate::row_operation::{EncodedRow, EncodedRows, RowLayout, RowOperation};
use crate::schema::{ColumnSchema, DataType, Schema, SchemaBuilder};
use crate::session::write_request::WriteRequest;
use crate::session::write_target::{TableView, TabletView, TargetFuture, WriteTarget};
use crate::types::HostPort;

/// Cells by the id of their column. None is NULL.
pub(super) type StoredRow = BTreeMap<u32, Option<Vec<u8>>>;

/// The table.
#[derive(Debug)]
pub(super) struct MemoryTable {
    state: Mutex<State>,
    changed: Notify,
    pub request_bytes_max: usize,
}

#[derive(Debug)]
struct State {
    schema: Schema,
    partition_schema: PartitionSchema,
    tablets: Vec<TabletView>,
    /// By the cells of the key, end to end.
    rows: BTreeMap<Vec<u8>, StoredRow>,
    under_way: HashMap<String, usize>,
    most_under_way: usize,
    paused: HashSet<String>,
    broken: HashMap<String, Error>,
    largest_request: usize,
    writes: usize,
    views: usize,
}

/// `key INT64, int_val INT32, string_val STRING`, with ids from 10.
pub(super) fn loadgen_schema() -> Schema {
    with_ids(
        &[("key", DataType::Int64), ("int_val", DataType::Int32), ("string_val", DataType::String)],
        &[10, 11, 12],
    )
}

/// A schema whose first column is the key.
pub(super) fn with_ids(columns: &[(&str, DataType)], ids: &[u32]) -> Schema {
    let describe = |(index, (name, data_type)): (usize, &(&str, DataType))| {
        let column = ColumnSchema::builder(*name, *data_type);
        if index == 0 { column.key() } else { column }
    };
    let schema =
        columns.iter().enumerate().map(describe).fold(Schema::builder(), SchemaBuilder::column);
    let mut pb = schema.build().unwrap().to_pb();
    for (column, id) in pb.columns.iter_mut().zip(ids) {
        column.id = Some(*id);
    }
    Schema::from_pb(&pb).unwrap()
}

/// Hashed by the key into `buckets`; no ranges.
pub(super) fn hashed_by_key(schema: &Schema, buckets: i32) -> PartitionSchema {
    let columns = vec![ColumnIdentifierPb { identifier: Some(Identifier::Name("key".to_owned())) }];
    let pb = PartitionSchemaPb {
        hash_schema: vec![HashBucketSchemaPb { columns, num_buckets: buckets, seed: None }],
        range_schema: Some(RangeSchemaPb::default()),
        custom_hash_schema_ranges: Vec::new(),
    };
    PartitionSchema::from_pb(&pb, schema).unwrap()
}

impl MemoryTable {
    pub(super) fn new(schema: Schema, buckets: u32) -> Arc<MemoryTable> {
        MemoryTable::with_request_bytes_max(schema, buckets, 50 << 20)
    }

    pub(super) fn with_request_bytes_max(
        schema: Schema,
        buckets: u32,
        request_bytes_max: usize,
    ) -> Arc<MemoryTable> {
        let tablets = (0..buckets).map(|bucket| TabletView {
            id: format!("{bucket:032x}"),
            partition: Partition {
                hash_buckets: vec![bucket],
                start: Bytes::new(),
                end: Bytes::new(),
            },
        });
        Arc::new(MemoryTable {
            state: Mutex::new(State {
                partition_schema: hashed_by_key(&schema, buckets as i32),
                schema,
                tablets: tablets.collect(),
                rows: BTreeMap::new(),
                under_way: HashMap::new(),
                most_under_way: 0,
                paused: HashSet::new(),
                broken: HashMap::new(),
                largest_request: 0,
                writes: 0,
                views: 0,
            }),
            changed: Notify::new(),
            request_bytes_max,
        })
    }

    /// Writes to this tablet wait until it is resumed.
    pub(super) fn pause(&self, bucket: u32) {
        self.state.lock().paused.insert(format!("{bucket:032x}"));
    }

    pub(super) fn resume(&self, bucket: u32) {
        self.state.lock().paused.remove(&format!("{bucket:032x}"));
        self.changed.notify_waiters();
    }

    /// Makes writes to this tablet fail as a whole, or succeed again.
    pub(super) fn break_tablet(&self, bucket: u32, error: Option<Error>) {
        let id = format!("{bucket:032x}");
        match error {
            Some(error) => self.state.lock().broken.insert(id, error),
            None => self.state.lock().broken.remove(&id),
        };
    }

    /// Another client runs ALTER TABLE.
    pub(super) fn alter(&self, schema: Schema) {
        self.state.lock().schema = schema;
    }

    /// Removes a tablet, or puts it back, like dropping and adding a range partition.
    pub(super) fn remove_tablet(&self, bucket: u32) -> TabletView {
        let mut state = self.state.lock();
        let id = format!("{bucket:032x}");
        let index = state.tablets.iter().position(|tablet| tablet.id == id).unwrap();
        state.tablets.remove(index)
    }

    pub(super) fn add_tablet(&self, tablet: TabletView) {
        self.state.lock().tablets.push(tablet);
    }

    pub(super) fn rows(&self) -> BTreeMap<Vec<u8>, StoredRow> {
        self.state.lock().rows.clone()
    }

    pub(super) fn row_count(&self) -> usize {
        self.state.lock().rows.len()
    }

    /// Most Writes that one tablet had at a time.
    pub(super) fn most_under_way(&self) -> usize {
        self.state.lock().most_under_way
    }

    pub(super) fn largest_request(&self) -> usize {
        self.state.lock().largest_request
    }

    pub(super) fn writes(&self) -> usize {
        self.state.lock().writes
    }

    pub(super) fn views(&self) -> usize {
        self.state.lock().views
    }

    async fn answer(&self, tablet_id: &str, body: Bytes) -> Result<WriteResponsePb, Error> {
        {
            let mut state = self.state.lock();
            state.writes += 1;
            state.largest_request = state.largest_request.max(body.len());
            let under_way = state.under_way.entry(tablet_id.to_owned()).or_default();
            *under_way += 1;
            let now = *under_way;
            state.most_under_way = state.most_under_way.max(now);
        }
        // A server takes its time, and not the same for every request.
        for _ in 0..body.len() % 5 {
            tokio::task::yield_now().await;
        }
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if !self.state.lock().paused.contains(tablet_id) {
                break;
            }
            changed.await;
        }
        let mut state = self.state.lock();
        *state.under_way.entry(tablet_id.to_owned()).or_default() -= 1;
        state.write(tablet_id, body)
    }
}

impl State {
    fn write(&mut self, tablet_id: &str, body: Bytes) -> Result<WriteResponsePb, Error> {
        if let Some(error) = self.broken.get(tablet_id) {
            return Err(error.clone());
        }
        if self.tablets.iter().all(|tablet| tablet.id != tablet_id) {
            return Err(Error::TabletGone {
                table: "t".to_owned(),
                tablet_id: tablet_id.to_owned(),
            });
        }
        let request = WriteRequestPb::decode(body).expect("the pieces are a request");
        assert_eq!(request.tablet_id, tablet_id.as_bytes());
        let sent = self.sent_layout(&request.schema.unwrap())?;
        let operations = request.row_operations.unwrap();
        let (rows, indirect) =
            (operations.rows.unwrap(), operations.indirect_data.unwrap_or_default());
        let mut response = WriteResponsePb::default();
        let mut ignored = 0;
        for (number, row) in EncodedRows::new(&sent, &rows, &indirect).enumerate() {
            let row = row.expect("rows are well formed");
            self.check_tablet(tablet_id, &row);
            let operation = RowOperation::from_wire(row.operation()).unwrap();
            if let Err(code) = self.apply(&sent, operation, &row, &mut ignored) {
                let error = AppStatusPb {
                    code: code as i32,
                    message: Some(format!("{code:?}")),
                    posix_code: None,
                };
                response.per_row_errors.push(PerRowErrorPb { row_index: number as i32, error });
            }
        }
        response.resource_metrics = Some(ResourceMetricsPb {
            insert_ignore_errors: Some(ignored),
            ..ResourceMetricsPb::default()
        });
        Ok(response)
    }

    /// The sent schema with the ids that the server finds by its names.
    fn sent_layout(&self, pb: &SchemaPb) -> Result<RowLayout, Error> {
        let mut pb = pb.clone();
        for column in &mut pb.columns {
            assert_eq!(column.id, None, "a client does not send ids");
            let Some(known) = self.schema.column(&column.name) else {
                return Err(mismatched_schema());
            };
            column.id = known.id();
        }
        Ok(RowLayout::new(Schema::from_pb(&pb).unwrap()))
    }

    fn check_tablet(&self, tablet_id: &str, row: &EncodedRow<'_>) {
        struct Cells<'a>(&'a EncodedRow<'a>);
        impl KeyCells for Cells<'_> {
            fn cell(&self, column: usize) -> Option<&[u8]> {
                self.0.cell(column).flatten()
            }
        }
        let partitions = self.tablets.iter().map(|tablet| &tablet.partition);
        let map = TabletMap::new(&self.partition_schema, partitions);
        let found = map.locate(&Cells(row), &mut Vec::new()).expect("a row has a tablet");
        assert_eq!(self.tablets[found].id, tablet_id);
    }

    fn apply(
        &mut self,
        layout: &RowLayout,
        operation: RowOperation,
        row: &EncodedRow<'_>,
        ignored: &mut i64,
    ) -> Result<(), StatusCode> {
        use RowOperation::*;
        let id = |column: usize| layout.schema.columns()[column].id().unwrap();
        let cells: StoredRow = row
            .cells()
            .map(|cell| cell.unwrap())
            .map(|(column, cell)| (id(column), cell.map(<[u8]>::to_vec)))
            .collect();
        let key: Vec<u8> = (0..layout.schema.num_key_columns())
            .flat_map(|column| row.cell(column).flatten().unwrap().to_vec())
            .collect();
        let is_present = self.rows.contains_key(&key);
        match (operation, is_present) {
            (Insert, true) => return Err(StatusCode::AlreadyPresent),
            (Update | Delete, false) => return Err(StatusCode::NotFound),
            (InsertIgnore, true) | (UpdateIgnore | DeleteIgnore, false) => *ignored += 1,
            (Delete | DeleteIgnore, true) => {
                self.rows.remove(&key);
            }
            (Upsert | UpsertIgnore | Update | UpdateIgnore, true) => {
                self.rows.entry(key).or_default().extend(cells)
            }
            (Insert | InsertIgnore | Upsert | UpsertIgnore, false) => {
                self.rows.insert(key, cells);
            }
        }
        Ok(())
    }
}

fn mismatched_schema() -> Error {
    Error::TabletServer {
        operation: Operation::Write,
        server: HostPort { host: "memory".to_owned(), port: 1 },
        table: "t".to_owned(),
        tablet_id: String::new(),
        code: TabletServerErrorCode::MismatchedSchema,
        status: StatusCode::InvalidArgument,
        message: "Some columns are not present in the current schema".into(),
    }
}

impl WriteTarget for MemoryTable {
    fn view(&self, _reload: bool, _deadline: Instant) -> TargetFuture<'_, TableView> {
        Box::pin(async {
            let mut state = self.state.lock();
            state.views += 1;
            Ok(TableView {
                schema: state.schema.clone(),
                partition_schema: state.partition_schema.clone(),
                tablets: state.tablets.clone(),
            })
        })
    }

    fn write<'a>(
        &'a self,
        tablet_id: &'a str,
        request: &'a WriteRequest,
        _deadline: Instant,
    ) -> TargetFuture<'a, WriteResponsePb> {
        let pieces = request.pieces(tablet_id, None, Some(7));
        Box::pin(self.answer(tablet_id, Bytes::from(pieces.concat())))
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(10)
    }

    fn request_bytes_max(&self) -> usize {
        self.request_bytes_max
    }
}
