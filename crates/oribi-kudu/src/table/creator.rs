//! Creating a table.
//!
//! A [`TableCreator`] collects what the table shall be and checks it against the schema; nothing is sent before
//! [`Client::create_table`]. Creation has no request id in Kudu: when an answer was lost and the master then
//! says that the table exists, the client looks whether it is the table that it wanted.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use super::range_partition::{
    RangePartition, ResolvedBound, ResolvedRange, bounds_pb, column_index,
};
use super::{Table, by_name};
use crate::client::Client;
use crate::error::{Error, Operation};
use crate::master::{MasterCall, method};
use crate::proto::common::{
    ColumnIdentifierPb, HashBucketSchemaPb, PartitionSchemaPb, RangeSchemaPb,
    RangeWithHashSchemaPb, column_identifier_pb::Identifier,
};
use crate::proto::master::{
    CreateTableRequestPb, CreateTableResponsePb, IsCreateTableDoneRequestPb,
    IsCreateTableDoneResponsePb, feature,
};
use crate::row_operation::BoundKind;
use crate::rpc::Method;
use crate::schema::{Schema, Value};

static CREATE_TABLE: Method = method("CreateTable");
static IS_CREATE_TABLE_DONE: Method = method("IsCreateTableDone");

/// First and longest wait between two questions whether a change has reached all tablets. Three tablets are
/// created in about 20 ms.
const POLL_MIN: Duration = Duration::from_millis(2);
const POLL_MAX: Duration = Duration::from_millis(250);

/// One level of hashing: rows are spread over buckets by some columns of the primary key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HashPartition {
    columns: Vec<String>,
    num_buckets: u32,
    seed: u32,
}

impl HashPartition {
    /// Spreads rows over `num_buckets` buckets, at least 2, by these columns.
    pub fn new<C: Into<String>>(
        columns: impl IntoIterator<Item = C>,
        num_buckets: u32,
    ) -> HashPartition {
        HashPartition {
            columns: columns.into_iter().map(Into::into).collect(),
            num_buckets,
            seed: 0,
        }
    }

    /// Changes the hash function, so that two levels do not spread in the same way; 0 by default.
    pub fn with_seed(mut self, seed: u32) -> HashPartition {
        self.seed = seed;
        self
    }

    pub(super) fn to_pb(&self) -> HashBucketSchemaPb {
        HashBucketSchemaPb {
            columns: identifiers(&self.columns),
            // Kudu allows fewer than 2^31; what is more than that is refused by the server.
            num_buckets: i32::try_from(self.num_buckets).unwrap_or(i32::MAX),
            seed: Some(self.seed),
        }
    }
}

/// What a new table shall be.
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
    /// A table with these columns in one tablet, with as many replicas as the master has as its default.
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

    /// Orders rows into ranges by these columns of the primary key. Without any range the table has one
    /// that is unbounded.
    pub fn range_columns<C: Into<String>>(
        mut self,
        columns: impl IntoIterator<Item = C>,
    ) -> TableCreator {
        self.range_columns = columns.into_iter().map(Into::into).collect();
        self
    }

    /// Adds a range. Fails when a bound does not fit the schema.
    pub fn range_partition(mut self, range: RangePartition<'_>) -> Result<TableCreator, Error> {
        self.ranges.push(range.resolve(&self.schema)?);
        Ok(self)
    }

    /// Splits the range that contains this row in two; the row begins the upper one. Fails when the row does
    /// not fit the schema.
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

    /// A comment for whoever looks at the table.
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

    /// Lets the master place the tablets by this label, apart from tablets with other labels.
    pub fn dimension_label(mut self, label: impl Into<String>) -> TableCreator {
        self.dimension_label = Some(label.into());
        self
    }

    /// Returns as soon as the master has taken the table over, and not when all its tablets run.
    pub fn without_waiting(mut self) -> TableCreator {
        self.waits = false;
        self
    }

    /// How long creation may take, instead of the client's timeout for changes of tables.
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
        // With a single range of its own hash schema, Kudu wants every range with its hash schema.
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
                // Empty is not absent: an absent one makes Kudu order rows by the whole primary key.
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
    /// Creates a table, waits until its tablets run unless told otherwise, and opens it.
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
            .call_master_for_outcome::<_, CreateTableResponsePb>(&CREATE_TABLE, &request, call)
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
                self.shared().call_master(&IS_CREATE_TABLE_DONE, &request, call).await?;
            Ok(response.done.unwrap_or(false))
        })
        .await
    }
}

/// Asks until the answer is yes or the deadline of the call passes.
pub(super) async fn poll_until_done(
    call: MasterCall<'_>,
    ask: impl AsyncFn() -> Result<bool, Error>,
) -> Result<(), Error> {
    let mut delay = POLL_MIN;
    while !ask().await? {
        if !crate::retry::backoff::pause(delay, call.deadline).await {
            return Err(Error::timeout(call.operation, call.subject, None));
        }
        delay = (delay * 2).min(POLL_MAX);
    }
    Ok(())
}

/// Whether a table that exists is what this creator would have made, as far as columns and replicas tell.
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

fn identifiers(columns: &[String]) -> Vec<ColumnIdentifierPb> {
    columns
        .iter()
        .map(|name| ColumnIdentifierPb { identifier: Some(Identifier::Name(name.clone())) })
        .collect()
}
