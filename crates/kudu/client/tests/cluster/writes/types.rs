//! Cells of every type: the least and the greatest value, something in between, NULL, and the
//! default.

use oribi_kudu::{
    ColumnSchema, ColumnSchemaBuilder, DataType, FlushMode, HashPartition, Schema, Session,
    TableCreator, Value,
};

use crate::writes::{connect, options, scan};

fn every_type() -> Schema {
    let column = ColumnSchema::builder;
    Schema::builder()
        .column(column("k8", DataType::Int8).key())
        .column(column("k_text", DataType::String).key())
        .column(column("k_day", DataType::Date).key())
        .column(ColumnSchemaBuilder::decimal("k_dec", 30, 4).key())
        .column(column("i8", DataType::Int8))
        .column(column("i16", DataType::Int16))
        .column(column("i32", DataType::Int32))
        .column(column("i64", DataType::Int64))
        .column(column("b", DataType::Bool))
        .column(column("f", DataType::Float))
        .column(column("d", DataType::Double))
        .column(column("text", DataType::String))
        .column(column("raw", DataType::Binary))
        .column(column("at", DataType::UnixtimeMicros))
        .column(ColumnSchemaBuilder::decimal("d9", 9, 2))
        .column(ColumnSchemaBuilder::decimal("d18", 18, 2))
        .column(ColumnSchemaBuilder::decimal("d38", 38, 2))
        .column(ColumnSchemaBuilder::varchar("short", 5))
        .column(column("day", DataType::Date))
        .column(column("given", DataType::Int32).nullable(false).default_value(Value::Int32(77)))
        .build()
        .unwrap()
}

// Compat (Apache Kudu): column types
#[tokio::test]
async fn every_type_is_what_the_tool_reads() {
    let Some((cluster, client)) = connect().await else { return };
    let creator = TableCreator::new("types", every_type())
        .hash_partition(HashPartition::new(["k_text", "k_dec"], 3))
        .num_replicas(1);
    let table = client.create_table(creator).await.unwrap();
    let mut session = Session::new(&table, options(FlushMode::Background));

    let mut row = session.insert();
    row.set_i8("k8", i8::MIN)
        .unwrap()
        .set_string("k_text", "")
        .unwrap()
        .set_date("k_day", -719_162)
        .unwrap();
    row.set_decimal("k_dec", -(10_i128.pow(30) - 1)).unwrap();
    row.set_i8("i8", i8::MIN)
        .unwrap()
        .set_i16("i16", i16::MIN)
        .unwrap()
        .set_i32("i32", i32::MIN)
        .unwrap();
    row.set_i64("i64", i64::MIN).unwrap().set_bool("b", false).unwrap().set_f32("f", -1.5).unwrap();
    row.set_f64("d", -1e-300)
        .unwrap()
        .set_string("text", "")
        .unwrap()
        .set_binary("raw", b"")
        .unwrap();
    row.set_unixtime_micros("at", 0).unwrap().set_decimal("d9", -999_999_999).unwrap();
    row.set_decimal("d18", -(10_i128.pow(18) - 1))
        .unwrap()
        .set_decimal("d38", -(10_i128.pow(38) - 1))
        .unwrap();
    row.set_string("short", "")
        .unwrap()
        .set_date("day", -719_162)
        .unwrap()
        .set_i32("given", 1)
        .unwrap();
    row.apply().await.unwrap();

    let mut row = session.insert();
    row.set_i8("k8", i8::MAX).unwrap().set_string("k_text", "g\u{e4}n\u{17e}").unwrap();
    row.set_date("k_day", 2_932_896).unwrap().set_decimal("k_dec", 12_345).unwrap();
    row.set_i8("i8", i8::MAX)
        .unwrap()
        .set_i16("i16", i16::MAX)
        .unwrap()
        .set_i32("i32", i32::MAX)
        .unwrap();
    row.set_i64("i64", i64::MAX).unwrap().set_bool("b", true).unwrap().set_f32("f", 0.25).unwrap();
    row.set_f64("d", 1.5).unwrap().set_string("text", "some text").unwrap();
    row.set_binary("raw", &[0, 1, 0xff])
        .unwrap()
        .set_unixtime_micros("at", 1_700_000_000_123_456)
        .unwrap();
    row.set_decimal("d9", 123).unwrap().set_decimal("d18", 5).unwrap();
    row.set_decimal("d38", 10_i128.pow(38) - 1).unwrap().set_string("short", "too long").unwrap();
    row.set_date("day", 20_000).unwrap();
    row.apply().await.unwrap();

    // The same by values whose types are known only at run time, and NULL for everything that can
    // be.
    let mut row = session.upsert();
    let key = [Value::Int8(0), Value::String("nulls"), Value::Date(0), Value::Decimal(0)];
    for (column, value) in key.into_iter().enumerate() {
        row.set(column, value).unwrap();
    }
    for column in table.schema().columns() {
        if column.is_nullable() {
            row.set_null(column.name()).unwrap();
        }
    }
    row.apply().await.unwrap();
    session.flush().await.unwrap();

    // The tool prints the digits of a decimal with the width of its type.
    let expected = [
        concat!(
            "(int8 k8=-128, string k_text=\"\", date k_day=1-01-01, ",
            "decimal k_dec=-999999999999999999999999999999_D128, int8 i8=-128, int16 i16=-32768, ",
            "int32 i32=-2147483648, int64 i64=-9223372036854775808, bool b=false, float f=-1.5, ",
            "double d=-1e-300, string text=\"\", binary raw=\"\", unixtime_micros at=1970-01-01T00:00:00.000000Z, ",
            "decimal d9=-999999999_D32, decimal d18=-999999999999999999_D64, ",
            "decimal d38=-99999999999999999999999999999999999999_D128, varchar short=\"\", date day=1-01-01, ",
            "int32 given=1)"
        ),
        concat!(
            "(int8 k8=0, string k_text=\"nulls\", date k_day=1970-01-01, decimal k_dec=0_D128, int8 i8=NULL, ",
            "int16 i16=NULL, int32 i32=NULL, int64 i64=NULL, bool b=NULL, float f=NULL, double d=NULL, ",
            "string text=NULL, binary raw=NULL, unixtime_micros at=NULL, decimal d9=NULL, decimal d18=NULL, ",
            "decimal d38=NULL, varchar short=NULL, date day=NULL, int32 given=77)"
        ),
        concat!(
            "(int8 k8=127, string k_text=\"gänž\", date k_day=9999-12-31, ",
            "decimal k_dec=12345_D128, int8 i8=127, int16 i16=32767, int32 i32=2147483647, ",
            "int64 i64=9223372036854775807, bool b=true, float f=0.25, double d=1.5, string text=\"some text\", ",
            "binary raw=\"\\x00\\x01\\xff\", unixtime_micros at=2023-11-14T22:13:20.123456Z, decimal d9=123_D32, ",
            "decimal d18=5_D64, decimal d38=99999999999999999999999999999999999999_D128, varchar short=\"too l\", ",
            "date day=2024-10-04, int32 given=77)"
        ),
    ];
    assert_eq!(scan(cluster, "types"), expected);
}
