//! Rows of random composite keys reach the tablets where Kudu wants them.
//!
//! A tablet server refuses a whole Write when one row of it belongs elsewhere, so that every row is
//! written is the proof for every row.

use std::ops::Bound;

use oribi_kudu::{
    ColumnSchema, ColumnSchemaBuilder, DataType, FlushMode, HashPartition, RangePartition, Schema,
    Session, TableCreator, Value,
};

use crate::writes::{connect, options};

/// A generator of numbers that is the same on every machine (splitmix64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Bytes of which many are zero, which the encoding of keys treats specially.
    fn bytes(&mut self) -> Vec<u8> {
        let length = self.next() % 12;
        (0..length)
            .map(|_| if self.next().is_multiple_of(3) { 0 } else { self.next() as u8 })
            .collect()
    }
}

#[tokio::test]
async fn random_composite_keys_are_written_to_their_tablets() {
    let Some((_, client)) = connect().await else { return };
    let column = ColumnSchema::builder;
    let schema = Schema::builder()
        .column(column("raw", DataType::Binary).key())
        .column(column("small", DataType::Int16).key())
        .column(column("name", DataType::String).key())
        .column(column("at", DataType::UnixtimeMicros).key())
        .column(ColumnSchemaBuilder::decimal("amount", 25, 3).key())
        .column(column("day", DataType::Date).key())
        .column(column("number", DataType::Int32))
        .build()
        .unwrap();
    let bound = |small: i16| [("small", Value::Int16(small))];
    let (low, middle, high) = (bound(-100), bound(0), bound(100));
    let creator = TableCreator::new("placement", schema)
        .hash_partition(HashPartition::new(["name", "raw"], 4))
        .hash_partition(HashPartition::new(["at", "amount"], 3).with_seed(17))
        .range_columns(["small", "day"])
        .range_partition(RangePartition::new(Bound::Unbounded, Bound::Excluded(&low)))
        .unwrap()
        .range_partition(RangePartition::new(Bound::Included(&low), Bound::Excluded(&middle)))
        .unwrap()
        .range_partition(
            RangePartition::new(Bound::Included(&middle), Bound::Excluded(&high)).with_hash([
                HashPartition::new(["raw"], 2),
                HashPartition::new(["name", "day"], 5).with_seed(3),
            ]),
        )
        .unwrap()
        .range_partition(RangePartition::new(Bound::Included(&high), Bound::Unbounded))
        .unwrap()
        .num_replicas(1);
    let table = client.create_table(creator).await.unwrap();
    let mut session = Session::new(&table, options(FlushMode::Background));
    let mut numbers = Numbers(20_261_121);
    for number in 0..3000 {
        let mut row = session.insert();
        let name: String = numbers.bytes().iter().map(|byte| char::from(byte % 128)).collect();
        row.set_binary("raw", &numbers.bytes()).unwrap();
        row.set_i16("small", (numbers.next() % 400) as i16 - 200).unwrap();
        row.set_string("name", &name).unwrap();
        row.set_unixtime_micros("at", numbers.next() as i64).unwrap();
        row.set_decimal("amount", i128::from(numbers.next() as i64) * 1000).unwrap();
        row.set_date("day", (numbers.next() % 40_000) as i32 - 20_000).unwrap();
        row.set_i32("number", number).unwrap();
        row.apply().await.unwrap();
    }
    session.flush().await.unwrap();
    assert_eq!(table.scan().count().await.unwrap(), 3000);
}

/// The tablet that the C++ tool names for a key is the one in which this client finds the row.
#[tokio::test]
async fn locate_row_agrees() {
    let Some((cluster, client)) = connect().await else { return };
    let schema = Schema::builder()
        .column(ColumnSchema::builder("id", DataType::Int64).key())
        .column(ColumnSchema::builder("name", DataType::String).key())
        .build()
        .unwrap();
    let cut = [("id", Value::Int64(0))];
    let creator = TableCreator::new("located", schema)
        .hash_partition(HashPartition::new(["name", "id"], 5))
        .range_columns(["id"])
        .range_partition(RangePartition::new(Bound::Unbounded, Bound::Excluded(&cut)))
        .unwrap()
        .range_partition(RangePartition::new(Bound::Included(&cut), Bound::Unbounded))
        .unwrap()
        .num_replicas(1);
    let table = client.create_table(creator).await.unwrap();
    let mut numbers = Numbers(7);
    for _ in 0..25 {
        let (id, name) = (numbers.next() as i64, format!("n{}", numbers.next() % 1000));
        let key = format!("[{id}, \"{name}\"]");
        let located = cluster
            .tool_stdout(&["table", "locate_row", &cluster.master_addresses(), "located", &key])
            .unwrap();
        let tablet = located.lines().next().unwrap_or_default().trim().to_owned();
        assert_eq!(
            table.tablet_id_of(&[Value::Int64(id), Value::String(&name)]).await.unwrap(),
            tablet,
            "{key}"
        );
    }
}
