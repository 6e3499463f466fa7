//! Partition keys against values that a real cluster confirmed, and against a plain implementation.

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::proto::common::{PartitionPb, RangeSchemaPb, SchemaPb};
use crate::row_operation::encode_bounds;
use crate::schema::{ColumnSchema, Value};

/// Cells by column, as this crate's own code holds them.
#[derive(Debug)]
struct Cells(Vec<Vec<u8>>);

impl KeyCells for Cells {
    fn cell(&self, column: usize) -> Option<&[u8]> {
        self.0.get(column).map(Vec::as_slice)
    }
}

const KEY_TYPES: [DataType; 5] =
    [DataType::Int64, DataType::Binary, DataType::Int32, DataType::String, DataType::Int8];

/// A schema whose key columns have the types above, with ids in another order than the columns.
fn schema() -> Schema {
    let pb = KEY_TYPES.iter().enumerate().map(|(index, data_type)| {
        let column = ColumnSchema::builder(format!("c{index}"), *data_type).key().build().unwrap();
        let mut pb = column.to_pb();
        pb.id = Some(if index == 0 { 90 } else { 10 + index as u32 });
        pb
    });
    Schema::from_pb(&SchemaPb { columns: pb.collect() }).unwrap()
}

fn named(columns: &[usize]) -> Vec<ColumnIdentifierPb> {
    columns
        .iter()
        .map(|column| ColumnIdentifierPb {
            identifier: Some(Identifier::Name(format!("c{column}"))),
        })
        .collect()
}

fn hashed(columns: &[usize], num_buckets: i32, seed: u32) -> HashBucketSchemaPb {
    HashBucketSchemaPb { columns: named(columns), num_buckets, seed: Some(seed) }
}

fn partition_schema(hash: Vec<HashBucketSchemaPb>, range: &[usize]) -> PartitionSchema {
    let pb = PartitionSchemaPb {
        hash_schema: hash,
        range_schema: Some(RangeSchemaPb { columns: named(range) }),
        custom_hash_schema_ranges: Vec::new(),
    };
    PartitionSchema::from_pb(&pb, &schema()).unwrap()
}

#[test]
fn hashes_are_those_of_the_server() {
    let signed = |value: i64| order_preserving(value.to_le_bytes());
    let of_integers = [
        (0, 0x4e97_afc8_a468_a91a, 0, 2),
        (1, 0x126a_335c_8519_12a9, 1, 1),
        (2, 0x1ae7_1e12_99d6_e7c8, 0, 0),
        (-1, 0x47d3_00ad_b63b_74b1, 1, 1),
    ];
    for (value, hash, of_2, of_8) in of_integers {
        let key = signed(value);
        assert_eq!(murmur2_64a(&key, 0), hash, "{value}");
        assert_eq!((bucket_of(&key, 0, 2), bucket_of(&key, 0, 8)), (of_2, of_8), "{value}");
    }
    assert_eq!(murmur2_64a(b"", 0), 0);
    assert_eq!(murmur2_64a(b"a", 0), 0x0717_17d2_d36b_6b11);
    assert_eq!(murmur2_64a(b"hello", 0), 0x1e68_d17c_457b_f117);
    assert_eq!(murmur2_64a(b"hello", 7), 0x10fa_aebb_8379_8c56);
    assert_eq!(murmur2_64a(&[b'k'; 250], 0), 0x0ecb_399f_7d37_4ad6);
}

#[test]
fn keys_are_encoded_as_the_server_does() {
    let schema = partition_schema(vec![], &[0, 1, 2]);
    let cells =
        Cells(vec![10_i64.to_le_bytes().to_vec(), vec![0, 0x41], (-1_i32).to_le_bytes().to_vec()]);
    let key = schema.partition_key_of(&cells);
    assert_eq!(
        key.as_bytes(),
        [0x80, 0, 0, 0, 0, 0, 0, 0x0a, 0, 1, 0x41, 0, 0, 0x7f, 0xff, 0xff, 0xff]
    );
    assert_eq!((key.hash(), key.range()), (&[][..], key.as_bytes()));
}

/// The columns of a hash dimension are sorted by id: here column 0 has the highest one.
#[test]
fn hash_columns_are_ordered_by_id() {
    let schema = partition_schema(vec![hashed(&[0, 3], 7, 0)], &[]);
    let columns: Vec<_> =
        schema.hash_dimensions()[0].columns.iter().map(|column| column.index).collect();
    assert_eq!(columns, [3, 0]);
    assert_eq!(schema.columns().collect::<Vec<_>>(), [3, 0]);
}

#[test]
fn nonsense_from_a_server_is_refused() {
    let with = |hash: HashBucketSchemaPb| {
        let pb = PartitionSchemaPb {
            hash_schema: vec![hash.clone(), hash],
            ..PartitionSchemaPb::default()
        };
        PartitionSchema::from_pb(&pb, &schema())
    };
    assert!(with(hashed(&[0], 1000, 0)).is_ok());
    for hash in [hashed(&[0], 0, 0), hashed(&[0], -5, 0), hashed(&[0], 2000, 0), hashed(&[9], 2, 0)]
    {
        assert!(matches!(with(hash), Err(SchemaError::BadPartitioning { .. })));
    }
}

#[test]
fn a_range_can_have_a_hash_schema_of_its_own() {
    let bounds = encode_bounds(
        &schema(),
        &[
            (BoundKind::InclusiveLower, &[(2, Value::Int32(10))]),
            (BoundKind::ExclusiveUpper, &[(2, Value::Int32(20))]),
        ],
    );
    let pb = PartitionSchemaPb {
        hash_schema: vec![hashed(&[0], 4, 0)],
        range_schema: Some(RangeSchemaPb { columns: named(&[2]) }),
        custom_hash_schema_ranges: vec![RangeWithHashSchemaPb {
            range_bounds: Some(bounds.unwrap()),
            hash_schema: vec![hashed(&[0], 3, 1), hashed(&[1], 5, 2)],
        }],
    };
    let schema = PartitionSchema::from_pb(&pb, &schema()).unwrap();
    let buckets = |value: i32| -> Vec<u32> {
        let key = order_preserving(value.to_le_bytes());
        schema
            .hash_dimensions_of_range(&key)
            .iter()
            .map(|dimension| dimension.num_buckets)
            .collect()
    };
    assert_eq!(
        (buckets(9), buckets(10), buckets(19), buckets(20)),
        (vec![4], vec![3, 5], vec![3, 5], vec![4])
    );
}

/// One tablet for every combination of buckets and range, with the server's bounds: zero buckets
/// cut off an open start, the last bucket counted up for an open end.
fn tablets(schema: &PartitionSchema, cuts: &[Vec<u8>]) -> Vec<Partition> {
    let mut edges = vec![Vec::new()];
    edges.extend_from_slice(cuts);
    edges.push(Vec::new());
    let mut partitions = Vec::new();
    for range in edges.windows(2) {
        let dimensions = schema.hash_dimensions_of_range(&range[0]);
        let combinations =
            dimensions.iter().fold(vec![vec![]], |combinations: Vec<Vec<u32>>, dimension| {
                let extend = |buckets: &Vec<u32>, bucket| [&buckets[..], &[bucket]].concat();
                (0..dimension.num_buckets)
                    .flat_map(|bucket| {
                        combinations
                            .iter()
                            .map(move |buckets| extend(buckets, bucket))
                            .collect::<Vec<_>>()
                    })
                    .collect()
            });
        for buckets in combinations {
            let encode = |buckets: &[u32]| {
                buckets.iter().flat_map(|bucket| bucket.to_be_bytes()).collect::<Vec<_>>()
            };
            let (mut start, mut end) = (encode(&buckets), encode(&buckets));
            if range[0].is_empty() {
                let kept =
                    buckets.iter().rposition(|bucket| *bucket != 0).map_or(0, |last| last + 1);
                start.truncate(kept * BUCKET_BYTES);
            }
            start.extend(&range[0]);
            if range[1].is_empty() {
                let mut next = buckets.clone();
                while let Some(last) = next.pop() {
                    if last + 1 != dimensions[next.len()].num_buckets {
                        next.push(last + 1);
                        break;
                    }
                }
                end = encode(&next);
            }
            end.extend(&range[1]);
            let pb = PartitionPb {
                hash_buckets: buckets.iter().map(|bucket| *bucket as i32).collect(),
                partition_key_start: Some(Bytes::from(start)),
                partition_key_end: Some(Bytes::from(end)),
            };
            partitions.push(Partition::from_pb(&pb));
        }
    }
    partitions
}

/// The slow search for a row's tablet: it compares the key with the bounds of every tablet, the
/// hash part first.
fn tablet_of_key(partitions: &[Partition], key: &PartitionKey) -> Vec<usize> {
    let holds = |partition: &Partition| {
        let split = |bound: &[u8]| {
            let hash = bound.len().min(key.hash().len());
            PartitionKey::new(&bound[..hash], &bound[hash..])
        };
        // A start with its zero buckets cut off still sorts before the key.
        split(&partition.start) <= *key
            && (partition.end.is_empty() || *key < split(&partition.end))
    };
    (0..partitions.len()).filter(|index| holds(&partitions[*index])).collect()
}

/// The encoding byte by byte, and the hash word by word.
fn encode_plainly(types: &[(DataType, &[u8])]) -> Vec<u8> {
    let mut key = Vec::new();
    for (place, (data_type, cell)) in types.iter().enumerate() {
        if !data_type.is_variable_length() {
            key.push(cell[cell.len() - 1] ^ 0x80);
            key.extend(cell.iter().rev().skip(1));
        } else if place + 1 == types.len() {
            key.extend_from_slice(cell);
        } else {
            for byte in *cell {
                key.push(*byte);
                if *byte == 0 {
                    key.push(1);
                }
            }
            key.extend([0, 0]);
        }
    }
    key
}

fn cells() -> impl Strategy<Value = Cells> {
    let short = || prop::collection::vec(prop_oneof![Just(0_u8), Just(1), any::<u8>()], 0..12);
    let text = "[a-c\0]{0,9}".prop_map(String::into_bytes);
    (any::<i64>(), short(), -40_i32..40, text, any::<i8>()).prop_map(|(a, b, c, d, e)| {
        Cells(vec![
            a.to_le_bytes().to_vec(),
            b,
            c.to_le_bytes().to_vec(),
            d,
            e.to_le_bytes().to_vec(),
        ])
    })
}

fn columns() -> impl Strategy<Value = Vec<usize>> {
    prop::sample::subsequence((0..KEY_TYPES.len()).collect::<Vec<_>>(), 1..4).prop_shuffle()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn encoding_agrees_with_a_plain_one(cells in cells(), range in columns()) {
        let schema = partition_schema(vec![], &range);
        let group: Vec<_> = range.iter().map(|column| (KEY_TYPES[*column], &cells.0[*column][..])).collect();
        let key = schema.partition_key_of(&cells);
        prop_assert_eq!(key.range(), &encode_plainly(&group)[..]);
    }

    #[test]
    fn encoded_keys_are_ordered_like_their_values(a in cells(), b in cells()) {
        let schema = partition_schema(vec![], &[2, 3, 1, 0, 4]);
        let values = |cells: &Cells| {
            let integer = |column: usize| Value::from_cell(KEY_TYPES[column], &cells.0[column]).unwrap();
            let (Value::Int32(c), Value::Int64(a), Value::Int8(e)) = (integer(2), integer(0), integer(4)) else {
                panic!("other types than the schema's");
            };
            (c, cells.0[3].clone(), cells.0[1].clone(), a, e)
        };
        let ordered = schema.partition_key_of(&a).cmp(&schema.partition_key_of(&b));
        prop_assert_eq!(ordered, values(&a).cmp(&values(&b)));
    }

    /// The map and the slow search find the same tablet, and exactly one, for tables with up to two
    /// hash dimensions, up to five ranges and its own hash schema in one of them.
    #[test]
    fn rows_find_their_tablet(
        rows in prop::collection::vec(cells(), 1..20),
        hash in prop::collection::vec((columns(), 1_i32..6, any::<u32>()), 0..3),
        mut cuts in prop::collection::btree_set(-40_i32..40, 0..5),
        custom in any::<bool>(),
    ) {
        // The range column is an integer, so a cut is easy to write down.
        let hash = hash.iter().map(|(columns, buckets, seed)| hashed(columns, *buckets, *seed)).collect();
        let mut schema = partition_schema(hash, &[2]);
        if custom {
            cuts.extend([-3, 7]);
            let own = partition_schema(vec![hashed(&[1, 4], 3, 5)], &[2]);
            let key = |value: i32| order_preserving(value.to_le_bytes()).into();
            // All cuts between the two would have to share it; the test makes none.
            cuts.retain(|cut| !(-2..7).contains(cut));
            schema.custom = [CustomRange { start: key(-3), end: key(7), hash: own.hash.clone() }].into();
        }
        let cuts: Vec<_> =
            cuts.iter().map(|cut| order_preserving(cut.to_le_bytes()).to_vec()).collect();
        let partitions = tablets(&schema, &cuts);
        let map = TabletMap::new(&schema, &partitions);
        let mut scratch = Vec::new();
        for row in &rows {
            let found = map.locate(row, &mut scratch);
            let key = schema.partition_key_of(row);
            // Buckets of ranges with different hash schemas are not comparable.
            let same_schema = |index: &usize| {
                let start = partitions[*index].range_start();
                schema.hash_dimensions_of_range(start) == schema.hash_dimensions_of_range(key.range())
            };
            let slow: Vec<_> = tablet_of_key(&partitions, &key)
                .into_iter()
                .filter(same_schema)
                .filter(|index| partitions[*index].range_start() <= key.range())
                .filter(|index| {
                    let end = partitions[*index].range_end();
                    end.is_empty() || key.range() < end
                })
                .collect();
            prop_assert_eq!(slow, found.into_iter().collect::<Vec<_>>());
        }
    }

    /// A row in a dropped range has no tablet, and its neighbours keep theirs.
    #[test]
    fn uncovered_rows_are_not_found(row in cells(), cut in -30_i32..30) {
        let schema = partition_schema(vec![hashed(&[0], 3, 0)], &[2]);
        let key = order_preserving(cut.to_le_bytes()).to_vec();
        let upper: Vec<_> =
            tablets(&schema, &[key]).into_iter().filter(|partition| !partition.range_start().is_empty()).collect();
        let map = TabletMap::new(&schema, &upper);
        let value = i32::from_le_bytes(row.0[2][..].try_into().unwrap());
        prop_assert_eq!(map.locate(&row, &mut Vec::new()).is_some(), value >= cut);
    }
}
