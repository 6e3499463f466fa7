//! Pruning against rows: a tablet that holds a row of the result must be kept.

use bytes::Bytes;
use proptest::prelude::*;

use super::PartitionPruner;
use crate::key_encoding::KeyCells;
use crate::partition::{HashDimension, Partition, PartitionSchema};
use crate::proto::common::{
    ColumnIdentifierPb, HashBucketSchemaPb, PartitionSchemaPb, RangeSchemaPb,
    column_identifier_pb::Identifier,
};
use crate::scanner::key_bound::KeyBound;
use crate::scanner::operand::Operand;
use crate::scanner::predicate::Predicate;
use crate::schema::{ColumnSchema, DataType, Schema};

/// Key columns `a` and `b` are numbers, `c` is text.
fn schema() -> Schema {
    Schema::builder()
        .column(ColumnSchema::builder("a", DataType::Int8).key())
        .column(ColumnSchema::builder("b", DataType::Int8).key())
        .column(ColumnSchema::builder("c", DataType::String).key())
        .build()
        .expect("the schema is right")
}

fn columns(names: &[&str]) -> Vec<ColumnIdentifierPb> {
    let column =
        |name: &&str| ColumnIdentifierPb { identifier: Some(Identifier::Name((*name).to_owned())) };
    names.iter().map(column).collect()
}

/// A table with these hash dimensions and range columns.
fn partition_schema(hash: &[(&[&str], i32)], range: &[&str]) -> PartitionSchema {
    let dimension = |(at, (names, num_buckets)): (usize, &(&[&str], i32))| HashBucketSchemaPb {
        columns: columns(names),
        num_buckets: *num_buckets,
        seed: Some(at as u32),
    };
    let message = PartitionSchemaPb {
        hash_schema: hash.iter().enumerate().map(dimension).collect(),
        range_schema: Some(RangeSchemaPb { columns: columns(range) }),
        custom_hash_schema_ranges: Vec::new(),
    };
    PartitionSchema::from_pb(&message, &schema()).expect("the message is right")
}

#[derive(Clone, Debug)]
struct TestRow {
    a: i8,
    b: i8,
    c: String,
}

impl TestRow {
    fn cells(&self) -> [Vec<u8>; 3] {
        [vec![self.a as u8], vec![self.b as u8], self.c.clone().into_bytes()]
    }

    fn key(&self) -> (i8, i8, &str) {
        (self.a, self.b, &self.c)
    }
}

struct Cells([Vec<u8>; 3]);

impl KeyCells for Cells {
    fn cell(&self, column: usize) -> Option<&[u8]> {
        self.0.get(column).map(|cell| &cell[..])
    }
}

/// The encoded range columns of a row.
fn range_key_of(schema: &PartitionSchema, row: &TestRow) -> Vec<u8> {
    let mut key = Vec::new();
    schema.encode_range_key(&Cells(row.cells()), &mut key);
    key
}

/// The tablet of a row in a table whose ranges are split at these range keys.
fn partition_of(schema: &PartitionSchema, row: &TestRow, splits: &[Vec<u8>]) -> Partition {
    let range_key = range_key_of(schema, row);
    let after = splits.partition_point(|split| *split <= range_key);
    let start = after.checked_sub(1).map_or(&[][..], |at| &splits[at]);
    let end = splits.get(after).map_or(&[][..], |split| split);
    let cells = Cells(row.cells());
    let bucket = |dimension: &HashDimension| dimension.bucket(&cells, &mut Vec::new());
    let hash_buckets: Vec<u32> = schema.hash_dimensions().iter().map(bucket).collect();
    let hash_key: Vec<u8> = hash_buckets.iter().flat_map(|bucket| bucket.to_be_bytes()).collect();
    let join = |range: &[u8]| Bytes::from([&hash_key[..], range].concat());
    Partition { hash_buckets, start: join(start), end: join(end) }
}

/// A predicate, and the rows that satisfy it.
#[derive(Clone, Debug)]
enum Test {
    Equal(usize, i8),
    Less(usize, i8),
    LessOrEqual(usize, i8),
    Greater(usize, i8),
    InList(usize, Vec<i8>),
    TextEqual(String),
    TextAtLeast(String),
}

impl Test {
    fn predicate(&self) -> Predicate {
        let name = |column: &usize| ["a", "b"][*column];
        match self {
            Test::Equal(column, value) => Predicate::equal(name(column), *value),
            Test::Less(column, value) => Predicate::less(name(column), *value),
            Test::LessOrEqual(column, value) => Predicate::less_or_equal(name(column), *value),
            Test::Greater(column, value) => Predicate::greater(name(column), *value),
            Test::InList(column, values) => {
                Predicate::in_list(name(column), values.iter().copied())
            }
            Test::TextEqual(value) => Predicate::equal("c", value.as_str()),
            Test::TextAtLeast(value) => Predicate::greater_or_equal("c", value.as_str()),
        }
    }

    fn holds(&self, row: &TestRow) -> bool {
        let number = |column: &usize| [row.a, row.b][*column];
        match self {
            Test::Equal(column, value) => number(column) == *value,
            Test::Less(column, value) => number(column) < *value,
            Test::LessOrEqual(column, value) => number(column) <= *value,
            Test::Greater(column, value) => number(column) > *value,
            Test::InList(column, values) => values.contains(&number(column)),
            Test::TextEqual(value) => row.c == *value,
            Test::TextAtLeast(value) => row.c >= *value,
        }
    }

    fn any() -> impl Strategy<Value = Test> {
        let (column, number) = (0..2_usize, small_number);
        prop_oneof![
            (column.clone(), number()).prop_map(|(column, value)| Test::Equal(column, value)),
            (column.clone(), number()).prop_map(|(column, value)| Test::Less(column, value)),
            (column.clone(), number()).prop_map(|(column, value)| Test::LessOrEqual(column, value)),
            (column.clone(), number()).prop_map(|(column, value)| Test::Greater(column, value)),
            (column, prop::collection::vec(number(), 0..4))
                .prop_map(|(column, values)| Test::InList(column, values)),
            "[a\\x00]{0,2}".prop_map(Test::TextEqual),
            "[a\\x00]{0,2}".prop_map(Test::TextAtLeast),
        ]
    }
}

/// Few numbers, so that rows and bounds often meet, and the ends of the type.
fn small_number() -> impl Strategy<Value = i8> {
    prop_oneof![5 => -2..3_i8, 1 => Just(i8::MIN), 1 => Just(i8::MAX)]
}

fn any_row() -> impl Strategy<Value = TestRow> {
    (small_number(), small_number(), "[a\\x00]{0,2}").prop_map(|(a, b, c)| TestRow { a, b, c })
}

/// A bound of the primary key: that many columns of this row's key.
fn any_bound() -> impl Strategy<Value = Option<(TestRow, usize)>> {
    prop::option::of((any_row(), 1..4_usize))
}

fn bound_of(row: &TestRow, num_values: usize) -> KeyBound {
    let values = [Operand::from(row.a), Operand::from(row.b), Operand::from(row.c.as_str())];
    KeyBound::new(&schema(), &values[..num_values]).expect("the values fit")
}

/// The least key that begins with the values of a bound.
fn least_key(row: &TestRow, num_values: usize) -> (i8, i8, &str) {
    let (a, b, c) = row.key();
    (a, if num_values > 1 { b } else { i8::MIN }, if num_values > 2 { c } else { "" })
}

fn any_partitioning() -> impl Strategy<Value = PartitionSchema> {
    let hashes: [&[(&[&str], i32)]; 4] =
        [&[], &[(&["a"], 3)], &[(&["a", "b"], 4), (&["c"], 2)], &[(&["c"], 5), (&["b"], 2)]];
    let ranges: [&[&str]; 6] = [&[], &["a"], &["a", "b"], &["a", "b", "c"], &["b"], &["c", "a"]];
    (prop::sample::select(hashes.to_vec()), prop::sample::select(ranges.to_vec()))
        .prop_map(|(hash, range)| partition_schema(hash, range))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn a_tablet_with_a_row_of_the_result_is_kept(
        partitioning in any_partitioning(),
        rows in prop::collection::vec(any_row(), 1..40),
        split_rows in prop::collection::vec(any_row(), 0..5),
        tests in prop::collection::vec(Test::any(), 0..3),
        lower in any_bound(),
        upper in any_bound(),
    ) {
        let mut splits: Vec<Vec<u8>> = split_rows
            .iter()
            .map(|row| range_key_of(&partitioning, row))
            .filter(|split| !split.is_empty())
            .collect();
        splits.sort();
        splits.dedup();
        let predicates: Vec<_> =
            tests.iter().map(|test| test.predicate().resolve(&schema()).expect("it fits")).collect();
        let lower_bound = lower.as_ref().map(|(row, num_values)| bound_of(row, *num_values));
        let upper_bound = upper.as_ref().map(|(row, num_values)| bound_of(row, *num_values));
        let mut pruner =
            PartitionPruner::new(&partitioning, &schema(), &predicates, lower_bound.as_ref(), upper_bound.as_ref());
        for row in &rows {
            let in_result = tests.iter().all(|test| test.holds(row))
                && lower.as_ref().is_none_or(|(bound, values)| row.key() >= least_key(bound, *values))
                && upper.as_ref().is_none_or(|(bound, values)| row.key() < least_key(bound, *values));
            if in_result {
                let partition = partition_of(&partitioning, row, &splits);
                prop_assert!(pruner.may_contain(&partition), "{row:?} is in {partition:?}");
            }
        }
    }
}

/// How many tablets pruning keeps, of those with these rows.
fn kept(
    partitioning: &PartitionSchema,
    predicates: &[Predicate],
    splits: &[Vec<u8>],
) -> (usize, usize) {
    let predicates: Vec<_> =
        predicates.iter().map(|predicate| predicate.resolve(&schema()).expect("it fits")).collect();
    let mut pruner = PartitionPruner::new(partitioning, &schema(), &predicates, None, None);
    let mut partitions: Vec<Partition> = (i8::MIN..=i8::MAX)
        .map(|number| TestRow { a: number, b: 0, c: "x".to_owned() })
        .map(|row| partition_of(partitioning, &row, splits))
        .collect();
    partitions.sort_by(|one, other| one.start.cmp(&other.start));
    partitions.dedup();
    let kept = partitions.iter().filter(|partition| pruner.may_contain(partition)).count();
    (kept, partitions.len())
}

#[test]
fn equality_leaves_one_bucket() {
    let partitioning = partition_schema(&[(&["a"], 8)], &[]);
    assert_eq!(kept(&partitioning, &[Predicate::equal("a", 5)], &[]), (1, 8));
    assert_eq!(kept(&partitioning, &[Predicate::in_list("a", [5, 5])], &[]), (1, 8));
    let (few, _) = kept(&partitioning, &[Predicate::in_list("a", [1, 2, 3])], &[]);
    assert!((1..=3).contains(&few), "{few} buckets for three values");
    assert_eq!(kept(&partitioning, &[Predicate::less("a", 5)], &[]), (8, 8));
    assert_eq!(kept(&partitioning, &[Predicate::equal("b", 5)], &[]), (8, 8));
}

#[test]
fn ranges_leave_what_they_touch() {
    let partitioning = partition_schema(&[], &["a"]);
    // Four ranges: up to -64, to 0, to 64, and the rest.
    let splits = [vec![0x40], vec![0x80], vec![0xc0]];
    assert_eq!(kept(&partitioning, &[Predicate::equal("a", 0)], &splits), (1, 4));
    assert_eq!(kept(&partitioning, &[Predicate::less("a", 0)], &splits), (2, 4));
    assert_eq!(kept(&partitioning, &[Predicate::less_or_equal("a", 0)], &splits), (3, 4));
    assert_eq!(kept(&partitioning, &[Predicate::greater("a", 63)], &splits), (1, 4));
    assert_eq!(kept(&partitioning, &[Predicate::greater("a", 127)], &splits), (0, 4));
    assert_eq!(kept(&partitioning, &[Predicate::in_list("a", [-70, -10])], &splits), (2, 4));
    assert_eq!(kept(&partitioning, &[Predicate::equal("b", 0)], &splits), (4, 4));
    let both = [Predicate::greater_or_equal("a", -64), Predicate::less("a", 64)];
    assert_eq!(kept(&partitioning, &both, &splits), (2, 4));
}

#[test]
fn a_condition_that_nothing_fulfils_leaves_no_tablet() {
    let partitioning = partition_schema(&[(&["a"], 4)], &[]);
    assert_eq!(kept(&partitioning, &[Predicate::range("b", 3, 3)], &[]), (0, 4));
    assert_eq!(kept(&partitioning, &[Predicate::in_list("b", [0_i8; 0])], &[]), (0, 4));
    assert_eq!(kept(&partitioning, &[Predicate::is_null("b")], &[]), (0, 4));
}
