//! Creating a table.
//!
//! A [`TableCreator`] collects the properties of the table and checks them against the schema. The
//! client sends nothing before [`Client::create_table`]. Creation has no request id in Kudu. If an
//! answer is lost and the master then says that the table exists, the client checks whether it is
//! the requested table.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use super::hash_partition::{HashPartition, identifiers};
use super::range_partition::{
    RangePartition, ResolvedBound, ResolvedRange, bounds_pb, column_index,
};
use super::{Table, by_name};
use crate::client::Client;
use crate::error::{Error, Operation};
use crate::master::{MasterCall, method};
use crate::proto::common::{PartitionSchemaPb, RangeSchemaPb, RangeWithHashSchemaPb};
use crate::proto::master::{
    CreateTableRequestPb, CreateTableResponsePb, IsCreateTableDoneRequestPb,
    IsCreateTableDoneResponsePb, feature,
};
use crate::row_operation::BoundKind;
use crate::rpc::Method;
use crate::schema::{Schema, Value};

static CREATE_TABLE: Method = method("CreateTable");
static IS_CREATE_TABLE_DONE: Method = method("IsCreateTableDone");

/// First and longest pause between two polls whether a change has reached all tablets. Creating
/// three tablets takes about 20 ms.
const POLL_MIN: Duration = Duration::from_millis(2);
const POLL_MAX: Duration = Duration::from_millis(250);

/// Describes a new table.
///
/// ```no_run
/// # async fn example(client: oribi_kudu::Client) -> Result<(), oribi_kudu::Error> {
/// use oribi_kudu::{ColumnSchema, DataType, HashPartition, Schema, TableCreator};
///
/// let schema = Schema::builder()
///     .column(ColumnSchema::builder("key", DataType::Int64).key())
///     .column(ColumnSchema::builder("value", DataType::String).nullable(true))
///     .build()?;
/// let table = client
///     .create_table(TableCreator::new("numbers", schema).hash_partition(HashPartition::new(["key"], 8)).num_replicas(3))
///     .await?;
/// # let _ = table;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct TableCreator {
    name: String,
    schema: Schema,
    hash: Vec<HashPartition>,
    range_columns: Vec<String>,
    ranges: Vec<ResolvedRange>,
    splits: Vec<ResolvedBound>,
    num_replicas: Option<u32>,
    owner: Option<String>,
    comment: Option<String>,
    extra_configs: BTreeMap<String, String>,
    dimension_label: Option<String>,
    waits: bool,
    timeout: Option<Duration>,
}

impl TableCreator {
    /// A table with these columns in one tablet, with the master's default number of replicas.
    pub fn new(name: impl Into<String>, schema: Schema) -> TableCreator {
        TableCreator {
            name: name.into(),
            schema,
            hash: Vec::new(),
            range_columns: Vec::new(),
            ranges: Vec::new(),
            splits: Vec::new(),
            num_replicas: None,
            owner: None,
            comment: None,
            extra_configs: BTreeMap::new(),
            dimension_label: None,
            waits: true,
            timeout: None,
        }
    }

    /// Adds a level of hashing.
    pub fn hash_partition(mut self, hash: HashPartition) -> TableCreator {
        self.hash.push(hash);
        self
    }

    /// Divides rows into ranges by these columns of the primary key. Without any range the table
    /// has one unbounded range.
    pub fn range_columns<C: Into<String>>(
        mut self,
        columns: impl IntoIterator<Item = C>,
    ) -> TableCreator {
        self.range_columns = columns.into_iter().map(Into::into).collect();
        self
    }

    /// Adds a range. It fails when a bound does not match the schema.
    pub fn range_partition(mut self, range: RangePartition<'_>) -> Result<TableCreator, Error> {
        self.ranges.push(range.resolve(&self.schema)?);
        Ok(self)
    }

    /// Splits the range that contains this row in two; the row begins the upper one. It fails when
    /// the row does not match the schema.
    pub fn split(mut self, row: &[(&str, Value<'_>)]) -> Result<TableCreator, Error> {
        self.splits.push(ResolvedBound::new(BoundKind::Split, row, &self.schema)?);
        Ok(self)
    }

    /// How many replicas each tablet has: an odd number.
    pub fn num_replicas(mut self, count: u32) -> TableCreator {
        self.num_replicas = Some(count);
        self
    }

    /// The owner of the table; the user of the client by default.
    pub fn owner(mut self, owner: impl Into<String>) -> TableCreator {
        self.owner = Some(owner.into());
        self
    }

    /// A comment that the master keeps with the table.
    pub fn comment(mut self, comment: impl Into<String>) -> TableCreator {
        self.comment = Some(comment.into());
        self
    }

    /// A setting of the table, such as `kudu.table.history_max_age_sec`.
    pub fn extra_config(
        mut self,
        name: impl Into<String>,
        value: impl Into<String>,
    ) -> TableCreator {
        self.extra_configs.insert(name.into(), value.into());
        self
    }

    /// Makes the master place this label's tablets separately from those of other labels.
    pub fn dimension_label(mut self, label: impl Into<String>) -> TableCreator {
        self.dimension_label = Some(label.into());
        self
    }

    /// Returns as soon as the master has accepted the table, without waiting for its tablets.
    pub fn without_waiting(mut self) -> TableCreator {
        self.waits = false;
        self
    }

    /// The timeout of the creation, instead of the client's timeout for table changes.
    pub fn timeout(mut self, timeout: Duration) -> TableCreator {
        self.timeout = Some(timeout);
        self
    }

    fn to_request(&self) -> Result<CreateTableRequestPb, Error> {
        for column in
            self.range_columns.iter().chain(self.hash.iter().flat_map(|hash| &hash.columns))
        {
            column_index(&self.schema, column)?;
        }
        // If one range has its own hash schema, Kudu requires a hash schema for every range.
        let has_own_hash = self.ranges.iter().any(ResolvedRange::has_own_hash);
        let bounds = self.ranges.iter().filter(|_| !has_own_hash).flat_map(|range| &range.bounds);
        let custom = self.ranges.iter().filter(|_| has_own_hash).map(|range| {
            Ok(RangeWithHashSchemaPb {
                range_bounds: Some(bounds_pb(&self.schema, &range.bounds)?),
                hash_schema: range.hash_pb(&self.hash),
            })
        });
        Ok(CreateTableRequestPb {
            name: self.name.clone(),
            schema: self.schema.to_pb(),
            num_replicas: self.num_replicas.map(|count| i32::try_from(count).unwrap_or(i32::MAX)),
            split_rows_range_bounds: Some(bounds_pb(
                &self.schema,
                self.splits.iter().chain(bounds),
            )?),
            partition_schema: Some(PartitionSchemaPb {
                hash_schema: self.hash.iter().map(HashPartition::to_pb).collect(),
                // An empty message differs from an absent one, which makes Kudu use the whole
                // primary key as range columns.
                range_schema: Some(RangeSchemaPb { columns: identifiers(&self.range_columns) }),
                custom_hash_schema_ranges: custom.collect::<Result<_, Error>>()?,
            }),
            owner: self.owner.clone(),
            extra_configs: self.extra_configs.clone(),
            dimension_label: self.dimension_label.clone(),
            comment: self.comment.clone(),
            allow_empty_partition: None,
        })
    }

    fn features(&self) -> &'static [u32] {
        match (self.ranges.is_empty(), self.ranges.iter().any(ResolvedRange::has_own_hash)) {
            (_, true) => &[feature::RANGE_PARTITION_BOUNDS, feature::RANGE_SPECIFIC_HASH_SCHEMA],
            (false, false) => &[feature::RANGE_PARTITION_BOUNDS],
            (true, false) => &[],
        }
    }
}

impl Client {
    /// Creates a table, by default waits until its tablets run, and opens it.
    pub async fn create_table(&self, creator: TableCreator) -> Result<Table, Error> {
        let request = creator.to_request()?;
        let deadline = creator
            .timeout
            .map_or_else(|| self.shared().admin_deadline(), |timeout| Instant::now() + timeout);
        let call = MasterCall {
            operation: Operation::CreateTable,
            subject: &creator.name,
            deadline,
            features: creator.features(),
        };
        let outcome = self
            .shared()
            .masters()
            .call_for_outcome::<_, CreateTableResponsePb>(&CREATE_TABLE, &request, call)
            .await;
        match outcome.result {
            Ok(_) => {}
            Err(error @ Error::TableAlreadyPresent { .. }) if outcome.may_have_run_before => {
                let present = self.open_table(&creator.name).await?;
                if !is_same(&present, &creator) {
                    return Err(error);
                }
            }
            Err(error) => return Err(error),
        }
        if creator.waits {
            self.wait_for_tablets(&creator.name, deadline).await?;
        }
        self.open_table(&creator.name).await
    }

    async fn wait_for_tablets(&self, name: &str, deadline: Instant) -> Result<(), Error> {
        let call = MasterCall {
            operation: Operation::CreateTable,
            subject: name,
            deadline,
            features: &[],
        };
        let request = IsCreateTableDoneRequestPb { table: by_name(name) };
        poll_until_done(call, async || {
            let response: IsCreateTableDoneResponsePb =
                self.shared().masters().call(&IS_CREATE_TABLE_DONE, &request, call).await?;
            Ok(response.done.unwrap_or(false))
        })
        .await
    }
}

/// Polls until the answer is yes or the call's deadline passes.
pub(super) async fn poll_until_done(
    call: MasterCall<'_>,
    ask: impl AsyncFn() -> Result<bool, Error>,
) -> Result<(), Error> {
    let mut delay = POLL_MIN;
    while !ask().await? {
        if !crate::backoff::pause(delay, call.deadline).await {
            return Err(Error::timeout(call.operation, call.subject, None));
        }
        delay = (delay * 2).min(POLL_MAX);
    }
    Ok(())
}

/// Whether an existing table is the one that this creator describes, as far as columns and replicas
/// tell.
fn is_same(present: &Table, creator: &TableCreator) -> bool {
    let same_columns = present.schema().columns().len() == creator.schema.columns().len()
        && present.schema().columns().iter().zip(creator.schema.columns()).all(
            |(present, wanted)| {
                present.name() == wanted.name()
                    && present.data_type() == wanted.data_type()
                    && present.is_key() == wanted.is_key()
                    && present.is_nullable() == wanted.is_nullable()
            },
        );
    same_columns && creator.num_replicas.is_none_or(|count| count == present.num_replicas())
}
