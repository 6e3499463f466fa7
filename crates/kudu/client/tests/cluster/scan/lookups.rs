//! Point lookups against the rows of a scan.

use oribi_kudu::{
    ColumnSchema, DataType, HashPartition, RangePartition, ReadMode, ReplicaSelection, Schema,
    Session, SessionOptions, TableCreator, Value,
};
use std::ops::Bound;

use super::{OwnedCell, all_rows, connect, every_type_table, loadgen, numbers_table};

// Compat (Apache Kudu): point look-ups
#[tokio::test]
async fn every_row_is_found_by_its_key_and_no_other() {
    let Some((cluster, client)) = connect().await else { return };
    let table = every_type_table(&client, "found").await;
    loadgen(cluster, "found", 300);
    let lookup = table.point_lookup().build().unwrap();
    let rows = all_rows(table.scan().build().unwrap()).await;
    assert_eq!(rows.len(), 600);
    for row in &rows {
        let (OwnedCell::Number(id), OwnedCell::Bytes(name)) = (&row[0], &row[1]) else {
            panic!("{row:?} is no row")
        };
        let (id, name) = (*id as i32, std::str::from_utf8(name).unwrap());
        let found = lookup
            .get(&[Value::Int32(id), Value::String(name)])
            .await
            .unwrap()
            .expect("it was scanned");
        let cells: Vec<OwnedCell> = (0..row.len())
            .map(|column| OwnedCell::from(found.get::<Value<'_>>(column).unwrap()))
            .collect();
        assert_eq!(&cells, row);
        let absent = format!("{name}\0");
        assert!(lookup.get(&[Value::Int32(id), Value::String(&absent)]).await.unwrap().is_none());
    }
    assert!(lookup.get(&[Value::Int32(i32::MAX), Value::String("")]).await.unwrap().is_none());
    assert!(lookup.get(&[Value::Int32(1)]).await.is_err(), "a part of a key is no key");
}

#[tokio::test]
async fn many_lookups_come_back_in_the_order_of_their_keys() {
    let Some((cluster, client)) = connect().await else { return };
    let table = numbers_table(&client, "pipelined").await;
    loadgen(cluster, "pipelined", 2000);
    let keys = table.scan().columns(["key"]).build().unwrap();
    let present: Vec<i64> = all_rows(keys)
        .await
        .iter()
        .map(|row| {
            if let OwnedCell::Number(key) = row[0] {
                key as i64
            } else {
                panic!("a key is a number")
            }
        })
        .collect();
    let lookup = table
        .point_lookup()
        .columns(["int_val", "key"])
        .read_mode(ReadMode::Latest)
        .build()
        .unwrap();
    let wanted: Vec<i64> = present.iter().flat_map(|key| [*key, -1 - *key]).collect();
    let rows = lookup.get_many(wanted.iter().map(|key| [Value::Int64(*key)]), 64).collect().await;
    let found: Vec<Option<i64>> =
        rows.unwrap().iter().map(|row| row.as_ref().map(|row| row.get(1).unwrap())).collect();
    let expected: Vec<Option<i64>> = wanted.iter().map(|key| (*key >= 0).then_some(*key)).collect();
    assert_eq!(found, expected);
}

#[tokio::test]
async fn a_lookup_without_columns_tests_existence() {
    let Some((cluster, client)) = connect().await else { return };
    let table = numbers_table(&client, "existing").await;
    loadgen(cluster, "existing", 10);
    let lookup = table
        .point_lookup()
        .columns([""; 0])
        .replica_selection(ReplicaSelection::Closest)
        .build()
        .unwrap();
    assert!(lookup.get(&[Value::Int64(5)]).await.unwrap().is_some());
    assert!(lookup.get(&[Value::Int64(i64::MAX)]).await.unwrap().is_none());
}

#[tokio::test]
async fn extreme_keys_and_keys_outside_of_ranges() {
    let Some((_, client)) = connect().await else { return };
    let schema = Schema::builder()
        .column(ColumnSchema::builder("a", DataType::Int8).key())
        .column(ColumnSchema::builder("b", DataType::Binary).key())
        .column(ColumnSchema::builder("c", DataType::Int64).key())
        .build()
        .unwrap();
    let below_ten =
        RangePartition::new(Bound::Unbounded, Bound::Excluded(&[("a", Value::Int8(10))]));
    let most = RangePartition::new(Bound::Included(&[("a", Value::Int8(20))]), Bound::Unbounded);
    let creator = TableCreator::new("ends", schema)
        .hash_partition(HashPartition::new(["b"], 2))
        .range_columns(["a"])
        .range_partition(below_ten)
        .unwrap()
        .range_partition(most)
        .unwrap()
        .num_replicas(1);
    let table = client.create_table(creator).await.unwrap();
    let mut keys = Vec::new();
    for a in [i8::MIN, 0, 9, 20, i8::MAX] {
        for b in [&b""[..], b"\0", b"\0\0", b"a", b"\xff"] {
            keys.extend([i64::MIN, -1, i64::MAX].map(|c| (a, b, c)));
        }
    }
    let mut session = Session::new(&table, SessionOptions::default());
    for (a, b, c) in &keys {
        let mut row = session.insert();
        row.set_i8("a", *a).unwrap().set_binary("b", b).unwrap().set_i64("c", *c).unwrap();
        row.apply().await.unwrap();
    }
    session.flush().await.unwrap();
    assert_eq!(session.take_errors().len(), 0);
    let lookup = table.point_lookup().build().unwrap();
    for (a, b, c) in &keys {
        let found =
            lookup.get(&[Value::Int8(*a), Value::Binary(b), Value::Int64(*c)]).await.unwrap();
        let found = found.unwrap_or_else(|| panic!("{a} {b:?} {c} was written"));
        assert_eq!((found.get(0), found.get(1), found.get(2)), (Ok(*a), Ok(*b), Ok(*c)));
    }
    for a in [10, 19] {
        let outside =
            lookup.get(&[Value::Int8(a), Value::Binary(b""), Value::Int64(0)]).await.unwrap();
        assert!(outside.is_none(), "no partition covers {a}");
    }
}
