//! Altering a table.
//!
//! A [`TableAlterer`] collects steps, which the master applies in order, all or none. It checks
//! range bounds against the schema of the table that it was made for. After the change the client
//! forgets the table's cached tablets, so that it finds new partitions and does not use dropped
//! ones.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::creator::poll_until_done;
use super::range_partition::{RangePartition, bounds_pb};
use super::{Table, by_id};
use crate::client::Client;
use crate::error::{Error, Operation};
use crate::master::{MasterCall, method};
use crate::proto::common::ColumnSchemaDeltaPb;
use crate::proto::master::alter_table_request_pb::{
    AddColumn, AddRangePartition, AlterColumn, CustomHashSchema, DropColumn, DropRangePartition,
    RenameColumn, Step, StepType,
};
use crate::proto::master::{
    AlterTableRequestPb, AlterTableResponsePb, IsAlterTableDoneRequestPb,
    IsAlterTableDoneResponsePb, feature,
};
use crate::rpc::Method;
use crate::schema::{ColumnSchemaBuilder, Compression, Encoding, Value};

static ALTER_TABLE: Method = method("AlterTable");
static IS_ALTER_TABLE_DONE: Method = method("IsAlterTableDone");

/// A change of one column. Unset properties stay as they are.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ColumnChange {
    delta: ColumnSchemaDeltaPb,
}

impl ColumnChange {
    /// Changes nothing yet.
    pub fn new() -> ColumnChange {
        ColumnChange::default()
    }

    /// Gives the column another name.
    pub fn name(mut self, name: impl Into<String>) -> ColumnChange {
        self.delta.new_name = Some(name.into());
        self
    }

    /// The encoding of the column's new blocks.
    pub fn encoding(mut self, encoding: Encoding) -> ColumnChange {
        self.delta.encoding = Some(encoding.to_pb() as i32);
        self
    }

    /// The compression of the column's new blocks.
    pub fn compression(mut self, compression: Compression) -> ColumnChange {
        self.delta.compression = Some(compression.to_pb() as i32);
        self
    }

    /// Size of new blocks in bytes, before compression; 0 lets the server choose.
    pub fn block_bytes(mut self, bytes: u32) -> ColumnChange {
        self.delta.block_size = Some(i32::try_from(bytes).unwrap_or(i32::MAX));
        self
    }

    /// The comment of the column; an empty one removes it.
    pub fn comment(mut self, comment: impl Into<String>) -> ColumnChange {
        self.delta.new_comment = Some(comment.into());
        self
    }

    /// Whether the column can be written only once.
    pub fn immutable(mut self, is_immutable: bool) -> ColumnChange {
        self.delta.immutable = Some(is_immutable);
        self
    }

    /// Removes the default value of new rows.
    pub fn without_default(mut self) -> ColumnChange {
        self.delta.remove_default = Some(true);
        self.delta.default_value = None;
        self
    }
}

/// A change of a table: steps, and new properties of the whole table.
///
/// ```no_run
/// # async fn example(client: oribi_kudu::Client) -> Result<(), oribi_kudu::Error> {
/// use oribi_kudu::{ColumnSchema, DataType, TableAlterer};
///
/// let table = client.open_table("numbers").await?;
/// let alterer = TableAlterer::new(&table)
///     .add_column(ColumnSchema::builder("note", DataType::String).nullable(true))?
///     .rename_table("old_numbers");
/// client.alter_table(alterer).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct TableAlterer {
    table: Table,
    request: AlterTableRequestPb,
    has_ranges: bool,
    waits: bool,
    timeout: Option<Duration>,
}

impl TableAlterer {
    /// Changes nothing yet.
    pub fn new(table: &Table) -> TableAlterer {
        let request =
            AlterTableRequestPb { table: by_id(table.id()), ..AlterTableRequestPb::default() };
        TableAlterer {
            table: table.clone(),
            request,
            has_ranges: false,
            waits: true,
            timeout: None,
        }
    }

    /// Adds a column. One without a default must be nullable, because existing rows get a value
    /// too.
    pub fn add_column(self, column: ColumnSchemaBuilder) -> Result<TableAlterer, Error> {
        let schema = column.build()?.to_pb();
        Ok(self.step(Step {
            r#type: Some(StepType::AddColumn as i32),
            add_column: Some(AddColumn { schema }),
            ..Step::default()
        }))
    }

    /// Drops a column with all its cells.
    pub fn drop_column(self, name: impl Into<String>) -> TableAlterer {
        let drop_column = Some(DropColumn { name: name.into() });
        self.step(Step {
            r#type: Some(StepType::DropColumn as i32),
            drop_column,
            ..Step::default()
        })
    }

    /// Renames a column, including one of the primary key.
    pub fn rename_column(self, old: impl Into<String>, new: impl Into<String>) -> TableAlterer {
        let rename_column = Some(RenameColumn { old_name: old.into(), new_name: new.into() });
        self.step(Step {
            r#type: Some(StepType::RenameColumn as i32),
            rename_column,
            ..Step::default()
        })
    }

    /// Changes properties of a column.
    pub fn alter_column(self, name: impl Into<String>, change: ColumnChange) -> TableAlterer {
        let delta = ColumnSchemaDeltaPb { name: Some(name.into()), ..change.delta };
        let alter_column = Some(AlterColumn { delta: Some(delta) });
        self.step(Step {
            r#type: Some(StepType::AlterColumn as i32),
            alter_column,
            ..Step::default()
        })
    }

    /// Sets the default value of a column in new rows. It fails when the column cannot hold the
    /// value.
    pub fn set_default(self, name: &str, value: Value<'_>) -> Result<TableAlterer, Error> {
        let index = super::range_partition::column_index(self.table.schema(), name)?;
        let cell = value.to_cell(&self.table.schema().columns()[index])?;
        let delta = ColumnSchemaDeltaPb {
            default_value: Some(Bytes::from(cell)),
            ..ColumnSchemaDeltaPb::default()
        };
        Ok(self.alter_column(name, ColumnChange { delta }))
    }

    /// Adds a range; it must not overlap with another one.
    pub fn add_range_partition(mut self, range: RangePartition<'_>) -> Result<TableAlterer, Error> {
        let range = range.resolve(self.table.schema())?;
        let custom_hash_schema =
            range.has_own_hash().then(|| CustomHashSchema { hash_schema: range.hash_pb(&[]) });
        let add_range_partition = Some(AddRangePartition {
            range_bounds: Some(bounds_pb(self.table.schema(), &range.bounds)?),
            dimension_label: range.dimension_label,
            custom_hash_schema,
        });
        self.has_ranges = true;
        Ok(self.step(Step {
            r#type: Some(StepType::AddRangePartition as i32),
            add_range_partition,
            ..Step::default()
        }))
    }

    /// Drops a range with all its rows. The bounds must equal those of its creation.
    pub fn drop_range_partition(
        mut self,
        range: RangePartition<'_>,
    ) -> Result<TableAlterer, Error> {
        let range = range.resolve(self.table.schema())?;
        let range_bounds = Some(bounds_pb(self.table.schema(), &range.bounds)?);
        let drop_range_partition = Some(DropRangePartition { range_bounds });
        self.has_ranges = true;
        Ok(self.step(Step {
            r#type: Some(StepType::DropRangePartition as i32),
            drop_range_partition,
            ..Step::default()
        }))
    }

    /// Gives the table another name.
    pub fn rename_table(mut self, name: impl Into<String>) -> TableAlterer {
        self.request.new_table_name = Some(name.into());
        self
    }

    /// Gives the table another owner.
    pub fn owner(mut self, owner: impl Into<String>) -> TableAlterer {
        self.request.new_table_owner = Some(owner.into());
        self
    }

    /// The comment of the table; an empty one removes it.
    pub fn comment(mut self, comment: impl Into<String>) -> TableAlterer {
        self.request.new_table_comment = Some(comment.into());
        self
    }

    /// A setting of the table, such as `kudu.table.history_max_age_sec`; an empty value removes it.
    pub fn extra_config(
        mut self,
        name: impl Into<String>,
        value: impl Into<String>,
    ) -> TableAlterer {
        self.request.new_extra_configs.insert(name.into(), value.into());
        self
    }

    /// How many replicas each tablet should have: an odd number. Kudu moves the data in the
    /// background.
    pub fn num_replicas(mut self, count: u32) -> TableAlterer {
        self.request.num_replicas = Some(i32::try_from(count).unwrap_or(i32::MAX));
        self
    }

    /// Most bytes of the table on disk before the cluster refuses writes; only for clusters that
    /// limit the size of tables.
    pub fn disk_size_limit(mut self, bytes: u64) -> TableAlterer {
        self.request.disk_size_limit = Some(i64::try_from(bytes).unwrap_or(i64::MAX));
        self
    }

    /// Most rows of the table before the cluster refuses writes; only for clusters that limit the
    /// size of tables.
    pub fn row_count_limit(mut self, rows: u64) -> TableAlterer {
        self.request.row_count_limit = Some(i64::try_from(rows).unwrap_or(i64::MAX));
        self
    }

    /// Returns as soon as the master has the change, without waiting for the tablets.
    pub fn without_waiting(mut self) -> TableAlterer {
        self.waits = false;
        self
    }

    /// The timeout of the change, instead of the client's timeout for table changes.
    pub fn timeout(mut self, timeout: Duration) -> TableAlterer {
        self.timeout = Some(timeout);
        self
    }

    fn step(mut self, step: Step) -> TableAlterer {
        self.request.alter_schema_steps.push(step);
        self
    }
}

impl Client {
    /// Alters a table and, by default, waits until all its tablets have the change. A [`Table`]
    /// opened earlier keeps the old schema.
    ///
    /// If the answer is lost, the client sends the change again. The master may then refuse it as
    /// already done, for instance because the new column exists.
    pub async fn alter_table(&self, alterer: TableAlterer) -> Result<(), Error> {
        let TableAlterer { table, mut request, has_ranges, waits, timeout } = alterer;
        if has_ranges {
            request.schema = Some(table.schema().to_pb());
        }
        request.modify_external_catalogs = Some(true);
        let features: &'static [u32] =
            if has_ranges { &[feature::ADD_DROP_RANGE_PARTITIONS] } else { &[] };
        let deadline = timeout
            .map_or_else(|| self.shared().admin_deadline(), |timeout| Instant::now() + timeout);
        let call = MasterCall {
            operation: Operation::AlterTable,
            subject: table.name(),
            deadline,
            features,
        };
        let _: AlterTableResponsePb =
            self.shared().masters().call(&ALTER_TABLE, &request, call).await?;
        if waits {
            self.wait_until_altered_by(&table, deadline).await?;
        }
        if has_ranges {
            self.shared().meta_cache().forget_table(table.id());
        }
        Ok(())
    }

    /// Waits until all tablets of a table have every change that the master has accepted, for
    /// callers that did not wait for the change or not long enough. It fails with
    /// [`Error::Timeout`] after the client's timeout for table changes; the caller may repeat it.
    pub async fn wait_until_altered(&self, table: &Table) -> Result<(), Error> {
        self.wait_until_altered_by(table, self.shared().admin_deadline()).await
    }

    async fn wait_until_altered_by(&self, table: &Table, deadline: Instant) -> Result<(), Error> {
        let done = IsAlterTableDoneRequestPb { table: by_id(table.id()) };
        let call = MasterCall {
            operation: Operation::AlterTable,
            subject: table.name(),
            deadline,
            features: &[],
        };
        poll_until_done(call, async || {
            let response: IsAlterTableDoneResponsePb =
                self.shared().masters().call(&IS_ALTER_TABLE_DONE, &done, call).await?;
            Ok(response.done.unwrap_or(false))
        })
        .await
    }

    /// Gives a table another name.
    pub async fn rename_table(&self, name: &str, new_name: &str) -> Result<(), Error> {
        let table = self.open_table(name).await?;
        self.alter_table(TableAlterer::new(&table).rename_table(new_name)).await
    }
}
