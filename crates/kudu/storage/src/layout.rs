//! The table of a bucket: its columns, its partitions, and its creation.
//!
//! Owns: the columns' names, types and positions, and the column that fences earlier owners. A test
//! compares them with the table in `docs/kudu-bucket.md`. Invariant: a table with another layout,
//! or another number of vbuckets, is refused and never changed. A tablet has a range of whole
//! vbuckets. The first range has no lower bound, so that it also has the local documents.

use oribi_kudu::{
    Client, ColumnSchema, ColumnSchemaBuilder, Compression, DataType, Encoding, Error, Schema,
    Table, TableCreator, Value,
};
use oribi_storage::{StoreError, VBUCKETS_MAX};

use crate::failure::of_kudu;
use crate::url::KuduUrl;

/// Positions of the columns in the table.
pub(crate) mod column {
    pub(crate) const VBUCKET: usize = 0;
    pub(crate) const COLLECTION: usize = 1;
    pub(crate) const KEY: usize = 2;
    pub(crate) const CHUNK: usize = 3;
    pub(crate) const CAS: usize = 4;
    pub(crate) const SEQNO: usize = 5;
    pub(crate) const REV: usize = 6;
    pub(crate) const FLAGS: usize = 7;
    pub(crate) const EXPIRY: usize = 8;
    pub(crate) const DATATYPE: usize = 9;
    pub(crate) const DELETED: usize = 10;
    pub(crate) const BODY_BYTES: usize = 11;
    pub(crate) const XATTRS: usize = 12;
    pub(crate) const JSON: usize = 13;
    pub(crate) const BODY: usize = 14;
}

/// Names of the columns, in order.
pub(crate) const COLUMNS: [&str; 15] = [
    "vbucket",
    "collection",
    "key",
    "chunk",
    "cas",
    "seqno",
    "rev",
    "flags",
    "expiry",
    "datatype",
    "deleted",
    "body_bytes",
    "xattrs",
    "json",
    "body",
];
/// Number of primary-key columns, which come first.
pub(crate) const KEY_COLUMNS: usize = 4;
/// Bit of the datatype's cell, beyond those of the protocol: expiry made the tombstone. Rows of
/// earlier versions do not have it.
pub(crate) const EXPIRED_BIT: i16 = 1 << 8;
/// The collection of a vbucket's state.
pub(crate) const STATE_COLLECTION: i64 = -1;
/// The vbucket of local documents.
pub(crate) const LOCAL_VBUCKET: i16 = -1;
/// The collection of local documents.
pub(crate) const LOCAL_COLLECTION: i64 = -2;
/// Prefix of the fence column's name, before its epoch.
const EPOCH_PREFIX: &str = "owner_epoch_";
/// Block size of the cells of documents, small so that a look-up reads little.
const DOCUMENT_BLOCK_BYTES: u32 = 32 << 10;

const _: () = assert!(COLUMNS.len() == column::BODY + 1);

fn types() -> [DataType; 15] {
    use DataType::{Binary, Bool, Int16, Int64, String};
    [
        Int16, Int64, String, Int16, Int64, Int64, Int64, Int64, Int64, Int16, Bool, Int64, Binary,
        String, Binary,
    ]
}

fn is_nullable(place: usize) -> bool {
    place >= KEY_COLUMNS && place != column::SEQNO && place != column::BODY_BYTES
}

fn described(place: usize) -> ColumnSchemaBuilder {
    let builder = ColumnSchema::builder(COLUMNS[place], types()[place]);
    match place {
        column::KEY => builder.key().encoding(Encoding::Prefix),
        place if place < KEY_COLUMNS => builder.key(),
        column::XATTRS | column::JSON | column::BODY => builder
            .nullable(true)
            .encoding(Encoding::Plain)
            .compression(Compression::Lz4)
            .block_bytes(DOCUMENT_BLOCK_BYTES),
        place => builder.nullable(is_nullable(place)),
    }
}

/// The fence column of an epoch.
pub(crate) fn epoch_column(epoch: u64) -> ColumnSchemaBuilder {
    ColumnSchema::builder(epoch_name(epoch), DataType::Int8).nullable(true)
}

/// Name of that column.
pub(crate) fn epoch_name(epoch: u64) -> String {
    format!("{EPOCH_PREFIX}{epoch}")
}

/// The epoch in the table's schema when the table was opened.
pub(crate) fn epoch_of(table: &Table) -> Result<u64, StoreError> {
    let epochs = table.schema().columns()[COLUMNS.len()..]
        .iter()
        .filter_map(|column| column.name().strip_prefix(EPOCH_PREFIX)?.parse().ok());
    epochs.max().ok_or_else(|| foreign(table.name(), "there is no column of an owner's epoch"))
}

/// Opens the table of a bucket, and creates it if it does not exist.
pub(crate) async fn open_or_create(
    client: &Client,
    url: &KuduUrl,
    name: &str,
    vbuckets: u16,
) -> Result<Table, Opening> {
    match client.open_table(name).await {
        Err(Error::TableNotFound { .. }) => {}
        Err(error) => return Err(Opening::Kudu(error)),
        Ok(table) => return Ok(check(table, vbuckets)?),
    }
    match client.create_table(creator(url, name, vbuckets).map_err(Opening::Kudu)?).await {
        Ok(table) => {
            tracing::info!(table = name, tablets = url.tablets_for(vbuckets), "made the table");
            Ok(table)
        }
        // Another server was faster; the next attempt opens its table.
        Err(Error::TableAlreadyPresent { .. }) => {
            let table = client.open_table(name).await.map_err(Opening::Kudu)?;
            Ok(check(table, vbuckets)?)
        }
        Err(error) => Err(Opening::Kudu(error)),
    }
}

/// Why a table could not be opened.
pub(crate) enum Opening {
    /// Kudu failed, perhaps temporarily.
    Kudu(Error),
    /// The table is a different one.
    Refused(StoreError),
}

impl From<StoreError> for Opening {
    fn from(error: StoreError) -> Opening {
        Opening::Refused(error)
    }
}

fn creator(url: &KuduUrl, name: &str, vbuckets: u16) -> Result<TableCreator, Error> {
    let schema =
        (0..COLUMNS.len()).fold(Schema::builder(), |schema, place| schema.column(described(place)));
    let schema = schema.column(epoch_column(1)).build()?;
    let mut creator = TableCreator::new(name, schema)
        .range_columns([COLUMNS[column::VBUCKET]])
        .comment(comment(vbuckets));
    for first in range_starts(url.tablets_for(vbuckets), vbuckets) {
        creator = creator.split(&[(COLUMNS[column::VBUCKET], Value::Int16(first))])?;
    }
    Ok(match url.replicas() {
        Some(replicas) => creator.num_replicas(replicas),
        None => creator,
    })
}

/// The first vbucket of each range except the lowest.
fn range_starts(tablets: u16, vbuckets: u16) -> impl Iterator<Item = i16> {
    (1..tablets).map(move |number| {
        let first = u32::from(number) * u32::from(vbuckets) / u32::from(tablets);
        i16::try_from(first).expect("there are at most 1024 vbuckets")
    })
}

/// The comment of the table. `oribi query` reads it, too.
fn comment(vbuckets: u16) -> String {
    format!("oribi bucket, vbuckets={vbuckets}")
}

/// Refuses a table of another layout.
fn check(table: Table, vbuckets: u16) -> Result<Table, StoreError> {
    let columns = table.schema().columns();
    let fits = columns.len() > COLUMNS.len()
        && columns.iter().zip(COLUMNS).zip(types()).enumerate().all(
            |(place, ((column, name), data_type))| {
                column.name() == name
                    && column.data_type() == data_type
                    && column.is_key() == (place < KEY_COLUMNS)
                    && column.is_nullable() == is_nullable(place)
            },
        );
    if !fits {
        return Err(foreign(table.name(), "its columns are not those of a bucket"));
    }
    if table.comment() != comment(vbuckets) {
        let what = format!("it says {:?}, the bucket has {vbuckets} vbuckets", table.comment());
        return Err(foreign(table.name(), &what));
    }
    epoch_of(&table)?;
    Ok(table)
}

fn foreign(table: &str, what: &str) -> StoreError {
    StoreError::Foreign(format!("table {table:?} of Kudu: {what}"))
}

/// The column value of a vbucket.
pub(crate) fn vbucket_cell(vbid: oribi_types::Vbid) -> i16 {
    debug_assert!(vbid.0 < VBUCKETS_MAX, "{vbid} is beyond the layout");
    // Larger vbuckets do not exist; the greatest cell has no rows.
    i16::try_from(vbid.0).unwrap_or(i16::MAX)
}

/// The error for an opening that has finally failed.
pub(crate) fn refusal(opening: Opening) -> StoreError {
    match opening {
        Opening::Kudu(error) => of_kudu(&error),
        Opening::Refused(error) => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_has_the_columns_that_are_made() {
        let document = include_str!("../../../../docs/kudu-bucket.md");
        let rows = document.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
        let described: Vec<(&str, &str)> = rows
            .map(|(name, rest)| (name, rest.split_once(" |").map_or(rest, |(kind, _)| kind)))
            .collect();
        let made = COLUMNS.iter().zip(types()).map(|(name, kind)| (*name, kind.to_string()));
        let made: Vec<(&str, String)> =
            made.chain([("owner_epoch_N", "INT8".to_owned())]).collect();
        let made: Vec<(&str, &str)> =
            made.iter().map(|(name, kind)| (*name, kind.as_str())).collect();
        assert_eq!(described, made);
        for (place, name) in COLUMNS.iter().enumerate().skip(KEY_COLUMNS) {
            let says = document.contains(&format!("| `{name}` | {} | NOT NULL", types()[place]));
            assert_eq!(says, !is_nullable(place), "{name}");
        }
    }

    #[test]
    fn ranges_are_equal_and_of_whole_vbuckets() {
        assert_eq!(range_starts(3, 64).collect::<Vec<_>>(), [21, 42]);
        assert_eq!(range_starts(1, 64).count(), 0);
        let of_all = range_starts(1024, 1024).collect::<Vec<_>>();
        assert_eq!((of_all.len(), of_all[0], of_all[1022]), (1023, 1, 1023));
    }
}
