//! The encoder against bytes that a real server accepted, against a plain encoder, and against its
//! own output read back.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::key_encoding::KeyCells;
use crate::schema::{ColumnSchema, ColumnSchemaBuilder, DataType, Schema, SchemaBuilder, Value};

fn schema(columns: Vec<ColumnSchemaBuilder>) -> Schema {
    columns.into_iter().fold(Schema::builder(), SchemaBuilder::column).build().unwrap()
}

fn column(name: &str, data_type: DataType) -> ColumnSchemaBuilder {
    ColumnSchema::builder(name, data_type)
}

fn encoder(schema: &Schema) -> RowEncoder {
    RowEncoder::new(Arc::new(RowLayout::new(schema.clone())), [0], 65_536)
}

fn binary_schema() -> Schema {
    schema(vec![
        column("k", DataType::Binary).key(),
        column("v", DataType::Binary),
        column("n", DataType::Int64),
    ])
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

#[test]
fn rows_are_the_bytes_that_a_server_takes() {
    let schema = binary_schema();
    let mut encoder = encoder(&schema);
    let (mut rows, mut indirect) = (Vec::new(), Vec::new());
    assert!(!encoder.is_locatable());
    encoder.put_binary(0, b"hello", None).unwrap();
    assert!(encoder.is_locatable());
    assert_eq!(encoder.cell(0), Some(&b"hello"[..]));
    assert_eq!(encoder.cell(1), None);
    encoder.unstage(&mut indirect);
    encoder.put_binary(1, b"world", Some(&mut indirect)).unwrap();
    encoder.put_fixed(2, DataType::Int64, 5_i64.to_le_bytes()).unwrap();
    encoder.check(RowOperation::Upsert).unwrap();
    encoder.finish(RowOperation::Upsert.wire(), &mut rows);
    let upsert = hex(
        "05 07 00 | 0000000000000000 0500000000000000 | 0500000000000000 0500000000000000 | 0500000000000000",
    );
    assert_eq!((&rows, &indirect[..]), (&upsert, &b"helloworld"[..]));

    encoder.clear();
    let (mut rows, mut indirect) = (Vec::new(), Vec::new());
    encoder.put_binary(0, b"hello", Some(&mut indirect)).unwrap();
    encoder.check(RowOperation::Delete).unwrap();
    encoder.finish(RowOperation::Delete.wire(), &mut rows);
    assert_eq!(rows, hex("03 01 00 | 0000000000000000 0500000000000000"));
}

#[test]
fn a_string_set_before_the_key_moves_with_it() {
    let schema = binary_schema();
    let mut encoder = encoder(&schema);
    let (mut rows, mut indirect) = (Vec::new(), b"before".to_vec());
    encoder.put_binary(1, b"value", None).unwrap();
    encoder.put_binary(0, b"key", None).unwrap();
    encoder.unstage(&mut indirect);
    encoder.finish(RowOperation::Insert.wire(), &mut rows);
    assert_eq!(indirect, b"beforevaluekey");
    let layout = RowLayout::new(schema);
    let row = EncodedRows::new(&layout, &rows, &indirect).next().unwrap().unwrap();
    assert_eq!(row.cell(0), Some(Some(&b"key"[..])));
    assert_eq!(row.cell(1), Some(Some(&b"value"[..])));
    assert_eq!(row.cell(2), None);
}

#[test]
fn rows_without_a_nullable_column_have_one_bitmap() {
    let schema = schema(vec![
        column("k", DataType::Int8).key(),
        column("v", DataType::Bool).nullable(false),
    ]);
    let mut encoder = encoder(&schema);
    let mut rows = Vec::new();
    encoder.put_fixed(0, DataType::Int8, [0xfe]).unwrap();
    encoder.put_fixed(1, DataType::Bool, [1]).unwrap();
    encoder.finish(RowOperation::InsertIgnore.wire(), &mut rows);
    assert_eq!(rows, [10, 3, 0xfe, 1]);
}

/// Every missing and every excess column, by operation.
#[test]
fn operations_say_what_they_need() {
    let schema = schema(vec![
        column("a", DataType::Int8).key(),
        column("b", DataType::Int8).key(),
        column("required", DataType::Int8).nullable(false),
        column("defaulted", DataType::Int8).nullable(false).default_value(Value::Int8(7)),
        column("free", DataType::Int8),
    ]);
    let complaint = |columns: &[usize], operation| {
        let mut encoder = encoder(&schema);
        for column in columns {
            encoder.put_fixed(*column, DataType::Int8, [0]).unwrap();
        }
        encoder.check(operation).err().map(|error| error.to_string())
    };
    use RowOperation::*;
    for operation in RowOperation::ALL {
        assert_eq!(
            complaint(&[0, 2], operation).unwrap(),
            format!("{operation} needs column \"b\""),
            "without a part of the key"
        );
    }
    for operation in [Insert, InsertIgnore, Upsert, UpsertIgnore] {
        assert_eq!(
            complaint(&[0, 1, 4], operation).unwrap(),
            format!("{operation} needs column \"required\"")
        );
        assert_eq!(complaint(&[0, 1, 2], operation), None);
    }
    for operation in [Update, UpdateIgnore] {
        assert_eq!(
            complaint(&[0, 1], operation).unwrap(),
            format!("{operation} needs a cell besides the key")
        );
        assert_eq!(complaint(&[0, 1, 4], operation), None);
    }
    for operation in [Delete, DeleteIgnore] {
        assert_eq!(
            complaint(&[0, 1, 4], operation).unwrap(),
            format!("{operation} names only the key, and column \"free\" is not part of it")
        );
        assert_eq!(complaint(&[0, 1], operation), None);
    }
}

#[test]
fn the_server_numbers_an_auto_incrementing_column() {
    let schema = Schema::builder()
        .column(column("k", DataType::Int8).key())
        .non_unique_key()
        .column(column("v", DataType::Int8))
        .build()
        .unwrap();
    let check = |with_number: bool, operation| {
        let mut encoder = encoder(&schema);
        encoder.put_fixed(0, DataType::Int8, [1]).unwrap();
        encoder.put_fixed(2, DataType::Int8, [1]).unwrap();
        if with_number {
            encoder.put_fixed(1, DataType::Int64, [1; 8]).unwrap();
        }
        encoder.check(operation).err().map(|error| error.to_string())
    };
    assert_eq!(check(false, RowOperation::Insert), None);
    assert_eq!(
        check(true, RowOperation::Insert).unwrap(),
        "INSERT cannot set column \"auto_incrementing_id\", which the server numbers"
    );
    assert_eq!(check(true, RowOperation::Upsert), None);
    assert_eq!(
        check(false, RowOperation::Upsert).unwrap(),
        "UPSERT needs column \"auto_incrementing_id\""
    );
}

#[test]
fn cells_that_do_not_fit_are_refused() {
    let schema = schema(vec![
        column("k", DataType::Int64).key(),
        column("s", DataType::String),
        ColumnSchemaBuilder::decimal("d", 4, 2),
        column("day", DataType::Date),
    ]);
    let mut encoder = encoder(&schema);
    let say = |result: Result<(), RowError>| result.unwrap_err().to_string();
    assert_eq!(
        say(encoder.put_fixed(0, DataType::Int32, [0; 4])),
        "column \"k\" is INT64, the value is INT32"
    );
    assert_eq!(say(encoder.put_text(0, "x", None)), "column \"k\" is INT64, the value is STRING");
    assert_eq!(say(encoder.put_null(0)), "column \"k\" cannot be NULL");
    assert_eq!(say(encoder.put_null(9)), "there is no column 9, the table has 4");
    let large = "x".repeat(65_537);
    assert_eq!(
        say(encoder.put_text(1, &large, None)),
        "column \"s\": a cell has at most 65536 bytes, this one has 65537"
    );
    encoder.put_text(1, &large[1..], None).unwrap();
    assert_eq!(say(encoder.put_text(1, "again", None)), "column \"s\" is set twice");
    assert_eq!(
        say(encoder.put_decimal(2, -10_000)),
        "column \"d\" cannot hold -10000: it has 4 digits"
    );
    encoder.put_decimal(2, -9_999).unwrap();
    assert!(
        say(encoder.put_date(3, i32::MAX))
            .starts_with("column \"day\" cannot hold 2147483647: dates")
    );
    assert_eq!(
        say(encoder.put_binary(3, b"", None)),
        "column \"day\" is DATE, the value is BINARY"
    );
    // The refusal left nothing behind: the row is still valid.
    encoder.put_fixed(0, DataType::Int64, [0; 8]).unwrap();
    encoder.put_null(3).unwrap();
    assert_eq!(encoder.check(RowOperation::Insert), Ok(()));
}

#[test]
fn bounds_survive_the_wire() {
    let schema =
        schema(vec![column("a", DataType::Int32).key(), column("b", DataType::String).key()]);
    let pb = encode_bounds(
        &schema,
        &[
            (BoundKind::InclusiveLower, &[(0, Value::Int32(-1)), (1, Value::String("m"))]),
            (BoundKind::ExclusiveUpper, &[(0, Value::Int32(3))]),
            (BoundKind::InclusiveUpper, &[]),
        ],
    )
    .unwrap();
    let bounds = decode_bounds(&schema, &pb).unwrap();
    assert_eq!(
        bounds.iter().map(|bound| bound.kind).collect::<Vec<_>>(),
        [BoundKind::InclusiveLower, BoundKind::ExclusiveUpper, BoundKind::InclusiveUpper]
    );
    assert_eq!(bounds[0].cell(0), Some(&(-1_i32).to_le_bytes()[..]));
    assert_eq!(bounds[0].cell(1), Some(&b"m"[..]));
    assert_eq!((bounds[1].cell(0), bounds[1].cell(1)), (Some(&3_i32.to_le_bytes()[..]), None));
    assert_eq!((bounds[2].cell(0), bounds[2].cell(1)), (None, None));
    assert!(encode_bounds(&schema, &[(BoundKind::Split, &[(0, Value::Int64(1))])]).is_err());
}

const TYPES: [DataType; 8] = [
    DataType::Int8,
    DataType::Int16,
    DataType::Int32,
    DataType::Int64,
    DataType::Bool,
    DataType::Double,
    DataType::String,
    DataType::Binary,
];

/// A cell of a row: absent, NULL, or bytes of the type's width.
#[derive(Clone, Debug)]
enum Cell {
    Absent,
    Null,
    Bytes(Vec<u8>),
}

fn a_cell(data_type: DataType, nullable: bool) -> BoxedStrategy<Cell> {
    let bytes = if data_type.is_variable_length() {
        prop::collection::vec(b'a'..=b'z', 0..20).boxed()
    } else {
        prop::collection::vec(any::<u8>(), data_type.size()).boxed()
    };
    let bytes = bytes.prop_map(Cell::Bytes);
    if nullable {
        prop_oneof![2 => Just(Cell::Absent), 2 => Just(Cell::Null), 6 => bytes].boxed()
    } else {
        prop_oneof![1 => Just(Cell::Absent), 5 => bytes].boxed()
    }
}

/// Columns (type and whether nullable) after an 8-bit key, and rows of them.
fn a_table() -> impl Strategy<Value = (Vec<(DataType, bool)>, Vec<Vec<Cell>>)> {
    let columns = prop::collection::vec((prop::sample::select(&TYPES[..]), any::<bool>()), 0..70);
    columns.prop_flat_map(|columns| {
        let row: Vec<_> =
            columns.iter().map(|(data_type, nullable)| a_cell(*data_type, *nullable)).collect();
        (Just(columns), prop::collection::vec(row, 1..6))
    })
}

/// The layout of the module's header, written without regard to speed.
fn encode_plainly(
    columns: &[(DataType, bool)],
    row: &[Cell],
    rows: &mut Vec<u8>,
    indirect: &mut Vec<u8>,
) {
    let bitmap_bytes = (columns.len() + 1).div_ceil(8);
    let mut set = vec![0_u8; bitmap_bytes];
    let mut null = vec![0_u8; bitmap_bytes];
    set[0] = 1;
    let mut cells = vec![42_u8];
    for (index, (cell, (data_type, _))) in (1..).zip(row.iter().zip(columns)) {
        let bit = 1 << (index % 8);
        match cell {
            Cell::Absent => continue,
            Cell::Null => null[index / 8] |= bit,
            Cell::Bytes(bytes) if data_type.is_variable_length() => {
                cells.extend((indirect.len() as u64).to_le_bytes());
                cells.extend((bytes.len() as u64).to_le_bytes());
                indirect.extend(bytes);
            }
            Cell::Bytes(bytes) => cells.extend(bytes),
        }
        set[index / 8] |= bit;
    }
    rows.push(RowOperation::Upsert.wire());
    rows.extend(set);
    if columns.iter().any(|(_, nullable)| *nullable) {
        rows.extend(null);
    }
    rows.extend(cells);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn encoder_agrees_with_a_plain_one_and_can_be_read((columns, table) in a_table()) {
        let mut described = vec![column("key", DataType::Int8).key()];
        for (index, (data_type, nullable)) in columns.iter().enumerate() {
            described.push(column(&format!("c{index}"), *data_type).nullable(*nullable));
        }
        let schema = schema(described);
        let mut encoder = encoder(&schema);
        let (mut rows, mut indirect) = (Vec::new(), Vec::new());
        let (mut plain_rows, mut plain_indirect) = (Vec::new(), Vec::new());
        for row in &table {
            encoder.clear();
            encoder.put_fixed(0, DataType::Int8, [42]).unwrap();
            for (index, cell) in (1..).zip(row) {
                match cell {
                    Cell::Absent => {}
                    Cell::Null => encoder.put_cell(index, None, Some(&mut indirect)).unwrap(),
                    Cell::Bytes(bytes) => encoder.put_cell(index, Some(bytes), Some(&mut indirect)).unwrap(),
                }
            }
            encoder.finish(RowOperation::Upsert.wire(), &mut rows);
            encode_plainly(&columns, row, &mut plain_rows, &mut plain_indirect);
        }
        prop_assert_eq!(&rows, &plain_rows);
        prop_assert_eq!(&indirect, &plain_indirect);

        let layout = RowLayout::new(schema);
        let read: Vec<_> = EncodedRows::new(&layout, &rows, &indirect).map(Result::unwrap).collect();
        prop_assert_eq!(read.len(), table.len());
        for (row, expected) in read.iter().zip(&table) {
            for (index, cell) in (1..).zip(expected) {
                let expected = match cell {
                    Cell::Absent => None,
                    Cell::Null => Some(None),
                    Cell::Bytes(bytes) => Some(Some(&bytes[..])),
                };
                prop_assert_eq!(row.cell(index), expected);
            }
        }
    }

    /// Bounds come from the network: the decoder accepts or refuses any bytes.
    #[test]
    fn any_bytes_can_be_read(rows in prop::collection::vec(any::<u8>(), 0..200), indirect in prop::collection::vec(any::<u8>(), 0..20)) {
        let layout = RowLayout::new(binary_schema());
        let mut bytes = 0;
        for row in EncodedRows::new(&layout, &rows, &indirect).map_while(Result::ok) {
            bytes += row.bytes.len();
            prop_assert!(row.cells().count() <= 3);
        }
        prop_assert!(bytes <= rows.len());
    }
}
