//! Reading single rows by their primary keys, in one round trip each.
//!
//! Kudu has no call for this. The client opens a scan that is bounded to one key, limited to one
//! row and closes itself. Such a scan returns the row with its first answer and leaves no state on
//! the server; servers find the key in their index. Predicates on the key columns would do the same
//! more slowly. A list of keys as a predicate would read every row between the least and the
//! greatest of them. Many rows are therefore many calls, pipelined over one connection per server.
//!
//! Invariants: the fields that are the same for all keys are encoded once. A call encodes its key
//! in place, finds the tablet without a lock on the cache and sends one piece of memory. The row is
//! a view of the answer. A key that no partition covers means a row that does not exist. Lookups
//! are separate from scans; they use a scan only when a server could not answer in time.

mod key;
mod request;
#[cfg(test)]
mod tests;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, Stream, StreamExt};
use parking_lot::RwLock;
use tokio::time::Instant;

use crate::error::{Error, Operation};
use crate::meta_cache::Tablet;
use crate::partition::TabletMap;
use crate::proto::tserver::ScanResponsePb;
use crate::retry::{Attempt, ReplicaSelection, TabletCall, TabletReply, call_tablet};
use crate::scan_error::CellError;
use crate::scanner::{
    BatchBlock, FromCell, Layout, Projection, ReadMode, Row, RowwiseBlock, SCAN, ScanBatch,
    ScanSpec, Scanner, TabletFilter,
};
use crate::schema::{ColumnSchemaBuilder, Value};
use crate::table::Table;
use key::LookupKey;
use request::RequestTemplate;

/// Describes how to look rows up.
#[derive(Clone, Debug)]
pub struct PointLookupBuilder {
    table: Table,
    columns: Option<Vec<String>>,
    added: Vec<ColumnSchemaBuilder>,
    selection: ReplicaSelection,
    read_mode: ReadMode,
    timeout: Duration,
}

/// Looks up rows of one table by their primary keys; cheap to clone.
///
/// ```no_run
/// # async fn example(table: oribi_kudu::Table) -> Result<(), Box<dyn std::error::Error>> {
/// use oribi_kudu::Value;
///
/// let lookup = table.point_lookup().columns(["name"]).build()?;
/// if let Some(found) = lookup.get(&[Value::Int64(17)]).await? {
///     println!("{}", found.get::<&str>(0)?);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct PointLookup {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    table: Table,
    projection: Arc<Projection>,
    selection: ReplicaSelection,
    read_mode: ReadMode,
    timeout: Duration,
    template: RequestTemplate,
    /// The tablets as last seen; a lookup replaces the list as a whole.
    tablets: RwLock<Arc<Tablets>>,
}

/// The tablets of a table at one moment, and the index from rows to them.
#[derive(Debug, Default)]
struct Tablets {
    list: Vec<Arc<Tablet>>,
    map: TabletMap,
}

/// A row that a lookup found.
#[derive(Clone, Debug)]
pub struct FoundRow {
    batch: ScanBatch,
}

/// Lookups in progress; see [`PointLookup::get_many`].
#[must_use = "nothing is looked up before `next` is called"]
pub struct FoundRows<'a> {
    lookups: Pin<Box<dyn Stream<Item = Result<Option<FoundRow>, Error>> + Send + 'a>>,
}

impl FoundRow {
    /// The row.
    pub fn row(&self) -> Row<'_> {
        self.batch.row(0).expect("it is made of a batch of one row")
    }

    /// The cell of the column at this position of the projection.
    pub fn get<'a, T: FromCell<'a>>(&'a self, column: usize) -> Result<T, CellError> {
        self.row().get(column)
    }
}

impl Table {
    /// Starts to describe lookups of rows by their primary keys.
    pub fn point_lookup(&self) -> PointLookupBuilder {
        PointLookupBuilder {
            table: self.clone(),
            columns: None,
            added: Vec::new(),
            selection: ReplicaSelection::Leader,
            read_mode: ReadMode::Latest,
            timeout: self.shared().rpc_timeout(),
        }
    }
}

impl PointLookupBuilder {
    /// Returns only these columns, in this order. An empty list returns only whether the row
    /// exists.
    pub fn columns<T: Into<String>>(
        mut self,
        columns: impl IntoIterator<Item = T>,
    ) -> PointLookupBuilder {
        self.columns = Some(columns.into_iter().map(Into::into).collect());
        self
    }

    /// Returns, after the others, a column that the table did not have when it was opened. A
    /// tablet that does not have it refuses the lookup: an `ALTER TABLE` has not reached it.
    pub fn added_column(mut self, column: ColumnSchemaBuilder) -> PointLookupBuilder {
        self.added.push(column);
        self
    }

    /// Which replicas to ask. The default is the leader, which has every acknowledged write.
    pub fn replica_selection(mut self, selection: ReplicaSelection) -> PointLookupBuilder {
        self.selection = selection;
        self
    }

    /// Which version of the row to return.
    pub fn read_mode(mut self, read_mode: ReadMode) -> PointLookupBuilder {
        self.read_mode = read_mode;
        self
    }

    /// The timeout of one lookup with all its attempts; the client's timeout by default.
    pub fn timeout(mut self, timeout: Duration) -> PointLookupBuilder {
        self.timeout = timeout;
        self
    }

    /// Builds the lookup, or returns the fault of the description.
    pub fn build(self) -> Result<PointLookup, Error> {
        let mut projection = Projection::of_table(self.table.schema(), self.columns.as_deref())?;
        if !self.added.is_empty() {
            let known = projection.columns().iter().map(|column| Ok(column.schema().clone()));
            let added = self.added.into_iter().map(ColumnSchemaBuilder::build);
            projection = Projection::new(known.chain(added).collect::<Result<Vec<_>, _>>()?);
        }
        let projection = Arc::new(projection);
        let template = RequestTemplate::new(&projection, self.read_mode);
        let inner = Inner {
            table: self.table,
            projection,
            selection: self.selection,
            read_mode: self.read_mode,
            timeout: self.timeout,
            template,
            tablets: RwLock::default(),
        };
        Ok(PointLookup { inner: Arc::new(inner) })
    }
}

impl PointLookup {
    /// The columns of the rows.
    pub fn projection(&self) -> &Projection {
        &self.inner.projection
    }

    /// The row with this key, which needs a value for every key column. `None` if the row does not
    /// exist.
    pub async fn get(&self, key: &[Value<'_>]) -> Result<Option<FoundRow>, Error> {
        let key = LookupKey::new(self.inner.table.schema(), key)?;
        self.inner.find(&key).await
    }

    /// The rows with these keys, in their order, with at most this many lookups under way at a
    /// time.
    ///
    /// ```no_run
    /// # async fn example(lookup: oribi_kudu::PointLookup) -> Result<(), Box<dyn std::error::Error>> {
    /// use oribi_kudu::Value;
    ///
    /// let mut rows = lookup.get_many((0..1000).map(|id| [Value::Int64(id)]), 64);
    /// while let Some(row) = rows.next().await {
    ///     println!("{}", row?.is_some());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn get_many<'a, 'v, K, I>(&self, keys: I, concurrency: usize) -> FoundRows<'a>
    where
        K: AsRef<[Value<'v>]>,
        I: IntoIterator<Item = K>,
        I::IntoIter: Send + 'a,
    {
        let inner = self.inner.clone();
        let lookups = stream::iter(keys)
            .map(move |key| {
                // Encoded now, so that the values need not outlive the lookup.
                let key = LookupKey::new(inner.table.schema(), key.as_ref());
                let inner = inner.clone();
                async move { inner.find(&key?).await }
            })
            .buffered(concurrency.max(1));
        FoundRows { lookups: Box::pin(lookups) }
    }
}

impl FoundRows<'_> {
    /// The outcome of the next key, `Ok(None)` if the row does not exist; `None` after the last
    /// key. Dropping the future before it is ready loses nothing.
    pub async fn next(&mut self) -> Option<Result<Option<FoundRow>, Error>> {
        self.lookups.next().await
    }

    /// All remaining outcomes, or the first error.
    pub async fn collect(mut self) -> Result<Vec<Option<FoundRow>>, Error> {
        let mut rows = Vec::with_capacity(self.lookups.size_hint().0);
        while let Some(row) = self.next().await {
            rows.push(row?);
        }
        Ok(rows)
    }
}

impl fmt::Debug for FoundRows<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FoundRows").finish_non_exhaustive()
    }
}

impl Inner {
    async fn find(&self, key: &LookupKey) -> Result<Option<FoundRow>, Error> {
        let deadline = Instant::now() + self.timeout;
        let known = match self.tablet_of(key) {
            Some(tablet) => Some(tablet),
            None => self.look_again(key, deadline).await?,
        };
        let Some(tablet) = known else { return Ok(None) };
        match self.ask(&tablet, key, deadline).await {
            // The range of the key was dropped, and perhaps added again.
            Err(Error::TabletGone { .. }) => match self.look_again(key, deadline).await? {
                Some(tablet) => self.ask(&tablet, key, deadline).await,
                None => Ok(None),
            },
            result => result,
        }
    }

    fn tablet_of(&self, key: &LookupKey) -> Option<Arc<Tablet>> {
        let tablets = self.tablets.read();
        let number = tablets.map.locate(key, &mut Vec::new())?;
        tablets.list.get(number).cloned()
    }

    /// Takes a newer list of tablets and looks for the key there.
    async fn look_again(
        &self,
        key: &LookupKey,
        deadline: Instant,
    ) -> Result<Option<Arc<Tablet>>, Error> {
        let snapshot = self.table.snapshot(deadline).await?;
        let map = TabletMap::new(
            self.table.partition_schema(),
            snapshot.iter().map(|tablet| tablet.partition()),
        );
        *self.tablets.write() = Arc::new(Tablets { list: snapshot.to_vec(), map });
        Ok(self.tablet_of(key))
    }

    async fn ask(
        &self,
        tablet: &Arc<Tablet>,
        key: &LookupKey,
        deadline: Instant,
    ) -> Result<Option<FoundRow>, Error> {
        let call = TabletCall {
            table: &self.table,
            tablet,
            operation: Operation::Scan,
            method: &SCAN,
            selection: self.selection,
            deadline,
            exactly_once: false,
            features: &[],
            body_bytes: 0,
        };
        let stop = key.successor(self.table.schema());
        let build =
            |attempt: &Attempt<'_>| vec![self.template.request(attempt, key, stop.as_deref())];
        let reply = call_tablet::<ScanResponsePb>(call, build).await?;
        let malformed = |reason: String| Error::Malformed { server: reply.server.clone(), reason };
        let TabletReply { message, sidecars, .. } = &reply;
        let rows = message.data.unwrap_or_default();
        let block = RowwiseBlock::decode(&rows, sidecars, &self.projection)
            .map_err(|fault| malformed(format!("a row of {:?}: {fault}", self.table.name())))?;
        match block.num_rows() {
            1 => {
                let batch = ScanBatch::new(self.projection.clone(), BatchBlock::Rowwise(block));
                Ok(Some(FoundRow { batch }))
            }
            0 if message.has_more_results.unwrap_or(false) => self.scan_for(tablet, key).await,
            0 => Ok(None),
            rows => Err(malformed(format!("{rows} rows of {:?} for one key", self.table.name()))),
        }
    }

    /// Finds the row with a real scan, which runs as long as it takes. The server used up the time
    /// that it gives one request before it reached the row.
    async fn scan_for(&self, tablet: &Tablet, key: &LookupKey) -> Result<Option<FoundRow>, Error> {
        let spec = ScanSpec {
            table: self.table.clone(),
            projection: self.projection.clone(),
            predicates: Vec::new(),
            start_primary_key: Bytes::copy_from_slice(key.encoded()),
            stop_primary_key: key
                .successor(self.table.schema())
                .map(Bytes::from)
                .unwrap_or_default(),
            limit: Some(1),
            batch_bytes: None,
            read_mode: self.read_mode,
            selection: self.selection,
            is_fault_tolerant: false,
            layout: Layout::Rowwise,
            cache_blocks: true,
            timeout: self.timeout,
            tablets: TabletFilter::of_tablet(tablet),
        };
        let batch = Scanner::new(spec, false).next_batch().await?;
        Ok(batch.map(|batch| FoundRow { batch }))
    }
}
