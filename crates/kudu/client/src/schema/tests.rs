//! Schemas: valid ones, refused ones with the reason, and the round trip to the wire and back.

use super::*;
use crate::proto::common::{ColumnSchemaPb, DataTypePb, SchemaPb};

const ALL_TYPES: [DataType; 15] = [
    DataType::Int8,
    DataType::Int16,
    DataType::Int32,
    DataType::Int64,
    DataType::String,
    DataType::Bool,
    DataType::Float,
    DataType::Double,
    DataType::Binary,
    DataType::UnixtimeMicros,
    DataType::Decimal32,
    DataType::Decimal64,
    DataType::Decimal128,
    DataType::Varchar,
    DataType::Date,
];

fn key() -> ColumnSchemaBuilder {
    ColumnSchema::builder("key", DataType::Int64).key()
}

#[test]
fn types_keep_their_numbers() {
    for data_type in ALL_TYPES {
        let number = i32::from(data_type.to_pb());
        assert_eq!(DataType::from_pb(number), Some(data_type));
    }
    for number in
        [DataTypePb::Uint8 as i32, DataTypePb::Int128 as i32, DataTypePb::IsDeleted as i32, 21, -1]
    {
        assert_eq!(DataType::from_pb(number), None);
    }
}

#[test]
fn schema_survives_the_wire_without_ids() {
    let schema = Schema::builder()
        .column(
            key().encoding(Encoding::BitShuffle).compression(Compression::Lz4).block_bytes(4096),
        )
        .non_unique_key()
        .column(
            ColumnSchemaBuilder::decimal("price", 20, 2)
                .nullable(false)
                .default_value(Value::Decimal(-150)),
        )
        .column(
            ColumnSchemaBuilder::varchar("name", 3)
                .default_value(Value::String("äöüß"))
                .comment("who"),
        )
        .column(
            ColumnSchema::builder("born", DataType::Date)
                .immutable(true)
                .encoding(Encoding::RunLength),
        )
        .build()
        .unwrap();
    assert_eq!(schema.num_key_columns(), 2);
    assert_eq!(schema.column_index("price"), Some(2));
    assert_eq!(schema.column("price").unwrap().default_value(), Some(Value::Decimal(-150)));
    assert_eq!(schema.column("name").unwrap().default_value(), Some(Value::String("äöü")));
    assert_eq!(Schema::from_pb(&schema.to_pb()).unwrap(), schema);

    let mut pb = schema.to_pb();
    for (id, column) in (10..).zip(&mut pb.columns) {
        column.id = Some(id);
    }
    let with_ids = Schema::from_pb(&pb).unwrap();
    assert_eq!(with_ids.column_index_of_id(12), Some(2));
    assert!(with_ids.to_pb().columns.iter().all(|column| column.id.is_none()));
}

#[test]
fn bad_schemas_say_what_is_wrong() {
    let build = |columns: Vec<ColumnSchemaBuilder>| {
        columns
            .into_iter()
            .fold(Schema::builder(), SchemaBuilder::column)
            .build()
            .unwrap_err()
            .to_string()
    };
    let plain = |name: &str, data_type| ColumnSchema::builder(name, data_type);
    assert_eq!(build(vec![]), "a schema needs at least one key column");
    assert_eq!(build(vec![plain("a", DataType::Int8)]), "a schema needs at least one key column");
    assert_eq!(build(vec![key(), plain("", DataType::Int8)]), "a column needs a name");
    assert_eq!(build(vec![key(), plain("key", DataType::Int8)]), "there are two columns \"key\"");
    assert_eq!(
        build(vec![key(), plain("a", DataType::Int8), plain("b", DataType::Int8).key()]),
        "key column \"b\" stands behind a column that is not part of the key"
    );
    assert_eq!(
        build(vec![plain("a", DataType::Float).key()]),
        "column \"a\" cannot be part of the key: keys cannot have its type"
    );
    assert_eq!(
        build(vec![key().nullable(true)]),
        "column \"key\" cannot be part of the key: it can be NULL"
    );
    assert_eq!(
        build(vec![key(), ColumnSchemaBuilder::decimal("d", 39, 0)]),
        "column \"d\": Decimal128 has no room for 39 digits"
    );
    assert_eq!(
        build(vec![key(), ColumnSchemaBuilder::decimal("d", 4, 5)]),
        "column \"d\": 5 of 4 digits cannot be behind the point"
    );
    assert_eq!(
        build(vec![key(), plain("d", DataType::Decimal32)]),
        "column \"d\": a decimal needs a precision"
    );
    assert_eq!(
        build(vec![key(), plain("v", DataType::Varchar)]),
        "column \"v\": a varchar needs a length from 1 to 65535"
    );
    assert_eq!(
        build(vec![key(), plain("a", DataType::Int8).default_value(Value::Int16(3))]),
        "default: column \"a\" is INT8, the value is INT16"
    );
    assert_eq!(
        build(vec![plain("auto", DataType::Int64).auto_incrementing(), key()]),
        "auto-incrementing column \"auto\" must be INT64, the last of the key and without a default"
    );
}

#[test]
fn values_and_cells_convert_into_each_other() {
    let column = |data_type: DataType| {
        let attributes =
            ColumnTypeAttributes { precision: Some(9), scale: Some(2), length: Some(10) };
        ColumnSchema::builder("c", data_type).type_attributes(attributes).build().unwrap()
    };
    let values = [
        Value::Int8(-3),
        Value::Int16(-300),
        Value::Int32(i32::MIN),
        Value::Int64(i64::MAX),
        Value::String("text"),
        Value::Bool(true),
        Value::Float(-0.5),
        Value::Double(1e300),
        Value::Binary(&[0, 255]),
        Value::UnixtimeMicros(-1),
        Value::Decimal(-999_999_999),
        Value::Decimal(999_999_999),
        Value::Decimal(-1),
        Value::String("ten chars!"),
        Value::Date(-719_162),
    ];
    for (value, data_type) in values.into_iter().zip(ALL_TYPES) {
        let cell = value.to_cell(&column(data_type)).unwrap();
        assert_eq!(Value::from_cell(data_type, &cell), Some(value), "{data_type:?}");
        if !data_type.is_variable_length() {
            assert_eq!(cell.len(), data_type.size());
            assert_eq!(Value::from_cell(data_type, &[0; 3]), None);
        }
    }
    assert_eq!(Value::from_cell(DataType::String, &[0xff]), Some(Value::Binary(&[0xff])));
    let refused = [
        (Value::Decimal(1_000_000_000), DataType::Decimal32),
        (Value::Decimal(-1_000_000_000), DataType::Decimal128),
        (Value::Date(2_932_897), DataType::Date),
        (Value::Null, DataType::Int8),
        (Value::Int64(1), DataType::UnixtimeMicros),
        (Value::String("s"), DataType::Binary),
    ];
    for (value, data_type) in refused {
        assert!(value.to_cell(&column(data_type)).is_err(), "{value:?} as {data_type:?}");
    }
}

#[test]
fn attributes_off_the_wire_are_checked() {
    let pb = |precision| {
        let column = ColumnSchemaPb {
            name: "d".to_owned(),
            r#type: DataTypePb::Decimal32.into(),
            is_key: Some(true),
            type_attributes: Some(crate::proto::common::ColumnTypeAttributesPb {
                precision: Some(precision),
                scale: Some(0),
                length: None,
            }),
            ..ColumnSchemaPb::default()
        };
        Schema::from_pb(&SchemaPb { columns: vec![column] })
    };
    assert!(pb(9).is_ok());
    for precision in [-1, 0, 10, 300] {
        assert!(matches!(pb(precision), Err(SchemaError::BadAttributes { .. })), "{precision}");
    }
}
