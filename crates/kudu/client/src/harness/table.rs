//! A master's answers about a table: its schema, its partitioning and its tablets.

use prost::Message;

use super::input::Input;
use crate::key_encoding::KeyCells;
use crate::meta_cache;
use crate::partition::{Partition, PartitionSchema, TabletMap};
use crate::proto::common::{
    ColumnIdentifierPb, HashBucketSchemaPb, PartitionSchemaPb, RangeSchemaPb,
};
use crate::proto::common::{
    RangeWithHashSchemaPb, RowOperationsPb, column_identifier_pb::Identifier,
};
use crate::proto::master::{GetTableLocationsResponsePb, GetTableSchemaResponsePb};
use crate::schema::{DataType, Schema};

/// Checks that an answer is refused or leads to an existing tablet. The input is a choice, the
/// messages, and a row.
///
/// # Panics
/// When an invariant is violated.
pub fn check(input: &[u8]) {
    let mut input = Input::new(input);
    let (schema, partition_schema) = if input.bool() {
        let Ok(message) = GetTableSchemaResponsePb::decode(input.piece()) else { return };
        (message.schema, message.partition_schema)
    } else {
        let schema = input.schema_pb();
        (Some(schema), Some(plausible(&mut input)))
    };
    let Ok(schema) = Schema::from_pb(&schema.unwrap_or_default()) else { return };
    let partition_schema = partition_schema.unwrap_or_default();
    let Ok(partition_schema) = PartitionSchema::from_pb(&partition_schema, &schema) else { return };
    let row = Row { schema: &schema, bytes: input.piece().to_vec() };
    // A key starts with the buckets; the row's own bytes stand in for them.
    let mut key = row.bytes.clone();
    partition_schema.encode_range_key(&row, &mut key);
    let Ok(locations) = GetTableLocationsResponsePb::decode(input.rest()) else { return };
    let partitions: Vec<Partition> = locations
        .tablet_locations
        .iter()
        .filter_map(|tablet| tablet.partition.as_ref().map(Partition::from_pb))
        .collect();
    let map = TabletMap::new(&partition_schema, &partitions);
    if let Some(tablet) = map.locate(&row, &mut Vec::new()) {
        assert!(tablet < partitions.len(), "a row is sent to a tablet that exists");
    }
    meta_cache::harness::check(locations, &key);
}

/// Partitioning of valid form over columns that may exist.
fn plausible(input: &mut Input<'_>) -> PartitionSchemaPb {
    let range_columns = columns(input);
    PartitionSchemaPb {
        hash_schema: hash_schema(input),
        range_schema: (!input.bool()).then_some(RangeSchemaPb { columns: range_columns }),
        custom_hash_schema_ranges: (0..input.u8() % 3)
            .map(|_| RangeWithHashSchemaPb {
                range_bounds: Some(RowOperationsPb {
                    rows: Some(input.piece()),
                    indirect_data: Some(input.piece()),
                }),
                hash_schema: hash_schema(input),
            })
            .collect(),
    }
}

fn hash_schema(input: &mut Input<'_>) -> Vec<HashBucketSchemaPb> {
    (0..input.u8() % 3)
        .map(|_| HashBucketSchemaPb {
            columns: columns(input),
            num_buckets: i32::from(input.u16() as i16),
            seed: Some(input.u16().into()),
        })
        .collect()
}

fn columns(input: &mut Input<'_>) -> Vec<ColumnIdentifierPb> {
    (0..input.u8() % 4)
        .map(|_| ColumnIdentifierPb { identifier: Some(Identifier::Id((input.u8() % 13).into())) })
        .collect()
}

/// A row whose cells are all slices of the same bytes.
struct Row<'a> {
    schema: &'a Schema,
    bytes: Vec<u8>,
}

impl KeyCells for Row<'_> {
    fn cell(&self, index: usize) -> Option<&[u8]> {
        let data_type: DataType = self.schema.columns()[index].data_type();
        if data_type.is_variable_length() {
            return Some(&self.bytes);
        }
        self.bytes.get(..data_type.size())
    }
}
